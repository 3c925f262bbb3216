/* SPDX-License-Identifier: MIT */
/*
 * Goal: evictions, prefetches, status calls and several inference threads at once never let a step
 * see a wrong byte and never stop each other for good.
 * Method: two threads read, check and rewrite their own layers in steps while two others evict and
 * prefetch; the thread sanitizer build of this test is the proof that nothing races.
 */
#include "pool/fixture.h"

#include <cmocka.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#define STEPS 150
#define READERS 2

typedef struct reader {
    toy_model *toy;
    uint32_t layer;
    bool wrong;
} reader;

static atomic_bool stop_all;

static void *read_and_write(void *argument)
{
    reader *self = argument;
    toy_model *toy = self->toy;
    uint8_t *chunk = toy_chunk(toy, self->layer, 0, 0);
    const uint8_t *weights = toy->weights + (uint64_t)self->layer * TOY_WEIGHT_STRIDE;
    const uint8_t *shadow = toy->weights_shadow + (uint64_t)self->layer * TOY_WEIGHT_STRIDE;
    uint8_t value = 0;
    for (int step = 0; step < STEPS && !self->wrong; step++) {
        mz_error error = MZ_ERROR_INIT;
        mz_range ranges[2] = {{weights, TOY_WEIGHT_BYTES}, {chunk, TOY_CHUNK_BYTES}};
        mz_pool_step_begin(toy->pool);
        mz_pool_request(toy->pool, ranges, 2);
        self->wrong = mz_pool_need(toy->pool, weights, TOY_WEIGHT_BYTES, &error) != MZ_OK ||
                      memcmp(weights, shadow, TOY_WEIGHT_BYTES) != 0 ||
                      mz_pool_need(toy->pool, chunk, TOY_CHUNK_BYTES, &error) != MZ_OK;
        for (uint32_t i = 0; i < TOY_CHUNK_BYTES && step > 0 && !self->wrong; i += 511) {
            self->wrong = chunk[i] != value;
        }
        value = (uint8_t)(step % 100);
        mz_pool_wrote(toy->pool, chunk, TOY_CHUNK_BYTES);
        memset(chunk, value, TOY_CHUNK_BYTES);
        mz_pool_step_end(toy->pool);
    }
    return NULL;
}

static void *evict_often(void *argument)
{
    toy_model *toy = argument;
    for (uint64_t i = 0; !atomic_load(&stop_all); i++) {
        uint64_t bytes = i % 3 == 0 ? UINT64_MAX : (i % 7 + 1) << 20;
        (void)mz_evict(toy->pool, bytes, NULL);
    }
    return NULL;
}

static void *prefetch_often(void *argument)
{
    toy_model *toy = argument;
    while (!atomic_load(&stop_all)) {
        mz_pool_status status;
        (void)mz_prefetch(toy->pool);
        (void)mz_status_get(toy->pool, &status);
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void everybody_at_once(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    toy_write_kv(&toy, 256);
    atomic_store(&stop_all, false);
    reader readers[READERS];
    pthread_t threads[READERS + 3];
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] = (reader){&toy, i * 2, false};
        assert_int_equal(pthread_create(&threads[i], NULL, read_and_write, &readers[i]), 0);
    }
    assert_int_equal(pthread_create(&threads[READERS], NULL, evict_often, &toy), 0);
    assert_int_equal(pthread_create(&threads[READERS + 1], NULL, evict_often, &toy), 0);
    assert_int_equal(pthread_create(&threads[READERS + 2], NULL, prefetch_often, &toy), 0);
    for (uint32_t i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(readers[i].wrong);
    }
    atomic_store(&stop_all, true);
    for (uint32_t i = READERS; i < READERS + 3; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(toy_check(&toy));
    toy_close(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everybody_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

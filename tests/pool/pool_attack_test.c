/* SPDX-License-Identifier: MIT */
/*
 * Goal: what several threads, failing reads and odd orders of calls can do to each other never
 * gives a step a wrong byte and never stops an eviction for good.
 * Method: waiters that share a restore which fails again and again; units that come and go beside a
 * range that is waited for; units that leave by the stack after they were kept in the store; steps
 * that overlap all the time; an eviction asked for from inside a step. Every byte is compared with
 * the shadow copy of the toy model.
 */
#include "pool/fixture.h"

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "os/memory.h"

#define WAITERS 4
#define EXTRA_UNITS 16u

static atomic_bool stop_all;
static atomic_uint wrong, failures;

static void pause_ms(long milliseconds)
{
    struct timespec pause = {0, milliseconds * 1000000};
    nanosleep(&pause, NULL);
}

/* Ask for all weights again and again; what is said to be there must be right. */
static void *need_until_good(void *argument)
{
    toy_model *toy = argument;
    mz_status status = MZ_E_IO;
    while (status != MZ_OK) {
        mz_error error = MZ_ERROR_INIT;
        mz_pool_step_begin(toy->pool);
        status = mz_pool_need(toy->pool, toy->weights, TOY_WEIGHT_BYTES, &error);
        if (status == MZ_OK) {
            bool same = memcmp(toy->weights, toy->weights_shadow, TOY_WEIGHT_BYTES) == 0;
            atomic_fetch_add(&wrong, same ? 0 : 1);
        } else {
            atomic_fetch_add(&failures, 1);
        }
        mz_pool_step_end(toy->pool);
    }
    return NULL;
}

static void waiters_of_a_failing_restore_all_see_it(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    atomic_store(&wrong, 0);
    atomic_store(&failures, 0);
    for (int round = 0; round < 10; round++) {
        (void)mz_evict(toy.pool, UINT64_MAX, NULL);
        mz_fault_os_fail(&toy.fault, MZ_FAULT_PREAD, 1, 60, EIO);
        pthread_t threads[WAITERS];
        for (int i = 0; i < WAITERS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, need_until_good, &toy), 0);
        }
        for (int i = 0; i < WAITERS; i++) {
            pthread_join(threads[i], NULL);
        }
        mz_fault_os_clear(&toy.fault);
    }
    assert_int_equal(atomic_load(&wrong), 0);
    assert_true(atomic_load(&failures) > 0);
    toy_close(&toy);
}

/* Another context that is opened and closed all the time: its units come and go. */
static void *add_and_remove(void *argument)
{
    toy_model *toy = argument;
    mz_error error = MZ_ERROR_INIT;
    uint64_t bytes = (uint64_t)EXTRA_UNITS * MZ_PAGE_BYTES;
    void *memory = NULL;
    if (mz_memory_reserve(&toy->fault.os, bytes, MZ_PAGE_BYTES, &memory, &error) != MZ_OK) {
        return NULL;
    }
    while (!atomic_load(&stop_all)) {
        for (uint32_t i = 0; i < EXTRA_UNITS; i++) {
            mz_unit_desc desc = {.tag = MZ_TAG_KV_CACHE, .layer = 0, .chunk = i, .span_count = 1};
            desc.spans[0] = (mz_span){(uint8_t *)memory + (uint64_t)i * MZ_PAGE_BYTES,
                                      MZ_PAGE_BYTES,
                                      -1,
                                      0,
                                      MZ_ELEM_OPAQUE,
                                      0};
            (void)mz_pool_add_unit(toy->pool, &desc, &error);
        }
        mz_pool_remove_range(toy->pool, memory, bytes);
    }
    mz_memory_release(&toy->fault.os, memory, bytes);
    return NULL;
}

static void units_that_come_and_go_hide_no_other(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    toy_write_kv(&toy, 256);
    atomic_store(&stop_all, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, add_and_remove, &toy), 0);
    for (int round = 0; round < 40; round++) {
        uint64_t bytes = round % 3 == 0 ? UINT64_MAX : (uint64_t)(round % 7 + 1) << 20;
        (void)mz_evict(toy.pool, bytes, NULL);
        mz_error error = MZ_ERROR_INIT;
        uint64_t all = (uint64_t)TOY_LAYERS * TOY_WEIGHT_STRIDE;
        mz_pool_step_begin(toy.pool);
        assert_int_equal(mz_pool_need(toy.pool, toy.weights, all, &error), MZ_OK);
        for (uint32_t layer = 0; layer < TOY_LAYERS; layer++) {
            uint64_t at = (uint64_t)layer * TOY_WEIGHT_STRIDE;
            assert_memory_equal(toy.weights + at, toy.weights_shadow + at, TOY_WEIGHT_BYTES);
        }
        assert_int_equal(mz_pool_need(toy.pool, toy.kv, TOY_KV_BYTES, &error), MZ_OK);
        assert_memory_equal(toy.kv, toy.kv_shadow, TOY_KV_BYTES);
        mz_pool_step_end(toy.pool);
    }
    atomic_store(&stop_all, true);
    pthread_join(thread, NULL);
    assert_true(toy_is_right(&toy) && toy_check(&toy));
    toy_close(&toy);
}

/* What was kept in the store leaves by the stack the next time, and the other way round. */
static void a_unit_may_change_its_path(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "q8", true);
    toy_write_kv(&toy, 256);
    mz_error error = MZ_ERROR_INIT;
    (void)mz_evict(toy.pool, UINT64_MAX, NULL);
    assert_int_equal(toy_restore(&toy, &error), MZ_OK);
    toy_accept(&toy); /* q8 rounds once; from here on nothing may change */
    for (uint64_t round = 0; round < 60; round++) {
        uint64_t bytes = round % 4 == 0 ? UINT64_MAX : (round * 7919u % 900u + 1u) << 11;
        unsigned tags = round % 4 == 3 ? MZ_TAG_ALL : MZ_TAG_KV_CACHE;
        (void)mz_evict_tagged(toy.pool, bytes, tags, NULL);
        if (round % 5 != 0) {
            (void)mz_evict_tagged(toy.pool, bytes, MZ_TAG_KV_CACHE, NULL);
        }
        assert_true(toy_is_right(&toy) && toy_check(&toy));
        mz_pool_status status;
        assert_int_equal(mz_status_get(toy.pool, &status), MZ_OK);
        assert_int_equal(status.kv_cache.lost_units, 0);
    }
    toy_close(&toy);
}

static void *step_often(void *argument)
{
    toy_model *toy = argument;
    while (!atomic_load(&stop_all)) {
        mz_pool_step_begin(toy->pool);
        pause_ms(1);
        mz_pool_step_end(toy->pool);
    }
    return NULL;
}

static void steps_that_overlap_do_not_starve_an_eviction(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    toy_write_kv(&toy, 256);
    atomic_store(&stop_all, false);
    pthread_t threads[WAITERS];
    for (int i = 0; i < WAITERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, step_often, &toy), 0);
    }
    uint64_t freed = 0;
    (void)mz_evict(toy.pool, UINT64_MAX, &freed); /* returns at all: that is the test */
    atomic_store(&stop_all, true);
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(freed >= TOY_KV_BYTES);
    toy_close(&toy);
}

static void an_eviction_inside_a_step_is_refused(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    toy_write_kv(&toy, 256);
    uint64_t freed = 0;
    mz_pool_step_begin(toy.pool);
    assert_int_equal(mz_evict(toy.pool, 1, &freed), MZ_E_BUSY);
    mz_pool_step_end(toy.pool);
    assert_int_equal(mz_evict(toy.pool, 1, &freed), MZ_OK);
    assert_true(toy_is_right(&toy) && toy_check(&toy));
    toy_close(&toy);
}

static void a_clear_that_can_give_no_page_back_still_clears(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    toy_write_kv(&toy, 256);
    mz_error error = MZ_ERROR_INIT;
    mz_fault_os_fail(&toy.fault, MZ_FAULT_MADVISE, 1, MZ_FAULT_FOREVER, EINVAL);
    mz_pool_step_begin(toy.pool);
    assert_int_equal(mz_pool_clear(toy.pool, toy.kv, TOY_KV_BYTES, &error), MZ_E_UNSUPPORTED);
    mz_pool_step_end(toy.pool);
    mz_fault_os_clear(&toy.fault);
    memset(toy.kv_shadow, 0, TOY_KV_BYTES);
    assert_true(toy_is_right(&toy) && toy_check(&toy));
    toy_close(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_eviction_inside_a_step_is_refused),
        cmocka_unit_test(a_clear_that_can_give_no_page_back_still_clears),
        cmocka_unit_test(a_unit_may_change_its_path),
        cmocka_unit_test(waiters_of_a_failing_restore_all_see_it),
        cmocka_unit_test(units_that_come_and_go_hide_no_other),
        cmocka_unit_test(steps_that_overlap_do_not_starve_an_eviction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

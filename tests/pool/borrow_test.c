/* SPDX-License-Identifier: MIT */
/*
 * Goal: compressed units are read where they are, and stay there for as long as they are lent.
 * Method: what the views say is decoded by the formula in kernels/q8.h, written out here, and
 * compared with what a restore puts into place afterwards. Then prefetches and evictions run
 * against threads that borrow: under the thread sanitizer that is the proof that nothing races.
 */
#include "pool/fixture.h"

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool/internal.h"

#define ROWS 200u
#define ELEMENTS (TOY_ROW_BYTES / 2u)
#define VIEWS (2u * TOY_CHUNKS)

static float half_value(uint16_t bits)
{
    int exponent = (bits >> 10) & 31;
    float fraction = (float)(bits & 1023);
    float value = exponent == 0 ? ldexpf(fraction, -24) : ldexpf(1024 + fraction, exponent - 25);
    return (bits & 0x8000) != 0 ? -value : value;
}

/* Element `index` of what q8 wrote: code c stands for {1, 1.25, 1.5, 1.75} * 2^(c / 4 - 22). */
static float q8_value(const uint8_t *payload, size_t groups, size_t index)
{
    uint8_t code = payload[index / 32];
    int8_t q = (int8_t)payload[(groups + 63) / 64 * 64 + index];
    return (float)q * ldexpf(1.0f + 0.25f * (float)(code % 4), code / 4 - 22);
}

/* All K and V of a layer. */
static mz_range layer_range(toy_model *toy, uint32_t layer)
{
    return (mz_range){toy_chunk(toy, layer, 0, 0), VIEWS * TOY_CHUNK_BYTES};
}

static void evict_everything(toy_model *toy)
{
    (void)mz_evict_tagged(toy->pool, UINT64_MAX, MZ_TAG_KV_CACHE, NULL);
}

/*
 * Put all KV into the stack: the eviction that frees all spills some of it, so ask for what frees
 * the f16 bytes less the encoded ones.
 */
static void compress(toy_model *toy)
{
    mz_pool_status status;
    uint64_t before = 0;
    do {
        assert_int_equal(mz_status_get(toy->pool, &status), MZ_OK);
        before = status.kv_cache.resident_units;
        (void)mz_evict_tagged(toy->pool, 4096, MZ_TAG_KV_CACHE, NULL);
        assert_int_equal(mz_status_get(toy->pool, &status), MZ_OK);
    } while (status.kv_cache.resident_units > 0 && status.kv_cache.resident_units < before);
}

static void views_say_what_a_restore_gives(void **state)
{
    (void)state;
    toy_model toy;
    mz_view views[VIEWS];
    toy_open(&toy, "q8", true);
    toy_write_kv(&toy, ROWS);
    compress(&toy);
    uint64_t read = 0;
    float *expected = malloc((size_t)ROWS * ELEMENTS * sizeof *expected);
    for (uint32_t layer = 0; layer < TOY_LAYERS; layer++) {
        mz_range range = layer_range(&toy, layer);
        mz_pool_step_begin(toy.pool);
        assert_int_equal(mz_pool_borrow(toy.pool, &range, 1, NULL, 0, views, VIEWS), VIEWS);
        for (uint32_t i = 0; i < VIEWS; i++) {
            const mz_view *view = &views[i];
            assert_ptr_equal(view->address, (const uint8_t *)range.address + i * TOY_CHUNK_BYTES);
            assert_int_equal(view->bytes, TOY_CHUNK_BYTES);
            if (view->where != MZ_VIEW_ENCODED) {
                continue;
            }
            assert_string_equal(view->codec->name, "q8");
            assert_int_equal(view->shape.rows, ROWS);
            assert_int_equal(view->shape.row_bytes, TOY_ROW_BYTES);
            for (size_t k = 0; k < ROWS * ELEMENTS; k++) {
                expected[k] = q8_value(view->payload, ROWS * ELEMENTS / 32, k);
            }
            mz_view only = *view;
            const uint16_t *place = (const uint16_t *)(const void *)view->address;
            mz_error error = MZ_ERROR_INIT;
            for (uint32_t k = 0; k < VIEWS; k++) {
                if (views[k].unit == only.unit && views[k].where == MZ_VIEW_ENCODED) {
                    mz_pool_give_back(toy.pool, &views[k], 1);
                    views[k].where = MZ_VIEW_AWAY;
                }
            }
            assert_int_equal(mz_pool_need(toy.pool, only.address, only.bytes, &error), MZ_OK);
            for (size_t k = 0; k < ROWS * ELEMENTS; k++) {
                assert_true(half_value(place[k]) == expected[k]);
            }
            read++;
        }
        mz_pool_give_back(toy.pool, views, VIEWS);
        mz_pool_step_end(toy.pool);
    }
    mz_pool_status status;
    assert_int_equal(mz_status_get(toy.pool, &status), MZ_OK);
    assert_true(read >= TOY_LAYERS);
    assert_true(status.in_place_bytes >= read * ROWS * ELEMENTS);
    free(expected);
    assert_true(toy_check(&toy));
    toy_close(&toy);
}

static void what_is_needed_in_place_is_not_lent(void **state)
{
    (void)state;
    toy_model toy;
    mz_view views[VIEWS];
    toy_open(&toy, "q8", true);
    toy_write_kv(&toy, ROWS);
    compress(&toy);
    mz_range range = layer_range(&toy, 1);
    /* One row of V: K of the same unit is not lent either. */
    mz_range written = {toy_chunk(&toy, 1, 2, 1) + TOY_ROW_BYTES, TOY_ROW_BYTES};
    mz_pool_step_begin(toy.pool);
    assert_int_equal(mz_pool_borrow(toy.pool, &range, 1, &written, 1, views, VIEWS), VIEWS);
    for (uint32_t i = 0; i < VIEWS; i++) {
        bool same = views[i].address == toy_chunk(&toy, 1, 2, 0) ||
                    views[i].address == toy_chunk(&toy, 1, 2, 1);
        assert_true(!same || views[i].where != MZ_VIEW_ENCODED);
    }
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_pool_need(toy.pool, written.address, written.bytes, &error), MZ_OK);
    mz_pool_give_back(toy.pool, views, VIEWS);
    mz_pool_step_end(toy.pool);
    assert_true(toy_check(&toy));
    toy_close(&toy);
}

static void too_little_room_borrows_nothing(void **state)
{
    (void)state;
    toy_model toy;
    mz_view views[VIEWS];
    toy_open(&toy, "q8", true);
    toy_write_kv(&toy, ROWS);
    compress(&toy);
    mz_range range = layer_range(&toy, 0);
    mz_error error = MZ_ERROR_INIT;
    mz_pool_step_begin(toy.pool);
    assert_int_equal(mz_pool_borrow(toy.pool, &range, 1, NULL, 0, views, 2), VIEWS);
    /* Would wait for ever if the first two had been lent. */
    assert_int_equal(mz_pool_need(toy.pool, range.address, range.bytes, &error), MZ_OK);
    assert_int_equal(mz_pool_borrow(toy.pool, &range, 1, NULL, 0, views, VIEWS), VIEWS);
    for (uint32_t i = 0; i < VIEWS; i++) {
        assert_int_equal(views[i].where, MZ_VIEW_RESIDENT);
    }
    mz_pool_step_end(toy.pool);
    toy_close(&toy);
}

/* Only q8 and q4 can be read in place: everything else is away. */
static void other_codecs_are_away(void **state)
{
    (void)state;
    static const char *const codecs[] = {"raw", "lossless"};
    for (int i = 0; i < 2; i++) {
        toy_model toy;
        mz_view views[VIEWS];
        toy_open(&toy, codecs[i], true);
        toy_write_kv(&toy, ROWS);
        evict_everything(&toy);
        mz_range range = layer_range(&toy, 0);
        mz_pool_step_begin(toy.pool);
        assert_int_equal(mz_pool_borrow(toy.pool, &range, 1, NULL, 0, views, VIEWS), VIEWS);
        for (uint32_t k = 0; k < VIEWS; k++) {
            assert_int_equal(views[k].where, MZ_VIEW_AWAY);
        }
        mz_pool_step_end(toy.pool);
        toy_close(&toy);
    }
}

static void a_prefetch_waits_for_what_is_lent(void **state)
{
    (void)state;
    toy_model toy;
    mz_view views[VIEWS];
    mz_pool_status status;
    toy_open(&toy, "q8", true);
    toy_write_kv(&toy, ROWS);
    compress(&toy);
    mz_range range = layer_range(&toy, TOY_LAYERS - 1);
    mz_pool_step_begin(toy.pool);
    assert_int_equal(mz_pool_borrow(toy.pool, &range, 1, NULL, 0, views, VIEWS), VIEWS);
    uint32_t lent = 0;
    for (uint32_t i = 0; i < VIEWS; i++) {
        lent += views[i].where == MZ_VIEW_ENCODED;
    }
    assert_true(lent > 0);
    assert_int_equal(mz_prefetch(toy.pool), MZ_OK);
    /* All but the units lent come back, two views for each. */
    do {
        assert_int_equal(mz_status_get(toy.pool, &status), MZ_OK);
    } while (status.restoring);
    assert_int_equal(status.kv_cache.compressed_units, lent / 2);
    mz_pool_give_back(toy.pool, views, VIEWS);
    mz_pool_step_end(toy.pool);
    assert_int_equal(mz_prefetch_wait(toy.pool), MZ_OK);
    assert_int_equal(mz_status_get(toy.pool, &status), MZ_OK);
    assert_int_equal(status.kv_cache.compressed_units, 0);
    assert_int_equal(status.kv_cache.resident_units, status.kv_cache.total_units);
    assert_true(toy_check(&toy));
    toy_close(&toy);
}

typedef struct borrower {
    toy_model *toy;
    uint32_t layer;
    uint64_t sum; /* of all values of the layer, as bits */
    bool wrong;
} borrower;

static atomic_bool stop_all;

static uint64_t sum_of_layer(toy_model *toy, const mz_view *views)
{
    double sum = 0;
    for (uint32_t i = 0; i < VIEWS; i++) {
        const uint16_t *place = (const uint16_t *)(const void *)views[i].address;
        mz_error error = MZ_ERROR_INIT;
        bool encoded = views[i].where == MZ_VIEW_ENCODED;
        if (!encoded && mz_pool_need(toy->pool, place, views[i].bytes, &error) != MZ_OK) {
            return 0;
        }
        for (size_t k = 0; k < ROWS * ELEMENTS; k += 7) {
            sum += encoded ? q8_value(views[i].payload, ROWS * ELEMENTS / 32, k)
                           : half_value(place[k]);
        }
    }
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return bits;
}

static void *borrow_often(void *argument)
{
    borrower *self = argument;
    mz_view views[VIEWS];
    mz_range range = layer_range(self->toy, self->layer);
    for (int step = 0; step < 60 && !self->wrong; step++) {
        mz_pool_step_begin(self->toy->pool);
        (void)mz_pool_borrow(self->toy->pool, &range, 1, NULL, 0, views, VIEWS);
        self->wrong = sum_of_layer(self->toy, views) != self->sum;
        mz_pool_give_back(self->toy->pool, views, VIEWS);
        mz_pool_step_end(self->toy->pool);
    }
    return NULL;
}

static void *evict_often(void *argument)
{
    toy_model *toy = argument;
    for (uint64_t i = 0; !atomic_load(&stop_all); i++) {
        (void)mz_evict_tagged(toy->pool, i % 5 == 0 ? UINT64_MAX : (i % 7 + 1) << 16,
                              MZ_TAG_KV_CACHE, NULL);
    }
    return NULL;
}

static void *prefetch_often(void *argument)
{
    toy_model *toy = argument;
    while (!atomic_load(&stop_all)) {
        (void)mz_prefetch(toy->pool);
        (void)mz_prefetch_wait(toy->pool);
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Round all KV to what q8 gives back, so that no later cycle changes it, whatever its path. */
static void settle_kv(toy_model *toy)
{
    const mz_codec *codec = mz_codec_find("q8");
    const mz_codec_shape shape = {MZ_ELEM_F16, TOY_ROW_BYTES, ROWS};
    void *room = malloc(codec->bound(&shape));
    assert_non_null(room);
    mz_pool_step_begin(toy->pool);
    for (uint8_t *at = toy->kv; at < toy->kv + TOY_KV_BYTES; at += TOY_CHUNK_BYTES) {
        size_t bytes;
        mz_pool_wrote(toy->pool, at, ROWS * TOY_ROW_BYTES);
        assert_int_equal(codec->encode(&shape, at, room, &bytes), MZ_OK);
        memset(at, 0, ROWS * TOY_ROW_BYTES);
        assert_int_equal(codec->decode(&shape, room, bytes, at), MZ_OK);
    }
    mz_pool_step_end(toy->pool);
    free(room);
}

static void everybody_at_once(void **state)
{
    (void)state;
    toy_model toy;
    mz_view views[VIEWS];
    toy_open(&toy, "q8", false);
    toy_write_kv(&toy, ROWS);
    settle_kv(&toy);
    borrower borrowers[TOY_LAYERS];
    pthread_t threads[TOY_LAYERS + 2];
    for (uint32_t i = 0; i < TOY_LAYERS; i++) {
        mz_range range = layer_range(&toy, i);
        mz_pool_step_begin(toy.pool);
        assert_int_equal(mz_pool_borrow(toy.pool, &range, 1, NULL, 0, views, VIEWS), VIEWS);
        borrowers[i] = (borrower){&toy, i, sum_of_layer(&toy, views), false};
        mz_pool_step_end(toy.pool);
    }
    atomic_store(&stop_all, false);
    for (uint32_t i = 0; i < TOY_LAYERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, borrow_often, &borrowers[i]), 0);
    }
    assert_int_equal(pthread_create(&threads[TOY_LAYERS], NULL, evict_often, &toy), 0);
    assert_int_equal(pthread_create(&threads[TOY_LAYERS + 1], NULL, prefetch_often, &toy), 0);
    for (uint32_t i = 0; i < TOY_LAYERS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(borrowers[i].wrong);
    }
    atomic_store(&stop_all, true);
    pthread_join(threads[TOY_LAYERS], NULL);
    pthread_join(threads[TOY_LAYERS + 1], NULL);
    mz_pool_status status;
    assert_int_equal(mz_status_get(toy.pool, &status), MZ_OK);
    assert_true(status.in_place_bytes > 0);
    assert_true(toy_check(&toy));
    toy_close(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_say_what_a_restore_gives),
        cmocka_unit_test(what_is_needed_in_place_is_not_lent),
        cmocka_unit_test(too_little_room_borrows_nothing),
        cmocka_unit_test(other_codecs_are_away),
        cmocka_unit_test(a_prefetch_waits_for_what_is_lent),
        cmocka_unit_test(everybody_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

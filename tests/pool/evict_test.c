/* SPDX-License-Identifier: MIT */
/*
 * Goal: what inference reads after any eviction is what was there before, and what mz_evict says it
 * freed is what the kernel says.
 * Method: a toy model with a shadow copy of every byte; evictions of all sizes, tags and orders,
 * restored through the gate and compared; the fall of PSS read from smaps_rollup.
 */
#include "pool/fixture.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "os/process.h"
#include "pool/internal.h"

static mz_pool_status status_of(toy_model *toy)
{
    mz_pool_status status;
    assert_int_equal(mz_status_get(toy->pool, &status), MZ_OK);
    return status;
}

static uint64_t resident(toy_model *toy)
{
    mz_pool_status status = status_of(toy);
    return status.weights.resident_bytes + status.kv_cache.resident_bytes;
}

static uint64_t pss(void)
{
    mz_error error = MZ_ERROR_INIT;
    uint64_t bytes = 0;
    assert_int_equal(mz_process_pss(0, &bytes, &error), MZ_OK);
    return bytes;
}

static void nothing_is_read_or_committed_before_it_is_needed(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    mz_pool_status status = status_of(&toy);
    assert_int_equal(status.weights.stored_units, TOY_LAYERS);
    assert_int_equal(status.kv_cache.resident_units, TOY_LAYERS * TOY_CHUNKS + 1);
    assert_int_equal(resident(&toy), 0);
    assert_true(toy_is_right(&toy));
    assert_int_equal(status_of(&toy).weights.resident_bytes, TOY_LAYERS * TOY_WEIGHT_BYTES);
    assert_int_equal(status_of(&toy).kv_cache.resident_bytes, 0);
    toy_close(&toy);
}

static void every_amount_comes_back_bit_exact(void **state)
{
    (void)state;
    static const unsigned percent[] = {0, 25, 50, 75, 100, 30, 100};
    toy_model toy;
    toy_open(&toy, "raw", true);
    toy_write_kv(&toy, 200);
    assert_true(toy_is_right(&toy));
    for (size_t i = 0; i < sizeof percent / sizeof percent[0]; i++) {
        uint64_t bytes = resident(&toy) * percent[i] / 100 + (percent[i] == 0);
        uint64_t freed = 0;
        mz_status status = mz_evict(toy.pool, bytes, &freed);
        if (percent[i] == 100) {
            /* The opaque unit counts as full in the status, but has holes: less can be freed. */
            assert_true(status == MZ_OK || status == MZ_E_PARTIAL);
            assert_int_equal(resident(&toy), 0);
        } else {
            assert_int_equal(status, MZ_OK);
            assert_true(freed >= bytes);
        }
        assert_true(toy_check(&toy));
        assert_true(toy_is_right(&toy));
        assert_true(toy_check(&toy));
        toy_write_chunk(&toy, (uint32_t)i % TOY_LAYERS, 1, 256);
    }
    toy_close(&toy);
}

/* Exact values in the stack: f16 with 8 exponents of 32 leaves something to save. */
static void lossless_is_bit_exact_and_uses_the_stack(void **state)
{
    (void)state;
    static const unsigned rows[] = {1, 7, 200, 256};
    toy_model toy;
    toy_open(&toy, "lossless", true);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        toy_write_kv(&toy, rows[i]);
        assert_true(toy_is_right(&toy));
        uint64_t freed = 0;
        mz_status status = mz_evict_tagged(toy.pool, 1, MZ_TAG_KV_CACHE, &freed);
        assert_int_equal(status, MZ_OK);
        assert_true(freed > 0);
        assert_true(toy_is_right(&toy));
        /* Little enough that the stack need not be spilled to the store. */
        uint64_t part = status_of(&toy).kv_cache.resident_bytes / 16;
        status = mz_evict_tagged(toy.pool, part, MZ_TAG_KV_CACHE, NULL);
        assert_true(status == MZ_OK || status == MZ_E_PARTIAL);
        assert_true(rows[i] < 200 || status_of(&toy).kv_cache.compressed_units > 0);
        assert_true(toy_check(&toy));
        assert_true(toy_is_right(&toy));
        (void)mz_evict(toy.pool, UINT64_MAX, NULL);
        assert_int_equal(resident(&toy), 0);
        assert_true(toy_check(&toy));
        assert_true(toy_is_right(&toy));
        assert_true(toy_check(&toy));
    }
    toy_close(&toy);
}

/* Random bits don't shrink, whatever was expected: they must go to the store, not to the stack. */
static void what_does_not_shrink_goes_to_the_store(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "lossless", false);
    toy_write_kv(&toy, 256);
    uint64_t seed = 1;
    mz_pool_step_begin(toy.pool);
    for (uint64_t i = 0; i < TOY_KV_BYTES; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        toy.kv[i] = (uint8_t)(seed >> 56);
    }
    mz_pool_wrote(toy.pool, toy.kv, TOY_KV_BYTES);
    mz_pool_step_end(toy.pool);
    memcpy(toy.kv_shadow, toy.kv, TOY_KV_BYTES);
    uint64_t freed = 0;
    assert_int_equal(mz_evict_tagged(toy.pool, TOY_KV_BYTES / 2, MZ_TAG_KV_CACHE, &freed), MZ_OK);
    assert_true(freed >= TOY_KV_BYTES / 2);
    assert_in_range(status_of(&toy).kv_cache.compressed_units, 0, 1); /* the opaque one */
    assert_true(status_of(&toy).kv_cache.stored_units >= TOY_LAYERS * TOY_CHUNKS / 2);
    assert_true(toy_check(&toy));
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void freed_is_what_the_kernel_sees(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its shadow memory counts in PSS and grows with every access */
#endif
    static const char *const codecs[] = {"raw", "q8"};
    for (size_t c = 0; c < 2; c++) {
        toy_model toy;
        toy_open(&toy, codecs[c], false);
        toy_write_kv(&toy, 256);
        assert_true(toy_is_right(&toy));
        for (unsigned part = 1; part <= 4; part++) {
            uint64_t before = pss();
            uint64_t freed = 0;
            uint64_t bytes = resident(&toy) / 4 * part;
            assert_true(mz_evict(toy.pool, bytes, &freed) == MZ_OK || part == 4);
            int64_t fall = (int64_t)(before - pss());
            /* 2 %, and a few pages for the C library's own memory. */
            int64_t slack = (int64_t)(freed / 50 + 16 * MZ_PAGE_BYTES);
            print_message("%s part %u: freed %llu, PSS fell by %lld\n", codecs[c], part,
                          (unsigned long long)freed, (long long)fall);
            assert_in_range(fall - (int64_t)freed + slack, 0, 2 * slack);
            mz_error error = MZ_ERROR_INIT;
            assert_int_equal(toy_restore(&toy, &error), MZ_OK);
        }
        toy_close(&toy);
    }
}

static void rear_layers_go_first(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    toy_write_kv(&toy, 256);
    assert_true(toy_is_right(&toy));
    assert_int_equal(mz_evict(toy.pool, TOY_WEIGHT_BYTES, NULL), MZ_OK);
    mz_pool_step_begin(toy.pool);
    assert_true(mz_pool_ready(toy.pool, toy.weights, TOY_WEIGHT_BYTES));
    assert_true(mz_pool_ready(toy.pool, toy_chunk(&toy, 0, 0, 0), TOY_CHUNK_BYTES));
    const uint8_t *rear = toy.weights + (TOY_LAYERS - 1) * TOY_WEIGHT_STRIDE;
    assert_false(mz_pool_ready(toy.pool, rear, TOY_WEIGHT_BYTES));
    mz_pool_step_end(toy.pool);
    toy_close(&toy);
}

static void tags_limit_what_goes(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", true);
    toy_write_kv(&toy, 256);
    assert_true(toy_is_right(&toy));
    uint64_t freed = 0;
    assert_int_equal(mz_evict_tagged(toy.pool, UINT64_MAX, MZ_TAG_KV_CACHE, &freed), MZ_E_PARTIAL);
    mz_pool_status status = status_of(&toy);
    assert_int_equal(status.kv_cache.resident_bytes, 0);
    assert_int_equal(status.weights.resident_units, TOY_LAYERS);
    assert_int_equal(mz_evict_tagged(toy.pool, UINT64_MAX, MZ_TAG_WEIGHTS, &freed), MZ_E_PARTIAL);
    assert_int_equal(freed, TOY_LAYERS * TOY_WEIGHT_BYTES);
    assert_int_equal(mz_evict_tagged(toy.pool, 1, MZ_TAG_ALL, &freed), MZ_E_PARTIAL);
    assert_int_equal(freed, 0);
    assert_true(toy_is_right(&toy));
    assert_int_equal(mz_evict_tagged(toy.pool, 1, 0, &freed), MZ_E_INVALID);
    assert_int_equal(mz_evict_tagged(toy.pool, 1, 8, &freed), MZ_E_INVALID);
    assert_int_equal(mz_evict(toy.pool, 0, &freed), MZ_E_INVALID);
    assert_int_equal(mz_evict(NULL, 1, &freed), MZ_E_INVALID);
    toy_close(&toy);
}

static void clean_units_are_not_written_again(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    toy_write_kv(&toy, 256);
    assert_int_equal(mz_evict(toy.pool, UINT64_MAX, NULL), MZ_E_PARTIAL);
    uint64_t written = status_of(&toy).written_bytes;
    assert_true(written > 0);
    assert_true(toy_is_right(&toy));
    assert_int_equal(mz_evict(toy.pool, UINT64_MAX, NULL), MZ_E_PARTIAL);
    assert_int_equal(status_of(&toy).written_bytes, written);
    toy_write_chunk(&toy, 2, 2, 10);
    assert_int_equal(mz_evict(toy.pool, UINT64_MAX, NULL), MZ_E_PARTIAL);
    /* The chunk was full before: all of it and a header page. */
    assert_int_equal(status_of(&toy).written_bytes, written + 2 * TOY_CHUNK_BYTES + MZ_PAGE_BYTES);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void ten_q8_cycles_give_the_bytes_of_one(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "q8", true);
    toy_write_kv(&toy, 250);
    assert_int_equal(mz_evict_tagged(toy.pool, 1, MZ_TAG_KV_CACHE, NULL), MZ_OK);
    assert_int_equal(mz_evict(toy.pool, UINT64_MAX, NULL), MZ_E_PARTIAL);
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(toy_restore(&toy, &error), MZ_OK);
    toy_accept(&toy);
    for (int cycle = 0; cycle < 10; cycle++) {
        uint64_t bytes = cycle % 2 == 0 ? UINT64_MAX : resident(&toy) / 3;
        (void)mz_evict(toy.pool, bytes, NULL);
        assert_true(toy_check(&toy));
        assert_true(toy_is_right(&toy));
        toy_write_chunk(&toy, 0, 0, 0); /* no row: nothing becomes dirty */
    }
    toy_close(&toy);
}

static void q8_uses_the_stack_and_spills_to_nothing(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "q8", false);
    toy_write_kv(&toy, 256);
    assert_true(toy_is_right(&toy));
    assert_int_equal(mz_evict(toy.pool, resident(&toy) / 2, NULL), MZ_OK);
    assert_true(status_of(&toy).kv_cache.compressed_units > 0);
    assert_true(status_of(&toy).stack_bytes > 0);
    assert_int_equal(mz_evict(toy.pool, UINT64_MAX, NULL), MZ_E_PARTIAL);
    mz_pool_status status = status_of(&toy);
    assert_int_equal(status.kv_cache.compressed_units, 0);
    assert_int_equal(status.stack_bytes, 0);
    assert_int_equal(status.weights.resident_bytes + status.kv_cache.resident_bytes, 0);
    toy_close(&toy);
}

static void values_that_q8_cannot_keep_go_to_the_store(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "q8", false);
    toy_write_kv(&toy, 256);
    uint8_t *chunk = toy_chunk(&toy, 3, 2, 0);
    const uint16_t infinity = 0x7c00;
    memcpy(chunk + 10, &infinity, 2);
    memcpy(toy.kv_shadow + (chunk - toy.kv) + 10, &infinity, 2);
    uint8_t before[TOY_CHUNK_BYTES];
    memcpy(before, chunk, sizeof before);
    assert_int_equal(mz_evict(toy.pool, UINT64_MAX, NULL), MZ_E_PARTIAL);
    assert_int_equal(status_of(&toy).kv_cache.resident_bytes, 0);
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(toy_restore(&toy, &error), MZ_OK);
    assert_memory_equal(chunk, before, sizeof before);
    toy_close(&toy);
}

static void clear_forgets_everything(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", true);
    toy_write_kv(&toy, 256);
    assert_int_equal(mz_evict_tagged(toy.pool, TOY_CHUNK_BYTES * 7, MZ_TAG_KV_CACHE, NULL), MZ_OK);
    mz_error error = MZ_ERROR_INIT;
    mz_pool_step_begin(toy.pool);
    assert_int_equal(mz_pool_clear(toy.pool, toy.kv, TOY_KV_BYTES, &error), MZ_OK);
    mz_pool_step_end(toy.pool);
    memset(toy.kv_shadow, 0, TOY_KV_BYTES);
    assert_true(toy_check(&toy));
    assert_true(toy_is_right(&toy));
    toy_write_kv(&toy, 30);
    assert_int_equal(mz_evict(toy.pool, UINT64_MAX, NULL), MZ_E_PARTIAL);
    assert_true(toy_is_right(&toy));
    mz_pool_remove_range(toy.pool, toy.kv, TOY_KV_BYTES);
    assert_int_equal(status_of(&toy).kv_cache.total_units, 1);
    assert_true(toy_check(&toy));
    toy_close(&toy);
}

static void prefetch_brings_everything_back(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "q8", false);
    toy_write_kv(&toy, 256);
    (void)mz_evict(toy.pool, UINT64_MAX, NULL);
    assert_int_equal(mz_prefetch(toy.pool), MZ_OK);
    assert_int_equal(mz_prefetch_wait(toy.pool), MZ_OK);
    assert_true(mz_pool_all_resident(toy.pool));
    assert_int_equal(mz_prefetch(NULL), MZ_E_INVALID);
    assert_int_equal(mz_prefetch_wait(NULL), MZ_E_INVALID);
    toy_close(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_read_or_committed_before_it_is_needed),
        cmocka_unit_test(every_amount_comes_back_bit_exact),
        cmocka_unit_test(lossless_is_bit_exact_and_uses_the_stack),
        cmocka_unit_test(what_does_not_shrink_goes_to_the_store),
        cmocka_unit_test(freed_is_what_the_kernel_sees),
        cmocka_unit_test(rear_layers_go_first),
        cmocka_unit_test(tags_limit_what_goes),
        cmocka_unit_test(clean_units_are_not_written_again),
        cmocka_unit_test(ten_q8_cycles_give_the_bytes_of_one),
        cmocka_unit_test(q8_uses_the_stack_and_spills_to_nothing),
        cmocka_unit_test(values_that_q8_cannot_keep_go_to_the_store),
        cmocka_unit_test(clear_forgets_everything),
        cmocka_unit_test(prefetch_brings_everything_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

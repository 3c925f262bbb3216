/* SPDX-License-Identifier: MIT */
/*
 * Goal: KV comes back in huge pages exactly where all units that share one were full and went away,
 * and in small ones again after it was cleared; what is read is right in either case.
 * Method: what the pool advises the kernel about KV is noted; the toy's KV is one huge page and a
 * piece of the next, 21 spans and a part of one in the first.
 */
#include "pool/fixture.h"

#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>

static struct {
    const uint8_t *kv;
    bool huge; /* last advice about the first huge page of KV */
    unsigned advices;
    uint64_t bytes; /* of the last advice */
} seen;

static int note_advice(void *context, void *address, size_t bytes, int advice)
{
    (void)context;
    const uint8_t *start = address;
    bool is_kv = start < seen.kv + TOY_KV_BYTES && start + bytes > seen.kv;
    if (is_kv && (advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE)) {
        assert_ptr_equal(start, seen.kv);
        seen.huge = advice == MADV_HUGEPAGE;
        seen.advices++;
        seen.bytes = bytes;
    }
    return mz_os_linux()->madvise(NULL, address, bytes, advice);
}

static void open_noted(toy_model *toy, const char *codec, bool guard)
{
    toy_open(toy, codec, guard);
    memset(&seen, 0, sizeof seen);
    seen.kv = toy->kv;
    toy->fault.os.madvise = note_advice;
}

static void what_went_whole_comes_back_in_huge_pages(void **state)
{
    const char *codec = *state;
    toy_model toy;
    open_noted(&toy, codec, false);
    for (unsigned cycle = 1; cycle <= 3; cycle++) {
        toy_write_kv(&toy, 256);
        assert_true(toy_is_right(&toy));
        (void)mz_evict(toy.pool, UINT64_MAX, NULL);
        assert_true(seen.huge);
        assert_int_equal(seen.bytes, MZ_HUGE_BYTES);
        assert_int_equal(seen.advices, cycle);
        (void)mz_evict(toy.pool, UINT64_MAX, NULL); /* nothing new went: nothing to advise */
        assert_int_equal(seen.advices, cycle);
        mz_error error = MZ_ERROR_INIT;
        assert_int_equal(toy_restore(&toy, &error), MZ_OK);
        if (strcmp(codec, "raw") == 0) {
            assert_true(toy_is_right(&toy));
        }
        toy_accept(&toy);
        assert_true(toy_check(&toy));
    }
    toy_close(&toy);
}

static void a_chunk_that_is_not_full_keeps_small_pages(void **state)
{
    (void)state;
    toy_model toy;
    open_noted(&toy, "raw", false);
    toy_write_kv(&toy, 255);
    (void)mz_evict(toy.pool, UINT64_MAX, NULL);
    assert_int_equal(seen.advices, 0);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void a_chunk_that_stays_keeps_small_pages(void **state)
{
    (void)state;
    toy_model toy;
    open_noted(&toy, "raw", false);
    toy_write_kv(&toy, 256);
    uint64_t kept = 2u * TOY_CHUNK_BYTES;
    assert_int_equal(
        mz_evict_tagged(toy.pool, TOY_KV_BYTES - kept - TOY_OPAQUE_BYTES, MZ_TAG_KV_CACHE, NULL),
        MZ_OK);
    assert_int_equal(seen.advices, 0);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void guarded_ranges_keep_small_pages(void **state)
{
    (void)state;
    toy_model toy;
    open_noted(&toy, "raw", true);
    toy_write_kv(&toy, 256);
    (void)mz_evict(toy.pool, UINT64_MAX, NULL);
    assert_int_equal(seen.advices, 0);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void what_was_cleared_fills_in_small_pages(void **state)
{
    (void)state;
    toy_model toy;
    open_noted(&toy, "raw", false);
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_pool_clear(toy.pool, toy.kv, TOY_KV_BYTES, &error), MZ_OK);
    assert_int_equal(seen.advices, 0); /* never huge: the kernel's setting stands */
    toy_write_kv(&toy, 256);
    (void)mz_evict(toy.pool, UINT64_MAX, NULL);
    assert_true(seen.huge);
    assert_int_equal(mz_pool_clear(toy.pool, toy.kv, TOY_KV_BYTES, &error), MZ_OK);
    assert_false(seen.huge);
    assert_int_equal(seen.bytes, TOY_KV_BYTES);
    memset(toy.kv_shadow, 0, TOY_KV_BYTES);
    assert_true(toy_is_right(&toy));
    toy_write_kv(&toy, 10);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

int main(void)
{
    static char raw[] = "raw", q8[] = "q8";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(what_went_whole_comes_back_in_huge_pages, raw),
        cmocka_unit_test_prestate(what_went_whole_comes_back_in_huge_pages, q8),
        cmocka_unit_test(a_chunk_that_is_not_full_keeps_small_pages),
        cmocka_unit_test(a_chunk_that_stays_keeps_small_pages),
        cmocka_unit_test(guarded_ranges_keep_small_pages),
        cmocka_unit_test(what_was_cleared_fills_in_small_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

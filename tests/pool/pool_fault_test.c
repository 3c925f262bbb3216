/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever system call fails during evict or restore, nothing is lost and nothing is wrong.
 * Method: the n-th call fails, for every n until a run has no more calls to fail; after the failure
 * is over, everything must come back right.
 */
#include "pool/fixture.h"

#include <cmocka.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/internal.h"

/* One pass of evict and restore in which the n-th call of a kind fails; false: none was left. */
static bool pass(toy_model *toy, mz_fault_kind kind, uint64_t nth, int sys_errno)
{
    uint64_t freed = UINT64_MAX;
    if (sys_errno != 0) {
        mz_fault_os_fail(&toy->fault, kind, nth, 1, sys_errno);
    } else {
        mz_fault_os_shorten(&toy->fault, kind, nth, 1, MZ_PAGE_BYTES);
    }
    mz_status evicted = mz_evict(toy->pool, UINT64_MAX, &freed);
    assert_int_equal(evicted, MZ_E_PARTIAL);
    assert_true(freed != UINT64_MAX);
    assert_true(toy_check(toy));
    mz_error error = MZ_ERROR_INIT;
    mz_status restored = toy_restore(toy, &error);
    assert_true(restored == MZ_OK || error.text[0] != '\0');
    bool hit = mz_fault_os_hits(&toy->fault) > 0;
    mz_fault_os_clear(&toy->fault);
    assert_true(toy_is_right(toy));
    assert_true(toy_check(toy));
    return hit;
}

static void loop(const char *codec, mz_fault_kind kind, int sys_errno)
{
    toy_model toy;
    toy_io = kind == MZ_FAULT_PREAD ? MZ_IO_THREADS : MZ_IO_AUTO;
    toy_open(&toy, codec, false);
    toy_write_kv(&toy, 220);
    assert_true(toy_is_right(&toy));
    if (strcmp(codec, "q8") == 0) {
        (void)mz_evict(toy.pool, UINT64_MAX, NULL);
        mz_error error = MZ_ERROR_INIT;
        assert_int_equal(toy_restore(&toy, &error), MZ_OK);
        toy_accept(&toy);
    }
    if (kind >= MZ_FAULT_RING_OPEN && !toy.pool->restore.has_ring) {
        toy_close(&toy);
        skip(); /* this kernel has no io_uring for us */
    }
    uint64_t nth = 1;
    while (pass(&toy, kind, nth, sys_errno)) {
        toy_dirty_kv(&toy, 220); /* so that the next pass writes as much as this one did */
        nth += 1 + nth / 16;
    }
    assert_true(nth > 1);
    toy_close(&toy);
}

static void reads_fail(void **state)
{
    (void)state;
    loop("raw", MZ_FAULT_PREAD, EIO);
    loop("raw", MZ_FAULT_PREAD, EINTR);
    loop("raw", MZ_FAULT_PREAD, 0);
    loop("q8", MZ_FAULT_PREAD, EIO);
}

static void reads_of_a_ring_fail(void **state)
{
    (void)state;
    loop("raw", MZ_FAULT_RING_READ, EIO);
    loop("raw", MZ_FAULT_RING_READ, EINVAL);
    loop("raw", MZ_FAULT_RING_READ, EAGAIN);
    loop("raw", MZ_FAULT_RING_READ, 0);
    loop("raw", MZ_FAULT_RING_START, EAGAIN);
    loop("q8", MZ_FAULT_RING_READ, EIO);
}

static void a_ring_is_refused(void **state)
{
    (void)state;
    static const int reasons[] = {ENOSYS, EPERM, ENOMEM};
    toy_io = MZ_IO_AUTO;
    for (int i = 0; i < 3; i++) {
        toy_model toy;
        toy_ring_errno = reasons[i];
        toy_open(&toy, "raw", false);
        toy_ring_errno = 0;
        assert_false(toy.pool->restore.has_ring);
        toy_write_kv(&toy, 220);
        (void)mz_evict(toy.pool, UINT64_MAX, NULL);
        mz_error error = MZ_ERROR_INIT;
        assert_int_equal(toy_restore(&toy, &error), MZ_OK);
        assert_true(toy_is_right(&toy));
        toy_close(&toy);
    }
}

static void writes_fail(void **state)
{
    (void)state;
    loop("raw", MZ_FAULT_PWRITE, ENOSPC);
    loop("raw", MZ_FAULT_PWRITE, EIO);
    loop("raw", MZ_FAULT_PWRITE, EINTR);
    loop("raw", MZ_FAULT_PWRITE, 0);
}

static void memory_calls_fail(void **state)
{
    (void)state;
    loop("raw", MZ_FAULT_MADVISE, ENOMEM);
    loop("q8", MZ_FAULT_MADVISE, ENOMEM);
}

static void any_call_fails(void **state)
{
    (void)state;
    loop("raw", MZ_FAULT_ANY, EIO);
    loop("q8", MZ_FAULT_ANY, ENOMEM);
}

static void a_lasting_read_error_is_reported_and_passes(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", true);
    toy_write_kv(&toy, 256);
    (void)mz_evict(toy.pool, UINT64_MAX, NULL);
    mz_fault_os_fail(&toy.fault, MZ_FAULT_PREAD, 1, MZ_FAULT_FOREVER, EIO);
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(toy_restore(&toy, &error), MZ_E_IO);
    assert_non_null(strstr(error.text, "layer"));
    assert_int_equal(mz_prefetch(toy.pool), MZ_OK);
    assert_int_equal(mz_prefetch_wait(toy.pool), MZ_E_IO);
    mz_fault_os_clear(&toy.fault);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void a_full_store_leaves_the_unit_where_it_is(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", true);
    toy_write_kv(&toy, 256);
    assert_true(toy_is_right(&toy));
    mz_fault_os_fail(&toy.fault, MZ_FAULT_PWRITE, 1, MZ_FAULT_FOREVER, ENOSPC);
    uint64_t freed = 0;
    assert_int_equal(mz_evict(toy.pool, UINT64_MAX, &freed), MZ_E_PARTIAL);
    mz_pool_status status;
    mz_status_get(toy.pool, &status);
    /* Weights need no store; KV could not go. */
    assert_int_equal(freed, TOY_LAYERS * TOY_WEIGHT_BYTES);
    assert_int_equal(status.kv_cache.resident_units, TOY_LAYERS * TOY_CHUNKS + 1);
    assert_non_null(strstr(status.last_error, "No space left"));
    mz_fault_os_clear(&toy.fault);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void a_store_directory_that_goes_missing_is_said(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    mz_pool_destroy(toy.pool);
    mz_pool_options options = {.store_dir = "/proc/mzcache-cannot-be-made", .restore_depth = 1};
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_pool_create(&options, &toy.pool, &error), MZ_OK);
    mz_unit_desc kv = {.tag = MZ_TAG_KV_CACHE, .span_count = 1};
    kv.spans[0] = (mz_span){toy.kv, TOY_CHUNK_BYTES, -1, 0, MZ_ELEM_F16, TOY_ROW_BYTES};
    assert_int_equal(mz_pool_add_unit(toy.pool, &kv, &error), MZ_OK);
    toy_write_chunk(&toy, 0, 0, 0);
    mz_pool_step_begin(toy.pool);
    mz_pool_wrote(toy.pool, toy.kv, 100);
    toy.kv[5] = 1;
    mz_pool_step_end(toy.pool);
    assert_int_equal(mz_evict(toy.pool, 1, NULL), MZ_E_PARTIAL);
    mz_pool_status status;
    mz_status_get(toy.pool, &status);
    assert_non_null(strstr(status.last_error, "/proc/mzcache-cannot-be-made"));
    assert_int_equal(toy.kv[5], 1);
    options.codec = "zip";
    mz_pool *other = NULL;
    assert_int_equal(mz_pool_create(&options, &other, &error), MZ_E_INVALID);
    toy_close(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_fail),
        cmocka_unit_test(reads_of_a_ring_fail),
        cmocka_unit_test(a_ring_is_refused),
        cmocka_unit_test(writes_fail),
        cmocka_unit_test(memory_calls_fail),
        cmocka_unit_test(any_call_fails),
        cmocka_unit_test(a_lasting_read_error_is_reported_and_passes),
        cmocka_unit_test(a_full_store_leaves_the_unit_where_it_is),
        cmocka_unit_test(a_store_directory_that_goes_missing_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

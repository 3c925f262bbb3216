/* SPDX-License-Identifier: MIT */
/*
 * Goal: a model file that changes on disk, or a store that returns other bytes, gives a clear error
 * and never wrong data.
 * Method: change the file (size, time, or only bytes with the time put back) and the store's bytes
 * while units are away, then ask for them.
 */
#include "pool/fixture.h"

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/internal.h"

static void flip(const char *path, off_t offset)
{
    int fd = open(path, O_RDWR);
    uint8_t byte = 0;
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    fsync(fd);
    close(fd);
}

/* Access and modification time of the weight file, as utimensat takes them. */
static void get_times(const toy_model *toy, struct timespec times[2])
{
    struct stat now;
    assert_int_equal(stat(toy->file, &now), 0);
    times[0] = now.st_atim;
    times[1] = now.st_mtim;
}

static void set_times(const toy_model *toy, const struct timespec times[2])
{
    assert_int_equal(utimensat(AT_FDCWD, toy->file, times, 0), 0);
}

/* Set the modification time ten seconds later than `times` says. */
static void set_later(const toy_model *toy, const struct timespec times[2])
{
    struct timespec later[2] = {times[0], times[1]};
    later[1].tv_sec += 10;
    set_times(toy, later);
}

static void a_changed_model_file_is_noticed(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    assert_true(toy_is_right(&toy));
    (void)mz_evict(toy.pool, UINT64_MAX, NULL);
    struct timespec times[2];
    get_times(&toy, times);
    set_later(&toy, times);
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(toy_restore(&toy, &error), MZ_E_CHANGED);
    set_times(&toy, times);
    assert_true(toy_is_right(&toy)); /* the file is as it was: so is the model */
    toy_close(&toy);
}

static void a_change_that_hides_its_time_is_noticed(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    assert_true(toy_is_right(&toy));
    (void)mz_evict(toy.pool, UINT64_MAX, NULL);
    struct timespec times[2];
    get_times(&toy, times);
    flip(toy.file, 7 * (1 << 20) + 3);
    set_times(&toy, times);
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(toy_restore(&toy, &error), MZ_E_CHANGED);
    assert_non_null(strstr(error.text, "load the model again"));
    flip(toy.file, 7 * (1 << 20) + 3);
    set_times(&toy, times);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void a_model_file_cut_short_is_noticed(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    assert_true(toy_is_right(&toy));
    (void)mz_evict(toy.pool, UINT64_MAX, NULL);
    assert_int_equal(truncate(toy.file, 3 * (1 << 20)), 0);
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(toy_restore(&toy, &error), MZ_E_CHANGED);
    toy_close(&toy);
}

static void a_changed_file_keeps_resident_weights(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    assert_true(toy_is_right(&toy));
    struct timespec times[2];
    get_times(&toy, times);
    set_later(&toy, times);
    uint64_t freed = 1;
    assert_int_equal(mz_evict_tagged(toy.pool, UINT64_MAX, MZ_TAG_WEIGHTS, &freed), MZ_E_PARTIAL);
    assert_int_equal(freed, 0);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

/* Flip one byte in the middle of a slot's payload. */
static void damage_slot(toy_model *toy, const mz_unit *unit, uint32_t span)
{
    static _Alignas(MZ_PAGE_BYTES) uint8_t page[MZ_PAGE_BYTES];
    mz_error error = MZ_ERROR_INIT;
    mz_file *file = mz_store_file(toy->pool->store);
    uint64_t offset = unit->spans[span].kept_offset;
    assert_int_equal(mz_file_read(file, page, sizeof page, offset, &error), MZ_OK);
    page[200] ^= 4;
    assert_int_equal(mz_file_write(file, page, sizeof page, offset, &error), MZ_OK);
}

static void a_damaged_slot_is_lost_until_cleared(void **state)
{
    (void)state;
    static const char *const codecs[] = {"raw", "q8"};
    for (size_t c = 0; c < 2; c++) {
        toy_model toy;
        toy_open(&toy, codecs[c], true);
        toy_write_kv(&toy, 256);
        (void)mz_evict(toy.pool, UINT64_MAX, NULL);
        mz_unit *unit = NULL;
        for (uint32_t i = 0; i < toy.pool->unit_count; i++) {
            mz_unit *candidate = toy.pool->units[i];
            if (candidate->tag == MZ_TAG_KV_CACHE && candidate->layer == 2 &&
                candidate->chunk == 1) {
                unit = candidate;
            }
        }
        assert_non_null(unit);
        assert_true(unit->slot.bytes > 0);
        damage_slot(&toy, unit, 1);
        mz_error error = MZ_ERROR_INIT;
        /* LOST at once if the restore failed before the gate came to the unit. */
        mz_status first = toy_restore(&toy, &error);
        assert_true(first == MZ_E_CORRUPT || first == MZ_E_LOST);
        assert_int_equal(toy_restore(&toy, &error), MZ_E_LOST);
        mz_pool_status status;
        mz_status_get(toy.pool, &status);
        assert_int_equal(status.kv_cache.lost_units, 1);
        /* The other units stay usable. */
        mz_pool_step_begin(toy.pool);
        assert_int_equal(mz_pool_need(toy.pool, toy_chunk(&toy, 2, 0, 0), TOY_CHUNK_BYTES, &error),
                         MZ_OK);
        assert_int_equal(mz_pool_clear(toy.pool, toy.kv, TOY_KV_BYTES, &error), MZ_OK);
        mz_pool_step_end(toy.pool);
        memset(toy.kv_shadow, 0, TOY_KV_BYTES);
        assert_true(toy_is_right(&toy));
        toy_close(&toy);
    }
}

static void a_first_read_that_fails_once_is_no_change(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 8; nth++) {
        toy_model toy;
        toy_open(&toy, "raw", false);
        mz_fault_os_fail(&toy.fault, MZ_FAULT_PREAD, nth, 1, EIO);
        mz_error error = MZ_ERROR_INIT;
        assert_int_equal(toy_restore(&toy, &error), MZ_OK);
        assert_true(mz_fault_os_hits(&toy.fault) > 0);
        mz_fault_os_clear(&toy.fault);
        assert_true(toy_is_right(&toy));
        toy_close(&toy);
    }
}

static void a_read_of_wrong_bytes_is_done_once_more(void **state)
{
    (void)state;
    static const char *const codecs[] = {"raw", "q8"};
    toy_io = MZ_IO_THREADS; /* each read is a pread then, which can be made to bring wrong bytes */
    for (size_t c = 0; c < 2; c++) {
        toy_model toy;
        toy_open(&toy, codecs[c], false);
        toy_write_kv(&toy, 220);
        mz_error error = MZ_ERROR_INIT;
        assert_int_equal(toy_restore(&toy, &error), MZ_OK);
        (void)mz_evict(toy.pool, UINT64_MAX, NULL);
        assert_int_equal(toy_restore(&toy, &error), MZ_OK);
        toy_accept(&toy);
        uint64_t nth = 0;
        bool hit = true;
        while (hit) {
            (void)mz_evict(toy.pool, UINT64_MAX, NULL);
            mz_fault_os_damage(&toy.fault, ++nth, 1);
            mz_status status = toy_restore(&toy, &error);
            assert_int_equal(status, MZ_OK);
            hit = mz_fault_os_hits(&toy.fault) > 0;
            mz_fault_os_clear(&toy.fault);
            assert_true(toy_is_right(&toy));
        }
        assert_true(nth > TOY_LAYERS + TOY_LAYERS * TOY_CHUNKS);
        toy_close(&toy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_changed_model_file_is_noticed),
        cmocka_unit_test(a_change_that_hides_its_time_is_noticed),
        cmocka_unit_test(a_model_file_cut_short_is_noticed),
        cmocka_unit_test(a_changed_file_keeps_resident_weights),
        cmocka_unit_test(a_damaged_slot_is_lost_until_cleared),
        cmocka_unit_test(a_first_read_that_fails_once_is_no_change),
        cmocka_unit_test(a_read_of_wrong_bytes_is_done_once_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

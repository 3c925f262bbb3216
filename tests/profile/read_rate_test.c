/* SPDX-License-Identifier: MIT */
/*
 * Goal: mz_read_rate reads what it says it does, by a ring or by threads, and a failing read ends
 * it with that read's error and nothing left behind.
 * Method: a table of system calls that counts and fails; open descriptors and mappings are compared
 * before and after. How high a rate is, is no matter of a test.
 */
#include "profile/read_rate.h"

#include <cmocka.h>
#include <errno.h>

#include "os/fault_os.h"
#include "os/scratch.h"

#define FILE_BYTES (1u << 20)

typedef struct place {
    char path[256];
    mz_fault_os fault;
    mz_file file;
} place;

static void place_open(place *p)
{
    mz_error error = MZ_ERROR_INIT;
    mz_fault_os_init(&p->fault);
    scratch_make_directory(p->path, sizeof p->path);
    strcat(p->path, "/file");
    scratch_make_file(p->path, FILE_BYTES);
    assert_int_equal(mz_file_open(&p->file, &p->fault.os, p->path, &error), MZ_OK);
}

static void place_close(place *p)
{
    mz_file_close(&p->file);
    unlink(p->path);
    *strrchr(p->path, '/') = '\0';
    rmdir(p->path);
}

static mz_read_load load_of(place *p)
{
    return (mz_read_load){.file = &p->file,
                          .file_bytes = FILE_BYTES,
                          .request_bytes = 64u << 10,
                          .depth = 5,
                          .limit_ns = 20000000u};
}

static uint64_t count(const place *p, mz_fault_kind kind)
{
    return mz_fault_os_count(&p->fault, kind);
}

static void every_depth_and_target_has_a_rate(void **state)
{
    (void)state;
    static const uint32_t depths[] = {1, 3, 4, 5, 64};
    place p;
    place_open(&p);
    const int descriptors = scratch_count_entries("/proc/self/fd");
    for (size_t i = 0; i < 5 * 4; i++) {
        mz_read_load load = load_of(&p);
        mz_error error = MZ_ERROR_INIT;
        double rate = 0;
        load.depth = depths[i / 4];
        load.by_threads = i % 2 == 0;
        load.new_pages = i / 2 % 2 == 0;
        uint64_t mapped = count(&p, MZ_FAULT_MMAP), unmapped = count(&p, MZ_FAULT_MUNMAP);
        uint64_t advised = count(&p, MZ_FAULT_MADVISE), rings = count(&p, MZ_FAULT_RING_START);
        uint64_t reads = count(&p, MZ_FAULT_PREAD);
        assert_int_equal(mz_read_rate(&load, &rate, &error), MZ_OK);
        assert_true(rate > 0);
        rings = count(&p, MZ_FAULT_RING_START) - rings;
        reads = count(&p, MZ_FAULT_PREAD) - reads;
        assert_true(rings + reads >= load.depth);
        assert_true(!load.by_threads || rings == 0);
        /* Committed and dropped around each read, and once for all. */
        advised = count(&p, MZ_FAULT_MADVISE) - advised;
        assert_true(load.new_pages ? advised >= 2 * load.depth : advised <= 2);
        mapped = count(&p, MZ_FAULT_MMAP) - mapped;
        unmapped = count(&p, MZ_FAULT_MUNMAP) - unmapped;
        assert_true(mapped > 0 && unmapped >= mapped);
    }
    assert_int_equal(scratch_count_entries("/proc/self/fd"), descriptors);
    place_close(&p);
}

static void reads_stay_inside_the_file(void **state)
{
    (void)state;
    place p;
    place_open(&p);
    mz_read_load load = load_of(&p);
    mz_error error = MZ_ERROR_INIT;
    double rate = 0;
    load.by_threads = true;
    load.request_bytes = 384u << 10; /* two and a bit: what is over is left out */
    load.limit_ns = 50000000u;
    assert_int_equal(mz_read_rate(&load, &rate, &error), MZ_OK); /* a read past the end fails */
    place_close(&p);
}

static void without_a_ring_threads_read(void **state)
{
    (void)state;
    place p;
    place_open(&p);
    mz_read_load load = load_of(&p);
    mz_error error = MZ_ERROR_INIT;
    double rate = 0;
    mz_fault_os_fail(&p.fault, MZ_FAULT_RING_OPEN, 1, MZ_FAULT_FOREVER, EPERM);
    uint64_t reads = count(&p, MZ_FAULT_PREAD);
    assert_int_equal(mz_read_rate(&load, &rate, &error), MZ_OK);
    assert_true(count(&p, MZ_FAULT_PREAD) - reads >= load.depth);
    place_close(&p);
}

static void a_failure_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        mz_fault_kind kind;
        uint64_t nth;
        int sys_errno;
        mz_status status;
        bool by_threads;
    } cases[] = {
        {MZ_FAULT_PREAD, 3, EIO, MZ_E_IO, true},
        {MZ_FAULT_MMAP, 1, ENOMEM, MZ_E_NOMEM, false},
    };
    place p;
    place_open(&p);
    const int descriptors = scratch_count_entries("/proc/self/fd");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mz_read_load load = load_of(&p);
        mz_error error = MZ_ERROR_INIT;
        double rate = -1;
        load.by_threads = cases[i].by_threads;
        mz_fault_os_fail(&p.fault, cases[i].kind, cases[i].nth, MZ_FAULT_FOREVER,
                         cases[i].sys_errno);
        assert_int_equal(mz_read_rate(&load, &rate, &error), cases[i].status);
        assert_int_equal(error.status, cases[i].status);
        assert_true(rate == -1);
        mz_fault_os_clear(&p.fault);
    }
    assert_int_equal(scratch_count_entries("/proc/self/fd"), descriptors);
    place_close(&p);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    place p;
    place_open(&p);
    for (int i = 0; i < 5; i++) {
        mz_read_load load = load_of(&p);
        mz_error error = MZ_ERROR_INIT;
        double rate = 0;
        load.depth = i == 0 ? 0 : i == 1 ? MZ_READ_LOAD_DEPTH_MAX + 1 : load.depth;
        load.request_bytes = i == 2 ? 0 : i == 3 ? 1000 : i == 4 ? 2 * FILE_BYTES : 4096;
        assert_int_equal(mz_read_rate(&load, &rate, &error), MZ_E_INVALID);
    }
    place_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_depth_and_target_has_a_rate),
        cmocka_unit_test(reads_stay_inside_the_file),
        cmocka_unit_test(without_a_ring_threads_read),
        cmocka_unit_test(a_failure_is_told_and_leaves_nothing),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

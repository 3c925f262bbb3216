/* SPDX-License-Identifier: MIT */
/*
 * Goal: mz_file_read gives exactly the file's bytes, or says why not, whatever the kernel does.
 * Method: files written by stdio, read through a table in which chosen calls fail or fall short;
 * every outcome is compared with the formula that the files were written by.
 */
#include "os/scratch.h"

#include <errno.h>

#include "os/direct_io.h"
#include "os/fault_os.h"

#define WHOLE_PAGES 16u
#define TAIL_BYTES 100u /* of `odd`, behind two whole pages */

typedef struct fixture {
    char directory[256];
    char even[300]; /* WHOLE_PAGES pages */
    char odd[300];  /* two pages and TAIL_BYTES bytes */
    uint8_t *buffer;
    mz_fault_os fault;
    mz_error error;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    scratch_make_directory(f->directory, sizeof f->directory);
    snprintf(f->even, sizeof f->even, "%s/even.bin", f->directory);
    snprintf(f->odd, sizeof f->odd, "%s/odd.bin", f->directory);
    scratch_make_file(f->even, WHOLE_PAGES * SCRATCH_PAGE);
    scratch_make_file(f->odd, 2 * SCRATCH_PAGE + TAIL_BYTES);
    f->buffer = scratch_buffer((WHOLE_PAGES + 1) * SCRATCH_PAGE);
    mz_fault_os_init(&f->fault);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    unlink(f->even);
    unlink(f->odd);
    rmdir(f->directory);
    free(f->buffer);
    free(f);
    return 0;
}

static void open_ok(fixture *f, mz_file *file, const char *path)
{
    assert_int_equal(mz_file_open(file, &f->fault.os, path, &f->error), MZ_OK);
}

static void read_ok(fixture *f, mz_file *file, size_t bytes, uint64_t offset)
{
    memset(f->buffer, 0xA5, bytes);
    assert_int_equal(mz_file_read(file, f->buffer, bytes, offset, &f->error), MZ_OK);
    scratch_assert_bytes(f->buffer, bytes, offset);
}

static void test_whole_pages(void **state)
{
    fixture *f = *state;
    mz_file file;
    open_ok(f, &file, f->even);
    assert_int_equal(file.bytes, WHOLE_PAGES * SCRATCH_PAGE);
    read_ok(f, &file, WHOLE_PAGES * SCRATCH_PAGE, 0);
    read_ok(f, &file, SCRATCH_PAGE, 5 * SCRATCH_PAGE);
    assert_int_equal(mz_file_read(&file, f->buffer, 0, 0, &f->error), MZ_OK);
    mz_file_close(&file);
    assert_int_equal(file.buffered_fd, -1);
    assert_int_equal(file.direct_fd, -1);
}

static void test_unaligned(void **state)
{
    fixture *f = *state;
    mz_file file;
    open_ok(f, &file, f->even);
    read_ok(f, &file, SCRATCH_PAGE, 1);
    read_ok(f, &file, 12345, 777);
    read_ok(f, &file, 1, WHOLE_PAGES * SCRATCH_PAGE - 1);
    uint8_t *odd_address = f->buffer + 3;
    assert_int_equal(mz_file_read(&file, odd_address, SCRATCH_PAGE, 0, &f->error), MZ_OK);
    scratch_assert_bytes(odd_address, SCRATCH_PAGE, 0);
    mz_file_close(&file);
}

static void test_short_counts(void **state)
{
    static const uint64_t counts[] = {1, 511, 512, 4095, 4096, 8192, 10000};
    fixture *f = *state;
    mz_file file;
    open_ok(f, &file, f->even);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        mz_fault_os_shorten(&f->fault, MZ_FAULT_PREAD, 1, 3, counts[i]);
        read_ok(f, &file, WHOLE_PAGES * SCRATCH_PAGE, 0);
        assert_int_equal(mz_fault_os_hits(&f->fault), 3);
    }
    mz_file_close(&file);
}

static void test_interrupted(void **state)
{
    fixture *f = *state;
    mz_file file;
    mz_fault_os_fail(&f->fault, MZ_FAULT_OPEN, 1, 2, EINTR);
    open_ok(f, &file, f->even);
    bool was_direct = mz_file_is_direct(&file);
    mz_fault_os_fail(&f->fault, MZ_FAULT_PREAD, 1, 5, EINTR);
    read_ok(f, &file, WHOLE_PAGES * SCRATCH_PAGE, 0);
    assert_int_equal(mz_fault_os_hits(&f->fault), 5);
    mz_fault_os_fail(&f->fault, MZ_FAULT_PREAD, 1, 5, EINTR);
    read_ok(f, &file, 100, 50);
    assert_int_equal(mz_file_is_direct(&file), was_direct);
    mz_file_close(&file);
}

static void test_direct_refused_at_open(void **state)
{
    fixture *f = *state;
    mz_file file;
    mz_fault_os_fail(&f->fault, MZ_FAULT_OPEN, 2, 1, EINVAL);
    open_ok(f, &file, f->even);
    assert_int_equal(mz_fault_os_hits(&f->fault), 1);
    assert_int_equal(file.direct_fd, -1);
    assert_false(mz_file_is_direct(&file));
    read_ok(f, &file, WHOLE_PAGES * SCRATCH_PAGE, 0);
    mz_file_close(&file);
}

static void test_direct_refused_at_read(void **state)
{
    fixture *f = *state;
    mz_file file;
    open_ok(f, &file, f->even);
    if (!mz_file_is_direct(&file)) {
        mz_file_close(&file);
        skip();
    }
    mz_fault_os_fail(&f->fault, MZ_FAULT_PREAD, 1, 1, EINVAL);
    read_ok(f, &file, WHOLE_PAGES * SCRATCH_PAGE, 0);
    assert_int_equal(mz_fault_os_hits(&f->fault), 1);
    assert_false(mz_file_is_direct(&file));
    /* For good: one more aligned read is one call, not a refused one and another. */
    uint64_t before = mz_fault_os_count(&f->fault, MZ_FAULT_PREAD);
    read_ok(f, &file, SCRATCH_PAGE, 0);
    assert_int_equal(mz_fault_os_count(&f->fault, MZ_FAULT_PREAD), before + 1);
    /* EINVAL of a buffered read is an error like any other. */
    mz_fault_os_fail(&f->fault, MZ_FAULT_PREAD, 1, 1, EINVAL);
    assert_int_equal(mz_file_read(&file, f->buffer, SCRATCH_PAGE, 0, &f->error), MZ_E_IO);
    mz_file_close(&file);
}

static void test_read_error(void **state)
{
    fixture *f = *state;
    mz_file file;
    open_ok(f, &file, f->even);
    mz_fault_os_fail(&f->fault, MZ_FAULT_PREAD, 1, 1, EIO);
    assert_int_equal(mz_file_read(&file, f->buffer, SCRATCH_PAGE, 0, &f->error), MZ_E_IO);
    assert_int_equal(f->error.status, MZ_E_IO);
    assert_int_equal(f->error.sys_errno, EIO);
    assert_non_null(strstr(f->error.text, "check the disk"));
    memset(f->buffer, 0xA5, SCRATCH_PAGE);
    assert_int_equal(mz_file_read_buffered(&file, f->buffer, SCRATCH_PAGE, 0, &f->error), MZ_OK);
    scratch_assert_bytes(f->buffer, SCRATCH_PAGE, 0);
    mz_file_close(&file);
}

static void test_last_page(void **state)
{
    fixture *f = *state;
    mz_file file;
    open_ok(f, &file, f->odd);
    size_t bytes = 2 * SCRATCH_PAGE + TAIL_BYTES;
    /* From the start, from the last page on, from within the tail, and through the page cache. */
    static const uint64_t offsets[] = {0, 2 * 4096, 2 * 4096 + 60, 2 * 4096};
    for (size_t i = 0; i < 4; i++) {
        size_t offset = (size_t)offsets[i];
        size_t wanted = 3 * SCRATCH_PAGE - offset;
        memset(f->buffer, 0xA5, wanted);
        mz_status status = i < 3
                               ? mz_file_read(&file, f->buffer, wanted, offset, &f->error)
                               : mz_file_read_buffered(&file, f->buffer, wanted, offset, &f->error);
        assert_int_equal(status, MZ_OK);
        scratch_assert_bytes(f->buffer, bytes - offset, offset);
        scratch_assert_untouched(f->buffer + bytes - offset, wanted - (bytes - offset));
    }
    mz_file_close(&file);
}

static void test_behind_the_end(void **state)
{
    fixture *f = *state;
    mz_file file;
    open_ok(f, &file, f->odd);
    assert_int_equal(mz_file_read(&file, f->buffer, 4 * SCRATCH_PAGE, 0, &f->error), MZ_E_CORRUPT);
    assert_non_null(strstr(f->error.text, "cut off"));
    assert_int_equal(mz_file_read(&file, f->buffer, SCRATCH_PAGE, 3 * SCRATCH_PAGE, &f->error),
                     MZ_E_CORRUPT);
    assert_int_equal(mz_file_read(&file, f->buffer, 10, 2 * SCRATCH_PAGE + TAIL_BYTES, &f->error),
                     MZ_E_CORRUPT);
    assert_int_equal(mz_file_read(&file, f->buffer, SCRATCH_PAGE, UINT64_MAX - 10, &f->error),
                     MZ_E_INVALID);
    mz_file_close(&file);
}

static void test_cut_off(void **state)
{
    fixture *f = *state;
    mz_file file;
    open_ok(f, &file, f->even);
    assert_int_equal(truncate(f->even, (off_t)(WHOLE_PAGES * SCRATCH_PAGE - 50)), 0);
    assert_int_equal(mz_file_read(&file, f->buffer, WHOLE_PAGES * SCRATCH_PAGE, 0, &f->error),
                     MZ_E_CORRUPT);
    assert_int_equal(truncate(f->even, (off_t)(4 * SCRATCH_PAGE)), 0);
    assert_int_equal(mz_file_read(&file, f->buffer, WHOLE_PAGES * SCRATCH_PAGE, 0, &f->error),
                     MZ_E_CORRUPT);
    read_ok(f, &file, 4 * SCRATCH_PAGE, 0);
    mz_file_close(&file);
}

static void test_zero_count_in_the_middle(void **state)
{
    fixture *f = *state;
    mz_file file;
    open_ok(f, &file, f->even);
    mz_fault_os_shorten(&f->fault, MZ_FAULT_PREAD, 1, 1, 0);
    assert_int_equal(mz_file_read(&file, f->buffer, SCRATCH_PAGE, 0, &f->error), MZ_E_CORRUPT);
    mz_file_close(&file);
}

static void test_open_errors(void **state)
{
    fixture *f = *state;
    mz_file file;
    char path[400];
    snprintf(path, sizeof path, "%s/none.gguf", f->directory);
    assert_int_equal(mz_file_open(&file, &f->fault.os, path, &f->error), MZ_E_NOTFOUND);
    assert_non_null(strstr(f->error.text, "none.gguf"));
    assert_non_null(strstr(f->error.text, "check the path"));
    assert_non_null(strstr(f->error.text, strerror(ENOENT)));
    mz_fault_os_fail(&f->fault, MZ_FAULT_OPEN, 1, 1, EACCES);
    assert_int_equal(mz_file_open(&file, &f->fault.os, f->even, &f->error), MZ_E_PERM);
    assert_int_equal(mz_file_open(&file, &f->fault.os, f->directory, &f->error), MZ_E_IO);
}

static void test_renamed(void **state)
{
    fixture *f = *state;
    mz_file file;
    char path[400];
    snprintf(path, sizeof path, "%s/renamed.bin", f->directory);
    open_ok(f, &file, f->even);
    assert_int_equal(rename(f->even, path), 0);
    scratch_make_text(f->even, "another file");
    read_ok(f, &file, WHOLE_PAGES * SCRATCH_PAGE, 0);
    assert_int_equal(unlink(path), 0);
    read_ok(f, &file, WHOLE_PAGES * SCRATCH_PAGE, 0);
    mz_file_close(&file);
}

/* Whichever call fails: right bytes or an error, and no descriptor is left open. */
static void test_every_call_fails_once(void **state)
{
    fixture *f = *state;
    int open_before = scratch_count_entries("/proc/self/fd");
    for (uint64_t nth = 1;; nth++) {
        mz_file file;
        mz_fault_os_fail(&f->fault, MZ_FAULT_ANY, nth, 1, EIO);
        memset(f->buffer, 0xA5, 3 * SCRATCH_PAGE);
        mz_status status = mz_file_open(&file, &f->fault.os, f->odd, &f->error);
        if (status == MZ_OK) {
            status = mz_file_read(&file, f->buffer, 3 * SCRATCH_PAGE, 0, &f->error);
            mz_file_close(&file);
        }
        if (status == MZ_OK) {
            scratch_assert_bytes(f->buffer, 2 * SCRATCH_PAGE + TAIL_BYTES, 0);
        } else {
            assert_int_equal(status, MZ_E_IO);
        }
        assert_int_equal(scratch_count_entries("/proc/self/fd"), open_before);
        if (mz_fault_os_hits(&f->fault) == 0) {
            assert_int_equal(status, MZ_OK);
            assert_true(nth > 5);
            return;
        }
    }
}

#define READ_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        READ_TEST(test_whole_pages),
        READ_TEST(test_unaligned),
        READ_TEST(test_short_counts),
        READ_TEST(test_interrupted),
        READ_TEST(test_direct_refused_at_open),
        READ_TEST(test_direct_refused_at_read),
        READ_TEST(test_read_error),
        READ_TEST(test_last_page),
        READ_TEST(test_behind_the_end),
        READ_TEST(test_cut_off),
        READ_TEST(test_zero_count_in_the_middle),
        READ_TEST(test_open_errors),
        READ_TEST(test_renamed),
        READ_TEST(test_every_call_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

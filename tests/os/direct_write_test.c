/* SPDX-License-Identifier: MIT */
/*
 * Goal: a temporary file holds exactly what was written, leaves no trace, and says why a write
 * failed. Method: writes through a table with faults, read back by plain pread; the directory is
 * listed, the blocks are counted by fstat.
 */
#include "os/scratch.h"

#include <errno.h>

#include "os/direct_io.h"
#include "os/fault_os.h"

#define PAGES 16u
#define BYTES (PAGES * SCRATCH_PAGE)

typedef struct fixture {
    char directory[256];
    uint8_t *data;   /* BYTES of the pattern */
    uint8_t *buffer; /* to read back into */
    mz_fault_os fault;
    mz_error error;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    scratch_make_directory(f->directory, sizeof f->directory);
    f->data = scratch_buffer(BYTES);
    f->buffer = scratch_buffer(BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        f->data[i] = scratch_byte(i);
    }
    mz_fault_os_init(&f->fault);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    rmdir(f->directory);
    free(f->data);
    free(f->buffer);
    free(f);
    return 0;
}

static void create_ok(fixture *f, mz_file *file)
{
    assert_int_equal(mz_file_create_temporary(file, &f->fault.os, f->directory, &f->error), MZ_OK);
    assert_int_equal(scratch_count_entries(f->directory), 0);
}

static void assert_holds(fixture *f, const mz_file *file, size_t bytes)
{
    memset(f->buffer, 0xA5, BYTES);
    assert_int_equal(pread(file->buffered_fd, f->buffer, bytes, 0), (ssize_t)bytes);
    scratch_assert_bytes(f->buffer, bytes, 0);
}

static void test_write_and_read_back(void **state)
{
    fixture *f = *state;
    mz_file file;
    create_ok(f, &file);
    assert_int_equal(mz_file_write(&file, f->data, BYTES, 0, &f->error), MZ_OK);
    assert_holds(f, &file, BYTES);
    memset(f->buffer, 0xA5, BYTES);
    assert_int_equal(mz_file_read(&file, f->buffer, BYTES, 0, &f->error), MZ_OK);
    scratch_assert_bytes(f->buffer, BYTES, 0);
    mz_file_close(&file);
    assert_int_equal(scratch_count_entries(f->directory), 0);
}

static void test_unaligned_pieces(void **state)
{
    fixture *f = *state;
    mz_file file;
    create_ok(f, &file);
    size_t at = 0;
    for (size_t piece = 1; at + piece <= 30000; piece = piece * 3 + 1) {
        assert_int_equal(mz_file_write(&file, f->data + at, piece, at, &f->error), MZ_OK);
        at += piece;
    }
    assert_holds(f, &file, at);
    mz_file_close(&file);
}

static void test_short_and_interrupted(void **state)
{
    static const uint64_t counts[] = {1, 512, 4096, 9000};
    fixture *f = *state;
    mz_file file;
    create_ok(f, &file);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        assert_int_equal(ftruncate(file.buffered_fd, 0), 0);
        mz_fault_os_shorten(&f->fault, MZ_FAULT_PWRITE, 1, 3, counts[i]);
        assert_int_equal(mz_file_write(&file, f->data, BYTES, 0, &f->error), MZ_OK);
        assert_int_equal(mz_fault_os_hits(&f->fault), 3);
        assert_holds(f, &file, BYTES);
    }
    assert_int_equal(ftruncate(file.buffered_fd, 0), 0);
    mz_fault_os_fail(&f->fault, MZ_FAULT_PWRITE, 1, 4, EINTR);
    assert_int_equal(mz_file_write(&file, f->data, BYTES, 0, &f->error), MZ_OK);
    assert_holds(f, &file, BYTES);
    mz_file_close(&file);
}

static void test_direct_refused_at_write(void **state)
{
    fixture *f = *state;
    mz_file file;
    create_ok(f, &file);
    if (!mz_file_is_direct(&file)) {
        mz_file_close(&file);
        skip();
    }
    mz_fault_os_fail(&f->fault, MZ_FAULT_PWRITE, 1, 1, EINVAL);
    assert_int_equal(mz_file_write(&file, f->data, BYTES, 0, &f->error), MZ_OK);
    assert_false(mz_file_is_direct(&file));
    assert_holds(f, &file, BYTES);
    mz_file_close(&file);
}

static void test_write_errors(void **state)
{
    static const struct {
        int sys_errno;
        mz_status status;
    } cases[] = {{ENOSPC, MZ_E_NOSPC}, {EDQUOT, MZ_E_NOSPC}, {EPERM, MZ_E_PERM}, {EIO, MZ_E_IO}};
    fixture *f = *state;
    mz_file file;
    create_ok(f, &file);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mz_fault_os_fail(&f->fault, MZ_FAULT_PWRITE, 1, 1, cases[i].sys_errno);
        assert_int_equal(mz_file_write(&file, f->data, BYTES, 0, &f->error), cases[i].status);
        assert_int_equal(f->error.sys_errno, cases[i].sys_errno);
    }
    /* Room for the first half only. */
    mz_fault_os_shorten(&f->fault, MZ_FAULT_PWRITE, 1, 1, BYTES / 2);
    assert_int_equal(mz_file_write(&file, f->data, BYTES, 0, &f->error), MZ_OK);
    mz_fault_os_shorten(&f->fault, MZ_FAULT_PWRITE, 1, MZ_FAULT_FOREVER, 0);
    assert_int_equal(mz_file_write(&file, f->data, BYTES, 0, &f->error), MZ_E_IO);
    mz_file_close(&file);
}

static void test_without_tmpfile(void **state)
{
    static const int refusals[] = {EOPNOTSUPP, EISDIR, EINVAL, ENOENT};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        mz_file file;
        mz_fault_os_fail(&f->fault, MZ_FAULT_OPEN, 1, 1, refusals[i]);
        create_ok(f, &file);
        assert_int_equal(mz_fault_os_hits(&f->fault), 1);
        assert_int_equal(mz_file_write(&file, f->data, BYTES, 0, &f->error), MZ_OK);
        assert_holds(f, &file, BYTES);
        struct stat info;
        assert_int_equal(fstat(file.buffered_fd, &info), 0);
        assert_int_equal(info.st_nlink, 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        mz_file_close(&file);
    }
}

/* The table's own refusal, then a clash of names that lasts longer than we try. */
static int open_always_clashes(void *context, const char *path, int flags, unsigned mode)
{
    (void)context;
    (void)path;
    (void)mode;
    errno = (flags & O_TMPFILE) == O_TMPFILE ? EOPNOTSUPP : EEXIST;
    return -1;
}

static void test_create_errors(void **state)
{
    fixture *f = *state;
    mz_file file;
    char path[300];
    snprintf(path, sizeof path, "%s/none", f->directory);
    assert_int_equal(mz_file_create_temporary(&file, &f->fault.os, path, &f->error), MZ_E_NOTFOUND);
    assert_non_null(strstr(f->error.text, "check that the directory exists"));
    mz_fault_os_fail(&f->fault, MZ_FAULT_OPEN, 1, 1, EACCES);
    assert_int_equal(mz_file_create_temporary(&file, &f->fault.os, f->directory, &f->error),
                     MZ_E_PERM);
    mz_fault_os_fail(&f->fault, MZ_FAULT_OPEN, 1, 1, ENOSPC);
    assert_int_equal(mz_file_create_temporary(&file, &f->fault.os, f->directory, &f->error),
                     MZ_E_NOSPC);
    mz_os clashing = f->fault.os;
    clashing.open = open_always_clashes;
    assert_int_equal(mz_file_create_temporary(&file, &clashing, f->directory, &f->error), MZ_E_IO);
    assert_int_equal(f->error.sys_errno, EEXIST);
    assert_int_equal(scratch_count_entries(f->directory), 0);
}

static void test_punch_frees_blocks(void **state)
{
    fixture *f = *state;
    mz_file file;
    create_ok(f, &file);
    assert_int_equal(mz_file_write(&file, f->data, BYTES, 0, &f->error), MZ_OK);
    assert_int_equal(fsync(file.buffered_fd), 0);
    struct stat before;
    struct stat after;
    assert_int_equal(fstat(file.buffered_fd, &before), 0);
    mz_file_punch(&file, 0, BYTES / 2);
    assert_int_equal(fstat(file.buffered_fd, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    assert_true(after.st_blocks < before.st_blocks);
    assert_int_equal(pread(file.buffered_fd, f->buffer, BYTES, 0), BYTES);
    scratch_assert_bytes(f->buffer + BYTES / 2, BYTES / 2, BYTES / 2);
    /* Failure is ignored. */
    mz_fault_os_fail(&f->fault, MZ_FAULT_FALLOCATE, 1, 1, EOPNOTSUPP);
    mz_file_punch(&file, BYTES / 2, BYTES / 2);
    mz_fault_os_fail(&f->fault, MZ_FAULT_FADVISE, 1, 1, EINVAL);
    mz_file_drop_cache(&file, 0, BYTES);
    assert_int_equal(mz_fault_os_hits(&f->fault), 1);
    assert_int_equal(pread(file.buffered_fd, f->buffer, BYTES, 0), BYTES);
    scratch_assert_bytes(f->buffer + BYTES / 2, BYTES / 2, BYTES / 2);
    mz_file_close(&file);
}

/* Whichever call fails: the file works or there is an error, and nothing stays behind. */
static void test_every_call_fails_once(void **state)
{
    fixture *f = *state;
    int open_before = scratch_count_entries("/proc/self/fd");
    for (uint64_t nth = 1;; nth++) {
        mz_file file;
        mz_fault_os_fail(&f->fault, MZ_FAULT_ANY, nth, 1, ENOSPC);
        mz_status status = mz_file_create_temporary(&file, &f->fault.os, f->directory, &f->error);
        if (status == MZ_OK) {
            status = mz_file_write(&file, f->data, BYTES, 0, &f->error);
            if (status == MZ_OK) {
                assert_holds(f, &file, BYTES);
            }
            mz_file_close(&file);
        }
        assert_true(status == MZ_OK || status == MZ_E_NOSPC || status == MZ_E_IO);
        assert_int_equal(scratch_count_entries("/proc/self/fd"), open_before);
        assert_int_equal(scratch_count_entries(f->directory), 0);
        if (mz_fault_os_hits(&f->fault) == 0) {
            assert_int_equal(status, MZ_OK);
            assert_true(nth > 5);
            return;
        }
    }
}

#define WRITE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WRITE_TEST(test_write_and_read_back),   WRITE_TEST(test_unaligned_pieces),
        WRITE_TEST(test_short_and_interrupted), WRITE_TEST(test_direct_refused_at_write),
        WRITE_TEST(test_write_errors),          WRITE_TEST(test_without_tmpfile),
        WRITE_TEST(test_create_errors),         WRITE_TEST(test_punch_frees_blocks),
        WRITE_TEST(test_every_call_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

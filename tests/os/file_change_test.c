/* SPDX-License-Identifier: MIT */
/*
 * Goal: a model file that is changed in place is noticed; one that is only moved is not.
 * Method: a file is changed by plain calls after it was opened; times are set, never waited for.
 */
#include "os/scratch.h"

#include <errno.h>

#include "os/direct_io.h"
#include "os/fault_os.h"

typedef struct fixture {
    char directory[256];
    char path[300];
    mz_fault_os fault;
    mz_file file;
    mz_error error;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    scratch_make_directory(f->directory, sizeof f->directory);
    snprintf(f->path, sizeof f->path, "%s/model.gguf", f->directory);
    scratch_make_file(f->path, 10000);
    struct timespec times[2] = {{1000000000, 5}, {1234567890, 123456789}};
    assert_int_equal(utimensat(AT_FDCWD, f->path, times, 0), 0);
    mz_fault_os_init(&f->fault);
    assert_int_equal(mz_file_open(&f->file, &f->fault.os, f->path, &f->error), MZ_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    mz_file_close(&f->file);
    unlink(f->path);
    rmdir(f->directory);
    free(f);
    return 0;
}

static void test_identity(void **state)
{
    fixture *f = *state;
    struct stat info;
    assert_int_equal(stat(f->path, &info), 0);
    assert_int_equal(f->file.bytes, 10000);
    assert_true(f->file.mtime_ns == INT64_C(1234567890123456789));
    assert_int_equal(f->file.inode, info.st_ino);
    assert_int_equal(f->file.device, info.st_dev);
}

static void test_unchanged(void **state)
{
    fixture *f = *state;
    uint8_t *buffer = scratch_buffer(3 * SCRATCH_PAGE);
    assert_int_equal(mz_file_changed(&f->file, &f->error), MZ_OK);
    assert_int_equal(mz_file_read(&f->file, buffer, 3 * SCRATCH_PAGE, 0, &f->error), MZ_OK);
    assert_int_equal(mz_file_changed(&f->file, &f->error), MZ_OK);
    free(buffer);
}

static void test_moved(void **state)
{
    fixture *f = *state;
    char other[400];
    snprintf(other, sizeof other, "%s/other.gguf", f->directory);
    assert_int_equal(rename(f->path, other), 0);
    assert_int_equal(mz_file_changed(&f->file, &f->error), MZ_OK);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(mz_file_changed(&f->file, &f->error), MZ_OK);
}

static void test_other_size(void **state)
{
    fixture *f = *state;
    struct timespec times[2] = {{1000000000, 5}, {1234567890, 123456789}};
    assert_int_equal(truncate(f->path, 9999), 0);
    assert_int_equal(utimensat(AT_FDCWD, f->path, times, 0), 0);
    assert_int_equal(mz_file_changed(&f->file, &f->error), MZ_E_CHANGED);
    assert_non_null(strstr(f->error.text, "load the model again"));
}

static void test_other_time(void **state)
{
    fixture *f = *state;
    struct timespec times[2] = {{1000000000, 5}, {1234567890, 123456790}};
    assert_int_equal(utimensat(AT_FDCWD, f->path, times, 0), 0);
    assert_int_equal(mz_file_changed(&f->file, &f->error), MZ_E_CHANGED);
}

static void test_cannot_tell(void **state)
{
    fixture *f = *state;
    mz_fault_os_fail(&f->fault, MZ_FAULT_FSTAT, 1, 1, ESTALE);
    assert_int_equal(mz_file_changed(&f->file, &f->error), MZ_E_IO);
    assert_int_equal(f->error.sys_errno, ESTALE);
}

#define CHANGE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHANGE_TEST(test_identity),   CHANGE_TEST(test_unchanged),  CHANGE_TEST(test_moved),
        CHANGE_TEST(test_other_size), CHANGE_TEST(test_other_time), CHANGE_TEST(test_cannot_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

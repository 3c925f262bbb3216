/* SPDX-License-Identifier: MIT */
/*
 * Goal: mappings and Pss of this process are found as the kernel has them.
 * Method: files with awkward paths are mapped at known offsets; memory of known size is written.
 */
#include "os/scratch.h"

#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "os/process.h"

#define MIB ((size_t)1 << 20)

typedef struct fixture {
    char directory[256];
    mz_error error;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    scratch_make_directory(f->directory, sizeof f->directory);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    rmdir(f->directory);
    free(f);
    return 0;
}

static char *map_file(const char *path, size_t bytes, off_t offset)
{
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    char *address = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, offset);
    assert_true(address != MAP_FAILED);
    close(fd);
    return address;
}

static void test_path_with_spaces(void **state)
{
    fixture *f = *state;
    char path[300];
    mz_mapping mapping;
    snprintf(path, sizeof path, "%s/my  model (1) .gguf", f->directory);
    scratch_make_file(path, 8 * SCRATCH_PAGE);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    char *address = map_file(path, 4 * SCRATCH_PAGE, 2 * (off_t)SCRATCH_PAGE);
    /* First byte, one in the middle, the last one. */
    const size_t inside[] = {0, SCRATCH_PAGE + 5, 4 * SCRATCH_PAGE - 1};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(mz_process_find_mapping(address + inside[i], &mapping, &f->error), MZ_OK);
        assert_true(mapping.start == (uintptr_t)address);
        assert_true(mapping.end == (uintptr_t)address + 4 * SCRATCH_PAGE);
        assert_int_equal(mapping.file_offset, 2 * SCRATCH_PAGE);
        assert_int_equal(mapping.inode, info.st_ino);
        assert_string_equal(mapping.path, path);
    }
    assert_int_equal(unlink(path), 0);
    strcat(path, " (deleted)");
    assert_int_equal(mz_process_find_mapping(address, &mapping, &f->error), MZ_OK);
    assert_string_equal(mapping.path, path);
    munmap(address, 4 * SCRATCH_PAGE);
}

static void test_no_file_there(void **state)
{
    fixture *f = *state;
    mz_mapping mapping;
    int on_stack = 0;
    char *address = mmap(NULL, 3 * SCRATCH_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(address != MAP_FAILED);
    assert_int_equal(mz_process_find_mapping(address, &mapping, &f->error), MZ_E_NOTFOUND);
    assert_int_equal(mz_process_find_mapping(&on_stack, &mapping, &f->error), MZ_E_NOTFOUND);
    assert_int_equal(mz_process_find_mapping(NULL, &mapping, &f->error), MZ_E_NOTFOUND);
    munmap(address, 3 * SCRATCH_PAGE);
    assert_int_equal(mz_process_find_mapping(address, &mapping, &f->error), MZ_E_NOTFOUND);
}

static void test_path_too_long(void **state)
{
    enum { DEPTH = 6, NAME_BYTES = 200 };
    fixture *f = *state;
    char path[256 + DEPTH * (NAME_BYTES + 1) + 16];
    char name[NAME_BYTES + 1];
    memset(name, 'd', NAME_BYTES);
    name[NAME_BYTES] = '\0';
    size_t lengths[DEPTH + 1] = {strlen(f->directory)};
    strcpy(path, f->directory);
    for (int i = 0; i < DEPTH; i++) {
        strcat(strcat(path, "/"), name);
        assert_int_equal(mkdir(path, 0700), 0);
        lengths[i + 1] = strlen(path);
    }
    strcat(path, "/file");
    scratch_make_file(path, SCRATCH_PAGE);
    char *address = map_file(path, SCRATCH_PAGE, 0);
    mz_mapping mapping;
    assert_int_equal(mz_process_find_mapping(address, &mapping, &f->error), MZ_E_UNSUPPORTED);
    assert_non_null(strstr(f->error.text, "shorter"));
    munmap(address, SCRATCH_PAGE);
    assert_int_equal(unlink(path), 0);
    for (int i = DEPTH; i > 0; i--) {
        path[lengths[i]] = '\0';
        assert_int_equal(rmdir(path), 0);
    }
}

static void test_pss_follows_memory(void **state)
{
    fixture *f = *state;
    uint64_t before = 0;
    uint64_t after = 0;
    uint64_t by_pid = 0;
    size_t bytes = 32 * MIB;
    char *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(address != MAP_FAILED);
    memset(address, 1, bytes);
    assert_int_equal(mz_process_pss(0, &before, &f->error), MZ_OK);
    /* Measured on the way out: a sanitizer's shadow of the range grows at the first write. */
    assert_int_equal(madvise(address, bytes, MADV_DONTNEED), 0);
    assert_int_equal(mz_process_pss(0, &after, &f->error), MZ_OK);
    assert_in_range(before - after, bytes - MIB, bytes + MIB);
    assert_int_equal(mz_process_pss(getpid(), &by_pid, &f->error), MZ_OK);
    assert_in_range(by_pid, after > MIB ? after - MIB : 0, after + MIB);
    munmap(address, bytes);
}

static void test_pss_of_nobody(void **state)
{
    fixture *f = *state;
    uint64_t bytes = 77;
    /* Linux gives no process a number above 2^22. */
    assert_int_equal(mz_process_pss((1 << 22) + 1, &bytes, &f->error), MZ_E_NOTFOUND);
    assert_int_equal(bytes, 77);
}

#define PROCESS_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROCESS_TEST(test_path_with_spaces), PROCESS_TEST(test_no_file_there),
        PROCESS_TEST(test_path_too_long),    PROCESS_TEST(test_pss_follows_memory),
        PROCESS_TEST(test_pss_of_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

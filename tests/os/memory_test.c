/* SPDX-License-Identifier: MIT */
/*
 * Goal: pages come and go as memory.h says, and the kernel agrees. Method: what is resident is
 * asked of mincore and smaps_rollup, access is tried by handing the address to write(2), failures
 * come from a table with faults.
 */
#include "os/scratch.h"

#include <errno.h>
#include <sys/mman.h>

#include "os/fault_os.h"
#include "os/memory.h"

#define MIB ((uint64_t)1 << 20)

static mz_error error_of_test(void)
{
    return (mz_error)MZ_ERROR_INIT;
}

static char *reserve_ok(const mz_os *os, uint64_t bytes, uint64_t alignment)
{
    mz_error error = error_of_test();
    void *address = NULL;
    assert_int_equal(mz_memory_reserve(os, bytes, alignment, &address, &error), MZ_OK);
    assert_int_equal((uintptr_t)address % alignment, 0);
    return address;
}

/* Pages of the range that mincore calls resident; SIZE_MAX: part of it is not mapped. */
static size_t resident_pages(char *address, uint64_t bytes)
{
    size_t pages = (size_t)(bytes / SCRATCH_PAGE);
    unsigned char *seen = calloc(pages, 1);
    assert_non_null(seen);
    size_t count = 0;
    if (mincore(address, (size_t)bytes, seen) != 0) {
        assert_int_equal(errno, ENOMEM);
        count = SIZE_MAX;
    } else {
        for (size_t i = 0; i < pages; i++) {
            count += seen[i] & 1u;
        }
    }
    free(seen);
    return count;
}

/* Pss of this process in bytes, read without the code under test. */
static int64_t pss_bytes(void)
{
    FILE *stream = fopen("/proc/self/smaps_rollup", "r");
    assert_non_null(stream);
    char line[256];
    long long kib = -1;
    while (kib < 0 && fgets(line, sizeof line, stream) != NULL) {
        if (strncmp(line, "Pss:", 4) == 0) {
            kib = atoll(line + 4);
        }
    }
    fclose(stream);
    assert_true(kib >= 0);
    return (int64_t)kib * 1024;
}

static void test_reserve(void **state)
{
    static const uint64_t alignments[] = {4096, 65536, 2u << 20, 1u << 30};
    (void)state;
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        char *address = reserve_ok(mz_os_linux(), 8 * MIB, alignments[i]);
        assert_int_equal(resident_pages(address, 8 * MIB), 0);
        assert_int_equal(address[0] | address[8 * MIB - 1], 0);
        mz_memory_release(mz_os_linux(), address, 8 * MIB);
        assert_true(resident_pages(address, 8 * MIB) == SIZE_MAX);
    }
    mz_memory_release(mz_os_linux(), NULL, 0);
}

static void test_reserve_costs_nothing(void **state)
{
    (void)state;
    uint64_t bytes = (uint64_t)64 << 30; /* more than small machines have */
    char *address = reserve_ok(mz_os_linux(), bytes, 2 * MIB);
    address[bytes - 1] = 1;
    mz_memory_release(mz_os_linux(), address, bytes);
}

static void test_reserve_errors(void **state)
{
    (void)state;
    mz_error error = error_of_test();
    void *address = NULL;
    mz_fault_os fault;
    mz_fault_os_init(&fault);
    assert_int_equal(mz_memory_reserve(&fault.os, 0, 4096, &address, &error), MZ_E_INVALID);
    assert_int_equal(mz_memory_reserve(&fault.os, 4097, 4096, &address, &error), MZ_E_INVALID);
    assert_int_equal(mz_memory_reserve(&fault.os, 4096, 12288, &address, &error), MZ_E_INVALID);
    assert_int_equal(mz_memory_reserve(&fault.os, 4096, 512, &address, &error), MZ_E_INVALID);
    assert_int_equal(mz_memory_reserve(&fault.os, UINT64_MAX - 4095, 4096, &address, &error),
                     MZ_E_INVALID);
    assert_int_equal(mz_fault_os_count(&fault, MZ_FAULT_ANY), 0);
    mz_fault_os_fail(&fault, MZ_FAULT_MMAP, 1, 1, ENOMEM);
    assert_int_equal(mz_memory_reserve(&fault.os, MIB, 4096, &address, &error), MZ_E_NOMEM);
    assert_int_equal(error.sys_errno, ENOMEM);
    mz_fault_os_fail(&fault, MZ_FAULT_MUNMAP, 1, 1, ENOMEM);
    assert_int_equal(mz_memory_reserve(&fault.os, MIB, 1u << 30, &address, &error), MZ_E_NOMEM);
    assert_null(address);
}

static void test_populate(void **state)
{
    (void)state;
    mz_error error = error_of_test();
    char *address = reserve_ok(mz_os_linux(), 4 * MIB, 4096);
    address[5] = 42;
    address[4 * MIB - 1] = 43;
    assert_int_equal(mz_memory_populate(mz_os_linux(), address, 4 * MIB, &error), MZ_OK);
    assert_int_equal(resident_pages(address, 4 * MIB), 4 * MIB / SCRATCH_PAGE);
    assert_int_equal(address[5], 42);
    assert_int_equal(address[4 * MIB - 1], 43);
    assert_int_equal(mz_memory_populate(mz_os_linux(), address, 0, &error), MZ_OK);
    assert_int_equal(mz_memory_populate(mz_os_linux(), address + 1, 4096, &error), MZ_E_INVALID);
    mz_memory_release(mz_os_linux(), address, 4 * MIB);
}

static void test_populate_on_old_kernel(void **state)
{
    (void)state;
    mz_error error = error_of_test();
    mz_fault_os fault;
    mz_fault_os_init(&fault);
    char *address = reserve_ok(&fault.os, 4 * MIB, 4096);
    memset(address + 100, 7, 5000);
    mz_fault_os_fail(&fault, MZ_FAULT_MADVISE, 1, 1, EINVAL);
    assert_int_equal(mz_memory_populate(&fault.os, address, 4 * MIB, &error), MZ_OK);
    assert_int_equal(mz_fault_os_hits(&fault), 1);
    assert_int_equal(resident_pages(address, 4 * MIB), 4 * MIB / SCRATCH_PAGE);
    for (size_t i = 0; i < 3 * SCRATCH_PAGE; i++) {
        assert_int_equal(address[i], i >= 100 && i < 5100 ? 7 : 0);
    }
    mz_memory_release(&fault.os, address, 4 * MIB);
}

static void test_populate_errors(void **state)
{
    static const struct {
        int sys_errno;
        uint64_t times;
        mz_status status;
    } cases[] = {
        {EINTR, 100, MZ_OK},     {EAGAIN, 3, MZ_OK},      {ENOMEM, 1, MZ_E_NOMEM},
        {EFAULT, 1, MZ_E_NOMEM}, {EHWPOISON, 1, MZ_E_IO}, {EAGAIN, MZ_FAULT_FOREVER, MZ_E_NOMEM},
    };
    (void)state;
    mz_fault_os fault;
    mz_fault_os_init(&fault);
    char *address = reserve_ok(&fault.os, MIB, 4096);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mz_error error = error_of_test();
        mz_fault_os_fail(&fault, MZ_FAULT_MADVISE, 1, cases[i].times, cases[i].sys_errno);
        assert_int_equal(mz_memory_populate(&fault.os, address, MIB, &error), cases[i].status);
        assert_int_equal(error.status, cases[i].status);
    }
    mz_fault_os_clear(&fault);
    mz_memory_release(&fault.os, address, MIB);
}

static void test_drop(void **state)
{
    (void)state;
    mz_error error = error_of_test();
    uint64_t bytes = 64 * MIB;
    char *address = reserve_ok(mz_os_linux(), bytes, 2 * MIB);
    memset(address, 9, (size_t)bytes);
    int64_t before = pss_bytes();
    assert_int_equal(mz_memory_drop(mz_os_linux(), address, bytes, &error), MZ_OK);
    int64_t fallen = before - pss_bytes();
    assert_in_range(fallen, bytes - MIB, bytes + MIB);
    assert_int_equal(resident_pages(address, bytes), 0);
    for (uint64_t at = 0; at < bytes; at += 1021) {
        assert_int_equal(address[at], 0);
    }
    mz_memory_release(mz_os_linux(), address, bytes);
}

static void test_drop_errors(void **state)
{
    (void)state;
    mz_error error = error_of_test();
    mz_fault_os fault;
    mz_fault_os_init(&fault);
    char *address = reserve_ok(&fault.os, 16 * SCRATCH_PAGE, 4096);
    address[0] = 9;
    assert_int_equal(mz_memory_drop(&fault.os, address, 100, &error), MZ_E_INVALID);
    /* What the kernel says of pages under mlock. */
    mz_fault_os_fail(&fault, MZ_FAULT_MADVISE, 1, 1, EINVAL);
    assert_int_equal(mz_memory_drop(&fault.os, address, 16 * SCRATCH_PAGE, &error),
                     MZ_E_UNSUPPORTED);
    assert_non_null(strstr(error.text, "mlock"));
    mz_fault_os_fail(&fault, MZ_FAULT_MADVISE, 1, 1, ENOMEM);
    assert_int_equal(mz_memory_drop(&fault.os, address, 16 * SCRATCH_PAGE, &error), MZ_E_NOMEM);
    assert_int_equal(address[0], 9);
    mz_fault_os_fail(&fault, MZ_FAULT_MADVISE, 1, 2, EINTR);
    assert_int_equal(mz_memory_drop(&fault.os, address, 16 * SCRATCH_PAGE, &error), MZ_OK);
    assert_int_equal(address[0], 0);
    mz_memory_release(&fault.os, address, 16 * SCRATCH_PAGE);
}

static void test_guard(void **state)
{
    (void)state;
    mz_error error = error_of_test();
    mz_fault_os fault;
    mz_fault_os_init(&fault);
    char *address = reserve_ok(&fault.os, 4 * SCRATCH_PAGE, 4096);
    memset(address, 5, 4 * SCRATCH_PAGE);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(mz_memory_guard(&fault.os, address + SCRATCH_PAGE, SCRATCH_PAGE, true, &error),
                     MZ_OK);
    assert_int_equal(write(pipes[1], address, 1), 1);
    assert_int_equal(write(pipes[1], address + SCRATCH_PAGE, 1), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(write(pipes[1], address + 2 * SCRATCH_PAGE, 1), 1);
    assert_int_equal(
        mz_memory_guard(&fault.os, address + SCRATCH_PAGE, SCRATCH_PAGE, false, &error), MZ_OK);
    assert_int_equal(address[SCRATCH_PAGE], 5);
    mz_fault_os_fail(&fault, MZ_FAULT_MPROTECT, 1, 1, ENOMEM);
    assert_int_equal(mz_memory_guard(&fault.os, address, SCRATCH_PAGE, true, &error), MZ_E_NOMEM);
    assert_int_equal(mz_memory_guard(&fault.os, address, 1, true, &error), MZ_E_INVALID);
    close(pipes[0]);
    close(pipes[1]);
    mz_memory_release(&fault.os, address, 4 * SCRATCH_PAGE);
}

typedef struct advice {
    uintptr_t address;
    size_t bytes;
    int advice;
    int calls;
} advice;

static int record_madvise(void *context, void *address, size_t bytes, int kind)
{
    advice *seen = context;
    *seen = (advice){(uintptr_t)address, bytes, kind, seen->calls + 1};
    return 0;
}

static void test_want_huge(void **state)
{
    (void)state;
    advice seen = {0};
    mz_os os = *mz_os_linux();
    os.context = &seen;
    os.madvise = record_madvise;
    /* The addresses are never touched: only the arithmetic counts. */
    char *base = reserve_ok(mz_os_linux(), 8 * MIB, 2 * MIB);
    mz_memory_want_huge(&os, base, 8 * MIB);
    assert_true(seen.address == (uintptr_t)base && seen.bytes == 8 * MIB);
    assert_int_equal(seen.advice, MADV_HUGEPAGE);
    mz_memory_want_huge(&os, base + SCRATCH_PAGE, 8 * MIB - 2 * SCRATCH_PAGE);
    assert_true(seen.address == (uintptr_t)base + 2 * MIB && seen.bytes == 4 * MIB);
    assert_int_equal(seen.calls, 2);
    mz_memory_want_huge(&os, base + SCRATCH_PAGE, 2 * MIB);
    mz_memory_want_huge(&os, base + SCRATCH_PAGE, SCRATCH_PAGE);
    mz_memory_want_huge(&os, base, 2 * MIB - SCRATCH_PAGE);
    assert_int_equal(seen.calls, 2);
    mz_memory_release(mz_os_linux(), base, 8 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_reserve_costs_nothing),
        cmocka_unit_test(test_reserve_errors),
        cmocka_unit_test(test_populate),
        cmocka_unit_test(test_populate_errors),
        cmocka_unit_test(test_populate_on_old_kernel),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_drop_errors),
        cmocka_unit_test(test_guard),
        cmocka_unit_test(test_want_huge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

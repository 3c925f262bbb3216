/* SPDX-License-Identifier: MIT */
/*
 * Reserving, committing and dropping anonymous pages; the contract is in memory.h.
 *
 * Problem: eviction is called when memory is short, so none of this may allocate, and committing
 * must report a shortage instead of being killed at the first touch. Approach: addresses are
 * reserved once without being counted (MAP_NORESERVE); pages come by MADV_POPULATE_WRITE, which
 * fails with an errno where a plain touch would only fault, and go by MADV_DONTNEED.
 * Invariant: no function here changes an address; a failed call leaves the contents as they were.
 */
#include "os/memory.h"

#include <errno.h>
#include <sys/mman.h>

/* Linux 5.14; missing from older C libraries' headers. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* EAGAIN says that a kernel resource is short for the moment: give up when the moment lasts. */
#define MAX_AGAIN 64

static bool is_page_range(const void *address, uint64_t bytes)
{
    return (((uint64_t)(uintptr_t)address | bytes) % MZ_PAGE_BYTES) == 0 && bytes <= SIZE_MAX;
}

/* Unmap an end of a reservation; nothing to do is success. */
static bool trim(const mz_os *os, char *start, uint64_t bytes)
{
    return bytes == 0 || os->munmap(os->context, start, (size_t)bytes) == 0;
}

mz_status mz_memory_reserve(const mz_os *os, uint64_t bytes, uint64_t alignment, void **address,
                            mz_error *error)
{
    bool is_power = alignment != 0 && (alignment & (alignment - 1)) == 0;
    if (bytes == 0 || bytes % MZ_PAGE_BYTES != 0 || !is_power || alignment < MZ_PAGE_BYTES ||
        bytes > SIZE_MAX - alignment) {
        return mz_error_set(error, MZ_E_INVALID, 0,
                            "cannot reserve %llu bytes aligned to %llu: neither is a page multiple",
                            (unsigned long long)bytes, (unsigned long long)alignment);
    }
    uint64_t mapped = bytes + alignment - MZ_PAGE_BYTES;
    char *start = os->mmap(os->context, NULL, (size_t)mapped, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) {
        return mz_error_set(error, MZ_E_NOMEM, errno,
                            "cannot reserve %llu bytes of addresses (raise ulimit -v or "
                            "vm.max_map_count)",
                            (unsigned long long)mapped);
    }
    uint64_t head = (uint64_t)(-(uintptr_t)start & (alignment - 1));
    uint64_t tail = mapped - head - bytes;
    bool has_tail = !trim(os, start + head + bytes, tail);
    if (has_tail || !trim(os, start, head)) {
        mz_error_set(error, MZ_E_NOMEM, errno,
                     "cannot trim a reservation of %llu bytes (raise vm.max_map_count)",
                     (unsigned long long)mapped);
        /* Not the tail if it is gone: another thread may have mapped something there by now. */
        os->munmap(os->context, start, (size_t)(has_tail ? mapped : head + bytes));
        return error->status;
    }
    *address = start + head;
    return MZ_OK;
}

void mz_memory_release(const mz_os *os, void *address, uint64_t bytes)
{
    if (address != NULL && bytes != 0) {
        (void)os->munmap(os->context, address, (size_t)bytes);
    }
}

void mz_memory_want_huge(const mz_os *os, void *address, uint64_t bytes)
{
    uint64_t skip = (uint64_t)(-(uintptr_t)address & (MZ_HUGE_BYTES - 1));
    if (skip >= bytes) {
        return;
    }
    uint64_t whole = (bytes - skip) & ~(uint64_t)(MZ_HUGE_BYTES - 1);
    if (whole != 0) {
        (void)os->madvise(os->context, (char *)address + skip, (size_t)whole, MADV_HUGEPAGE);
    }
}

void mz_memory_want_small(const mz_os *os, void *address, uint64_t bytes)
{
    if (bytes != 0) {
        (void)os->madvise(os->context, address, (size_t)bytes, MADV_NOHUGEPAGE);
    }
}

/* madvise that rides out signals and short shortages. 0, or -1 and errno. */
static int advise_retrying(const mz_os *os, void *address, uint64_t bytes, int advice)
{
    for (int again = 0; again < MAX_AGAIN;) {
        if (os->madvise(os->context, address, (size_t)bytes, advice) == 0) {
            return 0;
        }
        if (errno == EAGAIN) {
            again++;
        } else if (errno != EINTR) {
            return -1;
        }
    }
    errno = EAGAIN;
    return -1;
}

/* Write to each page without changing it: what kernels before MADV_POPULATE_WRITE understand. */
static void touch_pages(void *address, uint64_t bytes)
{
    volatile char *byte = address;
    for (uint64_t at = 0; at < bytes; at += MZ_PAGE_BYTES) {
        byte[at] = byte[at];
    }
}

mz_status mz_memory_populate(const mz_os *os, void *address, uint64_t bytes, mz_error *error)
{
    if (!is_page_range(address, bytes)) {
        return mz_error_set(error, MZ_E_INVALID, 0, "cannot commit %llu bytes: not whole pages",
                            (unsigned long long)bytes);
    }
    if (bytes == 0 || advise_retrying(os, address, bytes, MADV_POPULATE_WRITE) == 0) {
        return MZ_OK;
    }
    if (errno == EINVAL) {
        touch_pages(address, bytes);
        return MZ_OK;
    }
    bool is_shortage = errno == ENOMEM || errno == EFAULT || errno == EAGAIN;
    return mz_error_set(error, is_shortage ? MZ_E_NOMEM : MZ_E_IO, errno,
                        "cannot commit %llu bytes of memory (free memory elsewhere and try again)",
                        (unsigned long long)bytes);
}

mz_status mz_memory_drop(const mz_os *os, void *address, uint64_t bytes, mz_error *error)
{
    if (!is_page_range(address, bytes)) {
        return mz_error_set(error, MZ_E_INVALID, 0, "cannot give back %llu bytes: not whole pages",
                            (unsigned long long)bytes);
    }
    if (bytes == 0 || advise_retrying(os, address, bytes, MADV_DONTNEED) == 0) {
        return MZ_OK;
    }
    if (errno == EINVAL) {
        return mz_error_set(error, MZ_E_UNSUPPORTED, errno,
                            "cannot give back %llu bytes: the pages are locked (start the host "
                            "without mlock)",
                            (unsigned long long)bytes);
    }
    return mz_error_set(error, mz_status_from_errno(errno), errno,
                        "cannot give back %llu bytes (the range must be mapped)",
                        (unsigned long long)bytes);
}

mz_status mz_memory_guard(const mz_os *os, void *address, uint64_t bytes, bool forbid,
                          mz_error *error)
{
    if (!is_page_range(address, bytes)) {
        return mz_error_set(error, MZ_E_INVALID, 0, "cannot guard %llu bytes: not whole pages",
                            (unsigned long long)bytes);
    }
    int protection = forbid ? PROT_NONE : PROT_READ | PROT_WRITE;
    if (bytes == 0 || os->mprotect(os->context, address, (size_t)bytes, protection) == 0) {
        return MZ_OK;
    }
    return mz_error_set(error, mz_status_from_errno(errno), errno,
                        "cannot %s access to %llu bytes (raise vm.max_map_count)",
                        forbid ? "forbid" : "allow", (unsigned long long)bytes);
}

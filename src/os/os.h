/* SPDX-License-Identifier: MIT */
/*
 * Every call into the operating system that evict and restore make goes through one table.
 *
 * `mz_os` is that table: a struct of function pointers with the signatures of the system calls.
 * Product code takes a `const mz_os *`; mz_os_linux() gives the real one, and a test passes a copy
 * in which the n-th call fails (EIO, ENOSPC, ENOMEM, a short count, EINTR). Above it stand helpers
 * that know the rules: whole reads and writes, direct I/O with a buffered fallback, and so on.
 */
#ifndef MZ_OS_OS_H
#define MZ_OS_OS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/error.h"

/* Unit of direct I/O and of all page arithmetic here; memory and file offsets are aligned to it. */
#define MZ_PAGE_BYTES 4096u
#define MZ_HUGE_BYTES (2u << 20)

static inline uint64_t mz_page_floor(uint64_t value)
{
    return value & ~(uint64_t)(MZ_PAGE_BYTES - 1);
}

static inline uint64_t mz_page_ceil(uint64_t value)
{
    return mz_page_floor(value + MZ_PAGE_BYTES - 1);
}

struct io_uring;

/* The table. Each member behaves as the system call of its name: -1 (or MAP_FAILED) and errno. */
typedef struct mz_os {
    void *context; /* handed to every call; lets a test count and fail */
    int (*open)(void *context, const char *path, int flags, unsigned mode);
    int (*close)(void *context, int fd);
    int (*fstat)(void *context, int fd, struct stat *result);
    ssize_t (*read)(void *context, int fd, void *data, size_t bytes);
    ssize_t (*write)(void *context, int fd, const void *data, size_t bytes);
    int (*poll)(void *context, struct pollfd *fds, nfds_t count, int timeout_ms);
    int (*eventfd)(void *context, unsigned initial, int flags);
    /* A stream socket that is connected to the Unix socket `path`; neither blocks afterwards. */
    int (*connect)(void *context, const char *path);
    ssize_t (*pread)(void *context, int fd, void *data, size_t bytes, off_t offset);
    ssize_t (*pwrite)(void *context, int fd, const void *data, size_t bytes, off_t offset);
    int (*ftruncate)(void *context, int fd, off_t bytes);
    int (*fallocate)(void *context, int fd, int mode, off_t offset, off_t bytes);
    void *(*mmap)(void *context, void *address, size_t bytes, int protection, int flags, int fd,
                  off_t offset);
    int (*munmap)(void *context, void *address, size_t bytes);
    int (*mprotect)(void *context, void *address, size_t bytes, int protection);
    int (*madvise)(void *context, void *address, size_t bytes, int advice);
    int (*fadvise)(void *context, int fd, off_t offset, off_t bytes, int advice);
    int (*unlink)(void *context, const char *path);
    int (*fsync)(void *context, int fd);
    int (*rename)(void *context, const char *from, const char *to);
    /*
     * io_uring, as far as reads need it, with a ring of liburing. ring_start begins one read; once
     * it returned 0 the read will end. ring_wait gives one that ended: its tag, and the bytes read
     * or -errno; without `block` it fails with EAGAIN if there is none yet.
     */
    int (*ring_open)(void *context, struct io_uring *ring, unsigned depth);
    void (*ring_close)(void *context, struct io_uring *ring);
    int (*ring_start)(void *context, struct io_uring *ring, int fd, void *data, unsigned bytes,
                      off_t offset, uint64_t tag);
    int (*ring_wait)(void *context, struct io_uring *ring, bool block, uint64_t *tag, int *result);
} mz_os;

/* The real system calls. */
const mz_os *mz_os_linux(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The real system calls behind the mz_os table.
 *
 * Each member only drops the context and calls on; retries and rules live above, in direct_io.c
 * and memory.c, so that a test's table exercises them too. posix_fadvise and liburing return their
 * errors; here these go to errno as in all other members.
 * The table is constant, so any number of threads may share it.
 */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int linux_open(void *context, const char *path, int flags, unsigned mode)
{
    (void)context;
    return open(path, flags, mode);
}

static int linux_close(void *context, int fd)
{
    (void)context;
    return close(fd);
}

static int linux_fstat(void *context, int fd, struct stat *result)
{
    (void)context;
    return fstat(fd, result);
}

static ssize_t linux_read(void *context, int fd, void *data, size_t bytes)
{
    (void)context;
    return read(fd, data, bytes);
}

static ssize_t linux_write(void *context, int fd, const void *data, size_t bytes)
{
    (void)context;
    return write(fd, data, bytes);
}

static int linux_poll(void *context, struct pollfd *fds, nfds_t count, int timeout_ms)
{
    (void)context;
    return poll(fds, count, timeout_ms);
}

static int linux_eventfd(void *context, unsigned initial, int flags)
{
    (void)context;
    return eventfd(initial, flags);
}

static int linux_connect(void *context, const char *path)
{
    (void)context;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, length + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        int reason = errno;
        close(fd);
        errno = reason;
        return -1;
    }
    return fd;
}

static ssize_t linux_pread(void *context, int fd, void *data, size_t bytes, off_t offset)
{
    (void)context;
    return pread(fd, data, bytes, offset);
}

static ssize_t linux_pwrite(void *context, int fd, const void *data, size_t bytes, off_t offset)
{
    (void)context;
    return pwrite(fd, data, bytes, offset);
}

static int linux_ftruncate(void *context, int fd, off_t bytes)
{
    (void)context;
    return ftruncate(fd, bytes);
}

static int linux_fallocate(void *context, int fd, int mode, off_t offset, off_t bytes)
{
    (void)context;
    return fallocate(fd, mode, offset, bytes);
}

static void *linux_mmap(void *context, void *address, size_t bytes, int protection, int flags,
                        int fd, off_t offset)
{
    (void)context;
    return mmap(address, bytes, protection, flags, fd, offset);
}

static int linux_munmap(void *context, void *address, size_t bytes)
{
    (void)context;
    return munmap(address, bytes);
}

static int linux_mprotect(void *context, void *address, size_t bytes, int protection)
{
    (void)context;
    return mprotect(address, bytes, protection);
}

static int linux_madvise(void *context, void *address, size_t bytes, int advice)
{
    (void)context;
    return madvise(address, bytes, advice);
}

static int linux_fadvise(void *context, int fd, off_t offset, off_t bytes, int advice)
{
    (void)context;
    int failure = posix_fadvise(fd, offset, bytes, advice);
    if (failure != 0) {
        errno = failure;
        return -1;
    }
    return 0;
}

static int linux_unlink(void *context, const char *path)
{
    (void)context;
    return unlink(path);
}

static int linux_fsync(void *context, int fd)
{
    (void)context;
    return fsync(fd);
}

static int linux_rename(void *context, const char *from, const char *to)
{
    (void)context;
    return rename(from, to);
}

/* 0, or -1 and errno, of what liburing returns. */
static int ring_result(int result)
{
    if (result < 0) {
        errno = -result;
        return -1;
    }
    return 0;
}

static int linux_ring_open(void *context, struct io_uring *ring, unsigned depth)
{
    (void)context;
    /* What ends is noted when this thread enters the kernel anyway: inference isn't interrupted. */
    int result = io_uring_queue_init(depth, ring, IORING_SETUP_COOP_TASKRUN);
    if (result == -EINVAL) {
        result = io_uring_queue_init(depth, ring, 0); /* before Linux 5.19 */
    }
    return ring_result(result);
}

static void linux_ring_close(void *context, struct io_uring *ring)
{
    (void)context;
    io_uring_queue_exit(ring);
}

static int linux_ring_start(void *context, struct io_uring *ring, int fd, void *data,
                            unsigned bytes, off_t offset, uint64_t tag)
{
    (void)context;
    struct io_uring_sqe *entry = io_uring_get_sqe(ring);
    if (entry == NULL) {
        errno = EAGAIN;
        return -1;
    }
    io_uring_prep_read(entry, fd, data, bytes, (uint64_t)offset);
    io_uring_sqe_set_data64(entry, tag);
    /* From here on the kernel may take it: what is not handed over now, ring_wait hands over. */
    (void)io_uring_submit(ring);
    return 0;
}

static int linux_ring_wait(void *context, struct io_uring *ring, bool block, uint64_t *tag,
                           int *result)
{
    (void)context;
    struct io_uring_cqe *entry = NULL;
    int failure = io_uring_peek_cqe(ring, &entry);
    if (failure == -EAGAIN && block) {
        int submitted = io_uring_submit_and_wait(ring, 1);
        failure = submitted < 0 ? submitted : io_uring_peek_cqe(ring, &entry);
    }
    if (failure == 0) {
        *tag = io_uring_cqe_get_data64(entry);
        *result = entry->res;
        io_uring_cqe_seen(ring, entry);
    }
    return ring_result(failure);
}

const mz_os *mz_os_linux(void)
{
    static const mz_os table = {
        .context = NULL,
        .open = linux_open,
        .close = linux_close,
        .fstat = linux_fstat,
        .read = linux_read,
        .write = linux_write,
        .poll = linux_poll,
        .eventfd = linux_eventfd,
        .connect = linux_connect,
        .pread = linux_pread,
        .pwrite = linux_pwrite,
        .ftruncate = linux_ftruncate,
        .fallocate = linux_fallocate,
        .mmap = linux_mmap,
        .munmap = linux_munmap,
        .mprotect = linux_mprotect,
        .madvise = linux_madvise,
        .fadvise = linux_fadvise,
        .unlink = linux_unlink,
        .fsync = linux_fsync,
        .rename = linux_rename,
        .ring_open = linux_ring_open,
        .ring_close = linux_ring_close,
        .ring_start = linux_ring_start,
        .ring_wait = linux_ring_wait,
    };
    return &table;
}

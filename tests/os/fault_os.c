/* SPDX-License-Identifier: MIT */
/*
 * The fault-injecting table; see fault_os.h.
 *
 * Each member counts itself, asks the rule, and calls the real table or fails. A call belongs to
 * the rule by its own number, taken by one atomic add, so two threads never share a number and
 * exactly `times` calls are changed.
 */
#include "os/fault_os.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t add_one(atomic_uint_fast64_t *counter)
{
    return (uint64_t)atomic_fetch_add_explicit(counter, 1, memory_order_relaxed) + 1;
}

static mz_fault_rule current_rule(mz_fault_os *fault)
{
    pthread_mutex_lock(&fault->lock);
    mz_fault_rule rule = fault->rule;
    pthread_mutex_unlock(&fault->lock);
    return rule;
}

/* Count a call. Returns whether the rule, copied to *rule, is about it. */
static bool is_hit(mz_fault_os *fault, mz_fault_kind kind, mz_fault_rule *rule)
{
    uint64_t number = add_one(&fault->calls[kind]);
    uint64_t any = add_one(&fault->calls[MZ_FAULT_ANY]);
    *rule = current_rule(fault);
    if (rule->kind != kind && rule->kind != MZ_FAULT_ANY) {
        return false;
    }
    number = rule->kind == MZ_FAULT_ANY ? any : number;
    if (number < rule->first || number - rule->first >= rule->times) {
        return false;
    }
    add_one(&fault->hits);
    return true;
}

/* Count a call that knows no short counts. Returns whether it has to fail, errno set. */
static bool is_failure(mz_fault_os *fault, mz_fault_kind kind)
{
    mz_fault_rule rule;
    if (!is_hit(fault, kind, &rule) || rule.sys_errno == 0) {
        return false;
    }
    errno = rule.sys_errno;
    return true;
}

static int fault_open(void *context, const char *path, int flags, unsigned mode)
{
    return is_failure(context, MZ_FAULT_OPEN) ? -1 : mz_os_linux()->open(NULL, path, flags, mode);
}

static int fault_close(void *context, int fd)
{
    mz_fault_os *fault = context;
    int result = mz_os_linux()->close(NULL, fd);
    return is_failure(fault, MZ_FAULT_CLOSE) ? -1 : result;
}

static int fault_fstat(void *context, int fd, struct stat *result)
{
    return is_failure(context, MZ_FAULT_FSTAT) ? -1 : mz_os_linux()->fstat(NULL, fd, result);
}

static int fault_poll(void *context, struct pollfd *fds, nfds_t count, int timeout_ms)
{
    return is_failure(context, MZ_FAULT_POLL) ? -1
                                              : mz_os_linux()->poll(NULL, fds, count, timeout_ms);
}

static int fault_eventfd(void *context, unsigned initial, int flags)
{
    return is_failure(context, MZ_FAULT_EVENTFD) ? -1
                                                 : mz_os_linux()->eventfd(NULL, initial, flags);
}

static int fault_connect(void *context, const char *path)
{
    return is_failure(context, MZ_FAULT_CONNECT) ? -1 : mz_os_linux()->connect(NULL, path);
}

/*
 * Count a read or write of any kind. False: it fails, errno set; true: it may move at most *bytes, and
 * *damage says whether what it reads is to be wrong.
 */
static bool may_move(mz_fault_os *fault, mz_fault_kind kind, size_t *bytes, bool *damage)
{
    mz_fault_rule rule;
    *damage = false;
    if (is_hit(fault, kind, &rule)) {
        if (rule.sys_errno != 0) {
            errno = rule.sys_errno;
            return false;
        }
        *bytes = rule.short_bytes < *bytes ? (size_t)rule.short_bytes : *bytes;
        *damage = rule.damage;
    }
    return true;
}

static ssize_t fault_read(void *context, int fd, void *data, size_t bytes)
{
    bool ignored;
    if (!may_move(context, MZ_FAULT_READ, &bytes, &ignored)) {
        return -1;
    }
    return bytes == 0 ? 0 : mz_os_linux()->read(NULL, fd, data, bytes);
}

static ssize_t fault_write(void *context, int fd, const void *data, size_t bytes)
{
    bool ignored;
    if (!may_move(context, MZ_FAULT_WRITE, &bytes, &ignored)) {
        return -1;
    }
    return bytes == 0 ? 0 : mz_os_linux()->write(NULL, fd, data, bytes);
}

static ssize_t fault_pread(void *context, int fd, void *data, size_t bytes, off_t offset)
{
    bool damage;
    if (!may_move(context, MZ_FAULT_PREAD, &bytes, &damage)) {
        return -1;
    }
    ssize_t moved = bytes == 0 ? 0 : mz_os_linux()->pread(NULL, fd, data, bytes, offset);
    if (damage && moved > 0) {
        ((uint8_t *)data)[moved / 2] ^= 1;
    }
    return moved;
}

static ssize_t fault_pwrite(void *context, int fd, const void *data, size_t bytes, off_t offset)
{
    bool ignored;
    if (!may_move(context, MZ_FAULT_PWRITE, &bytes, &ignored)) {
        return -1;
    }
    return bytes == 0 ? 0 : mz_os_linux()->pwrite(NULL, fd, data, bytes, offset);
}

static int fault_ftruncate(void *context, int fd, off_t bytes)
{
    return is_failure(context, MZ_FAULT_FTRUNCATE) ? -1 : mz_os_linux()->ftruncate(NULL, fd, bytes);
}

static int fault_fallocate(void *context, int fd, int mode, off_t offset, off_t bytes)
{
    if (is_failure(context, MZ_FAULT_FALLOCATE)) {
        return -1;
    }
    return mz_os_linux()->fallocate(NULL, fd, mode, offset, bytes);
}

static void *fault_mmap(void *context, void *address, size_t bytes, int protection, int flags,
                        int fd, off_t offset)
{
    if (is_failure(context, MZ_FAULT_MMAP)) {
        return MAP_FAILED;
    }
    return mz_os_linux()->mmap(NULL, address, bytes, protection, flags, fd, offset);
}

static int fault_munmap(void *context, void *address, size_t bytes)
{
    return is_failure(context, MZ_FAULT_MUNMAP) ? -1 : mz_os_linux()->munmap(NULL, address, bytes);
}

static int fault_mprotect(void *context, void *address, size_t bytes, int protection)
{
    if (is_failure(context, MZ_FAULT_MPROTECT)) {
        return -1;
    }
    return mz_os_linux()->mprotect(NULL, address, bytes, protection);
}

static int fault_madvise(void *context, void *address, size_t bytes, int advice)
{
    if (is_failure(context, MZ_FAULT_MADVISE)) {
        return -1;
    }
    return mz_os_linux()->madvise(NULL, address, bytes, advice);
}

static int fault_fadvise(void *context, int fd, off_t offset, off_t bytes, int advice)
{
    if (is_failure(context, MZ_FAULT_FADVISE)) {
        return -1;
    }
    return mz_os_linux()->fadvise(NULL, fd, offset, bytes, advice);
}

static int fault_unlink(void *context, const char *path)
{
    return is_failure(context, MZ_FAULT_UNLINK) ? -1 : mz_os_linux()->unlink(NULL, path);
}

static int fault_fsync(void *context, int fd)
{
    return is_failure(context, MZ_FAULT_FSYNC) ? -1 : mz_os_linux()->fsync(NULL, fd);
}

static int fault_rename(void *context, const char *from, const char *to)
{
    return is_failure(context, MZ_FAULT_RENAME) ? -1 : mz_os_linux()->rename(NULL, from, to);
}

static int fault_ring_open(void *context, struct io_uring *ring, unsigned depth)
{
    if (is_failure(context, MZ_FAULT_RING_OPEN)) {
        return -1;
    }
    return mz_os_linux()->ring_open(NULL, ring, depth);
}

static void fault_ring_close(void *context, struct io_uring *ring)
{
    (void)context;
    mz_os_linux()->ring_close(NULL, ring);
}

static int fault_ring_start(void *context, struct io_uring *ring, int fd, void *data,
                            unsigned bytes, off_t offset, uint64_t tag)
{
    if (is_failure(context, MZ_FAULT_RING_START)) {
        return -1;
    }
    return mz_os_linux()->ring_start(NULL, ring, fd, data, bytes, offset, tag);
}

/* The read itself has ended, which only its result hides: no buffer is written to afterwards. */
static int fault_ring_wait(void *context, struct io_uring *ring, bool block, uint64_t *tag,
                           int *result)
{
    int failure = mz_os_linux()->ring_wait(NULL, ring, block, tag, result);
    mz_fault_rule rule;
    if (failure == 0 && is_hit(context, MZ_FAULT_RING_READ, &rule)) {
        int most = rule.short_bytes < INT_MAX ? (int)rule.short_bytes : INT_MAX;
        int moved = *result < most ? *result : most;
        *result = rule.sys_errno != 0 ? -rule.sys_errno : moved;
    }
    return failure;
}

void mz_fault_os_init(mz_fault_os *fault)
{
    memset(fault, 0, sizeof *fault);
    for (int i = 0; i < MZ_FAULT_KINDS; i++) {
        atomic_init(&fault->calls[i], 0);
    }
    atomic_init(&fault->hits, 0);
    pthread_mutex_init(&fault->lock, NULL);
    fault->rule.kind = MZ_FAULT_KINDS;
    fault->os = (mz_os){
        .context = fault,
        .open = fault_open,
        .close = fault_close,
        .fstat = fault_fstat,
        .read = fault_read,
        .write = fault_write,
        .poll = fault_poll,
        .eventfd = fault_eventfd,
        .connect = fault_connect,
        .pread = fault_pread,
        .pwrite = fault_pwrite,
        .ftruncate = fault_ftruncate,
        .fallocate = fault_fallocate,
        .mmap = fault_mmap,
        .munmap = fault_munmap,
        .mprotect = fault_mprotect,
        .madvise = fault_madvise,
        .fadvise = fault_fadvise,
        .unlink = fault_unlink,
        .fsync = fault_fsync,
        .rename = fault_rename,
        .ring_open = fault_ring_open,
        .ring_close = fault_ring_close,
        .ring_start = fault_ring_start,
        .ring_wait = fault_ring_wait,
    };
}

static void set_rule(mz_fault_os *fault, uint64_t nth, mz_fault_rule rule)
{
    rule.first = rule.kind < MZ_FAULT_KINDS ? mz_fault_os_count(fault, rule.kind) + nth : 0;
    pthread_mutex_lock(&fault->lock);
    fault->rule = rule;
    pthread_mutex_unlock(&fault->lock);
    atomic_store_explicit(&fault->hits, 0, memory_order_relaxed);
}

void mz_fault_os_fail(mz_fault_os *fault, mz_fault_kind kind, uint64_t nth, uint64_t times,
                      int sys_errno)
{
    set_rule(fault, nth, (mz_fault_rule){kind, 0, times, sys_errno, UINT64_MAX, false});
}

void mz_fault_os_damage(mz_fault_os *fault, uint64_t nth, uint64_t times)
{
    set_rule(fault, nth, (mz_fault_rule){MZ_FAULT_PREAD, 0, times, 0, UINT64_MAX, true});
}

void mz_fault_os_shorten(mz_fault_os *fault, mz_fault_kind kind, uint64_t nth, uint64_t times,
                         uint64_t short_bytes)
{
    set_rule(fault, nth, (mz_fault_rule){kind, 0, times, 0, short_bytes, false});
}

void mz_fault_os_clear(mz_fault_os *fault)
{
    set_rule(fault, 0, (mz_fault_rule){MZ_FAULT_KINDS, 0, 0, 0, UINT64_MAX, false});
}

uint64_t mz_fault_os_count(const mz_fault_os *fault, mz_fault_kind kind)
{
    return (uint64_t)atomic_load_explicit(&fault->calls[kind], memory_order_relaxed);
}

uint64_t mz_fault_os_hits(const mz_fault_os *fault)
{
    return (uint64_t)atomic_load_explicit(&fault->hits, memory_order_relaxed);
}

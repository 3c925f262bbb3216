/* SPDX-License-Identifier: MIT */
/*
 * Whole reads and writes over two descriptors of one inode; the contract is in direct_io.h.
 *
 * Problem: restores want flash past the page cache, but O_DIRECT takes whole pages only, some file
 * systems refuse it (at open, or only at the first read), and any call may be cut short.
 * Approach: one loop moves what is left; before each call it decides anew between the direct and
 * the buffered descriptor, so every short count and refusal is handled by going round once more.
 * The second descriptor is opened through /proc/self/fd, not by path: the path may name another
 * file by then, the descriptor cannot.
 * Invariant: success means that every byte up to the end of file was moved; the buffer behind it
 * is untouched, which is why the file's last partial page never goes the direct way (the kernel
 * would fill the rest of the page with what follows on the device).
 */
#include "os/direct_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* One call moves at most this; Linux itself stops at 2 GiB less a page. A multiple of the page. */
#define MAX_CALL_BYTES (1u << 30)

/* Names tried for a temporary file before giving up; a clash needs the same pid and nanosecond. */
#define MAX_NAME_TRIES 16

/* What is to be moved, and how far it is. One of `in` and `out` is set. */
typedef struct transfer {
    char *in;        /* destination of a read */
    const char *out; /* source of a write */
    uint64_t bytes;  /* to move in all */
    uint64_t offset; /* in the file, of the first byte */
    uint64_t done;   /* bytes moved so far */
    bool buffered;   /* never use O_DIRECT */
} transfer;

static int open_retrying(const mz_os *os, const char *path, int flags)
{
    int fd = -1;
    do {
        fd = os->open(os->context, path, flags | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* A second descriptor of the same inode with O_DIRECT, -1 where that is refused. */
static int open_direct_again(const mz_os *os, int fd, int access)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open_retrying(os, path, access | O_DIRECT);
}

static int64_t mtime_of(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

/* Take over `fd`: on success it belongs to the file, on failure it is closed. */
static mz_status file_adopt(mz_file *file, const mz_os *os, int fd, int access, const char *path,
                            mz_error *error)
{
    struct stat info;
    if (os->fstat(os->context, fd, &info) != 0) {
        mz_error_set(error, MZ_E_IO, errno, "cannot stat %.120s; check its file system", path);
        os->close(os->context, fd);
        return error->status;
    }
    if (!S_ISREG(info.st_mode)) {
        os->close(os->context, fd);
        return mz_error_set(error, MZ_E_IO, 0, "%.120s is not a regular file; give a file", path);
    }
    file->os = os;
    file->buffered_fd = fd;
    file->direct_fd = open_direct_again(os, fd, access);
    atomic_init(&file->direct_refused, false);
    file->bytes = (uint64_t)info.st_size;
    file->mtime_ns = mtime_of(&info);
    file->device = (uint64_t)info.st_dev;
    file->inode = (uint64_t)info.st_ino;
    return MZ_OK;
}

mz_status mz_file_open(mz_file *file, const mz_os *os, const char *path, mz_error *error)
{
    int fd = open_retrying(os, path, O_RDONLY);
    if (fd < 0) {
        return mz_error_set(error, mz_status_from_errno(errno), errno,
                            "cannot open %.120s for reading (check the path and its permissions)",
                            path);
    }
    return file_adopt(file, os, fd, O_RDONLY, path, error);
}

/* For file systems without O_TMPFILE: a name that nobody else has, removed at once. */
static int create_and_unlink(const mz_os *os, const char *directory, mz_error *error)
{
    char path[4096];
    int fd = -1;
    for (int i = 0; i < MAX_NAME_TRIES; i++) {
        int used = snprintf(path, sizeof path, "%s/.mzcache-%ld-%llx-%d.tmp", directory,
                            (long)getpid(), (unsigned long long)mz_now_ns(), i);
        if (used < 0 || (size_t)used >= sizeof path) {
            errno = ENAMETOOLONG;
            break;
        }
        fd = open_retrying(os, path, O_RDWR | O_CREAT | O_EXCL);
        if (fd >= 0 || errno != EEXIST) {
            break;
        }
    }
    if (fd < 0) {
        mz_error_set(error, mz_status_from_errno(errno), errno,
                     "cannot create a file in %.100s (check that the directory exists and can be "
                     "written)",
                     directory);
        return -1;
    }
    if (os->unlink(os->context, path) != 0) {
        mz_error_set(error, mz_status_from_errno(errno), errno,
                     "cannot unlink %.150s (delete it by hand)", path);
        os->close(os->context, fd);
        return -1;
    }
    return fd;
}

/* Whether this errno of open(O_TMPFILE) means that the kernel or the file system lacks it. */
static bool lacks_tmpfile(int sys_errno)
{
    /* Kernels before 3.11 see a directory to be written (EISDIR) or no file (ENOENT). */
    return sys_errno == EOPNOTSUPP || sys_errno == EISDIR || sys_errno == EINVAL ||
           sys_errno == ENOENT;
}

mz_status mz_file_create_temporary(mz_file *file, const mz_os *os, const char *directory,
                                   mz_error *error)
{
    int fd = open_retrying(os, directory, O_TMPFILE | O_RDWR);
    if (fd < 0 && lacks_tmpfile(errno)) {
        fd = create_and_unlink(os, directory, error);
        if (fd < 0) {
            return error->status;
        }
    }
    if (fd < 0) {
        return mz_error_set(error, mz_status_from_errno(errno), errno,
                            "cannot create a file in %.100s (check that the directory exists and "
                            "can be written)",
                            directory);
    }
    return file_adopt(file, os, fd, O_RDWR, directory, error);
}

mz_status mz_file_create(mz_file *file, const mz_os *os, const char *path, mz_error *error)
{
    int fd = open_retrying(os, path, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0) {
        return mz_error_set(error, mz_status_from_errno(errno), errno,
                            "cannot create %.120s (check that its directory can be written)", path);
    }
    return file_adopt(file, os, fd, O_RDWR, path, error);
}

mz_status mz_file_publish(mz_file *file, const char *path, const char *published, mz_error *error)
{
    const mz_os *os = file->os;
    int result = 0;
    do {
        result = os->fsync(os->context, file->buffered_fd);
    } while (result != 0 && errno == EINTR);
    if (result == 0) {
        result = os->rename(os->context, path, published);
    }
    if (result != 0) {
        return mz_error_set(error, mz_status_from_errno(errno), errno,
                            "cannot bring %.120s to the device (check its file system)", published);
    }
    return MZ_OK;
}

void mz_file_close(mz_file *file)
{
    /* No retry on EINTR: Linux has released the descriptor by then. */
    if (file->direct_fd >= 0) {
        file->os->close(file->os->context, file->direct_fd);
        file->direct_fd = -1;
    }
    if (file->buffered_fd >= 0) {
        file->os->close(file->os->context, file->buffered_fd);
        file->buffered_fd = -1;
    }
}

bool mz_file_is_direct(const mz_file *file)
{
    return file->direct_fd >= 0 &&
           !atomic_load_explicit(&file->direct_refused, memory_order_relaxed);
}

/* Bytes that the next call may move past the page cache; 0: use the buffered descriptor. */
static uint64_t direct_bytes(const mz_file *file, const transfer *move)
{
    uint64_t at = move->offset + move->done;
    uint64_t left = move->bytes - move->done;
    uintptr_t address = (uintptr_t)(move->in != NULL ? move->in : move->out) + move->done;
    if (move->buffered || !mz_file_is_direct(file) ||
        ((at | left | (uint64_t)address) % MZ_PAGE_BYTES) != 0) {
        return 0;
    }
    uint64_t whole = mz_page_floor(file->bytes);
    bool has_partial_page = whole != file->bytes;
    if (move->in == NULL || !has_partial_page || at + left <= whole) {
        return left;
    }
    return at < whole ? whole - at : 0;
}

/* One system call. Returns bytes moved, 0 at the end of file, -1 and errno. */
static ssize_t transfer_once(const mz_file *file, const transfer *move, int fd, uint64_t bytes)
{
    size_t count = bytes < MAX_CALL_BYTES ? (size_t)bytes : MAX_CALL_BYTES;
    off_t at = (off_t)(move->offset + move->done);
    const mz_os *os = file->os;
    if (move->in != NULL) {
        return os->pread(os->context, fd, move->in + move->done, count, at);
    }
    return os->pwrite(os->context, fd, move->out + move->done, count, at);
}

/* A call moved nothing: fine behind the last byte of a file whose last page was asked for. */
static mz_status transfer_ended(const mz_file *file, const transfer *move, mz_error *error)
{
    uint64_t at = move->offset + move->done;
    if (move->in == NULL) {
        return mz_error_set(error, MZ_E_IO, 0,
                            "the file system took no bytes at offset %llu; check the disk",
                            (unsigned long long)at);
    }
    struct stat info;
    if (file->os->fstat(file->os->context, file->buffered_fd, &info) != 0) {
        return mz_error_set(error, MZ_E_IO, errno, "cannot stat the file; check its file system");
    }
    /* A file that shrank since it was opened is cut off; one that we appended to has grown. */
    uint64_t now = (uint64_t)info.st_size;
    uint64_t end = now > file->bytes ? now : file->bytes;
    if (at >= end && move->offset < end && move->offset + move->bytes <= mz_page_ceil(end)) {
        return MZ_OK;
    }
    return mz_error_set(error, MZ_E_CORRUPT, 0,
                        "the file is cut off: it ends at byte %llu, %llu bytes at offset %llu were "
                        "asked for; copy or download it again",
                        (unsigned long long)now, (unsigned long long)move->bytes,
                        (unsigned long long)move->offset);
}

static mz_status transfer_failed(const transfer *move, int sys_errno, mz_error *error)
{
    mz_status status = mz_status_from_errno(sys_errno);
    const char *advice = status == MZ_E_NOSPC  ? "free room or choose another directory"
                         : status == MZ_E_PERM ? "check the file's permissions"
                                               : "check the disk and the kernel's log";
    return mz_error_set(error, status, sys_errno, "cannot %s %llu bytes at offset %llu (%s)",
                        move->in != NULL ? "read" : "write",
                        (unsigned long long)(move->bytes - move->done),
                        (unsigned long long)(move->offset + move->done), advice);
}

static mz_status file_transfer(mz_file *file, transfer *move, mz_error *error)
{
    if (move->offset > INT64_MAX || move->bytes > INT64_MAX - move->offset) {
        return mz_error_set(error, MZ_E_INVALID, 0,
                            "%llu bytes at offset %llu lie outside any file",
                            (unsigned long long)move->bytes, (unsigned long long)move->offset);
    }
    while (move->done < move->bytes) {
        uint64_t direct = direct_bytes(file, move);
        int fd = direct != 0 ? file->direct_fd : file->buffered_fd;
        ssize_t moved =
            transfer_once(file, move, fd, direct != 0 ? direct : move->bytes - move->done);
        if (moved > 0) {
            move->done += (uint64_t)moved;
        } else if (moved == 0) {
            return transfer_ended(file, move, error);
        } else if (direct != 0 && errno == EINVAL) {
            atomic_store_explicit(&file->direct_refused, true, memory_order_relaxed);
        } else if (errno != EINTR) {
            return transfer_failed(move, errno, error);
        }
    }
    return MZ_OK;
}

mz_status mz_file_read(mz_file *file, void *data, uint64_t bytes, uint64_t offset, mz_error *error)
{
    transfer move = {.in = data, .bytes = bytes, .offset = offset};
    return file_transfer(file, &move, error);
}

bool mz_file_reads_direct(const mz_file *file, void *data, uint64_t bytes, uint64_t offset)
{
    transfer move = {.in = data, .bytes = bytes, .offset = offset};
    return bytes != 0 && direct_bytes(file, &move) == bytes;
}

mz_status mz_file_read_buffered(mz_file *file, void *data, uint64_t bytes, uint64_t offset,
                                mz_error *error)
{
    transfer move = {.in = data, .bytes = bytes, .offset = offset, .buffered = true};
    return file_transfer(file, &move, error);
}

mz_status mz_file_write(mz_file *file, const void *data, uint64_t bytes, uint64_t offset,
                        mz_error *error)
{
    transfer move = {.out = data, .bytes = bytes, .offset = offset};
    return file_transfer(file, &move, error);
}

mz_status mz_file_extend(mz_file *file, uint64_t bytes, mz_error *error)
{
    if (file->os->ftruncate(file->os->context, file->buffered_fd, (off_t)bytes) != 0) {
        return mz_error_set(error, mz_status_from_errno(errno), errno,
                            "cannot make a file %llu bytes long; check its file system",
                            (unsigned long long)bytes);
    }
    return MZ_OK;
}

void mz_file_punch(mz_file *file, uint64_t offset, uint64_t bytes)
{
    (void)file->os->fallocate(file->os->context, file->buffered_fd,
                              FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                              (off_t)bytes);
}

void mz_file_drop_cache(mz_file *file, uint64_t offset, uint64_t bytes)
{
    (void)file->os->fadvise(file->os->context, file->buffered_fd, (off_t)offset, (off_t)bytes,
                            POSIX_FADV_DONTNEED);
}

mz_status mz_file_changed(mz_file *file, mz_error *error)
{
    struct stat info;
    if (file->os->fstat(file->os->context, file->buffered_fd, &info) != 0) {
        return mz_error_set(error, MZ_E_IO, errno,
                            "cannot tell whether the file changed (check its file system)");
    }
    if ((uint64_t)info.st_size != file->bytes || mtime_of(&info) != file->mtime_ns) {
        return mz_error_set(error, MZ_E_CHANGED, 0,
                            "the file changed after it was opened (it had %llu bytes, it has "
                            "%llu); load the model again",
                            (unsigned long long)file->bytes, (unsigned long long)info.st_size);
    }
    return MZ_OK;
}

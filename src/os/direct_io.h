/* SPDX-License-Identifier: MIT */
/*
 * A file that is read and written past the page cache where the file system allows it.
 *
 * A *mz_file* holds two descriptors of the same inode: one opened with O_DIRECT (or -1 where that
 * is refused) and a buffered one. O_DIRECT may be accepted at open and refused at the first read
 * (some network and FUSE file systems): the first EINVAL turns the file to buffered for good.
 * The descriptors pin the inode, so renaming or unlinking the path changes nothing; a change in
 * place is seen by mz_file_changed.
 *
 * Threads: any number may read and write disjoint ranges at once.
 */
#ifndef MZ_OS_DIRECT_IO_H
#define MZ_OS_DIRECT_IO_H

#include <stdatomic.h>

#include "os/os.h"

typedef struct mz_file {
    const mz_os *os;
    int direct_fd;              /* O_DIRECT, -1 if refused */
    int buffered_fd;            /* always open */
    atomic_bool direct_refused; /* set once a read or write by O_DIRECT gave EINVAL; relaxed */
    uint64_t bytes;             /* size when opened */
    int64_t mtime_ns;           /* modification time when opened */
    uint64_t device, inode;     /* identity when opened */
} mz_file;

/* Open an existing file for reading. Errors: MZ_E_NOTFOUND, MZ_E_PERM, MZ_E_IO. */
mz_status mz_file_open(mz_file *file, const mz_os *os, const char *path, mz_error *error);

/*
 * Make a nameless file in `directory` for reading and writing: it vanishes with the process.
 * O_TMPFILE where the file system has it, else create and unlink. The directory must exist.
 */
mz_status mz_file_create_temporary(mz_file *file, const mz_os *os, const char *directory,
                                   mz_error *error);

/*
 * Make a file at `path` for reading and writing; it must not exist. It is others' only after
 * mz_file_publish, and stays behind if nobody deletes it. Errors: MZ_E_PERM, MZ_E_NOSPC, MZ_E_IO.
 */
mz_status mz_file_create(mz_file *file, const mz_os *os, const char *path, mz_error *error);

/*
 * Bring all that was written to the device, then rename the file from `path` to `published`, in
 * place of what was there: whoever opens that name sees the whole file or the former one.
 */
mz_status mz_file_publish(mz_file *file, const char *path, const char *published, mz_error *error);

void mz_file_close(mz_file *file);

/*
 * Read exactly `bytes` at `offset`; EINTR and short counts are retried, a real end of file is
 * MZ_E_CORRUPT ("cut off"), and so on. O_DIRECT is used when offset, bytes and address are
 * multiples of MZ_PAGE_BYTES and it was not refused; the last page of the file may be partial: the
 * rest of the buffer behind the end of file is then left as it was and this is success as long as
 * `offset + bytes` rounds to the file's last page.
 */
mz_status mz_file_read(mz_file *file, void *data, uint64_t bytes, uint64_t offset, mz_error *error);

/* Whether mz_file_read would read the whole range past the page cache. */
bool mz_file_reads_direct(const mz_file *file, void *data, uint64_t bytes, uint64_t offset);

/* As mz_file_read, but always through the page cache: the second try after a failed direct read. */
mz_status mz_file_read_buffered(mz_file *file, void *data, uint64_t bytes, uint64_t offset,
                                mz_error *error);

/* Write exactly `bytes` at `offset`, same rules. Errors: MZ_E_NOSPC, MZ_E_PERM, MZ_E_IO. */
mz_status mz_file_write(mz_file *file, const void *data, uint64_t bytes, uint64_t offset,
                        mz_error *error);

/* Make the file `bytes` long; what is new reads as zero and takes no room. */
mz_status mz_file_extend(mz_file *file, uint64_t bytes, mz_error *error);

/* Give the file's blocks in a range back (punch a hole); failure is ignored, it only costs room. */
void mz_file_punch(mz_file *file, uint64_t offset, uint64_t bytes);

/* Drop the page cache of a range; a hint. */
void mz_file_drop_cache(mz_file *file, uint64_t offset, uint64_t bytes);

/* MZ_E_CHANGED if size or modification time differ from those at open; MZ_E_IO if that can't be
 * told. */
mz_status mz_file_changed(mz_file *file, mz_error *error);

/* Whether reads go past the page cache at present. */
bool mz_file_is_direct(const mz_file *file);

#endif

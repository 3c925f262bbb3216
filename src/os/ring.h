/* SPDX-License-Identifier: MIT */
/*
 * Several direct reads under way at once by one thread (io_uring).
 *
 * A read that is begun ends by itself; mz_ring_wait tells of one that ended, in any order. What the
 * kernel leaves undone (a short count, a refusal) is done there by mz_file_read, so a read has the
 * same contract either way. Nothing is allocated after mz_ring_open.
 *
 * Threads: a ring belongs to one thread at a time.
 */
#ifndef MZ_OS_RING_H
#define MZ_OS_RING_H

#include "os/direct_io.h"

typedef struct mz_ring mz_ring;

/*
 * A ring for at most `depth` reads under way, 1..64. MZ_E_UNSUPPORTED: the kernel has no io_uring or
 * this process may not use it (sysctl kernel.io_uring_disabled, a container's seccomp filter);
 * reads go by mz_file_read then. MZ_E_NOMEM.
 */
mz_status mz_ring_open(const mz_os *os, uint32_t depth, mz_ring **ring, mz_error *error);

/* No read may be under way. NULL is allowed. */
void mz_ring_close(mz_ring *ring);

/*
 * Begin to read `bytes` at `offset` of the file into `data`, which stays the ring's until
 * mz_ring_wait has told of `tag`. Returns false, and does nothing, if this read can't go past the
 * page cache whole or the ring is full: use mz_file_read.
 */
bool mz_ring_start(mz_ring *ring, mz_file *file, void *data, uint64_t bytes, uint64_t offset,
                   uint32_t tag);

/* Reads begun that mz_ring_wait has not told of. */
uint32_t mz_ring_under_way(const mz_ring *ring);

/*
 * One read that ended: its tag, and how it went, as mz_file_read would say, in *status and *error.
 * Returns false if none is under way, or, without `block`, none has ended yet.
 */
bool mz_ring_wait(mz_ring *ring, bool block, uint32_t *tag, mz_status *status, mz_error *error);

#endif

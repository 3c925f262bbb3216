/* SPDX-License-Identifier: MIT */
/*
 * Direct reads by io_uring; the contract is in ring.h.
 *
 * Problem: a thread that reads synchronously has one request under way and sleeps meanwhile, so
 * keeping a device busy takes many threads, which then compete with inference for few cores.
 * Approach: one thread begins many reads and tends to those that ended. Each is remembered in a
 * slot, whose number is what the kernel gives back.
 * Invariant: a slot is free only when the kernel is done with its buffer. So even if waiting fails
 * for want of kernel memory it is tried again: the completion comes without it.
 */
#include "os/ring.h"

#include <errno.h>
#include <liburing.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>

#define DEPTH_MAX 64u

typedef struct slot {
    bool used;
    uint32_t tag;
    mz_file *file;
    char *data;
    uint64_t bytes, offset;
} slot;

struct mz_ring {
    const mz_os *os;
    struct io_uring uring;
    uint32_t depth, under_way;
    slot slots[DEPTH_MAX]; /* [depth] */
};

mz_status mz_ring_open(const mz_os *os, uint32_t depth, mz_ring **ring, mz_error *error)
{
    if (depth == 0 || depth > DEPTH_MAX) {
        return mz_error_set(error, MZ_E_INVALID, 0, "a ring can't have %u reads under way", depth);
    }
    mz_ring *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a ring");
    }
    made->os = os;
    made->depth = depth;
    if (os->ring_open(os->context, &made->uring, depth) != 0) {
        mz_error_set(error, errno == ENOMEM ? MZ_E_NOMEM : MZ_E_UNSUPPORTED, errno,
                     "no io_uring (see sysctl kernel.io_uring_disabled)");
        free(made);
        return error->status;
    }
    *ring = made;
    return MZ_OK;
}

void mz_ring_close(mz_ring *ring)
{
    if (ring != NULL) {
        ring->os->ring_close(ring->os->context, &ring->uring);
        free(ring);
    }
}

uint32_t mz_ring_under_way(const mz_ring *ring)
{
    return ring->under_way;
}

bool mz_ring_start(mz_ring *ring, mz_file *file, void *data, uint64_t bytes, uint64_t offset,
                   uint32_t tag)
{
    /* The result of a read is an int. */
    if (ring->under_way == ring->depth || bytes > INT_MAX - MZ_PAGE_BYTES ||
        !mz_file_reads_direct(file, data, bytes, offset)) {
        return false;
    }
    uint32_t number = 0;
    while (ring->slots[number].used) {
        number++;
    }
    if (ring->os->ring_start(ring->os->context, &ring->uring, file->direct_fd, data,
                             (unsigned)bytes, (off_t)offset, number) != 0) {
        return false;
    }
    ring->slots[number] = (slot){true, tag, file, data, bytes, offset};
    ring->under_way++;
    return true;
}

/* Settle a read of which the kernel says `result`. */
static mz_status slot_end(const slot *read, int result, mz_error *error)
{
    if (result >= 0 && (uint64_t)result >= read->bytes) {
        return MZ_OK;
    }
    /* Cut short, or refused: the rest once more, which knows the end of file and says what fails.
     * A true failure of the device shows again. */
    uint64_t done = result > 0 ? (uint64_t)result : 0;
    return mz_file_read(read->file, read->data + done, read->bytes - done, read->offset + done,
                        error);
}

bool mz_ring_wait(mz_ring *ring, bool block, uint32_t *tag, mz_status *status, mz_error *error)
{
    uint64_t number = 0;
    int result = 0;
    if (ring->under_way == 0) {
        return false;
    }
    while (ring->os->ring_wait(ring->os->context, &ring->uring, block, &number, &result) != 0) {
        if (!block) {
            return false;
        }
        if (errno != EINTR) {
            sched_yield();
        }
    }
    slot read = ring->slots[number];
    ring->slots[number].used = false;
    ring->under_way--;
    *tag = read.tag;
    *status = slot_end(&read, result, error);
    return true;
}

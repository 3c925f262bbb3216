/* SPDX-License-Identifier: MIT */
/*
 * The stack: in-memory swap space for encoded KV chunks (paper section 4.4).
 *
 * Backward-out eviction pushes the rear layers first and forward-in restoration pops in the
 * opposite order, so the space is a LIFO made of segments: it grows by a segment when the top one
 * is full and gives segments back as it shrinks. A record that is freed out of order only lowers
 * the live count of its segment; the segment goes when nothing in it is live.
 * One segment is mapped at creation, so the first pushes need no mapping when memory is short.
 *
 * Threads: push by one thread at a time; free by any thread under the caller's lock. Reading a
 * record's bytes needs no lock while the record is not freed.
 */
#ifndef MZ_SWAP_STACK_H
#define MZ_SWAP_STACK_H

#include "os/os.h"

typedef struct mz_stack mz_stack;
typedef struct mz_stack_segment mz_stack_segment;

/* A pushed record. segment == NULL: none. */
typedef struct mz_stack_record {
    mz_stack_segment *segment;
    uint64_t offset; /* in the segment, multiple of 64 */
    uint64_t bytes;
} mz_stack_record;

/* A segment holds at least this much; larger records get a segment of their own size. */
#define MZ_STACK_SEGMENT_BYTES (4u << 20)

mz_status mz_stack_create(const mz_os *os, mz_stack **stack, mz_error *error);
void mz_stack_destroy(mz_stack *stack);

/* Room for `bytes` at the top; commit it by mz_stack_commit or forget it. MZ_E_NOMEM. */
mz_status mz_stack_room(mz_stack *stack, uint64_t bytes, void **room, mz_error *error);

/* Turn the first `bytes` of the room from the last mz_stack_room into a record. */
mz_stack_record mz_stack_commit(mz_stack *stack, uint64_t bytes);

const void *mz_stack_data(mz_stack_record record);

/* Free a record and clear it; gives pages back at once. */
void mz_stack_free(mz_stack *stack, mz_stack_record *record);

/* Pages that the stack's records take, in bytes: every page that holds part of a live segment's
 * used part. */
uint64_t mz_stack_bytes(const mz_stack *stack);

/* Walk all segments; false when a count does not add up. For tests. */
bool mz_stack_check(const mz_stack *stack);

#endif

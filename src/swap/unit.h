/* SPDX-License-Identifier: MIT */
/*
 * Units: what is evicted and restored as one.
 *
 * A unit is a weight layer or a KV chunk, made of spans of address space. Its bytes are in exactly
 * one place at any time: in place (resident), in the stack (compressed) or on flash (stored: its
 * model file or a slot of the store). The state changes in one function, mz_unit_move, by a table.
 * A span remembers how much of it is live: bytes behind the live prefix were never written, read as
 * zero, and are neither kept nor counted.
 *
 * Everything here is guarded by the lock of the restore pipeline (restore/restore.h), except the
 * contents of a unit that is EVICTING or RESTORING: they belong to the thread that moves it.
 */
#ifndef MZ_SWAP_UNIT_H
#define MZ_SWAP_UNIT_H

#include "base/trace.h"
#include "codec/codec.h"
#include "mzcache/mzcache.h"
#include "os/os.h"
#include "swap/stack.h"
#include "swap/store.h"

/* One contiguous range of a unit. address and bytes are page aligned; ranges of units never
 * overlap. */
typedef struct mz_span {
    uint8_t *address;
    uint64_t bytes;
    int32_t source;       /* model file from mz_pool_add_source whose bytes these are; -1: none */
    uint64_t file_offset; /* in that file, page aligned */
    mz_elem elem;         /* element type; MZ_ELEM_OPAQUE: no row structure */
    uint32_t row_bytes;   /* bytes of a row (token); 0 for opaque */
} mz_span;

#define MZ_UNIT_SPANS 8

typedef struct mz_unit_desc {
    mz_tag tag;
    uint32_t layer;      /* order of need: inference uses layer 0 first; output weights come last */
    uint32_t chunk;      /* KV: number of the chunk in its layer, 0 first; weights: 0 */
    uint32_t span_count; /* 1..MZ_UNIT_SPANS */
    mz_span spans[MZ_UNIT_SPANS];
    bool stored; /* weights of a source: nothing is read yet, memory is empty */
} mz_unit_desc;

typedef enum mz_unit_state {
    MZ_UNIT_RESIDENT = 0,
    MZ_UNIT_EVICTING,   /* resident, on its way out; belongs to the evicting thread */
    MZ_UNIT_COMPRESSED, /* in the stack */
    MZ_UNIT_STORED,     /* in its model file or a store slot */
    MZ_UNIT_RESTORING,  /* on its way in; `from` says where the truth still is */
    MZ_UNIT_LOST,       /* its stored copy is damaged; only clearing helps */
    MZ_UNIT_STATES,
} mz_unit_state;

/* Direct reads are cut into slices of at most this size, so that several threads share one unit. */
#define MZ_SLICE_BYTES MZ_HUGE_BYTES

/* A span of a unit and where its bytes are kept while they are away. */
typedef struct mz_unit_span {
    mz_span place;
    uint64_t live_bytes;       /* written prefix; what lies behind reads as zero */
    mz_stack_record record;    /* valid while COMPRESSED or restored from there */
    mz_codec_shape kept_shape; /* shape that was encoded; valid if kept_bytes is and kept_encoded */
    uint64_t kept_offset;      /* in the store file; valid while the unit has a slot */
    uint64_t kept_bytes;       /* there, not rounded */
    bool kept_encoded;         /* the kept bytes are a codec's, not the span as it is */
    bool hashed;               /* slice_hash describes the stored copy */
    bool shares_huge;          /* its pages may come as huge ones that hold other units' too */
    uint64_t *slice_hash;      /* [slices of place.bytes] XXH3 of each slice of a direct copy */
} mz_unit_span;

/* A piece of the first `bytes` of a span. */
typedef struct mz_slice {
    uint64_t offset, bytes;
} mz_slice;

/*
 * How many slices the first `bytes` of a span have, and the one of that number. Slices after the
 * first begin at a huge page of memory, so that no two of a span share one: the kernel commits huge
 * pages whole, and two threads that touched one at the same time would both clear it.
 */
uint32_t mz_span_slice_count(const mz_unit_span *span, uint64_t bytes);
mz_slice mz_span_slice(const mz_unit_span *span, uint64_t bytes, uint32_t number);

/* Where a unit waits for restore threads; see restore/restore.h. */
typedef enum mz_unit_queue {
    MZ_QUEUE_NONE = 0,
    MZ_QUEUE_ALLOCATE, /* its pages are committed first, on their own */
    MZ_QUEUE_READ,     /* storage path */
    MZ_QUEUE_DECODE,   /* decode path */
    MZ_UNIT_QUEUES,
} mz_unit_queue;

typedef struct mz_unit mz_unit;
struct mz_unit {
    mz_tag tag;
    uint32_t layer, chunk;
    uint32_t span_count;
    mz_unit_state state;
    mz_unit_state from; /* while RESTORING or EVICTING: the state to fall back to */
    bool clean;         /* flash holds the same bytes: eviction only drops pages */
    bool has_source;    /* its truth is a model file (weights taken by mmap) */
    mz_store_slot slot; /* room in the store; bytes == 0: none */
    uint64_t mark;      /* of the last request that listed the unit: lists it once */
    uint32_t loans;     /* readers that use its compressed bytes; it stays COMPRESSED meanwhile */
    bool postponed;     /* asked for while it was lent: restored once it is given back */
    bool refused;       /* could not be evicted by the mz_evict under way: leave it out */
    /* Restore bookkeeping. */
    mz_unit_queue queue;      /* that it waits in */
    mz_unit *earlier, *later; /* neighbours there, by deadline */
    uint64_t asked;           /* number of the last request that placed it */
    bool allocated;           /* pages were committed in a stage of their own */
    uint32_t next_slice;      /* next one to hand out */
    uint32_t slices;          /* of this restore */
    uint32_t slices_left;     /* not finished yet */
    uint32_t failures;        /* restores that failed so far; lets a waiter notice */
    mz_error attempt;         /* of the restore under way */
    mz_error error;       /* of the last restore that failed; stays while the next one is tried, so
                             that whoever waited for the failed one can still read it */
    mz_unit_span spans[]; /* [span_count] */
};

/* Make a unit from its description; all spans must be page aligned. MZ_E_INVALID, MZ_E_NOMEM. */
mz_status mz_unit_create(const mz_unit_desc *desc, mz_unit **unit, mz_error *error);
void mz_unit_free(mz_unit *unit);

/* Whether the state machine has this edge. */
bool mz_unit_can_move(mz_unit_state from, mz_unit_state to);

/* Change the state; an edge that is not in the table is a bug of ours and asserted. */
void mz_unit_move(mz_unit *unit, mz_unit_state to);

const char *mz_unit_state_name(mz_unit_state state);

/* "weights of layer 3", "KV chunk 7 of layer 3" into text; returns text. */
const char *mz_unit_name(const mz_unit *unit, char *text, size_t capacity);

/* Note what was done with a unit, or a part of it of so many bytes, since start_ns. */
void mz_unit_trace(mz_trace *trace, uint64_t start_ns, const char *what, const mz_unit *unit,
                   uint64_t bytes);

/* Pages of live bytes, in bytes: what eviction gives back of a unit that is resident. */
uint64_t mz_unit_live_pages(const mz_unit *unit);

/* Whether the span goes to the store as it is (then it is read back straight into place). */
bool mz_unit_span_is_direct(const mz_unit *unit, uint32_t span);

/* The shape that a codec sees: whole live rows, or the live bytes as one opaque row. */
mz_codec_shape mz_unit_span_shape(const mz_unit_span *span);

#endif

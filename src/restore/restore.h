/* SPDX-License-Identifier: MIT */
/*
 * The restore pipeline: threads that bring units back, the one needed soonest first.
 *
 * A restore cuts a unit into slices, each of which is done by one thread in one go: commit the
 * pages, read them by direct I/O (or decode them from the stack) straight into place, compare the
 * checksum. Several threads share one large unit, so the first layer that inference waits for is
 * ready as soon as the storage allows.
 *
 * The two paths run side by side: some threads only read, others only decode, each from a queue of
 * their path in deadline order, so that neither path waits behind work of the other. A new request
 * goes in front of what was asked for before it.
 *
 * This object owns the lock that guards all units (mz_restore.lock) and the two conditions: `work`
 * wakes restore threads, `change` wakes whoever waits for a unit or for quiet. The lock is never
 * held across I/O, decoding or a callback.
 */
#ifndef MZ_RESTORE_RESTORE_H
#define MZ_RESTORE_RESTORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "swap/unit.h"

/* Largest span that passes through a bounce buffer (encoded spans in the store). */
#define MZ_BOUNCE_BYTES (64u << 20)
#define MZ_RESTORE_THREADS_MAX 64

/* What overlaps during a restore (paper figure 11a); all but ALL serve comparisons. */
typedef enum mz_overlap {
    MZ_OVERLAP_ALL = 0,        /* allocation, reload and prefill */
    MZ_OVERLAP_NONE,           /* all allocation, then all reload, then prefill */
    MZ_OVERLAP_ALLOC_RELOAD,   /* allocation with reload; prefill waits for everything */
    MZ_OVERLAP_RELOAD_PREFILL, /* all allocation first; then reload with prefill */
} mz_overlap;

/* How the two paths run (paper figure 12). */
typedef enum mz_paths {
    MZ_PATHS_PARALLEL = 0,
    MZ_PATHS_SEQUENTIAL, /* nothing is decoded until everything is read */
} mz_paths;

static inline bool mz_overlap_allocates_first(mz_overlap overlap)
{
    return overlap == MZ_OVERLAP_NONE || overlap == MZ_OVERLAP_RELOAD_PREFILL;
}

static inline bool mz_overlap_prefills(mz_overlap overlap)
{
    return overlap == MZ_OVERLAP_ALL || overlap == MZ_OVERLAP_RELOAD_PREFILL;
}

typedef struct mz_restore_counters {
    uint64_t read_bytes, decoded_bytes, restores;
    uint64_t decode_ns;        /* of all threads, added up */
    uint64_t episode_start_ns; /* first unit asked for after quiet */
    uint64_t last_restore_ns;  /* length of the last episode */
    uint64_t stall_ns;         /* time waited at the gate so far */
    uint64_t episode_stall_ns; /* stall_ns when the episode began */
} mz_restore_counters;

/* Units in deadline order, linked through earlier and later. */
typedef struct mz_restore_queue {
    mz_unit *first, *last;
    uint32_t count;
} mz_restore_queue;

typedef struct mz_restore mz_restore;

typedef struct mz_restore_worker mz_restore_worker;

/* How the storage path reads. */
typedef enum mz_restore_io {
    MZ_IO_AUTO = 0, /* by io_uring where the kernel lets us, else by threads */
    MZ_IO_THREADS,  /* one read under way for each thread */
} mz_restore_io;

/*
 * Reads that a thread with a ring has under way at most, and threads that read without one. Both are
 * more than a disk needs that is tended at once: where inference keeps all cores busy a reading
 * thread is left waiting for milliseconds, and the disk must not run dry meanwhile.
 */
#define MZ_RING_DEPTH 16u
#define MZ_READ_THREADS_MAX 16u

/* Locks for committing huge pages that several units share, taken by address. */
#define MZ_COMMIT_LOCKS 16

struct mz_restore {
    const mz_os *os;
    mz_log_sink log;
    mz_trace *trace;         /* borrowed; NULL: none is wanted */
    bool guard;              /* evicted ranges are PROT_NONE and must be opened first */
    mz_stack *stack;         /* borrowed */
    mz_store *store;         /* borrowed */
    mz_file *const *sources; /* borrowed from the pool: [source_count], read under the lock */

    pthread_mutex_t lock; /* guards everything below and every unit */
    pthread_cond_t work, change;
    mz_restore_queue queues[MZ_UNIT_QUEUES]; /* MZ_QUEUE_NONE stays empty */
    uint64_t requests;                       /* number of the last request */
    uint32_t restoring;                      /* units with a slice handed out and not settled */
    uint32_t reading;                        /* of these, the ones on the storage path */
    uint32_t allocating; /* slices whose pages are being committed in a stage of their own */
    mz_overlap overlap;
    mz_paths paths;
    uint32_t postponed;  /* units that were asked for while they were lent */
    uint64_t taken_back; /* units that a pause took out of the queues so far */
    bool paused;         /* an eviction holds the pool: hand out no new unit */
    bool stop;
    /* Units that are not RESIDENT; written under the lock, read anywhere (acquire/release). */
    atomic_uint away;
    mz_restore_counters counters;

    /* Two threads that touch one huge page at the same time would both clear it. Taken without
     * `lock`, held across one commit. */
    pthread_mutex_t commit_locks[MZ_COMMIT_LOCKS];

    mz_restore_worker *workers[MZ_RESTORE_THREADS_MAX]; /* [worker_count] */
    uint32_t worker_count;
    bool has_ring; /* reads go by io_uring */
};

/*
 * Start the threads: `decoders` for the decode path, and for the storage path as many as keep
 * `depth` reads under way: with io_uring one for each MZ_RING_DEPTH, else one for each read, of which
 * there are MZ_READ_THREADS_MAX at most. The object must be zeroed, with the borrowed fields set. At
 * most MZ_RESTORE_THREADS_MAX are started.
 */
mz_status mz_restore_start(mz_restore *restore, mz_restore_io io, uint32_t depth, uint32_t decoders,
                           mz_error *error);

/* Stop and join the threads; restores that wait in the queue are dropped. */
void mz_restore_stop(mz_restore *restore);

/*
 * Ask for units, first one first, ahead of what waits already. Units that are resident, lost or
 * handed out wholly are passed over; a unit may stand in the list twice. Under the lock.
 */
void mz_restore_request(mz_restore *restore, mz_unit *const *units, uint32_t count);

/*
 * Lend a COMPRESSED unit to a reader: no restore of it begins until it was given back as often. One
 * that waits, or is asked for meanwhile, is postponed until then. Under the lock, in a step.
 */
void mz_restore_lend(mz_restore *restore, mz_unit *unit);
void mz_restore_give_back(mz_restore *restore, mz_unit *unit);

/* Take a unit out of the queue (it is being cleared or forgotten). Under the lock. */
void mz_restore_forget(mz_restore *restore, mz_unit *unit);

/* Drop everything that waits, pause, and wait until no slice is in flight. Under the lock. */
void mz_restore_pause(mz_restore *restore);
void mz_restore_resume(mz_restore *restore);

/* Whether anything waits or is under way. Under the lock. */
bool mz_restore_busy(const mz_restore *restore);

/* One piece of work for a thread. */
typedef struct mz_restore_task {
    mz_unit *unit;
    uint32_t slice;
    bool allocate; /* commit the pages only */
} mz_restore_task;

/* Hand out the next task of a path; false if there is none now. Under the lock. */
bool mz_restore_take_task(mz_restore *restore, mz_unit_queue own, mz_restore_task *task);

typedef struct mz_slice_result {
    uint64_t read_bytes, decoded_bytes, decode_ns;
} mz_slice_result;

/*
 * A slice is done, or was passed over: *error says how it went. The last one settles the unit.
 * Takes and returns with the lock held; it is given up in between.
 */
void mz_restore_slice_done(mz_restore *restore, mz_unit *unit, const mz_slice_result *result,
                           const mz_error *error);

/* Set a unit's state and keep `away` in step. Under the lock. */
void mz_restore_move(mz_restore *restore, mz_unit *unit, mz_unit_state to);

/* What a slice has to read, and where to. */
typedef struct mz_slice_read {
    mz_file *file; /* NULL: nothing, its bytes are in the stack */
    void *target;
    uint64_t bytes, offset; /* whole pages */
    bool first_load;        /* from the page cache, where the host's own mapping has put it */
    uint64_t start_ns;      /* for the trace */
} mz_slice_read;

/* Slices of a unit, by where its truth is. */
uint32_t mz_slice_count(const mz_unit *unit);

/* Commit the pages of a slice, in a stage of its own. */
mz_status mz_slice_allocate(mz_restore *restore, mz_unit *unit, uint32_t slice, mz_error *error);

/* Bytes that a slice reads into a bounce buffer; 0: it reads into place, or nothing. */
uint64_t mz_slice_bounce_bytes(const mz_unit *unit, uint32_t slice);

/*
 * One slice, without the lock, in three parts: commit its pages and say what to read; read it, or
 * have a ring read it; check what came, decode it. bounce has room for mz_slice_bounce_bytes and
 * stays the slice's until its end. mz_slice_end is called only if mz_slice_begin succeeded, and is
 * told how the read went; it tries a failed one once more through the page cache.
 */
mz_status mz_slice_begin(mz_restore *restore, mz_file *source, mz_unit *unit, uint32_t slice,
                         void *bounce, mz_slice_read *read, mz_error *error);
mz_status mz_slice_read_now(const mz_slice_read *read, mz_error *error);
mz_status mz_slice_end(mz_restore *restore, mz_unit *unit, uint32_t slice,
                       const mz_slice_read *read, mz_status status, mz_slice_result *result,
                       mz_error *error);

#endif

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

/* Largest span that passes through a thread's bounce buffer (encoded spans in the store). */
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
    uint64_t episode_start_ns; /* first unit asked for after quiet */
    uint64_t last_restore_ns;  /* length of the last episode */
    uint64_t stall_ns;         /* time waited at the gate in this episode */
} mz_restore_counters;

/* Units in deadline order, linked through earlier and later. */
typedef struct mz_restore_queue {
    mz_unit *first, *last;
    uint32_t count;
} mz_restore_queue;

typedef struct mz_restore mz_restore;

typedef struct mz_restore_worker {
    mz_restore *restore;
    mz_unit_queue own; /* MZ_QUEUE_READ or MZ_QUEUE_DECODE: the path that it serves */
    void *bounce;      /* readers: MZ_BOUNCE_BYTES of addresses */
    pthread_t thread;
} mz_restore_worker;

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
    uint64_t taken_back; /* units that a pause took out of the queues so far */
    bool paused;         /* an eviction holds the pool: hand out no new unit */
    bool stop;
    /* Units that are not RESIDENT; written under the lock, read anywhere (acquire/release). */
    atomic_uint away;
    mz_restore_counters counters;

    mz_restore_worker workers[MZ_RESTORE_THREADS_MAX];
    uint32_t worker_count;
};

/*
 * Start `readers` threads for the storage path and `decoders` for the other. The object must be
 * zeroed, with the borrowed fields set. At most MZ_RESTORE_THREADS_MAX are started, decoders last.
 */
mz_status mz_restore_start(mz_restore *restore, uint32_t readers, uint32_t decoders,
                           mz_error *error);

/* Stop and join the threads; restores that wait in the queue are dropped. */
void mz_restore_stop(mz_restore *restore);

/*
 * Ask for units, first one first, ahead of what waits already. Units that are resident, lost or
 * handed out wholly are passed over; a unit may stand in the list twice. Under the lock.
 */
void mz_restore_request(mz_restore *restore, mz_unit *const *units, uint32_t count);

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

/* Set a unit's state and keep `away` in step. Under the lock. */
void mz_restore_move(mz_restore *restore, mz_unit *unit, mz_unit_state to);

/* One slice of a restore, without the lock; see slice.c. bounce: this thread's buffer. */
typedef struct mz_slice_result {
    uint64_t read_bytes, decoded_bytes;
} mz_slice_result;
uint32_t mz_slice_count(const mz_unit *unit);
mz_status mz_slice_allocate(mz_restore *restore, mz_unit *unit, uint32_t slice, mz_error *error);
mz_status mz_slice_run(mz_restore *restore, mz_file *source, mz_unit *unit, uint32_t slice,
                       void *bounce, mz_slice_result *result, mz_error *error);

#endif

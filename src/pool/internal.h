/* SPDX-License-Identifier: MIT */
/*
 * What the files of the pool share.
 *
 * Lock order: there is one lock, pool->restore.lock. It guards the units, the index, the step
 * counters and the stack and store tables. An evicting thread additionally *holds the pool*
 * (evict_holds): no step is open then and no restore is in flight, so it may move units without the
 * lock while others read the status.
 */
#ifndef MZ_POOL_INTERNAL_H
#define MZ_POOL_INTERNAL_H

#include <sys/types.h>

#include "pool/pool.h"
#include "restore/restore.h"
#include "swap/policy.h"

typedef struct mz_index_entry {
    uintptr_t start, end; /* addresses of a span */
    mz_unit *unit;
} mz_index_entry;

/*
 * Steps that may begin while an eviction waits: a host that decodes without a pause would begin the
 * next one always. One, because whoever needs memory can't wait for a sentence to be finished.
 */
#define MZ_STEPS_BEFORE_EVICT 1u

/* How long an eviction makes a step wait before it lets it through, apart from the unit at hand: a
 * pause that nobody sees, in which gigabytes of clean weights can go. */
#define MZ_HOLD_NS 20000000u

/* Threads in a step that are remembered; of more only the help against nesting is lost. */
#define MZ_STEP_OWNERS 64u

struct mz_pool {
    mz_restore restore; /* owns the lock */
    const mz_os *os;
    mz_log_sink log;
    bool guard;
    mz_order order; /* of eviction; guarded by the lock */
    uint64_t order_seed;
    const mz_codec *codec; /* of KV in the stack; NULL: raw, KV goes to the store as it is. Changed
                              under the lock by a thread that made evict_busy true */
    bool codec_broke;      /* it broke its contract and is used no more; of the evicting thread */
    bool gate_asked;       /* mz_pool_pass_gate was called; guarded by the lock */
    mz_stack *stack;
    mz_store *store;
    mz_file **sources; /* [source_count] */
    int32_t source_count;

    mz_unit **units; /* [unit_count], in order of need once `sorted` */
    uint32_t unit_count, unit_capacity;
    mz_index_entry *index; /* [index_count], by address once `sorted` */
    uint32_t index_count, index_capacity;
    bool sorted;
    mz_unit **scratch; /* [unit_capacity], for building requests */
    uint64_t mark;

    uint64_t prefetch_taken_back; /* restore.taken_back when mz_prefetch was called last */
    pid_t process;                /* that made the pool: only there are restore threads */
    uint32_t steps_open, steps_waiting;
    uint32_t steps_passed;                 /* steps begun since an eviction waits; see evict.c */
    pthread_t step_owners[MZ_STEP_OWNERS]; /* [step_owner_count] threads with an open step */
    uint32_t step_owner_count;
    bool evict_waits; /* an evicting thread waits for its turn */
    bool evict_busy;  /* some thread is in mz_evict: the next one queues */
    bool evict_holds; /* it holds the pool: steps wait */
    uint64_t held_ns; /* when it took the pool */

    mz_policy_unit *plan_units;      /* [unit_capacity] */
    mz_plan_step *plan_steps;        /* [2 * unit_capacity]: an eviction may also spill each unit */
    mz_profile profile;              /* throughputs of this machine, or defaults */
    double exact_decode_bytes_per_s; /* of "lossless", for KV that the codec does not take */
    const char *rates;               /* how it was measured, "measured" or "quick"; NULL: assumed */
    char rates_note[sizeof((mz_pool_status *)0)->rates_note];
    bool rates_stale;      /* they are quick ones of yesterday or before */
    bool auto_profile;     /* have the machine measured if there is no record, or a stale one */
    bool measuring;        /* a measurement was begun, or could not be */
    char *profile_command; /* that measures; NULL: the one beside this library */
    void *bounce;          /* MZ_BOUNCE_BYTES of addresses, for encoding towards the store */
    bool bounce_used;      /* it has pages */

    int monitor_fd;              /* wakes whoever evicts by itself; -1: nobody */
    bool wake_on_step;           /* write to it when a step begins */
    mz_pressure_level posted;    /* called out and not taken yet */
    const char *posted_by;       /* by whom, static */
    uint64_t last_step_ns;       /* end of the last step; 0: none yet */
    uint64_t returned_ns;        /* begin of the first step since an eviction; 0: none yet */
    mz_pressure_status pressure; /* what the monitor tells, but for ago_ns */
    uint64_t pressure_evict_ns;  /* when its last eviction ended; 0: there was none */

    uint64_t written_bytes, evictions, steps, in_place_bytes;
    uint64_t last_evict_bytes, last_freed_bytes, last_evict_ns;
    char last_error[sizeof((mz_pool_status *)0)->last_error];
};

/* Sort units and index if registration changed them. Under the lock. */
void mz_pool_sort(mz_pool *pool);

/* First index entry that ends behind an address; index_count if none. Under the lock, sorted. */
uint32_t mz_pool_find(const mz_pool *pool, const void *address);

/* After an eviction: have KV that is away come back in huge pages. Under the lock, holding the pool. */
void mz_pool_want_huge(mz_pool *pool);

/* A range was cleared and will fill slowly: small pages again. Under the lock. */
void mz_pool_want_small(mz_pool *pool, void *address, uint64_t bytes);

/*
 * Evict one unit on a path, while holding the pool; takes and returns with the lock held.
 * resident_bytes: what the unit takes in place. freed: that, less what the stack grew by.
 */
mz_status mz_pool_move_out(mz_pool *pool, mz_unit *unit, mz_path path, uint64_t resident_bytes,
                           uint64_t *freed, mz_error *error);

/* Take the machine's record if there is one; returns its read depth, 0 without. At creation. */
uint32_t mz_pool_profile_load(mz_pool *pool);

/* Take the record anew, for another codec. As mz_pool_profile_renew. */
void mz_pool_profile_again(mz_pool *pool);

/* The codec that the user means; NULL for "raw". Errors: MZ_E_INVALID, mz_outside_load's. */
mz_status mz_pool_find_codec(const char *name, const mz_codec **codec, mz_error *error);

/*
 * Before an eviction: take a record that appeared, or replaced a quick one, since. After it: have
 * the machine measured if that is wanted and was not tried. By the evicting thread; the lock is held but given up
 * meanwhile.
 */
void mz_pool_profile_renew(mz_pool *pool);
void mz_pool_profile_start(mz_pool *pool);

/* A step begins: note when, and wake who waits for it. Under the lock. */
void mz_pool_note_step(mz_pool *pool);

/* Whether the calling thread is inside a step: an eviction would wait for it forever. Locked. */
bool mz_pool_in_step(const mz_pool *pool);

#endif

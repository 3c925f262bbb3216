/* SPDX-License-Identifier: MIT */
/*
 * The pool, as the plug-in sees it: register memory, pass the gate, say what was written.
 *
 * A pool knows *spans* of address space (arenas are reserved by whoever registers them) and groups
 * them into units. Inference happens in *steps*: between mz_pool_step_begin and mz_pool_step_end no
 * unit leaves memory. Inside a step the caller asks for the units it is about to use, in the order
 * in which it will use them (mz_pool_request), waits for each where it needs it (mz_pool_need: the
 * gate), and reports what it wrote (mz_pool_wrote). The same calls serve every access from outside
 * (get and set of tensors), so evicted memory is never read as zeros.
 *
 * Threads: every function may be called from any thread; several steps may be open at once.
 * Registration must not race with steps that use the same range.
 */
#ifndef MZ_POOL_POOL_H
#define MZ_POOL_POOL_H

#include "base/log.h"
#include "codec/codec.h"
#include "mzcache/mzcache.h"
#include "os/direct_io.h"
#include "restore/restore.h"
#include "swap/policy.h"
#include "swap/unit.h"

/*
 * What of the pipeline is taken away to measure what it is worth. All zero: nothing, which is right
 * for all other purposes. order: which units mz_evict takes first; the other two are about
 * restores.
 */
typedef struct mz_pool_switches {
    mz_order order;
    uint64_t order_seed; /* of MZ_ORDER_RANDOM */
    mz_overlap overlap;
    mz_paths paths;
} mz_pool_switches;

/*
 * Set one of the switches from words, in a struct only: "order" (backward-out, forward-out,
 * random-out[:SEED]), "overlap" (all, none, alloc-reload, reload-prefill) or "paths" (parallel,
 * sequential). MZ_E_INVALID with a sentence that lists them; *switches is then as before.
 */
MZ_API mz_status mz_pool_parse_switch(const char *name, const char *text,
                                      mz_pool_switches *switches, mz_error *error);

/* All fields may be zero: the default is taken then. */
typedef struct mz_pool_options {
    const mz_os *os;   /* system calls; NULL: mz_os_linux() */
    const char *codec; /* "raw": KV is written to the store as it is (exact); "q8"; NULL: "raw" */
    const char *store_dir; /* made if missing; NULL: $XDG_CACHE_HOME/mzcache or ~/.cache/mzcache */
    int restore_depth; /* reads under way; 0: 64, or more if the profile found that to be faster */
    mz_restore_io restore_io; /* how they are done */
    bool auto_profile; /* have this machine measured, in another process, after the first eviction
                          if `mzcache profile` was never run here, and again when a quick
                          record is a day old */
    const char *profile_command; /* that does it; NULL: the mzcache beside this library */
    mz_pool_switches switches;
    bool guard;      /* forbid access to evicted ranges: a stray access faults (for tests) */
    mz_trace *trace; /* where events are noted, outlives the pool; NULL: nowhere */
    mz_log_sink log; /* where lines go */
} mz_pool_options;

MZ_API mz_status mz_pool_create(const mz_pool_options *options, mz_pool **pool, mz_error *error);

/* Stops the restore threads and frees everything; the arenas stay with their owner. */
MZ_API void mz_pool_destroy(mz_pool *pool);

/* Change the switches of a pool at work; what is being restored goes on by the new ones. */
MZ_API void mz_pool_set_switches(mz_pool *pool, const mz_pool_switches *switches);

/*
 * Use another codec ("raw", "q8", ...) from the next eviction on; what is kept is read as before.
 * It passes no gate. Not inside a step.
 * Blocks: while an eviction is under way.
 * Errors: MZ_E_INVALID with a sentence for a name that is none, MZ_E_BUSY inside a step.
 */
MZ_API mz_status mz_pool_set_codec(mz_pool *pool, const char *name, mz_error *error);

/*
 * A model is about to be used. If the pool's codec needs a gate (codec.h) that this model did not
 * pass, q8 is used from now on, for all models, and the log says so in one sentence. model: its
 * file; NULL: not known, which counts as not passed unless another call named one. Not inside a
 * step. Blocks: as mz_pool_set_codec.
 */
MZ_API void mz_pool_pass_gate(mz_pool *pool, const char *model);

/* Open a model file; *source is its number. The pool keeps it open until it is destroyed. */
MZ_API mz_status mz_pool_add_source(mz_pool *pool, const char *path, int32_t *source,
                                    mz_error *error);

MZ_API mz_status mz_pool_add_unit(mz_pool *pool, const mz_unit_desc *desc, mz_error *error);

/* Forget every unit that begins in the range (its buffer is being freed, or not all of it could be
 * registered). Waits for restores of it. Inside a step of the calling thread it is part of that. */
MZ_API void mz_pool_remove_range(mz_pool *pool, const void *address, uint64_t bytes);

/* Begin a step: waits while an eviction holds the pool. Steps nest across threads, not within
 * one. */
MZ_API void mz_pool_step_begin(mz_pool *pool);
MZ_API void mz_pool_step_end(mz_pool *pool);

/* Whether everything is resident: then no step needs to ask for anything. Cheap. Inside a step. */
MZ_API bool mz_pool_all_resident(const mz_pool *pool);

typedef struct mz_range {
    const void *address;
    uint64_t bytes;
} mz_range;

/*
 * Start restoring the units of these ranges, first range first, ahead of anything asked for before.
 * Returns at once, unless a switch says that prefill does not overlap: then when no restore is
 * under way any more. Inside a step.
 */
MZ_API void mz_pool_request(mz_pool *pool, const mz_range *ranges, size_t count);

/* Whether all units of a range are resident. Inside a step. */
MZ_API bool mz_pool_ready(mz_pool *pool, const void *address, uint64_t bytes);

/*
 * The gate: wait until all units of a range are resident, restoring them first if nobody does.
 * Errors: what the restore failed with (MZ_E_IO, MZ_E_CORRUPT, MZ_E_CHANGED, MZ_E_NOMEM,
 * MZ_E_LOST). The unit stays where it was; the next call tries again.
 */
MZ_API mz_status mz_pool_need(mz_pool *pool, const void *address, uint64_t bytes, mz_error *error);

/* How a reader finds one span of a unit. */
typedef enum mz_view_where {
    MZ_VIEW_RESIDENT = 0, /* in place, until the step ends */
    MZ_VIEW_ENCODED,      /* in the stack, lent: read it there, until it is given back */
    MZ_VIEW_AWAY,         /* nowhere to be read: ask for it, and wait for it */
} mz_view_where;

typedef struct mz_view {
    mz_view_where where;
    uint32_t range;         /* number of the range in which it lies */
    const uint8_t *address; /* of the span, which may reach beyond the range */
    uint64_t bytes;
    const mz_codec *codec; /* ENCODED: that wrote the payload, one that is in_place */
    const uint8_t *payload;
    mz_codec_shape shape; /* of the rows that were encoded; those behind them are zero */
    mz_unit *unit;        /* of the pool */
} mz_view;

/*
 * Look at the units of `ranges` without restoring them, and borrow those whose compressed bytes can
 * be read in place. Units that lie in `in_place` too, where something else wants to read or write
 * them, are not lent. One view for each span in a range, by address in each range; memory that
 * belongs to no unit has none.
 * Returns the number of views. If that is more than `capacity` nothing was borrowed: try again with
 * more room. Inside a step, which gives everything back before it ends.
 */
MZ_API size_t mz_pool_borrow(mz_pool *pool, const mz_range *ranges, size_t count,
                             const mz_range *in_place, size_t in_place_count, mz_view *views,
                             size_t capacity);
MZ_API void mz_pool_give_back(mz_pool *pool, const mz_view *views, size_t count);

/*
 * Bytes of a range were, or are about to be, written: units there are no longer clean, and their
 * live part reaches at least to the end of the range. Inside a step, after mz_pool_need.
 */
MZ_API void mz_pool_wrote(mz_pool *pool, const void *address, uint64_t bytes);

/*
 * All units wholly inside the range are now zero: their pages go, their stored copies are
 * forgotten, nothing is restored. For clear(0) of a KV buffer. Inside a step. The part of the range
 * that is not covered by units is dropped too; address and bytes are page aligned.
 */
MZ_API mz_status mz_pool_clear(mz_pool *pool, void *address, uint64_t bytes, mz_error *error);

/*
 * Called for a span of KV with live bytes, in place; they may be read until it returns. false: no
 * more.
 */
typedef bool (*mz_pool_on_span)(void *context, const mz_codec_shape *shape, const void *bytes);

/*
 * Show the live bytes of all KV that is resident, by layer and chunk, to measure codecs with real
 * values. Waits for nothing; must not race with steps that write. visit must not call the pool.
 */
MZ_API void mz_pool_visit_kv(mz_pool *pool, mz_pool_on_span visit, void *context);

/*
 * mz_evict for nobody who waits: not at all (MZ_E_BUSY) if a step is open or has begun since
 * `steps` of them were counted, and when one comes no further than the unit at hand
 * (MZ_E_CANCELLED, *freed is written). It starts no measurement of the machine.
 */
mz_status mz_pool_evict_quietly(mz_pool *pool, uint64_t bytes, uint64_t steps, uint64_t *freed);

/* What inference does. */
typedef struct mz_pool_activity {
    bool computing;        /* a step is open or waits */
    uint64_t steps;        /* begun so far */
    uint64_t last_step_ns; /* when the last one ended; 0: none did */
    uint64_t returned_ns;  /* when the first one since the last eviction began; 0: none did */
} mz_pool_activity;

void mz_pool_get_activity(mz_pool *pool, mz_pool_activity *activity);

/*
 * The monitor of src/pressure comes and goes: `event_fd`, an event descriptor that does not block,
 * is written to when mz_trim or mz_simulate_pressure was called. One at a time.
 */
void mz_pool_monitor_begin(mz_pool *pool, int event_fd);
void mz_pool_monitor_end(mz_pool *pool);

/* Write to event_fd once when the next step begins, or now if more than `steps` have begun. */
void mz_pool_wake_on_step(mz_pool *pool, uint64_t steps);

/* Take the highest level called out since the last time; *source is a static word if it is any. */
mz_pressure_level mz_pool_take_posted(mz_pool *pool, const char **source);

/* What mz_pool_status.pressure is from now on; ago_ns is counted from evicted_ns (0: never). */
void mz_pool_set_pressure(mz_pool *pool, const mz_pressure_status *pressure, uint64_t evicted_ns);

/* Remember a failure for mz_pool_status.last_error and log it. Without the lock. */
MZ_API void mz_pool_report(mz_pool *pool, const mz_error *error);

#endif

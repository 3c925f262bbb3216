/* SPDX-License-Identifier: MIT */
/*
 * mzCache: elastic memory for local LLMs.
 *
 * A *pool* holds all memory of one process that mzCache manages: the weights and the KV caches of
 * every model that the process loaded onto the mzCache device. It is cut into *units*: a weight
 * layer, or a KV chunk of 256 tokens of one layer. Evicting a unit gives its pages back to the
 * operating system; restoring it brings the same bytes back to the same addresses.
 *
 * The pool of a process is created by the ggml plug-in when the host loads it. A host obtains it by
 * ggml_backend_reg_get_proc_address(reg, "mz_plugin_pool"), see MZ_PLUGIN_POOL_PROC; a host that is
 * not ours needs no call at all: its next decode restores what it needs.
 *
 * Shared rules: all byte counts are bytes of memory as the operating system counts it (whole
 * pages). Every function may be called from any thread unless it says otherwise. None of them
 * prints, exits, aborts or installs signal handlers. Out-parameters are written on success only,
 * except where it says so.
 */
#ifndef MZCACHE_MZCACHE_H
#define MZCACHE_MZCACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mzcache/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MZ_VERSION_MAJOR 0
#define MZ_VERSION_MINOR 1
#define MZ_VERSION_PATCH 0
#define MZ_VERSION_STRING "0.1.0"

/* Version of the library that is loaded, such as "0.1.0". */
MZ_API const char *mz_version(void);

/* All elastic memory of this process. Owned by whoever created it (the plug-in, or mz_llm). */
typedef struct mz_pool mz_pool;

/* Which kind of unit a call is about; combine with |. */
typedef enum mz_tag {
    MZ_TAG_WEIGHTS = 1, /* weight layers; their truth is the model file, or an image in the store */
    MZ_TAG_KV_CACHE = 2, /* KV chunks, recurrent state and whatever else inference writes */
    MZ_TAG_ALL = 3,
} mz_tag;

/* Type of the function behind ggml_backend_reg_get_proc_address(reg, MZ_PLUGIN_POOL_PROC). */
#define MZ_PLUGIN_POOL_PROC "mz_plugin_pool"
typedef mz_pool *(*mz_plugin_pool_fn)(void);

/* How much others need memory. */
typedef enum mz_pressure_level {
    MZ_PRESSURE_NONE = 0,
    MZ_PRESSURE_LOW = 1,      /* give some back when it costs nobody anything */
    MZ_PRESSURE_MEDIUM = 2,   /* programs wait for memory */
    MZ_PRESSURE_CRITICAL = 3, /* hardly anything goes on, or something is about to be killed */
} mz_pressure_level;

/* How one tag stands. All in bytes of memory, except where it says units. */
typedef struct mz_tag_status {
    uint64_t total_units;      /* units known */
    uint64_t resident_units;   /* in place (an empty KV chunk counts as resident and as 0 bytes) */
    uint64_t compressed_units; /* in the in-memory stack */
    uint64_t stored_units;     /* on flash: the model file or the store */
    uint64_t lost_units;       /* neither: the store's copy was damaged */
    uint64_t total_bytes;      /* what the tag would take if everything were resident */
    uint64_t resident_bytes;   /* in place now */
    uint64_t compressed_bytes; /* what the compressed units take in the stack */
    uint64_t stored_bytes;     /* what the stored units would take in place */
    uint64_t clean_bytes;      /* resident, and flash already holds the same bytes */
} mz_tag_status;

/* What the pool gave back by itself, and why. */
typedef struct mz_pressure_status {
    bool watching;             /* somebody watches for pressure in this process */
    mz_pressure_level level;   /* of the pressure that lasts */
    uint64_t signals;          /* noticed so far */
    uint64_t evictions;        /* made by itself that freed something */
    uint64_t freed_bytes;      /* by all of them */
    uint64_t last_bytes;       /* freed by the last one */
    uint64_t last_reaction_ns; /* from when its signal was read, or its time had come, to when its
                                  memory was free */
    uint64_t ago_ns;           /* since then; 0 if there was none */
    char reason[256];          /* why it was made, "" if there was none */
    char sources[96];          /* names of what is watched: "psi, cgroup events" */
} mz_pressure_status;

/* What the pool did last and what it holds. */
typedef struct mz_pool_status {
    mz_tag_status weights;
    mz_tag_status kv_cache;
    uint64_t stack_bytes;   /* memory that the stack has mapped, partly filled segments included */
    uint64_t store_bytes;   /* room taken in the store file */
    uint64_t written_bytes; /* written to flash since the pool was created */
    uint64_t read_bytes;    /* read from flash by restores since then */
    uint64_t decoded_bytes; /* KV bytes decoded by restores since then */
    uint64_t in_place_bytes; /* compressed KV that attention read where it was, without a restore */
    uint64_t decode_ns;     /* time that their threads decoded, added up */
    uint64_t evictions;     /* calls of mz_evict that freed something */
    uint64_t restores;      /* units restored */
    uint64_t last_evict_bytes;        /* asked for by the last mz_evict */
    uint64_t last_freed_bytes;        /* freed by it */
    uint64_t last_evict_ns;           /* time it took */
    uint64_t last_restore_ns;         /* from the first unit asked for to the last one in place */
    uint64_t last_stall_ns;           /* of that, computing waited for units that were not there */
    uint64_t stall_ns;                /* time that it waited so far, in all restores */
    uint64_t steps;                   /* sub-graphs computed */
    bool restoring;                   /* a restore is under way */
    char codec[16];                   /* codec of KV chunks: "raw", "q8" */
    char store_dir[256];              /* directory of the store file, "" when there is none */
    char last_error[512];             /* last failure in plain words, "" when there was none */
    uint64_t plan_read_bytes_per_s;   /* what plans reckon with: reading from flash, ... */
    uint64_t plan_decode_bytes_per_s; /* ... and decoding; 0 with "raw", which decodes nothing */
    char rates[16]; /* where both come from: "measured", "quick" (in two seconds) or "assumed" */
    char rates_note[256]; /* why they are assumed, "" if they are not */
    mz_pressure_status pressure;
} mz_pool_status;

/*
 * Give back at least `bytes` of memory, or all there is.
 *
 * Takes the rearmost layers first, so that the layers which inference needs first stay. Weights are
 * dropped, KV chunks are compressed into the stack or written to the store, as the pool's codec
 * says. freed: what the operating system got back, also written on MZ_E_PARTIAL and on failures.
 * Blocks: until done; a step of inference that is under way is waited for, one that arrives goes
 *   first and the eviction goes on after it.
 * Errors: MZ_E_PARTIAL when less than `bytes` was evictable or the store refused more; the reason
 *   stands in mz_pool_status.last_error. MZ_E_INVALID for a null pool or bytes == 0.
 *   MZ_E_UNSUPPORTED in a process forked from the one that loaded the model.
 *   MZ_E_BUSY from a callback inside a step of inference, which it would wait for.
 */
MZ_API mz_status mz_evict(mz_pool *pool, uint64_t bytes, uint64_t *freed);

/* mz_evict of some kinds of units only; tags is a set of mz_tag. */
MZ_API mz_status mz_evict_tagged(mz_pool *pool, uint64_t bytes, unsigned tags, uint64_t *freed);

/*
 * Start to restore everything, in the order in which inference needs it, and return at once.
 * For the moment when the user opens the window, before the request comes.
 */
MZ_API mz_status mz_prefetch(mz_pool *pool);

/*
 * Wait until no restore is under way. MZ_E_IO, MZ_E_CORRUPT or MZ_E_CHANGED when a unit failed,
 * MZ_E_CANCELLED when an eviction took back what mz_prefetch had asked for.
 */
MZ_API mz_status mz_prefetch_wait(mz_pool *pool);

/*
 * Tell the pool what Android tells an application by onTrimMemory: 20 (the window is hidden) is no
 * pressure, 40 (in the background) is low; of older versions 60 is medium, 80 critical, and in the
 * foreground 5, 10 and 15 are low, medium and critical. The pool's policy decides what goes and
 * when; it returns at once.
 * Errors: MZ_E_INVALID below 5, MZ_E_UNSUPPORTED if nobody watches for pressure in this process
 *   (MZCACHE_PRESSURE=off) or it was forked from the one that loaded the model.
 */
MZ_API mz_status mz_trim(mz_pool *pool, int level);

/* Behave as if this level of pressure had been noticed, to try it out. Errors as for mz_trim. */
MZ_API mz_status mz_simulate_pressure(mz_pool *pool, mz_pressure_level level);

/* "none", "low", "medium", "critical"; "?" for a number that is no level. */
MZ_API const char *mz_pressure_level_name(mz_pressure_level level);

/* Take a consistent picture of the pool. Never restores or touches evicted memory. */
MZ_API mz_status mz_status_get(mz_pool *pool, mz_pool_status *status);

#ifdef __cplusplus
}
#endif
#endif

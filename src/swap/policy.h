/* SPDX-License-Identifier: MIT */
/*
 * Which units leave memory next, and by which path: the four-stage hybrid swap policy (paper 4.3,
 * Algorithm 1) in backward-out order (paper 4.4).
 *
 * A unit that left memory comes back by one of two paths that run at the same time: decoding from
 * the in-memory stack, or reading from flash. The policy keeps the two busy for equally long,
 * wherever eviction stops. It is a pure function: no I/O, no clock, no allocation, no history. The
 * stage and the balance are derived from where the units are, so asking for a and then for b plans
 * the same steps as asking for a + b.
 *
 * docs/policy.md explains the stages and the rules for what the paper leaves open.
 * Threads: any; nothing is shared. Units come sorted in need order: layer ascending, weights of a
 * layer before its KV chunks, chunks ascending; output weights form the last layer.
 */
#ifndef MZ_SWAP_POLICY_H
#define MZ_SWAP_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mzcache/mzcache.h"

/* How a unit leaves memory. */
typedef enum mz_path {
    MZ_PATH_DROP,  /* flash holds the same bytes: drop the pages, write nothing */
    MZ_PATH_STACK, /* encode into the in-memory stack */
    MZ_PATH_STORE, /* write the bytes as they are to the store */
    MZ_PATH_SPILL, /* move the encoded bytes from the stack to the store */
} mz_path;

/* Stages of Algorithm 1. MZ_STAGE_EXACT stands for eviction without a stack: all goes to flash. */
typedef enum mz_stage {
    MZ_STAGE_NONE,     /* nothing left that could be evicted */
    MZ_STAGE_KV_ONLY,  /* KV chunks to stack and flash, weights stay */
    MZ_STAGE_KV_AND_W, /* KV chunks to the stack while weight layers are dropped */
    MZ_STAGE_W_ONLY,   /* no KV chunk left to encode: weights only */
    MZ_STAGE_COMP_KV,  /* encoded KV chunks move from the stack to flash */
    MZ_STAGE_EXACT,    /* no stack: units go to flash in order, weights and KV alike */
} mz_stage;

/* In which order units of one kind leave; the other two serve comparisons. */
typedef enum mz_order {
    MZ_ORDER_BACKWARD = 0, /* what inference needs last leaves first */
    MZ_ORDER_FORWARD,      /* what inference needs first leaves first */
    MZ_ORDER_RANDOM,       /* a permutation fixed by the seed and the number of units */
} mz_order;

typedef enum mz_where {
    MZ_WHERE_RESIDENT = 0,
    MZ_WHERE_COMPRESSED,  /* in the stack */
    MZ_WHERE_STORED,      /* on flash, as the bytes are */
    MZ_WHERE_SPILLED,     /* on flash, encoded */
    MZ_WHERE_UNAVAILABLE, /* pinned, lost or in transit: neither planned nor counted */
} mz_where;

typedef struct mz_policy_unit {
    mz_tag tag;             /* MZ_TAG_WEIGHTS or MZ_TAG_KV_CACHE */
    uint32_t layer;         /* order of need; informative, the array's order decides */
    uint32_t chunk;         /* number in its layer; informative */
    uint64_t bytes;         /* takes in place when resident, wherever it is; 0: empty, skipped */
    uint64_t encoded_bytes; /* takes, or is expected to take, in the stack; 0 or >= bytes: encoding
                               gains nothing, so it leaves by flash only, as weights do */
    uint8_t where;          /* mz_where */
    bool clean;             /* flash holds the same bytes: dropping a resident unit loses nothing */
} mz_policy_unit;

/* Throughputs of the machine, measured once. One that is not positive counts as 1 GB/s. */
typedef struct mz_profile {
    double read_bytes_per_s;   /* direct I/O, sequential, requests of at least 512 KB */
    double decode_bytes_per_s; /* codec output, all restore threads together */
    double write_bytes_per_s;  /* direct I/O; for estimates by callers, the balance ignores it */
} mz_profile;

typedef struct mz_policy_options {
    unsigned tags;      /* set of mz_tag that may be evicted */
    mz_order order;     /* MZ_ORDER_BACKWARD unless something is compared */
    uint64_t seed;      /* of MZ_ORDER_RANDOM */
    bool stack_allowed; /* false: exact codec, nothing goes to the stack */
    bool store_allowed; /* false: nothing is written to flash; clean units can still be dropped */
} mz_policy_options;

typedef struct mz_plan_step {
    uint32_t unit;  /* index into units */
    mz_path path;   /* how it leaves */
    mz_stage stage; /* why: the stage in which it was chosen */
    uint64_t frees; /* bytes: all of it for DROP and STORE, bytes - encoded_bytes for STACK,
                       encoded_bytes for SPILL; page and segment rounding is not in it */
} mz_plan_step;

/* What the policy reads from the units. */
typedef struct mz_policy_survey {
    mz_stage stage;     /* of the next step */
    uint64_t kv_chunks; /* N_KV: resident chunks that can be encoded */
    uint64_t threshold; /* T, chunks; see mz_policy_survey_units */
    uint64_t decode_ns; /* restoring now would decode for this long */
    uint64_t read_ns;   /* restoring now would read for this long */
} mz_policy_survey;

/*
 * Say in which stage the units are and how much work a restore would find on either path.
 * Every unit counts in decode_ns and read_ns, those of the tags in stage, kv_chunks and threshold.
 *
 * T = sum over evictable weight layers of floor(t_r^W / t_d^KV) (paper 4.3: N_W * floor(...) for
 * equal layers), with t_d^KV of the largest chunk. Where every floor is 0 the rounding is done once
 * over the sum of all layers instead.
 */
void mz_policy_survey_units(const mz_profile *profile, const mz_policy_unit *units, size_t count,
                            const mz_policy_options *options, mz_policy_survey *survey);

/*
 * Plan an eviction of at least `bytes`, or of all there is.
 *
 * steps: [capacity], filled in the order in which they have to be done. 2 * count always suffice: a
 *   chunk can be planned for STACK and, when the request reaches CompKV, for SPILL; no unit is
 *   planned otherwise more than once. A smaller array cuts the plan off, and asking again after it
 *   was carried out goes on from there.
 * planned_bytes: sum of frees; exceeds `bytes` by less than the last step frees. Always written.
 * Returns the number of steps. Time O(count).
 */
size_t mz_policy_plan(const mz_profile *profile, const mz_policy_unit *units, size_t count,
                      const mz_policy_options *options, uint64_t bytes, mz_plan_step *steps,
                      size_t capacity, uint64_t *planned_bytes);

/* Name of a stage as the paper writes it, such as "KVonly". Static storage. */
const char *mz_policy_stage_name(mz_stage stage);

#endif

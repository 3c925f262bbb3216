/* SPDX-License-Identifier: MIT */
/*
 * The hybrid swap policy.
 *
 * A unit has one of two roles. *Levers* are KV chunks that can be encoded: they may come back by
 * either path, so they balance the two. *Fixed* units, weights and what can't be encoded, come
 * back by reading only. One cursor per role walks the units in eviction order, and one rule picks:
 * of the two steps at hand, take the one after which the later of the two restore paths ends
 * sooner. In KVonly these are "this chunk to the stack" or "to flash", in KVandW "this chunk to
 * the stack" or "drop the next layer". Counting chunks per layer instead would need history, lose
 * a fraction of a chunk per layer, and go wrong where layers or chunks differ in size.
 *
 * Invariant: within KVonly and KVandW the paths differ by at most the longest single unit. Times
 * are integers, so sums don't depend on their order and a plan can be cut anywhere.
 */
#include "swap/policy.h"

#define NO_UNIT SIZE_MAX
#define MAX_PS 1e15 /* a unit counts for at most 1000 s, so that sums stay far from overflow */

typedef enum role { ROLE_NONE, ROLE_LEVER, ROLE_FIXED } role;

typedef struct planner {
    const mz_policy_unit *units;
    size_t count;
    const mz_policy_options *options;
    double read_rate, decode_rate; /* bytes per second, positive */
    uint64_t decode_ps, read_ps;   /* work on either path if restored after the steps so far */
    uint64_t lever_ps;             /* decode time of the levers that are still resident */
    uint64_t lever_count;          /* and their number, N_KV */
    uint64_t threshold;            /* T, chunks */
    uint64_t reserve_ps;           /* T * t_d^KV: decode time kept for the weight reload */
    bool any_fixed;                /* there are fixed units, evicted already or not */
    size_t lever_at, fixed_at;     /* positions in eviction order that the cursors reached */
    size_t spill_at;               /* position of the CompKV cursor */
    size_t spill_step;             /* step of this plan up to which it looked for stacked levers */
} planner;

/* Spread positions over [0, count): a bijection of the next power of two, walked until it hits. */
static size_t shuffled(size_t position, size_t count, uint64_t seed)
{
    unsigned bits = 1;
    while (bits < 63 && ((uint64_t)1 << bits) < count) {
        bits++;
    }
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t value = position;
    do {
        /* Odd factors and right shifts are invertible modulo 2^bits. */
        for (unsigned round = 0; round < 4; round++) {
            const uint64_t key = (seed + round + 1) * UINT64_C(0x9e3779b97f4a7c15);
            value = ((value ^ (key >> 7)) * (key | 1)) & mask;
            value ^= value >> (bits / 2 + 1);
        }
    } while (value >= count);
    return (size_t)value;
}

/* Unit at a position of the eviction order. */
static size_t unit_at(const planner *p, size_t position)
{
    switch (p->options->order) {
    case MZ_ORDER_FORWARD:
        return position;
    case MZ_ORDER_RANDOM:
        return shuffled(position, p->count, p->options->seed);
    case MZ_ORDER_BACKWARD:
    default:
        return p->count - 1 - position;
    }
}

static double positive_rate(double rate)
{
    return rate > 0.0 ? rate : 1e9;
}

static uint64_t time_ps(uint64_t bytes, double rate)
{
    const double ps = (double)bytes * 1e12 / rate;
    return (uint64_t)(ps < MAX_PS ? ps : MAX_PS);
}

static uint64_t read_ps(const planner *p, uint64_t bytes)
{
    return time_ps(bytes, p->read_rate);
}

static uint64_t decode_ps(const planner *p, const mz_policy_unit *unit)
{
    return time_ps(unit->bytes, p->decode_rate);
}

static bool in_scope(const planner *p, const mz_policy_unit *unit)
{
    return ((unsigned)unit->tag & p->options->tags) != 0 && unit->bytes > 0 &&
           unit->where != MZ_WHERE_UNAVAILABLE;
}

static bool can_encode(const planner *p, const mz_policy_unit *unit)
{
    return p->options->stack_allowed && unit->tag == MZ_TAG_KV_CACHE && unit->encoded_bytes > 0 &&
           unit->encoded_bytes < unit->bytes;
}

static bool can_leave_by_flash(const planner *p, const mz_policy_unit *unit)
{
    return unit->clean || p->options->store_allowed;
}

/* What a resident unit can be used for; ROLE_NONE for one that can't be evicted. */
static role role_of(const planner *p, const mz_policy_unit *unit)
{
    if (!in_scope(p, unit) || unit->where != MZ_WHERE_RESIDENT) {
        return ROLE_NONE;
    }
    if (can_encode(p, unit)) {
        return ROLE_LEVER;
    }
    return can_leave_by_flash(p, unit) ? ROLE_FIXED : ROLE_NONE;
}

/* Fixed units, evicted or not: T speaks of all layers, so it doesn't move while they leave. */
static bool counts_as_layer(const planner *p, const mz_policy_unit *unit)
{
    return in_scope(p, unit) && !can_encode(p, unit) && can_leave_by_flash(p, unit);
}

/* T and the decode time that it stands for, from t_d^KV of a chunk of `chunk_bytes`. */
static void set_threshold(planner *p, uint64_t chunk_bytes)
{
    double sum = 0.0;
    for (size_t i = 0; i < p->count; i++) {
        if (!counts_as_layer(p, &p->units[i])) {
            continue;
        }
        p->any_fixed = true;
        if (chunk_bytes > 0) {
            const double chunks =
                (double)p->units[i].bytes * p->decode_rate / ((double)chunk_bytes * p->read_rate);
            p->threshold += (uint64_t)chunks;
            sum += chunks;
        }
    }
    if (p->threshold == 0) {
        /* A chunk takes longer to decode than any layer takes to read: round once for all. */
        p->threshold = (uint64_t)sum;
    }
    p->reserve_ps = p->threshold * time_ps(chunk_bytes, p->decode_rate);
}

/* Put the work of restoring a unit that is not resident on its path or paths. */
static void count_evicted(planner *p, const mz_policy_unit *unit)
{
    if (unit->where == MZ_WHERE_COMPRESSED || unit->where == MZ_WHERE_SPILLED) {
        p->decode_ps += decode_ps(p, unit);
    }
    if (unit->where == MZ_WHERE_STORED) {
        p->read_ps += read_ps(p, unit->bytes);
    } else if (unit->where == MZ_WHERE_SPILLED) {
        p->read_ps += read_ps(p, unit->encoded_bytes);
    }
}

static void planner_init(planner *p, const mz_profile *profile, const mz_policy_unit *units,
                         size_t count, const mz_policy_options *options)
{
    *p = (planner){.units = units,
                   .count = count,
                   .options = options,
                   .read_rate = positive_rate(profile->read_bytes_per_s),
                   .decode_rate = positive_rate(profile->decode_bytes_per_s)};
    uint64_t chunk_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const mz_policy_unit *unit = &units[i];
        count_evicted(p, unit);
        if (in_scope(p, unit) && can_encode(p, unit) && unit->bytes > chunk_bytes) {
            chunk_bytes = unit->bytes;
        }
        if (role_of(p, unit) == ROLE_LEVER) {
            p->lever_ps += decode_ps(p, unit);
            p->lever_count++;
        }
    }
    set_threshold(p, chunk_bytes);
}

/* Move a cursor to the next resident unit of a role; NO_UNIT at the end. */
static size_t find_next(const planner *p, size_t *position, role wanted)
{
    for (; *position < p->count; (*position)++) {
        const size_t unit = unit_at(p, *position);
        if (role_of(p, &p->units[unit]) == wanted) {
            return unit;
        }
    }
    return NO_UNIT;
}

/* Stage of Algorithm 1 while a unit of either role is left. */
static mz_stage stage_of(const planner *p, size_t lever)
{
    if (lever == NO_UNIT) {
        return p->options->stack_allowed ? MZ_STAGE_W_ONLY : MZ_STAGE_EXACT;
    }
    /* Without a store chunks can't be split, so the weights are all there is to balance them. */
    if (!p->any_fixed || (p->options->store_allowed && p->lever_ps > p->reserve_ps)) {
        return MZ_STAGE_KV_ONLY;
    }
    return MZ_STAGE_KV_AND_W;
}

static mz_plan_step take_stack(planner *p, size_t index, mz_stage stage)
{
    const mz_policy_unit *unit = &p->units[index];
    p->decode_ps += decode_ps(p, unit);
    p->lever_ps -= decode_ps(p, unit);
    p->lever_at++;
    return (mz_plan_step){.unit = (uint32_t)index,
                          .path = MZ_PATH_STACK,
                          .stage = stage,
                          .frees = unit->bytes - unit->encoded_bytes};
}

static mz_plan_step take_flash(planner *p, size_t index, mz_stage stage)
{
    const mz_policy_unit *unit = &p->units[index];
    p->read_ps += read_ps(p, unit->bytes);
    if (can_encode(p, unit)) {
        p->lever_ps -= decode_ps(p, unit);
        p->lever_at++;
    } else {
        p->fixed_at++;
    }
    return (mz_plan_step){.unit = (uint32_t)index,
                          .path = unit->clean ? MZ_PATH_DROP : MZ_PATH_STORE,
                          .stage = stage,
                          .frees = unit->bytes};
}

/*
 * Next chunk of the stack to move to the store: one that was in the stack before, or that this plan
 * put there. All levers are planned by now, in eviction order, so their steps are found by going
 * through the plan once, in step with the cursor.
 */
static size_t find_next_spill(planner *p, const mz_plan_step *steps)
{
    for (; p->options->store_allowed && p->spill_at < p->count; p->spill_at++) {
        const size_t index = unit_at(p, p->spill_at);
        const mz_policy_unit *unit = &p->units[index];
        if (unit->where == MZ_WHERE_COMPRESSED && in_scope(p, unit) && unit->encoded_bytes > 0) {
            return index;
        }
        if (role_of(p, unit) == ROLE_LEVER) {
            while (steps[p->spill_step].unit != index) {
                p->spill_step++;
            }
            if (steps[p->spill_step].path == MZ_PATH_STACK) {
                return index;
            }
        }
    }
    return NO_UNIT;
}

static bool next_step(planner *p, const mz_plan_step *steps, mz_plan_step *next)
{
    const size_t lever = find_next(p, &p->lever_at, ROLE_LEVER);
    const size_t fixed = find_next(p, &p->fixed_at, ROLE_FIXED);
    if (lever == NO_UNIT && fixed == NO_UNIT) {
        const size_t spill = find_next_spill(p, steps);
        if (spill == NO_UNIT) {
            return false;
        }
        p->spill_at++;
        *next = (mz_plan_step){.unit = (uint32_t)spill,
                               .path = MZ_PATH_SPILL,
                               .stage = MZ_STAGE_COMP_KV,
                               .frees = p->units[spill].encoded_bytes};
        return true;
    }
    const mz_stage stage = stage_of(p, lever);
    if (lever == NO_UNIT) {
        *next = take_flash(p, fixed, stage);
        return true;
    }
    /* What the read path could take instead: this chunk, or the next layer. */
    const size_t other = stage == MZ_STAGE_KV_ONLY || fixed == NO_UNIT ? lever : fixed;
    const mz_policy_unit *reload = &p->units[other];
    const bool stack_ends_first =
        p->decode_ps + decode_ps(p, &p->units[lever]) <= p->read_ps + read_ps(p, reload->bytes);
    *next = stack_ends_first || !can_leave_by_flash(p, reload) ? take_stack(p, lever, stage)
                                                               : take_flash(p, other, stage);
    return true;
}

void mz_policy_survey_units(const mz_profile *profile, const mz_policy_unit *units, size_t count,
                            const mz_policy_options *options, mz_policy_survey *survey)
{
    planner p;
    planner_init(&p, profile, units, count, options);
    *survey = (mz_policy_survey){.kv_chunks = p.lever_count,
                                 .threshold = p.threshold,
                                 .decode_ns = p.decode_ps / 1000,
                                 .read_ns = p.read_ps / 1000};
    mz_plan_step next;
    survey->stage = next_step(&p, NULL, &next) ? next.stage : MZ_STAGE_NONE;
}

size_t mz_policy_plan(const mz_profile *profile, const mz_policy_unit *units, size_t count,
                      const mz_policy_options *options, uint64_t bytes, mz_plan_step *steps,
                      size_t capacity, uint64_t *planned_bytes)
{
    planner p;
    planner_init(&p, profile, units, count, options);
    size_t taken = 0;
    uint64_t planned = 0;
    while (planned < bytes && taken < capacity && next_step(&p, steps, &steps[taken])) {
        planned += steps[taken].frees;
        taken++;
    }
    *planned_bytes = planned;
    return taken;
}

const char *mz_policy_stage_name(mz_stage stage)
{
    switch (stage) {
    case MZ_STAGE_KV_ONLY:
        return "KVonly";
    case MZ_STAGE_KV_AND_W:
        return "KVandW";
    case MZ_STAGE_W_ONLY:
        return "Wonly";
    case MZ_STAGE_COMP_KV:
        return "CompKV";
    case MZ_STAGE_EXACT:
        return "exact";
    case MZ_STAGE_NONE:
    default:
        return "none";
    }
}

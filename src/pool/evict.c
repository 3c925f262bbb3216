/* SPDX-License-Identifier: MIT */
/*
 * mz_evict: ask the policy for a plan, carry it out unit by unit, and make inference wait briefly.
 *
 * The plan is made from the state of the units each time, so it can be thrown away at any point: a
 * step of inference that has waited for MZ_HOLD_NS takes the pool after the unit at hand, and what
 * is still owed is planned anew afterwards. A unit that could not be written stays resident and is left out for the
 * rest of the call; once the store refused a write, the rest is planned without it.
 */
#include <unistd.h>

#include "base/clock.h"
#include "kernels/kernels.h"
#include "os/memory.h"
#include "pool/internal.h"

typedef struct evict_call {
    uint64_t bytes; /* still owed */
    unsigned tags;
    uint64_t freed;
    bool gives_way;     /* to any step that comes */
    bool store_refused; /* the store failed once: plan without it */
    mz_error first;     /* first failure, MZ_OK if none */
} evict_call;

/* Take the pool: no step is open and no restore in flight afterwards. Under the lock. */
static void hold(mz_pool *pool)
{
    pool->evict_waits = true;
    pool->steps_passed = 0;
    while (pool->steps_open > 0) {
        pthread_cond_wait(&pool->restore.change, &pool->restore.lock);
    }
    pool->evict_waits = false;
    pool->evict_holds = true;
    pool->held_ns = mz_now_ns();
    mz_restore_pause(&pool->restore);
}

static void let_go(mz_pool *pool)
{
    pool->evict_holds = false;
    mz_restore_resume(&pool->restore);
    pthread_cond_broadcast(&pool->restore.change);
}

/* Let the steps that wait run and take the pool again after them. Under the lock. */
static void yield_to_steps(mz_pool *pool)
{
    let_go(pool);
    /* Steps that overlap for ever would keep us waiting: they are counted as in hold(). */
    pool->evict_waits = true;
    pool->steps_passed = 0;
    while (pool->steps_waiting > 0 && pool->steps_passed < MZ_STEPS_BEFORE_EVICT) {
        pthread_cond_wait(&pool->restore.change, &pool->restore.lock);
    }
    hold(pool);
}

/*
 * Bytes of pages that hold something. A page of zeros may be the kernel's shared zero page, which
 * is no memory, and mincore can't tell; so zeros are not counted, and `freed` errs to the low side.
 */
static uint64_t filled_bytes(const uint8_t *address, uint64_t bytes)
{
    const mz_kernels *kernels = mz_kernels_get();
    uint64_t filled = 0;
    for (uint64_t at = 0; at < bytes; at += MZ_PAGE_BYTES) {
        filled += kernels->is_zero(address + at, MZ_PAGE_BYTES) ? 0 : MZ_PAGE_BYTES;
    }
    return filled;
}

/* Bytes that a unit takes in place now. Opaque spans have holes. */
static uint64_t unit_resident_bytes(const mz_unit *unit)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < unit->span_count; i++) {
        const mz_unit_span *span = &unit->spans[i];
        uint64_t pages = mz_page_ceil(span->live_bytes);
        total += mz_unit_span_is_direct(unit, i) ? pages : filled_bytes(span->place.address, pages);
    }
    return total;
}

static uint64_t unit_encoded_bytes(const mz_pool *pool, const mz_unit *unit)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < unit->span_count; i++) {
        const mz_unit_span *span = &unit->spans[i];
        if (span->record.segment != NULL) {
            total += span->record.bytes;
        } else if (unit->state == MZ_UNIT_STORED && span->kept_encoded) {
            total += span->kept_bytes;
        } else if (span->live_bytes > 0) {
            mz_codec_shape shape = mz_unit_span_shape(span);
            const mz_codec *codec =
                pool->codec != NULL ? mz_codec_or_exact(pool->codec, &shape) : NULL;
            if (codec == NULL) {
                return 0;
            }
            total += mz_codec_expected(codec, &shape);
        }
    }
    return total;
}

/* Throughputs for KV as it is: some of it may be kept by "lossless" instead of the pool's codec. */
static mz_profile plan_profile(const mz_pool *pool)
{
    mz_profile profile = pool->profile;
    double bytes = 0, seconds = 0;
    for (uint32_t i = 0; pool->codec != NULL && i < pool->unit_count; i++) {
        const mz_unit *unit = pool->units[i];
        for (uint32_t k = 0; unit->tag == MZ_TAG_KV_CACHE && k < unit->span_count; k++) {
            mz_codec_shape shape = mz_unit_span_shape(&unit->spans[k]);
            const mz_codec *codec = mz_codec_or_exact(pool->codec, &shape);
            double live = codec != NULL ? (double)unit->spans[k].live_bytes : 0;
            bytes += live;
            seconds += live / (codec == pool->codec ? pool->profile.decode_bytes_per_s
                                                    : pool->exact_decode_bytes_per_s);
        }
    }
    if (seconds > 0) {
        profile.decode_bytes_per_s = bytes / seconds;
    }
    return profile;
}

static mz_where unit_where(const mz_unit *unit)
{
    switch (unit->state) {
    case MZ_UNIT_RESIDENT:
        return MZ_WHERE_RESIDENT;
    case MZ_UNIT_COMPRESSED:
        return MZ_WHERE_COMPRESSED;
    case MZ_UNIT_STORED:
        return unit->span_count > 0 && unit->spans[0].kept_encoded ? MZ_WHERE_SPILLED
                                                                   : MZ_WHERE_STORED;
    default:
        return MZ_WHERE_UNAVAILABLE;
    }
}

/* Describe the units to the policy and get a plan for what is owed. Under the lock. */
static size_t make_plan(mz_pool *pool, const evict_call *call)
{
    mz_pool_sort(pool);
    for (uint32_t i = 0; i < pool->unit_count; i++) {
        const mz_unit *unit = pool->units[i];
        bool resident = unit->state == MZ_UNIT_RESIDENT;
        pool->plan_units[i] = (mz_policy_unit){
            .tag = unit->tag,
            .layer = unit->layer,
            .chunk = unit->chunk,
            .bytes = resident ? unit_resident_bytes(unit) : mz_unit_live_pages(unit),
            .encoded_bytes = unit->tag == MZ_TAG_KV_CACHE ? unit_encoded_bytes(pool, unit) : 0,
            .where = (uint8_t)(unit->refused ? MZ_WHERE_UNAVAILABLE : unit_where(unit)),
            .clean = unit->clean,
        };
    }
    mz_policy_options options = {.tags = call->tags,
                                 .order = pool->order,
                                 .seed = pool->order_seed,
                                 .stack_allowed = pool->codec != NULL && !pool->codec_broke,
                                 .store_allowed = !call->store_refused};
    uint64_t planned;
    mz_profile profile = plan_profile(pool);
    return mz_policy_plan(&profile, pool->plan_units, pool->unit_count, &options, call->bytes,
                          pool->plan_steps, 2 * (size_t)pool->unit_capacity, &planned);
}

/* Carry out one step of the plan. Under the lock. */
static void do_step(mz_pool *pool, evict_call *call, const mz_plan_step *step)
{
    mz_unit *unit = pool->units[step->unit];
    mz_unit_state expected = step->path == MZ_PATH_SPILL ? MZ_UNIT_COMPRESSED : MZ_UNIT_RESIDENT;
    if (unit->state != expected) {
        return; /* an earlier step of this plan failed, or went to the store instead of the stack */
    }
    mz_error error = MZ_ERROR_INIT;
    uint64_t freed = 0;
    mz_status status = mz_pool_move_out(pool, unit, step->path, pool->plan_units[step->unit].bytes,
                                        &freed, &error);
    call->freed += freed;
    call->bytes = freed >= call->bytes ? 0 : call->bytes - freed;
    if (status == MZ_OK) {
        return;
    }
    unit->refused = true;
    if (step->path == MZ_PATH_STORE || step->path == MZ_PATH_SPILL) {
        call->store_refused = true;
    }
    if (call->first.status == MZ_OK) {
        char name[64];
        mz_error_prefix(&error, "cannot evict %s", mz_unit_name(unit, name, sizeof name));
        call->first = error;
    }
}

/* Whether steps have waited long enough for this eviction. Under the lock. */
static bool owes_a_turn(const mz_pool *pool)
{
    return pool->steps_waiting > 0 && mz_now_ns() - pool->held_ns >= MZ_HOLD_NS;
}

/* Whether a step waits that this eviction gives way to. Under the lock. */
static bool must_stop(const mz_pool *pool, const evict_call *call)
{
    return call->gives_way && pool->steps_waiting > 0;
}

/* Evict until nothing is owed or nothing can be planned. Under the lock, holding the pool. */
static void run(mz_pool *pool, evict_call *call)
{
    bool again = true;
    while (again && call->bytes > 0) {
        size_t steps = make_plan(pool, call);
        again = steps > 0;
        bool interrupted = false;
        bool refused_before = call->store_refused;
        for (size_t i = 0; i < steps && call->bytes > 0 && !interrupted; i++) {
            do_step(pool, call, &pool->plan_steps[i]);
            interrupted = must_stop(pool, call) || owes_a_turn(pool) ||
                          call->store_refused != refused_before;
        }
        if (must_stop(pool, call)) {
            again = false;
        } else if (owes_a_turn(pool) && call->bytes > 0) {
            yield_to_steps(pool);
        }
    }
}

/* The pool is to be evicted from by this thread alone: hold it, run, and let go. Under the lock. */
static void run_alone(mz_pool *pool, evict_call *call)
{
    hold(pool);
    for (uint32_t i = 0; i < pool->unit_count; i++) {
        pool->units[i]->refused = false;
    }
    run(pool, call);
    mz_pool_want_huge(pool);
    if (pool->bounce_used) {
        pool->bounce_used = false;
        mz_error ignored = MZ_ERROR_INIT; /* keeping its pages costs memory, not correctness */
        pthread_mutex_unlock(&pool->restore.lock);
        (void)mz_memory_drop(pool->os, pool->bounce, MZ_BOUNCE_BYTES, &ignored);
        pthread_mutex_lock(&pool->restore.lock);
    }
    let_go(pool);
}

/* MZ_OK, or MZ_E_PARTIAL with the reason reported. Without the lock. */
static mz_status conclude(mz_pool *pool, evict_call *call, uint64_t asked_bytes)
{
    if (call->freed >= asked_bytes) {
        return MZ_OK;
    }
    if (call->first.status == MZ_OK) {
        mz_error_set(&call->first, MZ_E_PARTIAL, 0, "freed all there was: %llu of %llu bytes",
                     (unsigned long long)call->freed, (unsigned long long)asked_bytes);
    }
    mz_pool_report(pool, &call->first);
    return MZ_E_PARTIAL;
}

/* steps: of mz_pool_evict_quietly; NULL: whoever calls waits for the memory. */
static mz_status evict(mz_pool *pool, uint64_t bytes, unsigned tags, const uint64_t *steps,
                       uint64_t *freed)
{
    if (pool == NULL || bytes == 0 || (tags & ~(unsigned)MZ_TAG_ALL) != 0 || tags == 0) {
        return MZ_E_INVALID;
    }
    if (getpid() != pool->process) {
        return MZ_E_UNSUPPORTED; /* its threads stayed behind, and locks may be held for ever */
    }
    uint64_t start_ns = mz_now_ns();
    evict_call call = {
        .bytes = bytes, .tags = tags, .first = MZ_ERROR_INIT, .gives_way = steps != NULL};
    pthread_mutex_lock(&pool->restore.lock);
    while (pool->evict_busy && !mz_pool_in_step(pool)) {
        pthread_cond_wait(&pool->restore.change, &pool->restore.lock);
    }
    bool disturbs = steps != NULL &&
                    (pool->steps_open > 0 || pool->steps_waiting > 0 || pool->steps != *steps);
    if (disturbs || mz_pool_in_step(pool)) {
        pthread_mutex_unlock(&pool->restore.lock);
        return MZ_E_BUSY;
    }
    pool->evict_busy = true;
    if (steps == NULL) {
        mz_pool_profile_renew(pool);
    }
    run_alone(pool, &call);
    pool->evictions += call.freed > 0 ? 1 : 0;
    pool->last_evict_bytes = bytes;
    pool->last_freed_bytes = call.freed;
    pool->last_evict_ns = mz_now_ns() - start_ns;
    pool->returned_ns = call.freed > 0 ? 0 : pool->returned_ns;
    bool gave_way = must_stop(pool, &call) && call.bytes > 0;
    if (steps == NULL) {
        mz_pool_profile_start(pool); /* it takes memory, which under pressure there is none of */
    }
    pool->evict_busy = false;
    pthread_cond_broadcast(&pool->restore.change);
    pthread_mutex_unlock(&pool->restore.lock);
    if (freed != NULL) {
        *freed = call.freed;
    }
    return gave_way ? MZ_E_CANCELLED : conclude(pool, &call, bytes);
}

mz_status mz_evict_tagged(mz_pool *pool, uint64_t bytes, unsigned tags, uint64_t *freed)
{
    return evict(pool, bytes, tags, NULL, freed);
}

mz_status mz_evict(mz_pool *pool, uint64_t bytes, uint64_t *freed)
{
    return evict(pool, bytes, MZ_TAG_ALL, NULL, freed);
}

mz_status mz_pool_evict_quietly(mz_pool *pool, uint64_t bytes, uint64_t steps, uint64_t *freed)
{
    return evict(pool, bytes, MZ_TAG_ALL, &steps, freed);
}

/* SPDX-License-Identifier: MIT */
/*
 * Steps and the gate: how inference and eviction keep out of each other's way.
 *
 * Any number of steps may be open; an eviction holds the pool only while none is. Neither waits long:
 * a step that arrives while an eviction holds the pool makes it let go after MZ_HOLD_NS and the unit
 * at hand; and an eviction gets its turn after MZ_STEPS_BEFORE_EVICT further steps.
 */
#include <unistd.h>

#include "base/clock.h"
#include "pool/internal.h"

static bool step_must_wait(const mz_pool *pool)
{
    return pool->evict_holds || (pool->evict_waits && pool->steps_passed >= MZ_STEPS_BEFORE_EVICT);
}

void mz_pool_step_begin(mz_pool *pool)
{
    pthread_mutex_lock(&pool->restore.lock);
    mz_pool_sort(pool);
    pool->steps_waiting++;
    while (step_must_wait(pool)) {
        pthread_cond_wait(&pool->restore.change, &pool->restore.lock);
    }
    pool->steps_waiting--;
    if (pool->step_owner_count < MZ_STEP_OWNERS) {
        pool->step_owners[pool->step_owner_count++] = pthread_self();
    }
    pool->steps_open++;
    pool->steps++;
    mz_pool_note_step(pool);
    if (pool->evict_waits) {
        pool->steps_passed++;
        pthread_cond_broadcast(&pool->restore.change); /* an eviction that yielded counts us */
    }
    pthread_mutex_unlock(&pool->restore.lock);
}

/* Index of this thread in step_owners; step_owner_count if it is not there. Under the lock. */
static uint32_t own_step(const mz_pool *pool)
{
    uint32_t at = 0;
    while (at < pool->step_owner_count && !pthread_equal(pool->step_owners[at], pthread_self())) {
        at++;
    }
    return at;
}

bool mz_pool_in_step(const mz_pool *pool)
{
    return own_step(pool) < pool->step_owner_count;
}

void mz_pool_step_end(mz_pool *pool)
{
    pthread_mutex_lock(&pool->restore.lock);
    uint32_t at = own_step(pool);
    pool->steps_open--;
    if (at < pool->step_owner_count) {
        pool->step_owners[at] = pool->step_owners[--pool->step_owner_count];
    }
    if (pool->steps_open == 0) {
        pool->last_step_ns = mz_now_ns();
        pthread_cond_broadcast(&pool->restore.change);
    }
    pthread_mutex_unlock(&pool->restore.lock);
}

bool mz_pool_all_resident(const mz_pool *pool)
{
    return atomic_load_explicit(&pool->restore.away, memory_order_acquire) == 0;
}

void mz_pool_request(mz_pool *pool, const mz_range *ranges, size_t count)
{
    pthread_mutex_lock(&pool->restore.lock);
    mz_pool_sort(pool);
    pool->mark++;
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uintptr_t end = (uintptr_t)ranges[i].address + ranges[i].bytes;
        for (uint32_t k = mz_pool_find(pool, ranges[i].address);
             k < pool->index_count && pool->index[k].start < end; k++) {
            mz_unit *unit = pool->index[k].unit;
            if (unit->mark != pool->mark) {
                unit->mark = pool->mark;
                pool->scratch[found++] = unit;
            }
        }
    }
    mz_restore_request(&pool->restore, pool->scratch, found);
    if (!mz_overlap_prefills(pool->restore.overlap)) {
        uint64_t start_ns = mz_now_ns();
        while (mz_restore_busy(&pool->restore)) {
            pthread_cond_wait(&pool->restore.change, &pool->restore.lock);
        }
        pool->restore.counters.stall_ns += mz_now_ns() - start_ns;
    }
    pthread_mutex_unlock(&pool->restore.lock);
}

bool mz_pool_ready(mz_pool *pool, const void *address, uint64_t bytes)
{
    if (mz_pool_all_resident(pool)) {
        return true;
    }
    bool ready = true;
    uintptr_t end = (uintptr_t)address + bytes;
    pthread_mutex_lock(&pool->restore.lock);
    mz_pool_sort(pool);
    for (uint32_t k = mz_pool_find(pool, address);
         ready && k < pool->index_count && pool->index[k].start < end; k++) {
        ready = pool->index[k].unit->state == MZ_UNIT_RESIDENT;
    }
    pthread_mutex_unlock(&pool->restore.lock);
    return ready;
}

/*
 * Wait for one unit. Under the lock.
 * A restore that was under way when the call came may fail of what has been put right since: its
 * failure is not this call's, which tries again itself.
 */
static mz_status unit_wait(mz_pool *pool, mz_unit *unit, mz_error *error)
{
    if (getpid() != pool->process) {
        return mz_error_set(error, MZ_E_UNSUPPORTED, 0,
                            "this process was forked from the one that loaded the model: what was "
                            "evicted there can't be restored here; load the model in this process");
    }
    uint64_t start_ns = mz_trace_start(pool->restore.trace);
    uint32_t failures = unit->failures;
    bool joined = unit->state == MZ_UNIT_RESTORING;
    while (unit->state != MZ_UNIT_RESIDENT) {
        if (unit->failures != failures) {
            if (!joined) {
                *error = unit->error;
                return error->status;
            }
            joined = false;
            failures = unit->failures;
        }
        if (unit->state == MZ_UNIT_LOST) {
            char name[64];
            return mz_error_set(
                error, MZ_E_LOST, 0,
                "%s is lost: its stored copy is damaged; clear the conversation and "
                "compute it again",
                mz_unit_name(unit, name, sizeof name));
        }
        if (unit->queue == MZ_QUEUE_NONE && unit->state != MZ_UNIT_RESTORING) {
            mz_restore_request(&pool->restore, &unit, 1);
        }
        pthread_cond_wait(&pool->restore.change, &pool->restore.lock);
    }
    mz_unit_trace(pool->restore.trace, start_ns, "wait", unit, mz_unit_live_pages(unit));
    return MZ_OK;
}

mz_status mz_pool_need(mz_pool *pool, const void *address, uint64_t bytes, mz_error *error)
{
    if (mz_pool_all_resident(pool)) {
        return MZ_OK;
    }
    mz_status status = MZ_OK;
    uintptr_t end = (uintptr_t)address + bytes;
    uint64_t start_ns = mz_now_ns();
    bool waited = false;
    pthread_mutex_lock(&pool->restore.lock);
    for (uintptr_t at = (uintptr_t)address; status == MZ_OK && at < end;) {
        /* Looked up anew each time: while we waited, others may have added or removed units. */
        mz_pool_sort(pool);
        uint32_t k = mz_pool_find(pool, (const void *)at);
        if (k == pool->index_count || pool->index[k].start >= end) {
            break;
        }
        at = pool->index[k].end;
        mz_unit *unit = pool->index[k].unit;
        if (unit->state != MZ_UNIT_RESIDENT) {
            waited = true;
            status = unit_wait(pool, unit, error);
        }
    }
    if (waited) {
        pool->restore.counters.stall_ns += mz_now_ns() - start_ns;
    }
    pthread_mutex_unlock(&pool->restore.lock);
    return status;
}

/* Bytes [start, end) of a unit's spans change: they are live, and no copy elsewhere is right. */
static void unit_wrote(mz_pool *pool, mz_unit *unit, uintptr_t start, uintptr_t end)
{
    for (uint32_t i = 0; i < unit->span_count; i++) {
        mz_unit_span *span = &unit->spans[i];
        uintptr_t first = (uintptr_t)span->place.address;
        uintptr_t last = first + span->place.bytes;
        if (start >= last || end <= first) {
            continue;
        }
        uint64_t reach = (end < last ? end : last) - first;
        if (span->live_bytes < reach) {
            span->live_bytes = reach;
        }
    }
    if (unit->clean) {
        unit->clean = false;
        unit->has_source = false;
        for (uint32_t i = 0; i < unit->span_count; i++) {
            unit->spans[i].hashed = false;
            unit->spans[i].kept_encoded = false;
        }
        mz_store_free(pool->store, &unit->slot);
    }
}

void mz_pool_wrote(mz_pool *pool, const void *address, uint64_t bytes)
{
    uintptr_t start = (uintptr_t)address;
    uintptr_t end = start + bytes;
    pthread_mutex_lock(&pool->restore.lock);
    mz_pool_sort(pool);
    for (uint32_t k = mz_pool_find(pool, address);
         k < pool->index_count && pool->index[k].start < end; k++) {
        unit_wrote(pool, pool->index[k].unit, start, end);
    }
    pthread_mutex_unlock(&pool->restore.lock);
}

mz_status mz_prefetch(mz_pool *pool)
{
    if (pool == NULL) {
        return MZ_E_INVALID;
    }
    pthread_mutex_lock(&pool->restore.lock);
    mz_pool_sort(pool);
    pool->prefetch_taken_back = pool->restore.taken_back;
    mz_restore_request(&pool->restore, pool->units, pool->unit_count);
    pthread_mutex_unlock(&pool->restore.lock);
    return MZ_OK;
}

mz_status mz_prefetch_wait(mz_pool *pool)
{
    if (pool == NULL) {
        return MZ_E_INVALID;
    }
    mz_status status = MZ_OK;
    bool away = false;
    pthread_mutex_lock(&pool->restore.lock);
    while (mz_restore_busy(&pool->restore) || pool->restore.postponed > 0) {
        pthread_cond_wait(&pool->restore.change, &pool->restore.lock);
    }
    for (uint32_t i = 0; i < pool->unit_count && status == MZ_OK; i++) {
        const mz_unit *unit = pool->units[i];
        if (unit->state != MZ_UNIT_RESIDENT) {
            status = unit->error.status;
            away = true;
        }
    }
    if (status == MZ_OK && away && pool->restore.taken_back != pool->prefetch_taken_back) {
        status = MZ_E_CANCELLED;
    }
    pthread_mutex_unlock(&pool->restore.lock);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * The threads of the pipeline; see restore.h. What they do next is decided in queue.c.
 *
 * A unit enters RESTORING with its first slice and leaves it with its last, whatever happened to
 * the others: to RESIDENT if all went well, else back to where its truth still is, with its pages
 * dropped. Only a copy that is proven damaged makes the unit LOST. A weight unit is never LOST: its
 * file may be put right.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "os/memory.h"
#include "restore/restore.h"

void mz_restore_move(mz_restore *restore, mz_unit *unit, mz_unit_state to)
{
    bool was_here = unit->state == MZ_UNIT_RESIDENT;
    bool is_here = to == MZ_UNIT_RESIDENT;
    mz_unit_move(unit, to);
    if (was_here && !is_here) {
        atomic_fetch_add_explicit(&restore->away, 1, memory_order_release);
    } else if (!was_here && is_here) {
        /* Pairs with the acquire in mz_pool_all_resident: what was read is visible. */
        atomic_fetch_sub_explicit(&restore->away, 1, memory_order_release);
    }
}

/* Open the whole range of a unit that is guarded: the part behind the live bytes has no slice. */
static void unit_unguard(mz_restore *restore, mz_unit *unit)
{
    for (uint32_t i = 0; i < unit->span_count; i++) {
        mz_error ignored =
            MZ_ERROR_INIT; /* the caller's access would fault: that is the guard's point */
        (void)mz_memory_guard(restore->os, unit->spans[i].place.address, unit->spans[i].place.bytes,
                              false, &ignored);
    }
}

static void unit_drop_pages(mz_restore *restore, mz_unit *unit)
{
    for (uint32_t i = 0; i < unit->span_count; i++) {
        mz_error ignored =
            MZ_ERROR_INIT; /* the pages are only half filled; they are refilled later */
        (void)mz_memory_drop(restore->os, unit->spans[i].place.address, unit->spans[i].place.bytes,
                             &ignored);
        if (restore->guard) {
            (void)mz_memory_guard(restore->os, unit->spans[i].place.address,
                                  unit->spans[i].place.bytes, true, &ignored);
        }
    }
}

/* All slices are done: settle the unit. Under the lock. */
static void unit_settle(mz_restore *restore, mz_unit *unit)
{
    if (unit->attempt.status == MZ_OK) {
        unit->error = unit->attempt;
        for (uint32_t i = 0; i < unit->span_count; i++) {
            unit->spans[i].hashed = unit->spans[i].hashed || unit->has_source;
            if (unit->spans[i].record.segment != NULL) {
                mz_stack_free(restore->stack, &unit->spans[i].record);
            }
        }
        unit->clean = unit->has_source || unit->slot.bytes > 0;
        restore->counters.restores++;
        mz_restore_move(restore, unit, MZ_UNIT_RESIDENT);
        mz_unit_trace(restore->trace, 0, "ready", unit, mz_unit_live_pages(unit));
    } else {
        char name[64];
        unit->error = unit->attempt;
        mz_error_prefix(&unit->error, "%s", mz_unit_name(unit, name, sizeof name));
        unit->failures++;
        bool lost = unit->error.status == MZ_E_CORRUPT && !unit->has_source;
        mz_restore_move(restore, unit, lost ? MZ_UNIT_LOST : unit->from);
    }
    restore->restoring--;
    if (unit->from == MZ_UNIT_STORED && --restore->reading == 0) {
        pthread_cond_broadcast(&restore->work); /* decoding may have waited for the last read */
    }
    if (!mz_restore_busy(restore)) {
        restore->counters.last_restore_ns = mz_now_ns() - restore->counters.episode_start_ns;
    }
    pthread_cond_broadcast(&restore->change);
}

/* Commit the pages of a slice in a stage of their own. Takes and returns with the lock held. */
static void allocate(mz_restore *restore, mz_unit *unit, uint32_t slice)
{
    mz_error error = MZ_ERROR_INIT;
    pthread_mutex_unlock(&restore->lock);
    mz_status status = mz_slice_allocate(restore, unit, slice, &error);
    pthread_mutex_lock(&restore->lock);
    if (status != MZ_OK && unit->attempt.status == MZ_OK) {
        unit->attempt = error;
    }
    if (--restore->allocating == 0) {
        pthread_cond_broadcast(&restore->work);
    }
}

/* Takes and returns with the lock held. Once a slice failed the rest of its unit is passed over. */
static void work_on(mz_restore *restore, mz_unit *unit, uint32_t slice, void *bounce)
{
    mz_file *source = unit->has_source ? restore->sources[unit->spans[0].place.source] : NULL;
    bool has_work = unit->slices > 0 && unit->attempt.status == MZ_OK;
    pthread_mutex_unlock(&restore->lock);

    mz_slice_result result = {0, 0};
    mz_error error = MZ_ERROR_INIT;
    mz_status status =
        has_work ? mz_slice_run(restore, source, unit, slice, bounce, &result, &error) : MZ_OK;

    pthread_mutex_lock(&restore->lock);
    restore->counters.read_bytes += result.read_bytes;
    restore->counters.decoded_bytes += result.decoded_bytes;
    if (status != MZ_OK && unit->attempt.status == MZ_OK) {
        unit->attempt = error;
    }
    if (unit->slices_left > 0) {
        unit->slices_left--;
    }
    if (unit->slices_left > 0) {
        return;
    }
    /* The last slice: pages of a failed restore go before anybody may look at the unit again. */
    mz_error first = unit->attempt;
    pthread_mutex_unlock(&restore->lock);
    if (first.status != MZ_OK) {
        unit_drop_pages(restore, unit);
        mz_log(&restore->log, MZ_LOG_ERROR, "restore failed: %s", first.text);
    } else if (restore->guard) {
        unit_unguard(restore, unit);
    }
    pthread_mutex_lock(&restore->lock);
    unit_settle(restore, unit);
}

static void *worker_main(void *argument)
{
    const mz_restore_worker *worker = argument;
    mz_restore *restore = worker->restore;
    bool bounce_used = false;
    pthread_mutex_lock(&restore->lock);
    while (!restore->stop) {
        mz_restore_task task;
        if (mz_restore_take_task(restore, worker->own, &task)) {
            if (task.allocate) {
                allocate(restore, task.unit, task.slice);
            } else {
                bounce_used = bounce_used || worker->bounce != NULL;
                work_on(restore, task.unit, task.slice, worker->bounce);
            }
            continue;
        }
        if (bounce_used) {
            bounce_used = false;
            pthread_mutex_unlock(&restore->lock);
            mz_error ignored = MZ_ERROR_INIT; /* keeping the pages costs memory, not correctness */
            (void)mz_memory_drop(restore->os, worker->bounce, MZ_BOUNCE_BYTES, &ignored);
            pthread_mutex_lock(&restore->lock);
            continue;
        }
        pthread_cond_wait(&restore->work, &restore->lock);
    }
    pthread_mutex_unlock(&restore->lock);
    return NULL;
}

static mz_status worker_start(mz_restore *restore, mz_unit_queue own, mz_error *error)
{
    mz_restore_worker *worker = &restore->workers[restore->worker_count];
    *worker = (mz_restore_worker){.restore = restore, .own = own};
    if (own == MZ_QUEUE_READ) {
        mz_status status =
            mz_memory_reserve(restore->os, MZ_BOUNCE_BYTES, MZ_PAGE_BYTES, &worker->bounce, error);
        if (status != MZ_OK) {
            return status;
        }
    }
    int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (failed != 0) {
        mz_memory_release(restore->os, worker->bounce, MZ_BOUNCE_BYTES);
        return mz_error_set(error, MZ_E_NOMEM, failed, "cannot start a restore thread");
    }
    restore->worker_count++;
    return MZ_OK;
}

mz_status mz_restore_start(mz_restore *restore, uint32_t readers, uint32_t decoders,
                           mz_error *error)
{
    assert(readers >= 1 && decoders >= 1 && decoders < MZ_RESTORE_THREADS_MAX);
    pthread_mutex_init(&restore->lock, NULL);
    pthread_cond_init(&restore->work, NULL);
    pthread_cond_init(&restore->change, NULL);
    if (readers > MZ_RESTORE_THREADS_MAX - decoders) {
        readers = MZ_RESTORE_THREADS_MAX - decoders;
    }
    mz_status status = MZ_OK;
    for (uint32_t i = 0; i < readers + decoders && status == MZ_OK; i++) {
        status = worker_start(restore, i < readers ? MZ_QUEUE_READ : MZ_QUEUE_DECODE, error);
    }
    if (status != MZ_OK) {
        mz_restore_stop(restore);
    }
    return status;
}

void mz_restore_stop(mz_restore *restore)
{
    pthread_mutex_lock(&restore->lock);
    restore->stop = true;
    pthread_cond_broadcast(&restore->work);
    pthread_mutex_unlock(&restore->lock);
    for (uint32_t i = 0; i < restore->worker_count; i++) {
        pthread_join(restore->workers[i].thread, NULL);
        mz_memory_release(restore->os, restore->workers[i].bounce, MZ_BOUNCE_BYTES);
    }
    restore->worker_count = 0;
    pthread_cond_destroy(&restore->change);
    pthread_cond_destroy(&restore->work);
    pthread_mutex_destroy(&restore->lock);
}

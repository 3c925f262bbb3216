/* SPDX-License-Identifier: MIT */
/*
 * The threads of the pipeline and the queue they share; see restore.h.
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

typedef struct worker_start {
    mz_restore *restore;
    void *bounce;
} worker_start;

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

bool mz_restore_busy(const mz_restore *restore)
{
    return restore->queue_count > 0 || restore->restoring > 0;
}

mz_status mz_restore_reserve(mz_restore *restore, uint32_t units, mz_error *error)
{
    if (units <= restore->queue_capacity) {
        return MZ_OK;
    }
    uint32_t capacity = units + units / 2 + 64;
    mz_unit **queue = realloc(restore->queue, capacity * sizeof(mz_unit *));
    if (queue != NULL) {
        restore->queue = queue;
    }
    mz_unit **spare = realloc(restore->spare, capacity * sizeof(mz_unit *));
    if (spare != NULL) {
        restore->spare = spare;
    }
    if (queue == NULL || spare == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for the restore queue");
    }
    restore->queue_capacity = capacity;
    return MZ_OK;
}

/* Whether a restore thread would find work there: one that is begun may have slices left. */
static bool unit_has_work(const mz_unit *unit)
{
    return unit->state == MZ_UNIT_COMPRESSED || unit->state == MZ_UNIT_STORED ||
           (unit->state == MZ_UNIT_RESTORING && unit->next_slice < unit->slices);
}

void mz_restore_request(mz_restore *restore, mz_unit *const *units, uint32_t count)
{
    if (!mz_restore_busy(restore)) {
        restore->counters.episode_start_ns = mz_now_ns();
        restore->counters.stall_ns = 0;
    }
    for (uint32_t i = 0; i < restore->queue_count; i++) {
        restore->queue[i]->queued = false;
    }
    uint32_t made = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (unit_has_work(units[i]) && !units[i]->queued) {
            units[i]->queued = true;
            restore->spare[made++] = units[i];
        }
    }
    for (uint32_t i = 0; i < restore->queue_count; i++) {
        if (!restore->queue[i]->queued) {
            restore->queue[i]->queued = true;
            restore->spare[made++] = restore->queue[i];
        }
    }
    mz_unit **old = restore->queue;
    restore->queue = restore->spare;
    restore->spare = old;
    restore->queue_count = made;
    if (made > 0) {
        pthread_cond_broadcast(&restore->work);
    }
}

void mz_restore_forget(mz_restore *restore, mz_unit *unit)
{
    if (!unit->queued) {
        return; /* clearing thousands of units would search the queue for each */
    }
    for (uint32_t i = 0; i < restore->queue_count; i++) {
        if (restore->queue[i] == unit) {
            memmove(restore->queue + i, restore->queue + i + 1,
                    (restore->queue_count - i - 1) * sizeof(mz_unit *));
            restore->queue_count--;
            break;
        }
    }
    unit->queued = false;
}

void mz_restore_pause(mz_restore *restore)
{
    restore->paused = true;
    /* Units with slices handed out finish; the others have not changed and are just taken back. */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < restore->queue_count; i++) {
        mz_unit *unit = restore->queue[i];
        if (unit->state == MZ_UNIT_RESTORING) {
            restore->queue[kept++] = unit;
        } else {
            unit->queued = false;
        }
    }
    restore->queue_count = kept;
    pthread_cond_broadcast(&restore->work);
    while (restore->restoring > 0) {
        pthread_cond_wait(&restore->change, &restore->lock);
    }
}

void mz_restore_resume(mz_restore *restore)
{
    restore->paused = false;
    pthread_cond_broadcast(&restore->work);
}

/* The next slice to work on, or NULL. Marks it as handed out. */
static mz_unit *take_slice(mz_restore *restore, uint32_t *slice)
{
    uint32_t at = 0;
    while (restore->paused && at < restore->queue_count &&
           restore->queue[at]->state != MZ_UNIT_RESTORING) {
        at++; /* what was begun is finished even while paused: mz_restore_pause waits for it */
    }
    if (at == restore->queue_count) {
        return NULL;
    }
    mz_unit *unit = restore->queue[at];
    if (unit->state != MZ_UNIT_RESTORING) {
        unit->from = unit->state;
        unit->slices = mz_slice_count(unit);
        unit->slices_left = unit->slices;
        unit->next_slice = 0;
        unit->attempt = (mz_error)MZ_ERROR_INIT;
        mz_restore_move(restore, unit, MZ_UNIT_RESTORING);
        restore->restoring++;
    }
    *slice = unit->next_slice++;
    if (unit->next_slice >= unit->slices) {
        mz_restore_forget(restore, unit);
    }
    return unit;
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
    } else {
        char name[64];
        unit->error = unit->attempt;
        mz_error_prefix(&unit->error, "%s", mz_unit_name(unit, name, sizeof name));
        unit->failures++;
        bool lost = unit->error.status == MZ_E_CORRUPT && !unit->has_source;
        mz_restore_move(restore, unit, lost ? MZ_UNIT_LOST : unit->from);
    }
    restore->restoring--;
    if (!mz_restore_busy(restore)) {
        restore->counters.last_restore_ns = mz_now_ns() - restore->counters.episode_start_ns;
    }
    pthread_cond_broadcast(&restore->change);
}

static void work_on(mz_restore *restore, mz_unit *unit, uint32_t slice, void *bounce)
{
    mz_file *source = unit->has_source ? restore->sources[unit->spans[0].place.source] : NULL;
    pthread_mutex_unlock(&restore->lock);

    mz_slice_result result = {0, 0};
    mz_error error = MZ_ERROR_INIT;
    mz_status status = unit->slices == 0
                           ? MZ_OK
                           : mz_slice_run(restore, source, unit, slice, bounce, &result, &error);

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
    worker_start start = *(worker_start *)argument;
    free(argument);
    mz_restore *restore = start.restore;
    bool bounce_used = false;
    pthread_mutex_lock(&restore->lock);
    while (!restore->stop) {
        uint32_t slice;
        mz_unit *unit = take_slice(restore, &slice);
        if (unit != NULL) {
            bounce_used = bounce_used || unit->from == MZ_UNIT_STORED;
            work_on(restore, unit, slice, start.bounce);
            continue;
        }
        if (bounce_used) {
            bounce_used = false;
            pthread_mutex_unlock(&restore->lock);
            mz_error ignored = MZ_ERROR_INIT; /* keeping the pages costs memory, not correctness */
            (void)mz_memory_drop(restore->os, start.bounce, MZ_BOUNCE_BYTES, &ignored);
            pthread_mutex_lock(&restore->lock);
            continue;
        }
        pthread_cond_wait(&restore->work, &restore->lock);
    }
    pthread_mutex_unlock(&restore->lock);
    return NULL;
}

mz_status mz_restore_start(mz_restore *restore, uint32_t threads, mz_error *error)
{
    assert(threads >= 1 && threads <= MZ_RESTORE_THREADS_MAX);
    pthread_mutex_init(&restore->lock, NULL);
    pthread_cond_init(&restore->work, NULL);
    pthread_cond_init(&restore->change, NULL);
    mz_status status = MZ_OK;
    for (uint32_t i = 0; i < threads && status == MZ_OK; i++) {
        worker_start *start = malloc(sizeof *start);
        if (start == NULL) {
            status = mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a restore thread");
            break;
        }
        status = mz_memory_reserve(restore->os, MZ_BOUNCE_BYTES, MZ_PAGE_BYTES, &restore->bounce[i],
                                   error);
        if (status != MZ_OK) {
            free(start);
            break;
        }
        *start = (worker_start){restore, restore->bounce[i]};
        int failed = pthread_create(&restore->threads[i], NULL, worker_main, start);
        if (failed != 0) {
            status = mz_error_set(error, MZ_E_NOMEM, failed, "cannot start a restore thread");
            mz_memory_release(restore->os, restore->bounce[i], MZ_BOUNCE_BYTES);
            free(start);
            break;
        }
        restore->thread_count++;
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
    for (uint32_t i = 0; i < restore->thread_count; i++) {
        pthread_join(restore->threads[i], NULL);
        mz_memory_release(restore->os, restore->bounce[i], MZ_BOUNCE_BYTES);
    }
    restore->thread_count = 0;
    free(restore->queue);
    free(restore->spare);
    pthread_cond_destroy(&restore->change);
    pthread_cond_destroy(&restore->work);
    pthread_mutex_destroy(&restore->lock);
}

/* SPDX-License-Identifier: MIT */
/*
 * What waits to be restored, and what a thread does next; see restore.h.
 *
 * A queue is a list linked through the units, so placing, taking and forgetting a unit cost the
 * same however many wait, and nothing is allocated. A unit is in one queue at a time: that of its
 * path, or first in the one for allocation if allocation must not overlap reload. It leaves its
 * queue when its last slice is handed out, not when that is done.
 *
 * Invariant: while paused only units that are RESTORING already are handed out, and all rules that
 * hold work back give way to that, since mz_restore_pause waits for these units.
 */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "restore/restore.h"

static void queue_remove(mz_restore *restore, mz_unit *unit)
{
    mz_restore_queue *queue = &restore->queues[unit->queue];
    *(unit->earlier != NULL ? &unit->earlier->later : &queue->first) = unit->later;
    *(unit->later != NULL ? &unit->later->earlier : &queue->last) = unit->earlier;
    queue->count--;
    unit->earlier = NULL;
    unit->later = NULL;
    unit->queue = MZ_QUEUE_NONE;
}

/* Put a unit that waits nowhere behind `earlier`; NULL: in front of all. */
static void queue_insert(mz_restore *restore, mz_unit_queue which, mz_unit *earlier, mz_unit *unit)
{
    mz_restore_queue *queue = &restore->queues[which];
    unit->queue = which;
    unit->earlier = earlier;
    unit->later = earlier != NULL ? earlier->later : queue->first;
    *(unit->earlier != NULL ? &unit->earlier->later : &queue->first) = unit;
    *(unit->later != NULL ? &unit->later->earlier : &queue->last) = unit;
    queue->count++;
}

bool mz_restore_busy(const mz_restore *restore)
{
    return restore->restoring > 0 || restore->queues[MZ_QUEUE_ALLOCATE].count > 0 ||
           restore->queues[MZ_QUEUE_READ].count > 0 || restore->queues[MZ_QUEUE_DECODE].count > 0;
}

/* Queue of a unit's path, by where its bytes are. */
static mz_unit_queue path_queue(mz_unit_state from)
{
    return from == MZ_UNIT_STORED ? MZ_QUEUE_READ : MZ_QUEUE_DECODE;
}

/* Where a unit that is asked for has to wait; MZ_QUEUE_NONE if there is nothing left to do. */
static mz_unit_queue wanted_queue(const mz_restore *restore, const mz_unit *unit)
{
    if (unit->queue != MZ_QUEUE_NONE) {
        return unit->queue;
    }
    if (unit->state != MZ_UNIT_COMPRESSED && unit->state != MZ_UNIT_STORED) {
        return MZ_QUEUE_NONE;
    }
    return mz_overlap_allocates_first(restore->overlap) ? MZ_QUEUE_ALLOCATE
                                                        : path_queue(unit->state);
}

/* Remember that a unit that is lent was asked for. */
static void postpone(mz_restore *restore, mz_unit *unit)
{
    restore->postponed += unit->postponed ? 0 : 1;
    unit->postponed = true;
}

void mz_restore_request(mz_restore *restore, mz_unit *const *units, uint32_t count)
{
    if (!mz_restore_busy(restore)) {
        restore->counters.episode_start_ns = mz_now_ns();
        restore->counters.episode_stall_ns = restore->counters.stall_ns;
    }
    mz_unit *placed[MZ_UNIT_QUEUES] = {NULL}; /* last one of this request in each queue */
    restore->requests++;
    for (uint32_t i = 0; i < count; i++) {
        mz_unit *unit = units[i];
        if (unit->loans > 0) {
            postpone(restore, unit);
            continue;
        }
        mz_unit_queue queue = wanted_queue(restore, unit);
        if (queue == MZ_QUEUE_NONE || unit->asked == restore->requests) {
            continue;
        }
        if (unit->queue != MZ_QUEUE_NONE) {
            queue_remove(restore, unit);
        }
        queue_insert(restore, queue, placed[queue], unit);
        placed[queue] = unit;
        unit->asked = restore->requests;
    }
    if (mz_restore_busy(restore)) {
        pthread_cond_broadcast(&restore->work);
    }
}

void mz_restore_lend(mz_restore *restore, mz_unit *unit)
{
    assert(unit->state == MZ_UNIT_COMPRESSED);
    unit->loans++;
    if (unit->queue != MZ_QUEUE_NONE) {
        queue_remove(restore, unit);
        postpone(restore, unit);
    }
}

void mz_restore_give_back(mz_restore *restore, mz_unit *unit)
{
    assert(unit->loans > 0);
    unit->loans--;
    if (unit->loans == 0 && unit->postponed) {
        unit->postponed = false;
        restore->postponed--;
        mz_restore_request(restore, &unit, 1);
    }
}

void mz_restore_forget(mz_restore *restore, mz_unit *unit)
{
    if (unit->queue != MZ_QUEUE_NONE) {
        queue_remove(restore, unit);
    }
    restore->postponed -= unit->postponed ? 1 : 0;
    unit->postponed = false;
}

void mz_restore_pause(mz_restore *restore)
{
    restore->paused = true;
    /* Units with slices handed out finish; the others have not changed and are just taken back. */
    for (int which = MZ_QUEUE_ALLOCATE; which < MZ_UNIT_QUEUES; which++) {
        for (mz_unit *unit = restore->queues[which].first; unit != NULL;) {
            mz_unit *next = unit->later;
            if (unit->state != MZ_UNIT_RESTORING) {
                queue_remove(restore, unit);
                restore->taken_back++;
            }
            unit = next;
        }
    }
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

/* First unit of a queue that may be handed out. */
static mz_unit *first_allowed(const mz_restore *restore, mz_unit_queue which)
{
    mz_unit *unit = restore->queues[which].first;
    while (restore->paused && unit != NULL && unit->state != MZ_UNIT_RESTORING) {
        unit = unit->later;
    }
    return unit;
}

static void unit_begin(mz_restore *restore, mz_unit *unit)
{
    if (unit->state == MZ_UNIT_RESTORING) {
        return;
    }
    unit->from = unit->state;
    unit->slices = mz_slice_count(unit);
    unit->slices_left = unit->slices;
    unit->next_slice = 0;
    unit->allocated = false;
    unit->attempt = (mz_error)MZ_ERROR_INIT;
    mz_restore_move(restore, unit, MZ_UNIT_RESTORING);
    restore->restoring++;
    restore->reading += unit->from == MZ_UNIT_STORED ? 1 : 0;
}

/* Its allocation is handed out wholly: go on to the queue of its path. */
static void unit_advance(mz_restore *restore, mz_unit *unit)
{
    mz_unit_queue next = path_queue(unit->from);
    queue_remove(restore, unit);
    queue_insert(restore, next, restore->queues[next].last, unit);
    unit->next_slice = 0;
    unit->allocated = true;
}

static bool take_allocation(mz_restore *restore, mz_restore_task *task)
{
    mz_unit *unit;
    while ((unit = first_allowed(restore, MZ_QUEUE_ALLOCATE)) != NULL) {
        unit_begin(restore, unit);
        bool has_slice = unit->next_slice < unit->slices;
        *task = (mz_restore_task){unit, unit->next_slice, true};
        unit->next_slice++;
        if (unit->next_slice >= unit->slices) {
            unit_advance(restore, unit);
        }
        if (has_slice) {
            restore->allocating++;
            return true;
        }
    }
    return false;
}

bool mz_restore_take_task(mz_restore *restore, mz_unit_queue own, mz_restore_task *task)
{
    if (take_allocation(restore, task)) {
        return true;
    }
    bool waits_for_reads = own == MZ_QUEUE_DECODE && restore->paths == MZ_PATHS_SEQUENTIAL &&
                           !restore->paused &&
                           (restore->reading > 0 || restore->queues[MZ_QUEUE_READ].count > 0);
    mz_unit *unit = first_allowed(restore, own);
    if (unit == NULL || restore->allocating > 0 || waits_for_reads) {
        return false;
    }
    unit_begin(restore, unit);
    *task = (mz_restore_task){unit, unit->next_slice++, false};
    if (unit->next_slice >= unit->slices) {
        queue_remove(restore, unit);
    }
    return true;
}

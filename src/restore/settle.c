/* SPDX-License-Identifier: MIT */
/*
 * How a unit leaves a restore; see restore.h.
 *
 * A unit enters RESTORING with its first slice and leaves it with its last, whatever happened to
 * the others: to RESIDENT if all went well, else back to where its truth still is, with its pages
 * dropped. Only a copy that is proven damaged makes the unit LOST. A weight unit is never LOST: its
 * file may be put right.
 */
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

void mz_restore_slice_done(mz_restore *restore, mz_unit *unit, const mz_slice_result *result,
                           const mz_error *error)
{
    restore->counters.read_bytes += result->read_bytes;
    restore->counters.decoded_bytes += result->decoded_bytes;
    restore->counters.decode_ns += result->decode_ns;
    if (error->status != MZ_OK && unit->attempt.status == MZ_OK) {
        unit->attempt = *error;
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

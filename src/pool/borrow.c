/* SPDX-License-Identifier: MIT */
/*
 * Reading compressed units where they are.
 *
 * A reader that understands what a codec wrote (attention) needs no restore: it borrows the unit
 * for the length of a step. A unit that is lent stays COMPRESSED: eviction waits for steps anyway,
 * and restores are postponed (restore.h), so the record neither moves nor goes. What must be in
 * place for another reason in the same step is never lent; waiting for it would otherwise wait for
 * the borrower itself.
 *
 * Rejected: copying the records' places and checking afterwards whether they were still right. A
 * record that is freed in between gives its pages back, and the reader would fault.
 */
#include "pool/internal.h"

/* Mark the units of some ranges with a fresh mark. Under the lock, sorted. */
static void mark_units(mz_pool *pool, const mz_range *ranges, size_t count)
{
    pool->mark++;
    for (size_t i = 0; i < count; i++) {
        uintptr_t end = (uintptr_t)ranges[i].address + ranges[i].bytes;
        for (uint32_t k = mz_pool_find(pool, ranges[i].address);
             k < pool->index_count && pool->index[k].start < end; k++) {
            pool->index[k].unit->mark = pool->mark;
        }
    }
}

static const mz_unit_span *span_at(const mz_unit *unit, uintptr_t address)
{
    uint32_t i = 0;
    while ((uintptr_t)unit->spans[i].place.address != address) {
        i++;
    }
    return &unit->spans[i];
}

static const mz_codec *codec_of(const mz_unit_span *span, const uint8_t **payload)
{
    return span->record.segment == NULL
               ? NULL
               : mz_codec_view(&span->kept_shape, mz_stack_data(span->record),
                               (size_t)span->record.bytes, payload);
}

/* A unit is lent as a whole: if one of its spans had to be restored, so would the others be. */
static bool can_lend(const mz_pool *pool, const mz_unit *unit)
{
    bool can = unit->state == MZ_UNIT_COMPRESSED && unit->mark != pool->mark;
    for (uint32_t i = 0; can && i < unit->span_count; i++) {
        const uint8_t *payload;
        can = codec_of(&unit->spans[i], &payload) != NULL;
    }
    return can;
}

static mz_view view_of(const mz_pool *pool, mz_unit *unit, const mz_unit_span *span)
{
    mz_view view = {.where = MZ_VIEW_AWAY,
                    .address = span->place.address,
                    .bytes = span->place.bytes,
                    .unit = unit};
    if (unit->state == MZ_UNIT_RESIDENT) {
        view.where = MZ_VIEW_RESIDENT;
    } else if (can_lend(pool, unit)) {
        view.where = MZ_VIEW_ENCODED;
        view.shape = span->kept_shape;
        view.codec = codec_of(span, &view.payload);
    }
    return view;
}

/* List the views; returns how many there are, of which the first `capacity` are written. */
static size_t list_views(mz_pool *pool, const mz_range *ranges, size_t count, mz_view *views,
                         size_t capacity)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uintptr_t end = (uintptr_t)ranges[i].address + ranges[i].bytes;
        for (uint32_t k = mz_pool_find(pool, ranges[i].address);
             k < pool->index_count && pool->index[k].start < end; k++, found++) {
            if (found < capacity) {
                mz_unit *unit = pool->index[k].unit;
                views[found] = view_of(pool, unit, span_at(unit, pool->index[k].start));
                views[found].range = (uint32_t)i;
            }
        }
    }
    return found;
}

size_t mz_pool_borrow(mz_pool *pool, const mz_range *ranges, size_t count,
                      const mz_range *in_place, size_t in_place_count, mz_view *views,
                      size_t capacity)
{
    uint64_t bytes = 0, units = 0;
    uint64_t start_ns = mz_trace_start(pool->restore.trace);
    pthread_mutex_lock(&pool->restore.lock);
    mz_pool_sort(pool);
    mark_units(pool, in_place, in_place_count);
    size_t found = list_views(pool, ranges, count, views, capacity);
    for (size_t i = 0; found <= capacity && i < found; i++) {
        if (views[i].where == MZ_VIEW_ENCODED) {
            mz_restore_lend(&pool->restore, views[i].unit);
            bytes += mz_codec_expected(views[i].codec, &views[i].shape);
            units++;
        }
    }
    pool->in_place_bytes += bytes;
    pthread_mutex_unlock(&pool->restore.lock);
    if (units > 0) {
        mz_trace_add(pool->restore.trace, start_ns,
                     &(mz_trace_what){.name = "borrow",
                                      .category = "kv",
                                      .keys = {"spans", "bytes"},
                                      .values = {units, bytes}});
    }
    return found;
}

void mz_pool_give_back(mz_pool *pool, const mz_view *views, size_t count)
{
    pthread_mutex_lock(&pool->restore.lock);
    /* Last one first: each that was postponed goes to the front of what waits. */
    for (size_t i = count; i-- > 0;) {
        if (views[i].where == MZ_VIEW_ENCODED) {
            mz_restore_give_back(&pool->restore, views[i].unit);
        }
    }
    pthread_cond_broadcast(&pool->restore.change);
    pthread_mutex_unlock(&pool->restore.lock);
}

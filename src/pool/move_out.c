/* SPDX-License-Identifier: MIT */
/*
 * How one unit leaves memory: its bytes are safe elsewhere before a single page is given back.
 *
 * The caller holds the pool, so the unit's bytes and the stack are ours; the lock is let go for
 * encoding and for I/O, and taken to touch what mz_status_get reads meanwhile. Any failure puts the
 * unit back to where it was and gives back what was taken for it.
 */
#include <string.h>
#include <xxhash.h>

#include "os/memory.h"
#include "pool/internal.h"

/* Give the pages of a unit back; its bytes are elsewhere. Without the lock. */
static mz_status drop_pages(mz_pool *pool, mz_unit *unit, mz_error *error)
{
    uint64_t start_ns = mz_trace_start(pool->restore.trace);
    for (uint32_t i = 0; i < unit->span_count; i++) {
        const mz_span *place = &unit->spans[i].place;
        mz_status status = mz_memory_drop(pool->os, place->address, place->bytes, error);
        if (status == MZ_OK && pool->guard) {
            status = mz_memory_guard(pool->os, place->address, place->bytes, true, error);
        }
        if (status != MZ_OK) {
            return status;
        }
    }
    mz_unit_trace(pool->restore.trace, start_ns, "drop", unit, mz_unit_live_pages(unit));
    return MZ_OK;
}

/* Encode one span into the stack. Without the lock; `shape` is what was encoded. */
static mz_status push_span(mz_pool *pool, mz_unit_span *span, mz_error *error)
{
    mz_codec_shape shape = mz_unit_span_shape(span);
    const mz_codec *codec = pool->codec_broke ? NULL : mz_codec_or_exact(pool->codec, &shape);
    if (codec == NULL) {
        return mz_error_set(error, MZ_E_UNSUPPORTED, 0, "the codec does not take this type");
    }
    void *room;
    pthread_mutex_lock(&pool->restore.lock);
    mz_status status = mz_stack_room(pool->stack, codec->bound(&shape), &room, error);
    pthread_mutex_unlock(&pool->restore.lock);
    if (status != MZ_OK) {
        return status;
    }
    size_t bytes;
    status = codec->encode(&shape, span->place.address, room, &bytes);
    if (status == MZ_E_CORRUPT) {
        return mz_error_set(error, status, 0,
                            "the codec %s can't read back what it writes; KV goes to the store "
                            "instead",
                            codec->name);
    }
    if (status != MZ_OK) {
        return mz_error_set(error, status, 0, "the codec does not take these values");
    }
    if (bytes >= mz_page_ceil(span->live_bytes)) {
        /* What an exact codec can't shrink would take more memory than it frees. */
        return mz_error_set(error, MZ_E_UNSUPPORTED, 0, "encoding gains nothing");
    }
    pthread_mutex_lock(&pool->restore.lock);
    span->record = mz_stack_commit(pool->stack, bytes);
    pthread_mutex_unlock(&pool->restore.lock);
    span->kept_shape = shape;
    span->kept_encoded = true;
    return MZ_OK;
}

static void pop_spans(mz_pool *pool, mz_unit *unit)
{
    pthread_mutex_lock(&pool->restore.lock);
    for (uint32_t i = unit->span_count; i-- > 0;) {
        if (unit->spans[i].record.segment != NULL) {
            mz_stack_free(pool->stack, &unit->spans[i].record);
        }
        unit->spans[i].kept_encoded = false;
    }
    pthread_mutex_unlock(&pool->restore.lock);
}

static mz_status push_unit(mz_pool *pool, mz_unit *unit, mz_error *error)
{
    uint64_t start_ns = mz_trace_start(pool->restore.trace);
    mz_status status = MZ_OK;
    for (uint32_t i = 0; i < unit->span_count && status == MZ_OK; i++) {
        if (unit->spans[i].live_bytes > 0) {
            status = push_span(pool, &unit->spans[i], error);
        }
    }
    if (status != MZ_OK) {
        pop_spans(pool, unit);
    }
    mz_unit_trace(pool->restore.trace, start_ns, "encode", unit, mz_unit_live_pages(unit));
    return status;
}

static const mz_codec *store_codec(void)
{
    return mz_codec_find("sparse");
}

/* Bytes that a span takes in its slot at most. */
static uint64_t span_slot_bytes(const mz_unit *unit, uint32_t index)
{
    const mz_unit_span *span = &unit->spans[index];
    if (span->record.segment != NULL) {
        return mz_page_ceil(span->record.bytes);
    }
    if (span->live_bytes == 0) {
        return 0;
    }
    if (mz_unit_span_is_direct(unit, index)) {
        return mz_page_ceil(span->live_bytes);
    }
    mz_codec_shape shape = mz_unit_span_shape(span);
    return mz_page_ceil(store_codec()->bound(&shape));
}

/* Write a span as it is; every slice's checksum is taken from memory before it goes. */
static mz_status write_direct(mz_pool *pool, mz_unit_span *span, uint64_t offset, mz_error *error)
{
    uint64_t pages = mz_page_ceil(span->live_bytes);
    uint32_t slices = mz_span_slice_count(span, pages);
    for (uint32_t i = 0; i < slices; i++) {
        mz_slice slice = mz_span_slice(span, pages, i);
        const uint8_t *source = span->place.address + slice.offset;
        span->slice_hash[i] = XXH3_64bits(source, slice.bytes);
        mz_status status = mz_file_write(mz_store_file(pool->store), source, slice.bytes,
                                         offset + slice.offset, error);
        if (status != MZ_OK) {
            return status;
        }
    }
    span->kept_bytes = span->live_bytes;
    span->kept_encoded = false;
    span->hashed = true;
    return MZ_OK;
}

/* Write encoded bytes by way of the bounce buffer: direct I/O wants aligned memory. */
static mz_status write_encoded(mz_pool *pool, mz_unit_span *span, uint64_t offset, mz_error *error)
{
    uint64_t bytes = span->record.bytes;
    if (span->record.segment != NULL) {
        memcpy(pool->bounce, mz_stack_data(span->record), bytes);
    } else {
        mz_codec_shape shape = mz_unit_span_shape(span);
        size_t encoded;
        mz_status status =
            store_codec()->encode(&shape, span->place.address, pool->bounce, &encoded);
        if (status != MZ_OK) {
            return mz_error_set(error, status, 0, "encoding failed");
        }
        bytes = encoded;
        span->kept_shape = shape;
    }
    uint64_t pages = mz_page_ceil(bytes);
    memset((uint8_t *)pool->bounce + bytes, 0, pages - bytes);
    mz_status status =
        mz_file_write(mz_store_file(pool->store), pool->bounce, pages, offset, error);
    if (status == MZ_OK) {
        span->kept_bytes = bytes;
        span->kept_encoded = true;
    }
    return status;
}

/* Write a whole unit into a fresh slot. Without the lock. */
static mz_status write_unit(mz_pool *pool, mz_unit *unit, mz_error *error)
{
    uint64_t start_ns = mz_trace_start(pool->restore.trace);
    uint64_t payload = 0;
    for (uint32_t i = 0; i < unit->span_count; i++) {
        payload += span_slot_bytes(unit, i);
    }
    pthread_mutex_lock(&pool->restore.lock);
    mz_store_slot slot = {0, 0};
    mz_status status = mz_store_allocate(pool->store, payload, &slot, error);
    pthread_mutex_unlock(&pool->restore.lock);
    if (status != MZ_OK) {
        return status;
    }
    uint64_t offset = slot.offset + MZ_PAGE_BYTES;
    bool bounced = false;
    for (uint32_t i = 0; i < unit->span_count && status == MZ_OK; i++) {
        mz_unit_span *span = &unit->spans[i];
        span->kept_offset = offset;
        offset += span_slot_bytes(unit, i);
        if (span->record.segment == NULL && span->live_bytes == 0) {
            continue;
        }
        if (span->record.segment == NULL && mz_unit_span_is_direct(unit, i)) {
            status = write_direct(pool, span, span->kept_offset, error);
        } else {
            bounced = true;
            status = write_encoded(pool, span, span->kept_offset, error);
        }
    }
    if (status == MZ_OK) {
        status = mz_store_write_header(pool->store, slot, (uint32_t)unit->tag, unit->layer,
                                       unit->chunk, error);
    }
    mz_unit_trace(pool->restore.trace, start_ns, "write", unit, payload);
    pthread_mutex_lock(&pool->restore.lock);
    pool->bounce_used = pool->bounce_used || bounced;
    if (status == MZ_OK) {
        unit->slot = slot;
        pool->written_bytes += slot.bytes;
    } else {
        mz_store_free(pool->store, &slot);
    }
    pthread_mutex_unlock(&pool->restore.lock);
    return status;
}

/* Undo a write whose pages could not be dropped or that failed half way. Without the lock. */
static void unwrite_unit(mz_pool *pool, mz_unit *unit)
{
    pthread_mutex_lock(&pool->restore.lock);
    mz_store_free(pool->store, &unit->slot);
    for (uint32_t i = 0; i < unit->span_count; i++) {
        unit->spans[i].kept_encoded = unit->spans[i].record.segment != NULL;
    }
    pthread_mutex_unlock(&pool->restore.lock);
}

/* Move a compressed unit from the stack to the store. Takes and returns with the lock held. */
static mz_status spill(mz_pool *pool, mz_unit *unit, mz_error *error)
{
    pthread_mutex_unlock(&pool->restore.lock);
    mz_status status = write_unit(pool, unit, error);
    if (status != MZ_OK) {
        unwrite_unit(pool, unit);
    }
    pthread_mutex_lock(&pool->restore.lock);
    if (status == MZ_OK) {
        for (uint32_t i = unit->span_count; i-- > 0;) {
            if (unit->spans[i].record.segment != NULL) {
                mz_stack_free(pool->stack, &unit->spans[i].record);
            }
        }
        /* If a prefetch asked for it meanwhile, it waits in the queue of the path it had then. */
        bool waits = unit->queue != MZ_QUEUE_NONE;
        mz_restore_forget(&pool->restore, unit);
        mz_restore_move(&pool->restore, unit, MZ_UNIT_STORED);
        if (waits) {
            mz_restore_request(&pool->restore, &unit, 1);
        }
    }
    return status;
}

/* Put the bytes of a resident unit somewhere safe. Without the lock. */
static mz_status keep(mz_pool *pool, mz_unit *unit, mz_path *path, mz_error *error)
{
    if (*path == MZ_PATH_DROP) {
        if (unit->has_source) {
            return mz_file_changed(pool->sources[unit->spans[0].place.source], error);
        }
        return MZ_OK;
    }
    if (*path == MZ_PATH_STACK) {
        mz_status status = push_unit(pool, unit, error);
        if (status == MZ_E_CORRUPT) {
            pool->codec_broke = true;
            mz_pool_report(pool, error);
        } else if (status != MZ_E_UNSUPPORTED) {
            return status;
        }
        *path = MZ_PATH_STORE; /* NaN, infinity or noise in a chunk: to the store as it is */
        *error = (mz_error)MZ_ERROR_INIT;
    }
    return write_unit(pool, unit, error);
}

mz_status mz_pool_move_out(mz_pool *pool, mz_unit *unit, mz_path path, uint64_t resident_bytes,
                           uint64_t *freed, mz_error *error)
{
    uint64_t stack_before = mz_stack_bytes(pool->stack);
    if (path == MZ_PATH_SPILL) {
        mz_status status = spill(pool, unit, error);
        *freed = stack_before - mz_stack_bytes(pool->stack);
        return status;
    }
    if (path == MZ_PATH_STACK) {
        /* A unit that is clean may have a copy in the store: its spans can describe one copy
         * only. */
        mz_store_free(pool->store, &unit->slot);
        unit->clean = false;
    }
    for (uint32_t i = 0; i < unit->span_count; i++) {
        unit->spans[i].shares_huge = false;
    }
    mz_restore_move(&pool->restore, unit, MZ_UNIT_EVICTING);
    pthread_mutex_unlock(&pool->restore.lock);
    mz_status status = keep(pool, unit, &path, error);
    bool kept = status == MZ_OK;
    if (kept) {
        status = drop_pages(pool, unit, error);
    }
    if (!kept && path == MZ_PATH_STORE) {
        unwrite_unit(pool, unit);
    }
    pthread_mutex_lock(&pool->restore.lock);
    if (!kept) {
        mz_restore_move(&pool->restore, unit, MZ_UNIT_RESIDENT);
        return status;
    }
    /* If dropping failed some pages may be gone already, so the kept copy is the truth either
     * way. */
    mz_restore_move(&pool->restore, unit,
                    path == MZ_PATH_STACK ? MZ_UNIT_COMPRESSED : MZ_UNIT_STORED);
    uint64_t grown = mz_stack_bytes(pool->stack) - stack_before;
    *freed = status == MZ_OK && resident_bytes > grown ? resident_bytes - grown : 0;
    return status;
}

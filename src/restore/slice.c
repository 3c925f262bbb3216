/* SPDX-License-Identifier: MIT */
/*
 * What one slice of a restore does, by where the truth of its unit is:
 *   model file, or a span kept as it is:  pages, then a direct read into place, then the checksum;
 *   encoded span in the store:            read into the bounce buffer, then decode into place;
 *   stack:                                decode into place.
 * The checksum of a weight slice is taken when it is read for the first time and compared every
 * time after, so a model file that is changed in place without a trace in its times is noticed too.
 * A read that fails or brings wrong bytes is tried once more through the page cache before it is
 * reported.
 */
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "os/memory.h"
#include "restore/restore.h"

typedef struct slice_place {
    uint32_t span;
    uint32_t number; /* in the span */
    uint64_t offset; /* in the span */
    uint64_t bytes;  /* whole pages */
} slice_place;

static bool span_is_sliced(const mz_unit *unit, uint32_t index)
{
    return unit->from == MZ_UNIT_STORED && !unit->spans[index].kept_encoded;
}

static uint32_t span_slices(const mz_unit *unit, uint32_t index)
{
    uint64_t pages = mz_page_ceil(unit->spans[index].live_bytes);
    return span_is_sliced(unit, index) ? mz_span_slice_count(&unit->spans[index], pages)
                                       : (uint32_t)(pages > 0);
}

uint32_t mz_slice_count(const mz_unit *unit)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < unit->span_count; i++) {
        count += span_slices(unit, i);
    }
    return count;
}

static slice_place slice_find(const mz_unit *unit, uint32_t slice)
{
    uint32_t span = 0;
    while (slice >= span_slices(unit, span)) {
        slice -= span_slices(unit, span);
        span++;
    }
    uint64_t pages = mz_page_ceil(unit->spans[span].live_bytes);
    if (!span_is_sliced(unit, span)) {
        return (slice_place){span, 0, 0, pages};
    }
    mz_slice part = mz_span_slice(&unit->spans[span], pages, slice);
    return (slice_place){span, slice, part.offset, part.bytes};
}

/* Read once more, through the page cache, after a read that failed or gave other bytes. */
static mz_status slice_read_again(const mz_slice_read *read, mz_error *error)
{
    return mz_file_read_buffered(read->file, read->target, read->bytes, read->offset, error);
}

/* What was read straight into place: settle the checksum. status: how the read went. */
static mz_status slice_check(mz_unit *unit, slice_place at, const mz_slice_read *read,
                             mz_status status, mz_error *error)
{
    uint64_t *expected = &unit->spans[at.span].slice_hash[at.number];
    if (read->first_load) {
        status = status == MZ_OK ? MZ_OK : slice_read_again(read, error);
        if (status != MZ_OK) {
            return status;
        }
        *expected = XXH3_64bits(read->target, read->bytes);
        /* The host's own mapping brought the file into the page cache; our copy replaces that. */
        mz_file_drop_cache(read->file, read->offset, read->bytes);
        return MZ_OK;
    }
    if (status == MZ_OK && XXH3_64bits(read->target, read->bytes) == *expected) {
        return MZ_OK;
    }
    mz_error again = MZ_ERROR_INIT;
    if (slice_read_again(read, &again) == MZ_OK) {
        if (XXH3_64bits(read->target, read->bytes) == *expected) {
            return MZ_OK;
        }
        return mz_error_set(error, unit->has_source ? MZ_E_CHANGED : MZ_E_CORRUPT, 0,
                            unit->has_source
                                ? "the model file was changed on disk; load the model again"
                                : "the store returned other bytes than were written");
    }
    *error = again;
    return again.status;
}

static mz_status slice_decode(mz_restore *restore, mz_unit *unit, slice_place at, const void *bytes,
                              uint64_t count, mz_slice_result *result, mz_error *error)
{
    mz_unit_span *span = &unit->spans[at.span];
    uint64_t start_ns = mz_now_ns();
    mz_status status = mz_codec_decode(&span->kept_shape, bytes, count, span->place.address);
    result->decode_ns += mz_now_ns() - start_ns;
    mz_unit_trace(restore->trace, start_ns, "decode", unit, at.bytes);
    if (status == MZ_E_NOTFOUND) {
        return mz_error_set(error, status, 0,
                            "the kept copy was written by a codec of another library; name it by "
                            "MZCACHE_CODEC_LIBRARY");
    }
    if (status != MZ_OK) {
        return mz_error_set(error, status, 0, "the kept copy is damaged");
    }
    result->decoded_bytes += (uint64_t)span->kept_shape.rows * span->kept_shape.row_bytes;
    return MZ_OK;
}

/* Commit pages that may be part of huge ones, each of these by one thread at a time. */
static mz_status commit_shared(mz_restore *restore, uint8_t *address, uint64_t bytes,
                               mz_error *error)
{
    mz_status status = MZ_OK;
    while (bytes > 0 && status == MZ_OK) {
        uint64_t left = MZ_HUGE_BYTES - (uintptr_t)address % MZ_HUGE_BYTES;
        uint64_t part = bytes < left ? bytes : left;
        pthread_mutex_t *lock =
            &restore->commit_locks[(uintptr_t)address / MZ_HUGE_BYTES % MZ_COMMIT_LOCKS];
        pthread_mutex_lock(lock);
        status = mz_memory_populate(restore->os, address, part, error);
        pthread_mutex_unlock(lock);
        address += part;
        bytes -= part;
    }
    return status;
}

/* Commit the pages of a slice. What is sparse gets pages only where something is decoded to. */
static mz_status slice_commit(mz_restore *restore, mz_unit *unit, slice_place at, mz_error *error)
{
    mz_unit_span *span = &unit->spans[at.span];
    uint8_t *target = span->place.address + at.offset;
    mz_status status = MZ_OK;
    if (restore->guard) {
        status = mz_memory_guard(restore->os, target, at.bytes, false, error);
    }
    bool sparse = !span_is_sliced(unit, at.span) && span->place.elem == MZ_ELEM_OPAQUE;
    if (status == MZ_OK && !sparse) {
        uint64_t start_ns = mz_trace_start(restore->trace);
        status = span->shares_huge ? commit_shared(restore, target, at.bytes, error)
                                   : mz_memory_populate(restore->os, target, at.bytes, error);
        mz_unit_trace(restore->trace, start_ns, "allocate", unit, at.bytes);
    }
    return status;
}

mz_status mz_slice_allocate(mz_restore *restore, mz_unit *unit, uint32_t slice, mz_error *error)
{
    return slice_commit(restore, unit, slice_find(unit, slice), error);
}

mz_status mz_slice_begin(mz_restore *restore, mz_file *source, mz_unit *unit, uint32_t slice,
                         void *bounce, mz_slice_read *read, mz_error *error)
{
    slice_place at = slice_find(unit, slice);
    mz_unit_span *span = &unit->spans[at.span];
    mz_status status = unit->allocated ? MZ_OK : slice_commit(restore, unit, at, error);
    *read = (mz_slice_read){.start_ns = mz_trace_start(restore->trace)};
    if (status != MZ_OK || unit->from == MZ_UNIT_COMPRESSED) {
        return status;
    }
    read->file = unit->has_source ? source : mz_store_file(restore->store);
    if (!span_is_sliced(unit, at.span)) {
        read->target = bounce;
        read->bytes = mz_page_ceil(span->kept_bytes);
        read->offset = span->kept_offset;
        return MZ_OK;
    }
    read->target = span->place.address + at.offset;
    read->bytes = at.bytes;
    read->offset = (unit->has_source ? span->place.file_offset : span->kept_offset) + at.offset;
    read->first_load = unit->has_source && !span->hashed;
    return unit->has_source ? mz_file_changed(read->file, error) : MZ_OK;
}

mz_status mz_slice_read_now(const mz_slice_read *read, mz_error *error)
{
    return read->first_load
               ? slice_read_again(read, error)
               : mz_file_read(read->file, read->target, read->bytes, read->offset, error);
}

mz_status mz_slice_end(mz_restore *restore, mz_unit *unit, uint32_t slice,
                       const mz_slice_read *read, mz_status status, mz_slice_result *result,
                       mz_error *error)
{
    slice_place at = slice_find(unit, slice);
    mz_unit_span *span = &unit->spans[at.span];
    if (read->file == NULL) {
        return slice_decode(restore, unit, at, mz_stack_data(span->record), span->record.bytes,
                            result, error);
    }
    bool is_in_place = span_is_sliced(unit, at.span);
    bool was_read = status == MZ_OK;
    if (is_in_place) {
        status = slice_check(unit, at, read, status, error);
    } else if (!was_read) {
        status = slice_read_again(read, error);
    }
    mz_unit_trace(restore->trace, read->start_ns, "read", unit, read->bytes);
    result->read_bytes += status == MZ_OK ? read->bytes : 0;
    if (status != MZ_OK || is_in_place) {
        return status;
    }
    status = slice_decode(restore, unit, at, read->target, span->kept_bytes, result, error);
    if (status == MZ_OK || !was_read) {
        return status;
    }
    mz_error again = MZ_ERROR_INIT;
    if (slice_read_again(read, &again) == MZ_OK) {
        status = slice_decode(restore, unit, at, read->target, span->kept_bytes, result, &again);
    }
    *error = status == MZ_OK ? (mz_error)MZ_ERROR_INIT : *error;
    return status;
}

uint64_t mz_slice_bounce_bytes(const mz_unit *unit, uint32_t slice)
{
    const mz_unit_span *span = &unit->spans[slice_find(unit, slice).span];
    return unit->from == MZ_UNIT_STORED && span->kept_encoded ? mz_page_ceil(span->kept_bytes) : 0;
}

/* SPDX-License-Identifier: MIT */
/* Units and their state machine; see unit.h. */
#include "swap/unit.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Edges of the state machine, [from][to]. A clear makes any settled state RESIDENT (and empty). */
static const bool edges[MZ_UNIT_STATES][MZ_UNIT_STATES] = {
    [MZ_UNIT_RESIDENT] = {[MZ_UNIT_EVICTING] = true},
    [MZ_UNIT_EVICTING] = {[MZ_UNIT_RESIDENT] = true, /* it could not be written */
                          [MZ_UNIT_COMPRESSED] = true,
                          [MZ_UNIT_STORED] = true},
    [MZ_UNIT_COMPRESSED] = {[MZ_UNIT_RESTORING] = true,
                            [MZ_UNIT_STORED] = true, /* spilled to the store */
                            [MZ_UNIT_RESIDENT] = true},
    [MZ_UNIT_STORED] = {[MZ_UNIT_RESTORING] = true, [MZ_UNIT_RESIDENT] = true},
    [MZ_UNIT_RESTORING] = {[MZ_UNIT_RESIDENT] = true,
                           [MZ_UNIT_COMPRESSED] = true, /* the restore failed */
                           [MZ_UNIT_STORED] = true,
                           [MZ_UNIT_LOST] = true},
    [MZ_UNIT_LOST] = {[MZ_UNIT_RESIDENT] = true},
};

bool mz_unit_can_move(mz_unit_state from, mz_unit_state to)
{
    return from < MZ_UNIT_STATES && to < MZ_UNIT_STATES && edges[from][to];
}

void mz_unit_move(mz_unit *unit, mz_unit_state to)
{
    assert(mz_unit_can_move(unit->state, to));
    unit->state = to;
}

const char *mz_unit_state_name(mz_unit_state state)
{
    static const char *const names[MZ_UNIT_STATES] = {"resident", "evicting",  "compressed",
                                                      "stored",   "restoring", "lost"};
    return state < MZ_UNIT_STATES ? names[state] : "?";
}

const char *mz_unit_name(const mz_unit *unit, char *text, size_t capacity)
{
    if (unit->tag == MZ_TAG_WEIGHTS) {
        snprintf(text, capacity, "weights of layer %u", unit->layer);
    } else {
        snprintf(text, capacity, "KV chunk %u of layer %u", unit->chunk, unit->layer);
    }
    return text;
}

void mz_unit_trace(mz_trace *trace, uint64_t start_ns, const char *what, const mz_unit *unit,
                   uint64_t bytes)
{
    mz_trace_add(trace, start_ns,
                 &(mz_trace_what){.name = what,
                                  .category = unit->tag == MZ_TAG_WEIGHTS ? "weights" : "kv",
                                  .keys = {"layer", "chunk", "bytes"},
                                  .values = {unit->layer, unit->chunk, bytes}});
}

static bool span_is_valid(const mz_span *span)
{
    return ((uintptr_t)span->address | span->bytes | span->file_offset) % MZ_PAGE_BYTES == 0 &&
           span->bytes > 0 &&
           (span->elem == MZ_ELEM_OPAQUE ||
            (span->row_bytes > 0 && span->bytes % span->row_bytes == 0));
}

mz_status mz_unit_create(const mz_unit_desc *desc, mz_unit **unit, mz_error *error)
{
    bool valid = desc->span_count >= 1 && desc->span_count <= MZ_UNIT_SPANS &&
                 (desc->tag == MZ_TAG_WEIGHTS || desc->tag == MZ_TAG_KV_CACHE);
    for (uint32_t i = 0; valid && i < desc->span_count; i++) {
        valid = span_is_valid(&desc->spans[i]) && (!desc->stored || desc->spans[i].source >= 0);
    }
    if (!valid) {
        return mz_error_set(error, MZ_E_INVALID, 0, "a unit of layer %u is not page aligned",
                            desc->layer);
    }
    mz_unit *made = calloc(1, sizeof *made + desc->span_count * sizeof made->spans[0]);
    if (made == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a unit");
    }
    made->tag = desc->tag;
    made->layer = desc->layer;
    made->chunk = desc->chunk;
    made->span_count = desc->span_count;
    made->state = desc->stored ? MZ_UNIT_STORED : MZ_UNIT_RESIDENT;
    made->has_source = desc->stored;
    made->clean = desc->stored;
    for (uint32_t i = 0; i < desc->span_count; i++) {
        mz_unit_span *span = &made->spans[i];
        span->place = desc->spans[i];
        span->live_bytes = desc->stored ? span->place.bytes : 0;
        span->slice_hash =
            calloc(mz_span_slice_count(span, span->place.bytes), sizeof *span->slice_hash);
        if (span->slice_hash == NULL) {
            mz_unit_free(made);
            return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a unit's checksums");
        }
    }
    *unit = made;
    return MZ_OK;
}

void mz_unit_free(mz_unit *unit)
{
    if (unit == NULL) {
        return;
    }
    for (uint32_t i = 0; i < unit->span_count; i++) {
        free(unit->spans[i].slice_hash);
    }
    free(unit);
}

/* Bytes between the huge page that the span begins in and the span. */
static uint64_t span_lead(const mz_unit_span *span)
{
    return (uintptr_t)span->place.address % MZ_SLICE_BYTES;
}

uint32_t mz_span_slice_count(const mz_unit_span *span, uint64_t bytes)
{
    uint64_t end = span_lead(span) + bytes;
    return bytes == 0 ? 0 : (uint32_t)((end + MZ_SLICE_BYTES - 1) / MZ_SLICE_BYTES);
}

mz_slice mz_span_slice(const mz_unit_span *span, uint64_t bytes, uint32_t number)
{
    uint64_t lead = span_lead(span);
    uint64_t offset = number == 0 ? 0 : (uint64_t)number * MZ_SLICE_BYTES - lead;
    uint64_t end = (uint64_t)(number + 1) * MZ_SLICE_BYTES - lead;
    return (mz_slice){offset, (end < bytes ? end : bytes) - offset};
}

uint64_t mz_unit_live_pages(const mz_unit *unit)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < unit->span_count; i++) {
        total += mz_page_ceil(unit->spans[i].live_bytes);
    }
    return total;
}

bool mz_unit_span_is_direct(const mz_unit *unit, uint32_t span)
{
    /* Opaque KV (transposed V, recurrent state) is mostly holes: "sparse" leaves them out. */
    return unit->tag == MZ_TAG_WEIGHTS || unit->spans[span].place.elem != MZ_ELEM_OPAQUE;
}

mz_codec_shape mz_unit_span_shape(const mz_unit_span *span)
{
    mz_codec_shape shape = {MZ_ELEM_OPAQUE, (uint32_t)span->live_bytes, 1};
    if (span->place.elem != MZ_ELEM_OPAQUE) {
        shape.elem = span->place.elem;
        shape.row_bytes = span->place.row_bytes;
        shape.rows =
            (uint32_t)((span->live_bytes + span->place.row_bytes - 1) / span->place.row_bytes);
    }
    return shape;
}

/* SPDX-License-Identifier: MIT */
/*
 * Segments form a list, top first. Pages above `used` hold nothing; when records are freed at the
 * top, `used` falls to the end of the highest live record, which is found by a per-segment list of
 * record offsets kept in a small fixed table: a segment never holds more records than that.
 */
#include "swap/stack.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "os/memory.h"

#define RECORD_ALIGN 64u
/* With 4 MB segments and KV spans of 8 KB or more encoded, 512 records fill a segment. A full table
 * only makes the stack open the next segment earlier. */
#define SEGMENT_RECORDS 512u

struct mz_stack_segment {
    mz_stack_segment *below;
    uint8_t *data;
    uint64_t bytes;   /* mapped */
    uint64_t used;    /* end of the highest live record */
    uint32_t records; /* entries of `offsets` in use, freed ones at the top removed */
    uint32_t live;    /* records not freed */
    struct {
        uint64_t offset, end;
        bool live;
    } table[SEGMENT_RECORDS]; /* in order of offset */
};

struct mz_stack {
    const mz_os *os;
    mz_stack_segment *top;
    uint64_t room_bytes; /* size asked for by the last mz_stack_room */
};

static mz_status segment_open(mz_stack *stack, uint64_t bytes, mz_error *error)
{
    mz_stack_segment *segment = calloc(1, sizeof *segment);
    if (segment == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a stack segment");
    }
    uint64_t wanted = bytes > MZ_STACK_SEGMENT_BYTES ? mz_page_ceil(bytes) : MZ_STACK_SEGMENT_BYTES;
    void *data;
    mz_status status = mz_memory_reserve(stack->os, wanted, MZ_PAGE_BYTES, &data, error);
    if (status != MZ_OK) {
        free(segment);
        return status;
    }
    segment->data = data;
    segment->bytes = wanted;
    segment->below = stack->top;
    stack->top = segment;
    return MZ_OK;
}

static void segment_close(mz_stack *stack, mz_stack_segment *segment)
{
    mz_stack_segment **link = &stack->top;
    while (*link != segment) {
        link = &(*link)->below;
    }
    *link = segment->below;
    mz_memory_release(stack->os, segment->data, segment->bytes);
    free(segment);
}

mz_status mz_stack_create(const mz_os *os, mz_stack **stack, mz_error *error)
{
    mz_stack *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for the stack");
    }
    made->os = os;
    mz_status status = segment_open(made, 0, error);
    if (status != MZ_OK) {
        free(made);
        return status;
    }
    *stack = made;
    return MZ_OK;
}

void mz_stack_destroy(mz_stack *stack)
{
    if (stack == NULL) {
        return;
    }
    while (stack->top != NULL) {
        segment_close(stack, stack->top);
    }
    free(stack);
}

static uint64_t next_offset(const mz_stack_segment *segment)
{
    return (segment->used + RECORD_ALIGN - 1) & ~(uint64_t)(RECORD_ALIGN - 1);
}

mz_status mz_stack_room(mz_stack *stack, uint64_t bytes, void **room, mz_error *error)
{
    mz_stack_segment *top = stack->top;
    if (top->records == SEGMENT_RECORDS || next_offset(top) + bytes > top->bytes) {
        if (top->live == 0 && bytes > top->bytes) {
            segment_close(stack, top); /* an empty one of the normal size is of no use here */
        }
        mz_status status = segment_open(stack, bytes, error);
        if (status != MZ_OK) {
            if (stack->top == NULL) {
                mz_error ignored = MZ_ERROR_INIT;
                (void)segment_open(stack, 0, &ignored);
            }
            return status;
        }
        top = stack->top;
    }
    stack->room_bytes = bytes;
    *room = top->data + next_offset(top);
    return MZ_OK;
}

mz_stack_record mz_stack_commit(mz_stack *stack, uint64_t bytes)
{
    assert(bytes > 0 && bytes <= stack->room_bytes);
    mz_stack_segment *top = stack->top;
    mz_stack_record record = {top, next_offset(top), bytes};
    top->table[top->records].offset = record.offset;
    top->table[top->records].end = record.offset + bytes;
    top->table[top->records].live = true;
    top->records++;
    top->live++;
    top->used = record.offset + bytes;
    return record;
}

const void *mz_stack_data(mz_stack_record record)
{
    return record.segment->data + record.offset;
}

/* Lower `used` to the highest live record and give the pages above it back. */
static void segment_shrink(mz_stack *stack, mz_stack_segment *segment)
{
    uint64_t before = mz_page_ceil(segment->used);
    while (segment->records > 0 && !segment->table[segment->records - 1].live) {
        segment->records--;
    }
    segment->used = segment->records == 0 ? 0 : segment->table[segment->records - 1].end;
    uint64_t after = mz_page_ceil(segment->used);
    if (after < before) {
        mz_error ignored = MZ_ERROR_INIT; /* pages that stay are taken again by the next push */
        (void)mz_memory_drop(stack->os, segment->data + after, before - after, &ignored);
    }
}

void mz_stack_free(mz_stack *stack, mz_stack_record *record)
{
    mz_stack_segment *segment = record->segment;
    uint32_t low = 0;
    uint32_t high = segment->records;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (segment->table[middle].offset < record->offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    assert(low < segment->records && segment->table[low].live);
    segment->table[low].live = false;
    segment->live--;
    segment_shrink(stack, segment);
    bool last = stack->top == segment && segment->below == NULL;
    if (segment->live == 0 && !last) {
        segment_close(stack, segment);
    }
    *record = (mz_stack_record){NULL, 0, 0};
}

uint64_t mz_stack_bytes(const mz_stack *stack)
{
    uint64_t total = 0;
    for (const mz_stack_segment *s = stack->top; s != NULL; s = s->below) {
        total += mz_page_ceil(s->used);
    }
    return total;
}

bool mz_stack_check(const mz_stack *stack)
{
    if (stack->top == NULL) {
        return false;
    }
    for (const mz_stack_segment *s = stack->top; s != NULL; s = s->below) {
        uint32_t live = 0;
        uint64_t end = 0;
        for (uint32_t i = 0; i < s->records; i++) {
            if (s->table[i].offset < end || s->table[i].end > s->bytes) {
                return false;
            }
            end = s->table[i].end;
            live += s->table[i].live ? 1 : 0;
        }
        bool empty_below = live == 0 && !(s == stack->top);
        if (live != s->live || s->used != end || empty_below) {
            return false;
        }
    }
    return true;
}

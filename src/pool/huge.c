/* SPDX-License-Identifier: MIT */
/*
 * Huge pages for KV that comes back.
 *
 * A chunk of KV is smaller than a huge page, so KV is committed in pages of 4 KB while it grows, and
 * would be again when it is restored, at a quarter of the speed (the kernel clears huge pages at
 * memory speed, and faults once). But once all chunks that share a huge page are away and were full,
 * they come back together, so then its page table is given back too (dropping 2 MB as a whole does
 * that, since Linux 6.14), and huge pages are wanted there. Memory that a conversation
 * has not reached yet stays in small pages: a huge one would take more than is needed.
 */
#include "os/memory.h"
#include "pool/internal.h"

/* The span whose addresses an index entry has. */
static mz_unit_span *entry_span(const mz_index_entry *entry)
{
    uint32_t i = 0;
    while ((uintptr_t)entry->unit->spans[i].place.address != entry->start) {
        i++;
    }
    return &entry->unit->spans[i];
}

/* Whether the pages of a span are all away and will all come back. */
static bool is_away_and_full(const mz_index_entry *entry)
{
    const mz_unit *unit = entry->unit;
    const mz_unit_span *span = entry_span(entry);
    return unit->tag == MZ_TAG_KV_CACHE && span->place.elem != MZ_ELEM_OPAQUE &&
           span->live_bytes == span->place.bytes &&
           (unit->state == MZ_UNIT_COMPRESSED || unit->state == MZ_UNIT_STORED);
}

/* Huge pages for the whole ones of entries [first, behind), which have no gaps. */
static void want_huge(mz_pool *pool, uint32_t first, uint32_t behind)
{
    uintptr_t start = pool->index[first].start;
    uintptr_t end = pool->index[behind - 1].end;
    uintptr_t whole = (start + MZ_HUGE_BYTES - 1) / MZ_HUGE_BYTES * MZ_HUGE_BYTES;
    uintptr_t whole_end = end / MZ_HUGE_BYTES * MZ_HUGE_BYTES;
    bool is_new = false;
    for (uint32_t i = first; i < behind; i++) {
        if (pool->index[i].end > whole && pool->index[i].start < whole_end) {
            mz_unit_span *span = entry_span(&pool->index[i]);
            is_new = is_new || !span->shares_huge;
            span->shares_huge = true;
        }
    }
    if (is_new && whole < whole_end) {
        mz_error ignored = MZ_ERROR_INIT; /* they are dropped already: this is about page tables */
        (void)mz_memory_drop(pool->os, (void *)whole, whole_end - whole, &ignored);
        mz_memory_want_huge(pool->os, (void *)whole, whole_end - whole);
    }
}

void mz_pool_want_huge(mz_pool *pool)
{
    if (pool->guard) {
        return; /* each evicted span is a mapping of its own then */
    }
    mz_pool_sort(pool);
    for (uint32_t first = 0; first < pool->index_count;) {
        uint32_t behind = first;
        while (behind < pool->index_count && is_away_and_full(&pool->index[behind]) &&
               (behind == first || pool->index[behind].start == pool->index[behind - 1].end)) {
            behind++;
        }
        if (behind > first) {
            want_huge(pool, first, behind);
        }
        first = behind > first ? behind : first + 1;
    }
}

void mz_pool_want_small(mz_pool *pool, void *address, uint64_t bytes)
{
    bool was_huge = false;
    uintptr_t end = (uintptr_t)address + bytes;
    for (uint32_t i = 0; i < pool->index_count; i++) {
        if (pool->index[i].start >= (uintptr_t)address && pool->index[i].start < end) {
            mz_unit_span *span = entry_span(&pool->index[i]);
            was_huge = was_huge || span->shares_huge;
            span->shares_huge = false;
        }
    }
    if (was_huge) {
        mz_memory_want_small(pool->os, address, bytes);
    }
}

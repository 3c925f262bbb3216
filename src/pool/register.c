/* SPDX-License-Identifier: MIT */
/*
 * Which memory a pool manages: sources, units, and the index from addresses to units.
 *
 * Everything that evict and restore will need in proportion to the number of units is allocated
 * here, at registration, so that they themselves allocate nothing of the kind.
 */
#include <stdlib.h>
#include <string.h>

#include "os/memory.h"
#include "pool/internal.h"

/*
 * Take the lock while no eviction holds the pool: its plan numbers the units, and it reads the list
 * of sources without the lock. Counts as a step that waits, so that the eviction lets go soon.
 */
static void lock_lists(mz_pool *pool)
{
    pthread_mutex_lock(&pool->restore.lock);
    if (pool->evict_holds) {
        pool->steps_waiting++;
        while (pool->evict_holds) {
            pthread_cond_wait(&pool->restore.change, &pool->restore.lock);
        }
        pool->steps_waiting--;
        pthread_cond_broadcast(&pool->restore.change);
    }
}

mz_status mz_pool_add_source(mz_pool *pool, const char *path, int32_t *source, mz_error *error)
{
    mz_file *file = calloc(1, sizeof *file);
    if (file == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a model file");
    }
    mz_status status = mz_file_open(file, pool->os, path, error);
    if (status != MZ_OK) {
        free(file);
        return status;
    }
    lock_lists(pool);
    mz_file **grown = realloc(pool->sources, ((size_t)pool->source_count + 1) * sizeof(mz_file *));
    if (grown != NULL) {
        pool->sources = grown;
        pool->restore.sources = grown;
        grown[pool->source_count] = file;
        *source = pool->source_count++;
    }
    pthread_mutex_unlock(&pool->restore.lock);
    if (grown == NULL) {
        mz_file_close(file);
        free(file);
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a model file");
    }
    return MZ_OK;
}

/* Grow one array to `capacity` elements. */
static bool grow(void *array_pointer, uint32_t capacity, size_t element_bytes)
{
    void **array = array_pointer;
    void *grown = realloc(*array, capacity * element_bytes);
    if (grown != NULL) {
        *array = grown;
    }
    return grown != NULL;
}

static mz_status make_room(mz_pool *pool, uint32_t spans, mz_error *error)
{
    bool good = true;
    if (pool->unit_count == pool->unit_capacity) {
        uint32_t capacity = pool->unit_capacity * 2 + 64;
        good = grow(&pool->units, capacity, sizeof *pool->units) &&
               grow(&pool->scratch, capacity, sizeof *pool->scratch) &&
               grow(&pool->plan_units, capacity, sizeof *pool->plan_units) &&
               grow(&pool->plan_steps, 2 * capacity, sizeof *pool->plan_steps);
        if (good) {
            pool->unit_capacity = capacity;
        }
    }
    if (good && pool->index_count + spans > pool->index_capacity) {
        uint32_t capacity = pool->index_capacity * 2 + 128;
        good = grow(&pool->index, capacity, sizeof *pool->index);
        if (good) {
            pool->index_capacity = capacity;
        }
    }
    if (!good) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory to register a unit");
    }
    return mz_store_reserve(pool->store, pool->unit_count + 1, error);
}

mz_status mz_pool_add_unit(mz_pool *pool, const mz_unit_desc *desc, mz_error *error)
{
    for (uint32_t i = 0; i < desc->span_count && i < MZ_UNIT_SPANS; i++) {
        /* Encoded spans pass through a bounce buffer; half of it is room for what encoding adds. */
        if (desc->tag != MZ_TAG_WEIGHTS && desc->spans[i].bytes > MZ_BOUNCE_BYTES / 2) {
            return mz_error_set(error, MZ_E_INVALID, 0,
                                "a KV span of layer %u is larger than %u MB", desc->layer,
                                MZ_BOUNCE_BYTES >> 21);
        }
    }
    mz_unit *unit;
    mz_status status = mz_unit_create(desc, &unit, error);
    if (status != MZ_OK) {
        return status;
    }
    lock_lists(pool);
    status = make_room(pool, unit->span_count, error);
    if (status == MZ_OK) {
        pool->units[pool->unit_count++] = unit;
        for (uint32_t i = 0; i < unit->span_count; i++) {
            uintptr_t start = (uintptr_t)unit->spans[i].place.address;
            pool->index[pool->index_count++] =
                (mz_index_entry){start, start + unit->spans[i].place.bytes, unit};
        }
        pool->sorted = false;
        if (unit->state != MZ_UNIT_RESIDENT) {
            atomic_fetch_add_explicit(&pool->restore.away, 1, memory_order_release);
        }
    }
    pthread_mutex_unlock(&pool->restore.lock);
    if (status != MZ_OK) {
        mz_unit_free(unit);
        return status;
    }
    for (uint32_t i = 0; i < desc->span_count; i++) {
        mz_error ignored = MZ_ERROR_INIT;
        if (desc->tag == MZ_TAG_WEIGHTS) {
            mz_memory_want_huge(pool->os, desc->spans[i].address, desc->spans[i].bytes);
        }
        if (pool->guard && desc->stored) {
            (void)mz_memory_guard(pool->os, desc->spans[i].address, desc->spans[i].bytes, true,
                                  &ignored);
        }
    }
    return MZ_OK;
}

static int by_need(const void *left, const void *right)
{
    const mz_unit *a = *(mz_unit *const *)left;
    const mz_unit *b = *(mz_unit *const *)right;
    if (a->layer != b->layer) {
        return a->layer < b->layer ? -1 : 1;
    }
    if (a->tag != b->tag) {
        return a->tag == MZ_TAG_WEIGHTS ? -1 : 1;
    }
    if (a->chunk != b->chunk) {
        return a->chunk < b->chunk ? -1 : 1;
    }
    return a->spans[0].place.address < b->spans[0].place.address ? -1 : 1;
}

static int by_address(const void *left, const void *right)
{
    const mz_index_entry *a = left;
    const mz_index_entry *b = right;
    return a->start < b->start ? -1 : a->start > b->start;
}

void mz_pool_sort(mz_pool *pool)
{
    if (pool->sorted) {
        return;
    }
    qsort(pool->units, pool->unit_count, sizeof(mz_unit *), by_need);
    qsort(pool->index, pool->index_count, sizeof *pool->index, by_address);
    pool->sorted = true;
}

uint32_t mz_pool_find(const mz_pool *pool, const void *address)
{
    uintptr_t wanted = (uintptr_t)address;
    uint32_t low = 0;
    uint32_t high = pool->index_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (pool->index[middle].end <= wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Give back what a unit keeps outside its place. Under the lock, no restore of it in flight. */
static void unit_forget_copies(mz_pool *pool, mz_unit *unit)
{
    mz_restore_forget(&pool->restore, unit);
    for (uint32_t i = 0; i < unit->span_count; i++) {
        if (unit->spans[i].record.segment != NULL) {
            mz_stack_free(pool->stack, &unit->spans[i].record);
        }
        unit->spans[i].kept_encoded = false;
        unit->spans[i].hashed = false;
    }
    mz_store_free(pool->store, &unit->slot);
    unit->clean = false;
    unit->has_source = false;
}

static bool unit_is_inside(const mz_unit *unit, uintptr_t start, uintptr_t end)
{
    uintptr_t first = (uintptr_t)unit->spans[0].place.address;
    return first >= start && first < end;
}

/* Wait until no unit in the range is being restored or lent; no restore is begun. Locked. */
static void wait_for_restores(mz_pool *pool, uintptr_t start, uintptr_t end)
{
    uint32_t i = 0;
    for (uint32_t k = 0; k < pool->unit_count; k++) {
        if (pool->units[k]->state != MZ_UNIT_RESTORING &&
            unit_is_inside(pool->units[k], start, end)) {
            mz_restore_forget(&pool->restore, pool->units[k]);
        }
    }
    while (i < pool->unit_count) {
        const mz_unit *unit = pool->units[i];
        if (unit_is_inside(unit, start, end) &&
            (unit->state == MZ_UNIT_RESTORING || unit->loans > 0)) {
            pthread_cond_wait(&pool->restore.change, &pool->restore.lock);
            i = 0;
        } else {
            i++;
        }
    }
}

void mz_pool_remove_range(mz_pool *pool, const void *address, uint64_t bytes)
{
    uintptr_t start = (uintptr_t)address;
    uintptr_t end = start + bytes;
    pthread_mutex_lock(&pool->restore.lock);
    /* A second step of one thread might wait for an eviction, which waits for the first. */
    bool in_step = mz_pool_in_step(pool);
    pthread_mutex_unlock(&pool->restore.lock);
    if (!in_step) {
        mz_pool_step_begin(pool); /* no eviction goes on meanwhile */
    }
    pthread_mutex_lock(&pool->restore.lock);
    wait_for_restores(pool, start, end);
    uint32_t entries = 0;
    for (uint32_t i = 0; i < pool->index_count; i++) {
        if (!unit_is_inside(pool->index[i].unit, start, end)) {
            pool->index[entries++] = pool->index[i];
        }
    }
    pool->index_count = entries;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < pool->unit_count; i++) {
        mz_unit *unit = pool->units[i];
        if (!unit_is_inside(unit, start, end)) {
            pool->units[kept++] = unit;
            continue;
        }
        unit_forget_copies(pool, unit);
        if (unit->state != MZ_UNIT_RESIDENT) {
            atomic_fetch_sub_explicit(&pool->restore.away, 1, memory_order_release);
        }
        mz_unit_free(unit);
    }
    pool->unit_count = kept;
    pthread_cond_broadcast(&pool->restore.change);
    pthread_mutex_unlock(&pool->restore.lock);
    if (!in_step) {
        mz_pool_step_end(pool);
    }
}

mz_status mz_pool_clear(mz_pool *pool, void *address, uint64_t bytes, mz_error *error)
{
    uintptr_t start = (uintptr_t)address;
    uintptr_t end = start + bytes;
    pthread_mutex_lock(&pool->restore.lock);
    wait_for_restores(pool, start, end);
    for (uint32_t i = 0; i < pool->unit_count; i++) {
        mz_unit *unit = pool->units[i];
        if (!unit_is_inside(unit, start, end)) {
            continue;
        }
        unit_forget_copies(pool, unit);
        for (uint32_t k = 0; k < unit->span_count; k++) {
            unit->spans[k].live_bytes = 0;
        }
        if (unit->state != MZ_UNIT_RESIDENT) {
            mz_restore_move(&pool->restore, unit, MZ_UNIT_RESIDENT);
        }
    }
    mz_pool_want_small(pool, address, bytes);
    pthread_cond_broadcast(&pool->restore.change);
    pthread_mutex_unlock(&pool->restore.lock);
    if (pool->guard) {
        mz_status status = mz_memory_guard(pool->os, address, bytes, false, error);
        if (status != MZ_OK) {
            return status;
        }
    }
    mz_status status = mz_memory_drop(pool->os, address, bytes, error);
    if (status != MZ_OK) {
        memset(address, 0, bytes); /* locked pages stay, but what is cleared must read as zero */
    }
    return status;
}

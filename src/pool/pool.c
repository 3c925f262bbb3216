/* SPDX-License-Identifier: MIT */
/* Life of a pool, and what it tells about itself; see pool.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cache_directory.h"
#include "base/clock.h"
#include "os/directory.h"
#include "os/memory.h"
#include "os/process.h"
#include "pool/internal.h"

/*
 * Eight direct reads under way saturated every idle disk measured; restores have to keep one busy
 * beside inference (restore.h), by four threads, since those clear the pages too.
 */
#define RESTORE_DEPTH_LEAST (4 * MZ_RING_DEPTH)
#define DECODE_THREADS_MOST 16u

/* Without any place the store is "": every write to it is refused with a sentence. */
static mz_status store_directory_default(char *directory, size_t capacity, mz_error *error)
{
    mz_status status = mz_cache_directory(directory, capacity, error);
    if (status == MZ_E_NOTFOUND) {
        directory[0] = '\0';
        *error = (mz_error)MZ_ERROR_INIT;
        return MZ_OK;
    }
    return status;
}

static mz_status store_make(mz_pool *pool, const char *directory, mz_error *error)
{
    char chosen[4096];
    if (directory != NULL && directory[0] != '\0') {
        if (strlen(directory) >= sizeof chosen) {
            return mz_error_set(error, MZ_E_INVALID, 0,
                                "the name of the store directory is too long");
        }
        memcpy(chosen, directory, strlen(directory) + 1);
    } else {
        mz_status status = store_directory_default(chosen, sizeof chosen, error);
        if (status != MZ_OK) {
            return status;
        }
    }
    mz_directory_make(chosen);
    return mz_store_create(pool->os, chosen, &pool->store, error);
}

/* How many reads are under way: what the caller wants, else what saturates the storage. */
static uint32_t reading_depth(uint32_t profiled_depth, int wanted)
{
    if (wanted > 0) {
        return (uint32_t)wanted;
    }
    return profiled_depth < RESTORE_DEPTH_LEAST ? RESTORE_DEPTH_LEAST : profiled_depth;
}

/* How many threads decode: that is computing, so one for each core. */
static uint32_t decoding_threads(void)
{
    uint32_t cores = (uint32_t)mz_machine_cores();
    return cores < DECODE_THREADS_MOST ? cores : DECODE_THREADS_MOST;
}

mz_status mz_pool_create(const mz_pool_options *options, mz_pool **pool, mz_error *error)
{
    mz_pool *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a pool");
    }
    made->os = options->os != NULL ? options->os : mz_os_linux();
    made->process = getpid();
    made->monitor_fd = -1;
    made->log = options->log;
    made->guard = options->guard;
    made->auto_profile = options->auto_profile;
    made->sorted = true;
    mz_status status = mz_pool_find_codec(options->codec, &made->codec, error);
    if (status == MZ_OK && options->profile_command != NULL) {
        made->profile_command = strdup(options->profile_command);
        status = made->profile_command != NULL
                     ? MZ_OK
                     : mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a pool");
    }
    if (status == MZ_OK) {
        status = store_make(made, options->store_dir, error);
    }
    if (status == MZ_OK) {
        status = mz_stack_create(made->os, &made->stack, error);
    }
    if (status == MZ_OK) {
        status = mz_memory_reserve(made->os, MZ_BOUNCE_BYTES, MZ_PAGE_BYTES, &made->bounce, error);
    }
    if (status == MZ_OK) {
        uint32_t depth = reading_depth(mz_pool_profile_load(made), options->restore_depth);
        made->order = options->switches.order;
        made->order_seed = options->switches.order_seed;
        made->restore.overlap = options->switches.overlap;
        made->restore.paths = options->switches.paths;
        made->restore.os = made->os;
        made->restore.log = made->log;
        made->restore.trace = options->trace;
        made->restore.guard = made->guard;
        made->restore.stack = made->stack;
        made->restore.store = made->store;
        status =
            mz_restore_start(&made->restore, options->restore_io, depth, decoding_threads(), error);
    }
    if (status != MZ_OK) {
        if (made->bounce != NULL) {
            mz_memory_release(made->os, made->bounce, MZ_BOUNCE_BYTES);
        }
        mz_stack_destroy(made->stack);
        mz_store_destroy(made->store);
        free(made->profile_command);
        free(made);
        return status;
    }
    *pool = made;
    return MZ_OK;
}

void mz_pool_destroy(mz_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    mz_restore_stop(&pool->restore);
    for (uint32_t i = 0; i < pool->unit_count; i++) {
        mz_unit_free(pool->units[i]);
    }
    for (int32_t i = 0; i < pool->source_count; i++) {
        mz_file_close(pool->sources[i]);
        free(pool->sources[i]);
    }
    mz_memory_release(pool->os, pool->bounce, MZ_BOUNCE_BYTES);
    mz_stack_destroy(pool->stack);
    mz_store_destroy(pool->store);
    free(pool->sources);
    free(pool->units);
    free(pool->index);
    free(pool->scratch);
    free(pool->plan_units);
    free(pool->plan_steps);
    free(pool->profile_command);
    free(pool);
}

void mz_pool_report(mz_pool *pool, const mz_error *error)
{
    pthread_mutex_lock(&pool->restore.lock);
    snprintf(pool->last_error, sizeof pool->last_error, "%s", error->text);
    pthread_mutex_unlock(&pool->restore.lock);
    /* Less than asked for, and nothing failed: whoever asked is told, and nobody need act. */
    mz_log(&pool->log, error->status == MZ_E_PARTIAL ? MZ_LOG_INFO : MZ_LOG_ERROR, "%s",
           error->text);
}

void mz_pool_visit_kv(mz_pool *pool, mz_pool_on_span visit, void *context)
{
    pthread_mutex_lock(&pool->restore.lock);
    mz_pool_sort(pool);
    bool goes_on = true;
    for (uint32_t i = 0; i < pool->unit_count && goes_on; i++) {
        const mz_unit *unit = pool->units[i];
        if (unit->tag != MZ_TAG_KV_CACHE || unit->state != MZ_UNIT_RESIDENT) {
            continue;
        }
        for (uint32_t k = 0; k < unit->span_count && goes_on; k++) {
            mz_codec_shape shape = mz_unit_span_shape(&unit->spans[k]);
            if (unit->spans[k].live_bytes > 0) {
                goes_on = visit(context, &shape, unit->spans[k].place.address);
            }
        }
    }
    pthread_mutex_unlock(&pool->restore.lock);
}

static void count_unit(mz_tag_status *status, const mz_unit *unit)
{
    uint64_t bytes = mz_unit_live_pages(unit);
    mz_unit_state state = unit->state;
    if (state == MZ_UNIT_EVICTING) {
        state = MZ_UNIT_RESIDENT;
    } else if (state == MZ_UNIT_RESTORING) {
        state = unit->from;
    }
    status->total_units++;
    status->total_bytes += bytes;
    switch (state) {
    case MZ_UNIT_RESIDENT:
        status->resident_units++;
        status->resident_bytes += bytes;
        status->clean_bytes += unit->clean ? bytes : 0;
        break;
    case MZ_UNIT_COMPRESSED:
        status->compressed_units++;
        for (uint32_t i = 0; i < unit->span_count; i++) {
            status->compressed_bytes += unit->spans[i].record.bytes;
        }
        break;
    case MZ_UNIT_STORED:
        status->stored_units++;
        status->stored_bytes += bytes;
        break;
    default:
        status->lost_units++;
        break;
    }
}

mz_status mz_status_get(mz_pool *pool, mz_pool_status *status)
{
    if (pool == NULL || status == NULL) {
        return MZ_E_INVALID;
    }
    memset(status, 0, sizeof *status);
    pthread_mutex_lock(&pool->restore.lock);
    for (uint32_t i = 0; i < pool->unit_count; i++) {
        const mz_unit *unit = pool->units[i];
        count_unit(unit->tag == MZ_TAG_WEIGHTS ? &status->weights : &status->kv_cache, unit);
    }
    const mz_restore_counters *counters = &pool->restore.counters;
    status->stack_bytes = mz_stack_bytes(pool->stack);
    status->store_bytes = mz_store_bytes(pool->store);
    status->written_bytes = pool->written_bytes;
    status->read_bytes = counters->read_bytes;
    status->decoded_bytes = counters->decoded_bytes;
    status->in_place_bytes = pool->in_place_bytes;
    status->decode_ns = counters->decode_ns;
    status->evictions = pool->evictions;
    status->restores = counters->restores;
    status->last_evict_bytes = pool->last_evict_bytes;
    status->last_freed_bytes = pool->last_freed_bytes;
    status->last_evict_ns = pool->last_evict_ns;
    status->last_restore_ns = counters->last_restore_ns;
    status->stall_ns = counters->stall_ns;
    status->last_stall_ns = counters->stall_ns - counters->episode_stall_ns;
    status->steps = pool->steps;
    status->restoring = mz_restore_busy(&pool->restore);
    snprintf(status->codec, sizeof status->codec, "%s", pool->codec ? pool->codec->name : "raw");
    snprintf(status->store_dir, sizeof status->store_dir, "%.255s",
             mz_store_directory(pool->store));
    memcpy(status->last_error, pool->last_error, sizeof status->last_error);
    status->plan_read_bytes_per_s = (uint64_t)pool->profile.read_bytes_per_s;
    status->plan_decode_bytes_per_s =
        pool->codec != NULL ? (uint64_t)pool->profile.decode_bytes_per_s : 0;
    snprintf(status->rates, sizeof status->rates, "%s", pool->rates ? pool->rates : "assumed");
    status->pressure = pool->pressure;
    if (pool->pressure_evict_ns != 0) {
        status->pressure.ago_ns = mz_now_ns() - pool->pressure_evict_ns;
    }
    memcpy(status->rates_note, pool->rates_note, sizeof status->rates_note);
    pthread_mutex_unlock(&pool->restore.lock);
    return MZ_OK;
}

/* SPDX-License-Identifier: MIT */
/*
 * Where a pool gets the throughputs of its machine from: the record that `mzcache profile` keeps,
 * or else a two-second measurement in the background, begun by the first eviction.
 *
 * The measurement takes less than 50 MB for its two seconds. Until it is there the policy works
 * with defaults: plans are then a little less balanced, never wrong.
 */
#include "pool/internal.h"
#include "profile/measure.h"

static const char *codec_name(const mz_pool *pool)
{
    return pool->codec != NULL ? pool->codec->name : NULL;
}

static void use_record(mz_pool *pool, const mz_profile_record *record)
{
    pool->profile = mz_profile_rates(record, codec_name(pool));
    pool->profiled = true;
}

uint32_t mz_pool_profile_load(mz_pool *pool)
{
    mz_profile_record record;
    mz_error error = MZ_ERROR_INIT;
    if (mz_profile_find(mz_store_directory(pool->store), &record, &error) == MZ_OK) {
        use_record(pool, &record);
        return record.knee_depth;
    }
    pool->profile = mz_profile_rates(NULL, codec_name(pool));
    mz_log(&pool->log, MZ_LOG_INFO, "no profile of this machine: %s", error.text);
    return 0;
}

static void *measure_main(void *argument)
{
    mz_pool *pool = argument;
    mz_profile_options options = {mz_store_directory(pool->store), true, NULL, NULL};
    mz_profile_record record;
    mz_error error = MZ_ERROR_INIT;
    char path[4096];
    mz_status status = mz_profile_measure(pool->os, &options, &record, &error);
    if (status == MZ_OK) {
        pthread_mutex_lock(&pool->restore.lock);
        use_record(pool, &record);
        pthread_mutex_unlock(&pool->restore.lock);
        status = mz_profile_path(options.directory, path, sizeof path, &error);
    }
    if (status == MZ_OK) {
        status = mz_profile_save(&record, path, &error);
    }
    if (status != MZ_OK) {
        mz_log(&pool->log, MZ_LOG_WARN, "no profile of this machine could be made: %s", error.text);
    }
    return NULL;
}

void mz_pool_profile_start(mz_pool *pool)
{
    if (pool->profiled || pool->measuring || !pool->auto_profile) {
        return;
    }
    pool->measuring = pthread_create(&pool->measure_thread, NULL, measure_main, pool) == 0;
}

void mz_pool_profile_stop(mz_pool *pool)
{
    if (pool->measuring) {
        pthread_join(pool->measure_thread, NULL);
        pool->measuring = false;
    }
}

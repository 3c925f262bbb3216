/* SPDX-License-Identifier: MIT */
/*
 * Where a pool gets the throughputs of its machine from: the record that `mzcache profile` keeps.
 *
 * Without a record the first eviction starts a two-second measurement in another process, and the
 * evictions after that look whether the record is there. Until then the policy works with
 * assumptions: plans are then a little less balanced, never wrong. A quick record may come from a
 * busy moment: each eviction looks whether there is a better one by now, and one that is a day old
 * is measured again, which keeps the better of the rates.
 *
 * The fields that this file sets are changed by the evicting thread only, under the lock.
 */
#include "pool/internal.h"
#include "profile/background.h"
#include "profile/record.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *codec_name(const mz_pool *pool)
{
    return pool->codec != NULL ? pool->codec->name : NULL;
}

static void set_note(mz_pool *pool, const char *note)
{
    snprintf(pool->rates_note, sizeof pool->rates_note, "%s", note);
}

/* record: NULL for none. */
static void take_rates(mz_pool *pool, const mz_profile_record *record)
{
    pool->profile = mz_profile_rates(record, codec_name(pool));
    pool->exact_decode_bytes_per_s = mz_profile_rates(record, "lossless").decode_bytes_per_s;
}

static void use_record(mz_pool *pool, const mz_profile_record *record)
{
    take_rates(pool, record);
    pool->rates_stale = mz_profile_is_stale(record, (uint64_t)time(NULL));
    pool->measuring = pool->measuring && pool->rates_stale; /* what was started is done */
    pool->rates = record->quick ? "quick" : "measured";
    set_note(pool, "");
}

uint32_t mz_pool_profile_load(mz_pool *pool)
{
    mz_profile_record record;
    mz_error error = MZ_ERROR_INIT;
    if (mz_profile_find(mz_store_directory(pool->store), &record, &error) == MZ_OK) {
        use_record(pool, &record);
        return record.knee_depth;
    }
    take_rates(pool, NULL);
    pool->rates = NULL;
    set_note(pool, pool->auto_profile ? "measured after the first eviction"
                                      : "run mzcache profile to have them measured");
    mz_log(&pool->log, MZ_LOG_INFO, "no profile of this machine: %s", error.text);
    return 0;
}

void mz_pool_profile_renew(mz_pool *pool)
{
    bool is_final = pool->rates != NULL && strcmp(pool->rates, "quick") != 0;
    if (is_final || !pool->auto_profile) {
        return;
    }
    mz_profile_record record;
    mz_error error = MZ_ERROR_INIT;
    pthread_mutex_unlock(&pool->restore.lock);
    mz_status status = mz_profile_find(mz_store_directory(pool->store), &record, &error);
    pthread_mutex_lock(&pool->restore.lock);
    if (status == MZ_OK) {
        use_record(pool, &record);
    }
}

void mz_pool_profile_again(mz_pool *pool)
{
    mz_profile_record record;
    mz_error error = MZ_ERROR_INIT;
    pthread_mutex_unlock(&pool->restore.lock);
    mz_status status = mz_profile_find(mz_store_directory(pool->store), &record, &error);
    pthread_mutex_lock(&pool->restore.lock);
    if (status == MZ_OK) {
        use_record(pool, &record);
    } else {
        take_rates(pool, NULL);
        pool->rates = NULL;
    }
}

void mz_pool_profile_start(mz_pool *pool)
{
    if ((pool->rates != NULL && !pool->rates_stale) || !pool->auto_profile || pool->measuring) {
        return;
    }
    pool->measuring = true;
    mz_error error = MZ_ERROR_INIT;
    pthread_mutex_unlock(&pool->restore.lock);
    mz_status status =
        mz_profile_start(pool->profile_command, mz_store_directory(pool->store), &error);
    if (status != MZ_OK) {
        mz_log(&pool->log, MZ_LOG_WARN, "this machine is not measured, evictions go on without: %s",
               error.text);
    }
    pthread_mutex_lock(&pool->restore.lock);
    set_note(pool, status == MZ_OK ? "a measurement was started, the next eviction looks for it"
                                   : error.text);
}

/* SPDX-License-Identifier: MIT */
/*
 * Between the pool and whoever evicts by itself: what inference does, and what others call out.
 *
 * The monitor (src/pressure) stands above the pool and sleeps in poll. So the pool keeps a mailbox:
 * one signal, the highest that came, and a descriptor that wakes the monitor. It also wakes it when
 * a step begins, once, if the monitor said that it waits for that; a step pays one comparison for
 * it. Writing eight bytes to an event descriptor never blocks, so it is done under the lock.
 */
#include <unistd.h>

#include "base/clock.h"
#include "pool/internal.h"

/* Wake the monitor. Under the lock. */
static void wake(mz_pool *pool)
{
    uint64_t one = 1;
    /* It can only fail because the descriptor is full of events: then the monitor wakes anyway. */
    (void)!pool->os->write(pool->os->context, pool->monitor_fd, &one, sizeof one);
}

void mz_pool_note_step(mz_pool *pool)
{
    if (pool->returned_ns == 0) {
        pool->returned_ns = mz_now_ns();
    }
    if (pool->wake_on_step) {
        pool->wake_on_step = false;
        wake(pool);
    }
}

void mz_pool_monitor_begin(mz_pool *pool, int event_fd)
{
    pthread_mutex_lock(&pool->restore.lock);
    pool->monitor_fd = event_fd;
    pthread_mutex_unlock(&pool->restore.lock);
}

void mz_pool_monitor_end(mz_pool *pool)
{
    pthread_mutex_lock(&pool->restore.lock);
    pool->monitor_fd = -1;
    pool->wake_on_step = false;
    pool->posted = MZ_PRESSURE_NONE;
    pool->pressure.watching = false;
    pthread_mutex_unlock(&pool->restore.lock);
}

void mz_pool_get_activity(mz_pool *pool, mz_pool_activity *activity)
{
    pthread_mutex_lock(&pool->restore.lock);
    *activity = (mz_pool_activity){
        .computing = pool->steps_open > 0 || pool->steps_waiting > 0,
        .steps = pool->steps,
        .last_step_ns = pool->last_step_ns,
        .returned_ns = pool->returned_ns,
    };
    pthread_mutex_unlock(&pool->restore.lock);
}

void mz_pool_wake_on_step(mz_pool *pool, uint64_t steps)
{
    pthread_mutex_lock(&pool->restore.lock);
    if (pool->monitor_fd >= 0 && pool->steps != steps) {
        wake(pool); /* it came before we could say that we wait for it */
    } else {
        pool->wake_on_step = pool->monitor_fd >= 0;
    }
    pthread_mutex_unlock(&pool->restore.lock);
}

mz_pressure_level mz_pool_take_posted(mz_pool *pool, const char **source)
{
    pthread_mutex_lock(&pool->restore.lock);
    mz_pressure_level level = pool->posted;
    *source = pool->posted_by;
    pool->posted = MZ_PRESSURE_NONE;
    pthread_mutex_unlock(&pool->restore.lock);
    return level;
}

void mz_pool_set_pressure(mz_pool *pool, const mz_pressure_status *pressure, uint64_t evicted_ns)
{
    pthread_mutex_lock(&pool->restore.lock);
    pool->pressure = *pressure;
    pool->pressure_evict_ns = evicted_ns;
    pthread_mutex_unlock(&pool->restore.lock);
}

static mz_status post(mz_pool *pool, mz_pressure_level level, const char *source)
{
    if (pool == NULL) {
        return MZ_E_INVALID;
    }
    if (getpid() != pool->process) {
        return MZ_E_UNSUPPORTED;
    }
    pthread_mutex_lock(&pool->restore.lock);
    bool is_watched = pool->monitor_fd >= 0;
    if (is_watched && level > pool->posted) {
        pool->posted = level;
        pool->posted_by = source;
        wake(pool);
    }
    pthread_mutex_unlock(&pool->restore.lock);
    return is_watched ? MZ_OK : MZ_E_UNSUPPORTED;
}

mz_status mz_trim(mz_pool *pool, int level)
{
    /* Android's numbers; since API 34 only 20 and 40 are sent. Those below 20 are about a process
     * that runs in front, those above about one in the background. */
    static const struct {
        int from;
        mz_pressure_level level;
    } known[] = {
        {80, MZ_PRESSURE_CRITICAL}, {60, MZ_PRESSURE_MEDIUM},   {40, MZ_PRESSURE_LOW},
        {20, MZ_PRESSURE_NONE},     {15, MZ_PRESSURE_CRITICAL}, {10, MZ_PRESSURE_MEDIUM},
        {5, MZ_PRESSURE_LOW},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (level >= known[i].from) {
            return post(pool, known[i].level, "trim");
        }
    }
    return MZ_E_INVALID;
}

mz_status mz_simulate_pressure(mz_pool *pool, mz_pressure_level level)
{
    if ((unsigned)level > MZ_PRESSURE_CRITICAL) {
        return MZ_E_INVALID;
    }
    return post(pool, level, "simulated");
}

/* SPDX-License-Identifier: MIT */
/*
 * A pool without memory: the public calls that the control socket makes, with results that a test
 * chooses and arguments that it can look at.
 *
 * An eviction (and a wait for a restore) can be held: it then stays inside the call until the test
 * lets it go, which is how tests look at requests that are under way without measuring time.
 */
#ifndef FAKE_POOL_H
#define FAKE_POOL_H

#include <pthread.h>
#include <stdio.h>

#include "control/client.h"
#include "mzcache/mzcache.h"

struct mz_pool {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    mz_pool_status status;  /* what mz_status_get gives */
    mz_status evict_result; /* what mz_evict_tagged returns */
    uint64_t evict_freed;   /* and what it says it freed */
    mz_status wait_result;  /* what mz_prefetch_wait returns */
    bool hold;              /* calls stay inside until this is false */
    int inside;             /* calls that are inside now */
    int evictions;          /* calls so far */
    int prefetches;
    int waits;
    mz_status pressure_result; /* what mz_simulate_pressure returns */
    int signals;               /* its calls so far */
    mz_pressure_level level;   /* argument of the last one */
    uint64_t asked_bytes; /* arguments of the last eviction */
    unsigned asked_tags;
};

void fake_pool_init(mz_pool *pool);

/* Wait until `count` calls are inside. */
void fake_pool_await(mz_pool *pool, int count);

void fake_pool_release(mz_pool *pool);

/* A new directory in /tmp for sockets, removed by scratch_remove together with what is in it. */
typedef struct scratch {
    char path[64];
} scratch;

void scratch_make(scratch *directory);
void scratch_remove(const scratch *directory);

#endif

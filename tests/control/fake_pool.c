/* SPDX-License-Identifier: MIT */
/* The pool of the control tests; see fake_pool.h. */
#include "fake_pool.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fake_pool_init(mz_pool *pool)
{
    memset(pool, 0, sizeof *pool);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
}

/* Count the caller as inside until the test releases it. The lock is held on both sides. */
static void stay_while_held(mz_pool *pool)
{
    pool->inside++;
    pthread_cond_broadcast(&pool->changed);
    while (pool->hold) {
        pthread_cond_wait(&pool->changed, &pool->lock);
    }
    pool->inside--;
    pthread_cond_broadcast(&pool->changed);
}

void fake_pool_await(mz_pool *pool, int count)
{
    pthread_mutex_lock(&pool->lock);
    while (pool->inside != count) {
        pthread_cond_wait(&pool->changed, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
}

void fake_pool_release(mz_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->hold = false;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

mz_status mz_evict_tagged(mz_pool *pool, uint64_t bytes, unsigned tags, uint64_t *freed)
{
    pthread_mutex_lock(&pool->lock);
    pool->evictions++;
    pool->asked_bytes = bytes;
    pool->asked_tags = tags;
    stay_while_held(pool);
    *freed = pool->evict_freed;
    mz_status status = pool->evict_result;
    pthread_mutex_unlock(&pool->lock);
    return status;
}

mz_status mz_simulate_pressure(mz_pool *pool, mz_pressure_level level)
{
    pthread_mutex_lock(&pool->lock);
    pool->signals++;
    pool->level = level;
    mz_status status = pool->pressure_result;
    pthread_mutex_unlock(&pool->lock);
    return status;
}

mz_status mz_prefetch(mz_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->prefetches++;
    pthread_mutex_unlock(&pool->lock);
    return MZ_OK;
}

mz_status mz_prefetch_wait(mz_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->waits++;
    stay_while_held(pool);
    mz_status status = pool->wait_result;
    pthread_mutex_unlock(&pool->lock);
    return status;
}

mz_status mz_status_get(mz_pool *pool, mz_pool_status *status)
{
    pthread_mutex_lock(&pool->lock);
    *status = pool->status;
    pthread_mutex_unlock(&pool->lock);
    return MZ_OK;
}

void scratch_make(scratch *directory)
{
    strcpy(directory->path, "/tmp/mzcontrolXXXXXX");
    if (mkdtemp(directory->path) == NULL) {
        perror("mkdtemp");
        exit(1);
    }
}

void scratch_remove(const scratch *directory)
{
    DIR *stream = opendir(directory->path);
    const struct dirent *entry;
    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", directory->path, entry->d_name);
        if (entry->d_name[0] != '.' && unlink(path) != 0) {
            rmdir(path);
        }
    }
    if (stream != NULL) {
        closedir(stream);
    }
    rmdir(directory->path);
}

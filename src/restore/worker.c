/* SPDX-License-Identifier: MIT */
/*
 * The threads of the pipeline; see restore.h. What they do next is decided in queue.c, what becomes
 * of a unit in settle.c.
 *
 * A reading thread with a ring begins the reads of several slices, and ends each when its bytes are
 * there; every other thread does one slice at a time. A slice that waits for its read is a flight.
 * Invariant: a thread leaves only when none of its slices is in flight, so nothing is written to
 * memory that the pipeline has let go.
 */
#include <assert.h>
#include <stdlib.h>

#include "os/memory.h"
#include "os/ring.h"
#include "restore/restore.h"

/* What each flight has of the thread's bounce buffer. */
#define FLIGHT_BOUNCE_BYTES (MZ_BOUNCE_BYTES / MZ_RING_DEPTH)

typedef struct flight {
    mz_unit *unit; /* NULL: free */
    uint32_t slice;
    mz_slice_read read;
} flight;

struct mz_restore_worker {
    mz_restore *restore;
    mz_unit_queue own; /* MZ_QUEUE_READ or MZ_QUEUE_DECODE: the path that it serves */
    uint8_t *bounce;   /* readers: MZ_BOUNCE_BYTES of addresses */
    bool bounce_used;  /* it may have pages */
    mz_ring *ring;     /* NULL: reads one after the other */
    flight flights[MZ_RING_DEPTH];
    pthread_t thread;
};

/* Commit the pages of a slice in a stage of their own. Takes and returns with the lock held. */
static void allocate(mz_restore *restore, mz_unit *unit, uint32_t slice)
{
    mz_error error = MZ_ERROR_INIT;
    pthread_mutex_unlock(&restore->lock);
    mz_status status = mz_slice_allocate(restore, unit, slice, &error);
    pthread_mutex_lock(&restore->lock);
    if (status != MZ_OK && unit->attempt.status == MZ_OK) {
        unit->attempt = error;
    }
    if (--restore->allocating == 0) {
        pthread_cond_broadcast(&restore->work);
    }
}

static uint32_t under_way(const mz_restore_worker *worker)
{
    return worker->ring != NULL ? mz_ring_under_way(worker->ring) : 0;
}

/* End one flight whose read has ended, if there is one. Takes and returns with the lock held. */
static bool land(mz_restore_worker *worker, bool block)
{
    mz_restore *restore = worker->restore;
    uint32_t number = 0;
    mz_status status = MZ_OK;
    mz_error read_error = MZ_ERROR_INIT; /* mz_slice_end tries again, and says what fails then */
    mz_error error = MZ_ERROR_INIT;
    pthread_mutex_unlock(&restore->lock);
    if (!mz_ring_wait(worker->ring, block, &number, &status, &read_error)) {
        pthread_mutex_lock(&restore->lock);
        return false;
    }
    flight landed = worker->flights[number];
    worker->flights[number].unit = NULL;
    mz_slice_result result = {0};
    (void)mz_slice_end(restore, landed.unit, landed.slice, &landed.read, status, &result, &error);
    pthread_mutex_lock(&restore->lock);
    mz_restore_slice_done(restore, landed.unit, &result, &error);
    return true;
}

static uint32_t free_flight(const mz_restore_worker *worker)
{
    uint32_t number = 0;
    while (worker->flights[number].unit != NULL) {
        number++;
    }
    return number;
}

/* Begin a slice whose read is left to the ring. False: it is not, and read says what to read. */
static bool take_off(mz_restore_worker *worker, mz_unit *unit, uint32_t slice,
                     const mz_slice_read *read)
{
    if (worker->ring == NULL || read->file == NULL || read->first_load) {
        return false;
    }
    uint32_t number = free_flight(worker);
    worker->flights[number] = (flight){unit, slice, *read};
    if (mz_ring_start(worker->ring, read->file, read->target, read->bytes, read->offset, number)) {
        return true;
    }
    worker->flights[number].unit = NULL;
    return false;
}

/*
 * A buffer for what a slice reads that does not go into place: the flight's own part of the
 * thread's, or if that is too small all of it, once nothing is in flight. The lock is held.
 */
static void *bounce_for(mz_restore_worker *worker, const mz_unit *unit, uint32_t slice)
{
    uint64_t bytes = unit->slices > 0 ? mz_slice_bounce_bytes(unit, slice) : 0;
    worker->bounce_used = worker->bounce_used || bytes > 0;
    if (worker->ring != NULL && bytes > 0 && bytes <= FLIGHT_BOUNCE_BYTES) {
        return worker->bounce + (size_t)free_flight(worker) * FLIGHT_BOUNCE_BYTES;
    }
    while (bytes > 0 && under_way(worker) > 0) {
        (void)land(worker, true);
    }
    return worker->bounce;
}

/* Takes and returns with the lock held. Once a slice failed the rest of its unit is passed over. */
static void work_on(mz_restore_worker *worker, mz_unit *unit, uint32_t slice)
{
    mz_restore *restore = worker->restore;
    void *bounce = bounce_for(worker, unit, slice);
    mz_file *source = unit->has_source ? restore->sources[unit->spans[0].place.source] : NULL;
    bool has_work = unit->slices > 0 && unit->attempt.status == MZ_OK;
    pthread_mutex_unlock(&restore->lock);

    mz_slice_result result = {0};
    mz_slice_read read;
    mz_error error = MZ_ERROR_INIT;
    bool in_flight = false;
    if (has_work && mz_slice_begin(restore, source, unit, slice, bounce, &read, &error) == MZ_OK) {
        in_flight = take_off(worker, unit, slice, &read);
        if (!in_flight) {
            mz_error read_error = MZ_ERROR_INIT;
            mz_status status = read.file != NULL ? mz_slice_read_now(&read, &read_error) : MZ_OK;
            (void)mz_slice_end(restore, unit, slice, &read, status, &result, &error);
        }
    }
    pthread_mutex_lock(&restore->lock);
    if (!in_flight) {
        mz_restore_slice_done(restore, unit, &result, &error);
    }
}

/* Give the pages of an idle thread's buffer back. Takes and returns with the lock held. */
static void drop_bounce(mz_restore_worker *worker)
{
    mz_error ignored = MZ_ERROR_INIT; /* keeping the pages costs memory, not correctness */
    worker->bounce_used = false;
    pthread_mutex_unlock(&worker->restore->lock);
    (void)mz_memory_drop(worker->restore->os, worker->bounce, MZ_BOUNCE_BYTES, &ignored);
    pthread_mutex_lock(&worker->restore->lock);
}

static void *worker_main(void *argument)
{
    mz_restore_worker *worker = argument;
    mz_restore *restore = worker->restore;
    pthread_mutex_lock(&restore->lock);
    while (!restore->stop || under_way(worker) > 0) {
        mz_restore_task task;
        bool may_take = !restore->stop && under_way(worker) < MZ_RING_DEPTH;
        if (may_take && mz_restore_take_task(restore, worker->own, &task)) {
            if (task.allocate) {
                allocate(restore, task.unit, task.slice);
            } else {
                work_on(worker, task.unit, task.slice);
            }
            while (under_way(worker) > 0 && land(worker, false)) {
            }
        } else if (under_way(worker) > 0) {
            (void)land(worker, true);
        } else if (worker->bounce_used) {
            drop_bounce(worker);
        } else {
            pthread_cond_wait(&restore->work, &restore->lock);
        }
    }
    pthread_mutex_unlock(&restore->lock);
    return NULL;
}

static void worker_free(mz_restore_worker *worker)
{
    mz_ring_close(worker->ring);
    mz_memory_release(worker->restore->os, worker->bounce, MZ_BOUNCE_BYTES);
    free(worker);
}

static mz_status worker_start(mz_restore *restore, mz_unit_queue own, mz_ring *ring,
                              mz_error *error)
{
    mz_restore_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL) {
        mz_ring_close(ring);
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a restore thread");
    }
    *worker = (mz_restore_worker){.restore = restore, .own = own, .ring = ring};
    mz_status status = MZ_OK;
    if (own == MZ_QUEUE_READ) {
        void *bounce = NULL;
        status = mz_memory_reserve(restore->os, MZ_BOUNCE_BYTES, MZ_PAGE_BYTES, &bounce, error);
        worker->bounce = bounce;
    }
    if (status == MZ_OK) {
        int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (failed != 0) {
            status = mz_error_set(error, MZ_E_NOMEM, failed, "cannot start a restore thread");
        }
    }
    if (status != MZ_OK) {
        worker_free(worker);
        return status;
    }
    restore->workers[restore->worker_count++] = worker;
    return MZ_OK;
}

/* A ring for a reading thread; NULL where there is none to be had. */
static mz_ring *ring_for_reader(mz_restore *restore)
{
    mz_ring *ring = NULL;
    mz_error error = MZ_ERROR_INIT;
    if (mz_ring_open(restore->os, MZ_RING_DEPTH, &ring, &error) != MZ_OK) {
        mz_log(&restore->log, MZ_LOG_INFO, "reading by threads: %s", error.text);
        return NULL;
    }
    return ring;
}

static mz_status start_readers(mz_restore *restore, mz_restore_io io, uint32_t depth, uint32_t most,
                               mz_error *error)
{
    mz_ring *ring = io == MZ_IO_AUTO ? ring_for_reader(restore) : NULL;
    restore->has_ring = ring != NULL;
    uint32_t threads = depth < MZ_READ_THREADS_MAX ? depth : MZ_READ_THREADS_MAX;
    uint32_t count = ring != NULL ? (depth + MZ_RING_DEPTH - 1) / MZ_RING_DEPTH : threads;
    count = count < most ? count : most;
    mz_status status = MZ_OK;
    for (uint32_t i = 0; i < count && status == MZ_OK; i++) {
        ring = i > 0 && restore->has_ring ? ring_for_reader(restore) : ring;
        status = worker_start(restore, MZ_QUEUE_READ, ring, error);
        ring = NULL;
    }
    return status;
}

mz_status mz_restore_start(mz_restore *restore, mz_restore_io io, uint32_t depth, uint32_t decoders,
                           mz_error *error)
{
    assert(depth >= 1 && decoders >= 1 && decoders < MZ_RESTORE_THREADS_MAX);
    pthread_mutex_init(&restore->lock, NULL);
    pthread_cond_init(&restore->work, NULL);
    pthread_cond_init(&restore->change, NULL);
    for (uint32_t i = 0; i < MZ_COMMIT_LOCKS; i++) {
        pthread_mutex_init(&restore->commit_locks[i], NULL);
    }
    mz_status status = start_readers(restore, io, depth, MZ_RESTORE_THREADS_MAX - decoders, error);
    for (uint32_t i = 0; i < decoders && status == MZ_OK; i++) {
        status = worker_start(restore, MZ_QUEUE_DECODE, NULL, error);
    }
    if (status != MZ_OK) {
        mz_restore_stop(restore);
    }
    return status;
}

void mz_restore_stop(mz_restore *restore)
{
    pthread_mutex_lock(&restore->lock);
    restore->stop = true;
    pthread_cond_broadcast(&restore->work);
    pthread_mutex_unlock(&restore->lock);
    for (uint32_t i = 0; i < restore->worker_count; i++) {
        pthread_join(restore->workers[i]->thread, NULL);
        worker_free(restore->workers[i]);
    }
    restore->worker_count = 0;
    for (uint32_t i = 0; i < MZ_COMMIT_LOCKS; i++) {
        pthread_mutex_destroy(&restore->commit_locks[i]);
    }
    pthread_cond_destroy(&restore->change);
    pthread_cond_destroy(&restore->work);
    pthread_mutex_destroy(&restore->lock);
}

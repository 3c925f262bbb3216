/* SPDX-License-Identifier: MIT */
/*
 * The readers behind mz_read_rate; see read_rate.h.
 *
 * Each reader takes the next request of the file and keeps its share of the reads under way. Every
 * read that is begun is waited for and counted, so the rate is all work done over all time passed.
 * With new pages each read has a place of its own; the pages of all places are taken and given back
 * once before, or the first round would measure how fast the hypervisor backs them.
 */
#include "profile/read_rate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "os/memory.h"
#include "os/ring.h"

#define READERS 4u /* that share the reads if there is a ring: as many as a restore has */
#define SHARE_MAX (MZ_READ_LOAD_DEPTH_MAX / READERS)

typedef struct run {
    const mz_read_load *load;
    uint32_t readers; /* threads */
    bool by_ring;
    uint8_t *memory;            /* a place for each reader, or with new pages for each read */
    uint64_t room;              /* bytes of all places */
    uint64_t place;             /* bytes of one: whole huge pages */
    uint64_t until_ns;          /* begin no read later */
    atomic_uint_fast64_t next;  /* request; relaxed, as the next two */
    atomic_uint_fast64_t bytes; /* read so far */
    atomic_bool failed;         /* a reader has an error */
} run;

typedef struct reader {
    run *run;
    mz_ring *ring;             /* NULL: one read after the other */
    uint32_t index;            /* among the readers */
    uint32_t first, share;     /* its reads among all that are under way */
    bool under_way[SHARE_MAX]; /* [share] */
    mz_error error;
    pthread_t thread;
} reader;

static uint8_t *place_of(const reader *r, uint32_t number)
{
    const run *all = r->run;
    return all->memory + (all->load->new_pages ? r->first + number : r->index) * all->place;
}

/* A read ended. */
static void settle(reader *r, uint32_t number, mz_status status)
{
    const mz_read_load *load = r->run->load;
    r->under_way[number] = false;
    if (status == MZ_OK && load->new_pages) {
        status = mz_memory_drop(load->file->os, place_of(r, number), r->run->place, &r->error);
    }
    if (status != MZ_OK) {
        atomic_store_explicit(&r->run->failed, true, memory_order_relaxed);
        return;
    }
    atomic_fetch_add_explicit(&r->run->bytes, load->request_bytes, memory_order_relaxed);
}

/* Begin the next read at place `number`, or do it where there is no ring. */
static void begin(reader *r, uint32_t number)
{
    run *all = r->run;
    const mz_read_load *load = all->load;
    uint64_t at = atomic_fetch_add_explicit(&all->next, 1, memory_order_relaxed) %
                  (load->file_bytes / load->request_bytes) * load->request_bytes;
    uint8_t *target = place_of(r, number);
    mz_status status = MZ_OK;
    if (load->new_pages) {
        status = mz_memory_populate(load->file->os, target, load->request_bytes, &r->error);
    }
    if (status == MZ_OK && r->ring != NULL &&
        mz_ring_start(r->ring, load->file, target, load->request_bytes, at, number)) {
        r->under_way[number] = true;
        return;
    }
    status = status == MZ_OK ? mz_file_read(load->file, target, load->request_bytes, at, &r->error)
                             : status;
    settle(r, number, status);
}

/* Its first reads are done however late it comes to run, so there always is a rate. */
static void *reader_main(void *argument)
{
    reader *r = argument;
    bool goes_on = true;
    while (goes_on || (r->ring != NULL && mz_ring_under_way(r->ring) > 0)) {
        for (uint32_t i = 0; i < r->share && goes_on; i++) {
            if (!r->under_way[i]) {
                begin(r, i);
            }
        }
        uint32_t number = 0;
        mz_status status = MZ_OK;
        if (r->ring != NULL && mz_ring_wait(r->ring, true, &number, &status, &r->error)) {
            settle(r, number, status);
        }
        goes_on = mz_now_ns() < r->run->until_ns &&
                  !atomic_load_explicit(&r->run->failed, memory_order_relaxed);
    }
    return NULL;
}

/* Start one for the next `r->share` reads. */
static mz_status start_reader(const run *all, reader *r, mz_error *error)
{
    if (all->by_ring && mz_ring_open(all->load->file->os, r->share, &r->ring, error) != MZ_OK) {
        return error->status;
    }
    int failed = pthread_create(&r->thread, NULL, reader_main, r);
    if (failed != 0) {
        mz_ring_close(r->ring);
        return mz_error_set(error, MZ_E_NOMEM, failed, "cannot start a thread to measure with");
    }
    return MZ_OK;
}

static bool has_ring(const mz_os *os)
{
    mz_ring *ring = NULL;
    mz_error ignored = MZ_ERROR_INIT;
    bool has = mz_ring_open(os, 1, &ring, &ignored) == MZ_OK;
    mz_ring_close(ring);
    return has;
}

static mz_status start_readers(run *all, reader *readers, uint32_t *started, mz_error *error)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < all->readers; i++) {
        readers[i] = (reader){.run = all,
                              .index = i,
                              .first = first,
                              .share = (all->load->depth - first) / (all->readers - i),
                              .error = MZ_ERROR_INIT};
        mz_status status = start_reader(all, &readers[i], error);
        if (status != MZ_OK) {
            return status;
        }
        first += readers[i].share;
        ++*started;
    }
    return MZ_OK;
}

static mz_status read_all(run *all, double *bytes_per_s, mz_error *error)
{
    reader *readers = calloc(all->readers, sizeof *readers);
    if (readers == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory to measure with");
    }
    uint32_t started = 0;
    uint64_t begun_ns = mz_now_ns();
    all->until_ns = begun_ns + all->load->limit_ns;
    mz_status status = start_readers(all, readers, &started, error);
    if (status != MZ_OK) {
        atomic_store_explicit(&all->failed, true, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(readers[i].thread, NULL);
        mz_ring_close(readers[i].ring);
        if (status == MZ_OK && readers[i].error.status != MZ_OK) {
            *error = readers[i].error;
            status = error->status;
        }
    }
    uint64_t passed_ns = mz_now_ns() - begun_ns;
    free(readers);
    if (status == MZ_OK) {
        *bytes_per_s = (double)atomic_load_explicit(&all->bytes, memory_order_relaxed) * 1e9 /
                       (double)(passed_ns > 0 ? passed_ns : 1);
    }
    return status;
}

mz_status mz_read_rate(const mz_read_load *load, double *bytes_per_s, mz_error *error)
{
    if (load->depth == 0 || load->depth > MZ_READ_LOAD_DEPTH_MAX || load->request_bytes == 0 ||
        load->request_bytes % MZ_PAGE_BYTES != 0 || load->request_bytes > load->file_bytes) {
        return mz_error_set(error, MZ_E_INVALID, 0, "%u reads of %u bytes can't be measured",
                            load->depth, load->request_bytes);
    }
    const mz_os *os = load->file->os;
    run all = {.load = load};
    void *memory = NULL;
    all.place = (load->request_bytes + MZ_HUGE_BYTES - 1) / MZ_HUGE_BYTES * MZ_HUGE_BYTES;
    all.by_ring = !load->by_threads && has_ring(os);
    all.readers = all.by_ring && load->depth > READERS ? READERS : load->depth;
    all.room = all.place * (load->new_pages ? load->depth : all.readers);
    mz_status status = mz_memory_reserve(os, all.room, MZ_HUGE_BYTES, &memory, error);
    if (status != MZ_OK) {
        return status;
    }
    all.memory = memory;
    mz_memory_want_huge(os, memory, all.room);
    status = mz_memory_populate(os, memory, all.room, error);
    if (status == MZ_OK && load->new_pages) {
        status = mz_memory_drop(os, memory, all.room, error);
    }
    if (status == MZ_OK) {
        status = read_all(&all, bytes_per_s, error);
    }
    mz_memory_release(os, memory, all.room);
    return status;
}

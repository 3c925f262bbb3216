/* SPDX-License-Identifier: MIT */
/*
 * The measurements behind a profile; see measure.h.
 *
 * Reads are measured by read_rate.c, as restores do them but into pages that are there: clearing
 * pages is measured on its own. Every other rate is work done over time passed between the moment
 * all threads are ready and the moment the last one stops. Codecs work as in an eviction, through
 * their table, on chunks of mz_profile_shape; in full, source and target are larger than the
 * last-level cache.
 */
#include "profile/measure.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "codec/codec.h"
#include "kernels/kernels.h"
#include "os/direct_io.h"
#include "os/memory.h"
#include "os/process.h"
#include "profile/read_rate.h"

#define MB (1u << 20)
#define THREADS_MAX 64u
#define CHUNK_BYTES (MZ_PROFILE_ROWS * MZ_PROFILE_ROW_BYTES)
#define CODEC_CHUNKS 128u /* 64 MB of source: beyond the caches of the processors seen */
/* A quick measurement may run while memory is short: it takes less than 50 MB. */
#define CODEC_CHUNKS_QUICK 32u
#define PAGES_QUICK_BYTES (32u * MB)
#define BUFFER_BYTES (4u * MB) /* of each write */

/* One timed piece of work, done by several threads at once. */
typedef struct team team;
struct team {
    /* One item, the thread's turn-th; false: no more. */
    bool (*work)(team *t, uint32_t thread, uint64_t turn, uint64_t *bytes);
    void *subject;
    uint64_t limit_ns; /* stop after this long */
    pthread_mutex_t lock;
    pthread_cond_t change;
    uint32_t ready; /* threads that wait for `go`; guarded by lock */
    bool go;        /* guarded by lock */
    atomic_uint_fast64_t next, bytes;
    atomic_bool failed;
};

typedef struct member {
    team *t;
    uint32_t index;
} member;

static void *member_main(void *argument)
{
    const member *self = argument;
    team *t = self->t;
    pthread_mutex_lock(&t->lock);
    t->ready++;
    pthread_cond_broadcast(&t->change);
    while (!t->go) {
        pthread_cond_wait(&t->change, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    uint64_t start = mz_now_ns();
    uint64_t bytes = 0;
    for (uint64_t turn = 0;
         mz_now_ns() - start < t->limit_ns && t->work(t, self->index, turn, &bytes); turn++) {
        atomic_fetch_add(&t->bytes, bytes);
    }
    return NULL;
}

/* Run the work on `threads` threads (fewer if no more can be started); *rate in bytes per
 * second. */
static mz_status team_run(team *t, uint32_t threads, double *rate, mz_error *error)
{
    pthread_t handles[THREADS_MAX];
    member members[THREADS_MAX];
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->change, NULL);
    uint32_t started = 0;
    while (started < threads && started < THREADS_MAX) {
        members[started] = (member){t, started};
        if (pthread_create(&handles[started], NULL, member_main, &members[started]) != 0) {
            break;
        }
        started++;
    }
    pthread_mutex_lock(&t->lock);
    while (t->ready < started) {
        pthread_cond_wait(&t->change, &t->lock);
    }
    t->go = true;
    pthread_cond_broadcast(&t->change);
    pthread_mutex_unlock(&t->lock);
    uint64_t start = mz_now_ns();
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(handles[i], NULL);
    }
    uint64_t passed = mz_now_ns() - start;
    pthread_cond_destroy(&t->change);
    pthread_mutex_destroy(&t->lock);
    *rate = passed > 0 ? (double)atomic_load(&t->bytes) * 1e9 / (double)passed : 0;
    if (started == 0 || atomic_load(&t->failed)) {
        return mz_error_set(error, MZ_E_IO, 0, "a measurement failed; try another store directory");
    }
    return MZ_OK;
}

/* --- storage --- */

#define WRITE_DEPTH 4u

typedef struct storage {
    mz_file *file;
    uint64_t file_bytes;
    const uint8_t *buffers; /* [WRITE_DEPTH][BUFFER_BYTES] */
} storage;

static bool write_work(team *t, uint32_t thread, uint64_t turn, uint64_t *bytes)
{
    (void)turn;
    storage *s = t->subject;
    uint64_t number = atomic_fetch_add(&t->next, 1);
    if (number >= s->file_bytes / BUFFER_BYTES) {
        return false;
    }
    mz_error error = MZ_ERROR_INIT;
    if (mz_file_write(s->file, s->buffers + (uint64_t)thread * BUFFER_BYTES, BUFFER_BYTES,
                      number * BUFFER_BYTES, &error) != MZ_OK) {
        atomic_store(&t->failed, true);
        return false;
    }
    *bytes = BUFFER_BYTES;
    return true;
}

/* Write the whole file, with incompressible bytes: some disks and file systems compress. */
static mz_status measure_writes(storage *s, uint8_t *buffers, double *rate, mz_error *error)
{
    uint64_t seed = 1;
    for (uint64_t at = 0; at < WRITE_DEPTH * (uint64_t)BUFFER_BYTES; at += 8) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        memcpy(buffers + at, &seed, 8);
    }
    team t = {.work = write_work, .subject = s, .limit_ns = UINT64_MAX};
    return team_run(&t, WRITE_DEPTH, rate, error);
}

static void say(const mz_profile_options *options, const char *what, double share)
{
    if (options->progress != NULL) {
        options->progress(options->context, what, share);
    }
}

static mz_status measure_reads(const storage *s, const mz_profile_options *options,
                               mz_profile_record *record, mz_error *error)
{
    static const uint32_t full_sizes[] = {64u << 10, 128u << 10, 256u << 10, 512u << 10,
                                          1u << 20,  2u << 20,   4u << 20,   8u << 20};
    static const uint32_t full_depths[] = {1, 2, 4, 8, 16, 32};
    static const uint32_t quick_sizes[] = {512u << 10, 2u << 20};
    static const uint32_t quick_depths[] = {8, 16}; /* without a ring 32 MB */
    const uint32_t *sizes = options->quick ? quick_sizes : full_sizes;
    const uint32_t *depths = options->quick ? quick_depths : full_depths;
    const size_t size_count = options->quick ? 2 : 8, depth_count = options->quick ? 2 : 6;
    mz_read_load load = {.file = s->file,
                         .file_bytes = s->file_bytes,
                         .limit_ns = options->quick ? 120000000u : 250000000u};
    for (size_t i = 0; i < size_count * depth_count; i++) {
        say(options, "reading", (double)i / (double)(size_count * depth_count));
        load.request_bytes = sizes[i / depth_count];
        load.depth = depths[i % depth_count];
        mz_profile_read *r = &record->reads[record->read_count];
        *r = (mz_profile_read){load.request_bytes, load.depth, 0};
        mz_status status = mz_read_rate(&load, &r->bytes_per_s, error);
        if (status != MZ_OK) {
            return status;
        }
        record->read_count++;
    }
    mz_profile_find_knee(record);
    return MZ_OK;
}

static mz_status measure_storage(const mz_os *os, const mz_profile_options *options,
                                 mz_profile_record *record, mz_error *error)
{
    mz_file file;
    void *buffers;
    const uint64_t room = WRITE_DEPTH * (uint64_t)BUFFER_BYTES;
    mz_status status = mz_file_create_temporary(&file, os, options->directory, error);
    if (status != MZ_OK) {
        return status;
    }
    status = mz_memory_reserve(os, room, MZ_HUGE_BYTES, &buffers, error);
    if (status != MZ_OK) {
        mz_file_close(&file);
        return status;
    }
    storage s = {&file, options->quick ? 128u * MB : 1024ull * MB, buffers};
    say(options, "writing", 0);
    status = mz_memory_populate(os, buffers, room, error);
    if (status == MZ_OK) {
        status = measure_writes(&s, buffers, &record->write_bytes_per_s, error);
    }
    mz_memory_release(os, buffers, room);
    if (status == MZ_OK) {
        status = measure_reads(&s, options, record, error);
    }
    record->direct = mz_file_is_direct(&file);
    mz_file_close(&file);
    return status;
}

/* --- page allocation --- */

typedef struct pages {
    const mz_os *os;
    uint8_t *start;
    uint64_t bytes;
} pages;

static bool pages_work(team *t, uint32_t thread, uint64_t turn, uint64_t *bytes)
{
    (void)turn;
    pages *p = t->subject;
    (void)thread;
    uint64_t number = atomic_fetch_add(&t->next, 1);
    if ((number + 1) * MZ_HUGE_BYTES > p->bytes) {
        return false;
    }
    mz_error error = MZ_ERROR_INIT;
    if (mz_memory_populate(p->os, p->start + number * MZ_HUGE_BYTES, MZ_HUGE_BYTES, &error) !=
        MZ_OK) {
        atomic_store(&t->failed, true);
        return false;
    }
    *bytes = MZ_HUGE_BYTES;
    return true;
}

mz_status mz_profile_measure_pages(const mz_os *os, uint64_t bytes, bool huge, uint32_t threads,
                                   double *bytes_per_s, mz_error *error)
{
    void *start;
    mz_status status = mz_memory_reserve(os, bytes, MZ_HUGE_BYTES, &start, error);
    if (status != MZ_OK) {
        return status;
    }
    if (huge) {
        mz_memory_want_huge(os, start, bytes);
    }
    /* Once to have the pages backed by the machine, given back, then the time that counts. */
    status = mz_memory_populate(os, start, bytes, error);
    if (status == MZ_OK) {
        status = mz_memory_drop(os, start, bytes, error);
    }
    if (status == MZ_OK) {
        pages p = {os, start, bytes};
        team t = {.work = pages_work, .subject = &p, .limit_ns = UINT64_MAX};
        status = team_run(&t, threads, bytes_per_s, error);
    }
    mz_memory_release(os, start, bytes);
    return status;
}

static mz_status measure_pages(const mz_os *os, const mz_profile_options *options,
                               mz_profile_record *record, mz_error *error)
{
    uint64_t bytes = options->quick ? PAGES_QUICK_BYTES : 512u * (uint64_t)MB;
    mz_profile_pages *p = &record->pages;
    say(options, "allocating pages", 0);
    mz_status status = mz_profile_measure_pages(os, bytes, false, 1, &p->small_bytes_per_s, error);
    if (status == MZ_OK) {
        status = mz_profile_measure_pages(os, bytes, true, 1, &p->huge_bytes_per_s, error);
    }
    if (status == MZ_OK) {
        status = mz_profile_measure_pages(os, bytes, false, record->cores,
                                          &p->small_all_bytes_per_s, error);
    }
    if (status == MZ_OK) {
        status = mz_profile_measure_pages(os, bytes, true, record->cores, &p->huge_all_bytes_per_s,
                                          error);
    }
    return status;
}

/* --- codecs --- */

typedef enum coding_job { CODING_ENCODE, CODING_DECODE, CODING_COPY } coding_job;

/* Chunk i lies at plain + i * CHUNK_BYTES, and encoded at encoded + i * slot_bytes. */
typedef struct coding {
    const mz_codec *codec;
    const mz_kernels *kernels;
    uint8_t *plain;
    uint8_t *encoded;
    uint64_t slot_bytes; /* what the largest codec may write for a chunk */
    uint64_t chunks;
    uint64_t share; /* chunks of each thread: none is touched by two */
    coding_job what;
    size_t written[CODEC_CHUNKS]; /* bytes of each encoded chunk */
} coding;

static bool coding_work(team *t, uint32_t thread, uint64_t turn, uint64_t *bytes)
{
    coding *c = t->subject;
    const uint64_t at = thread * c->share + turn % c->share;
    uint8_t *plain = c->plain + at * CHUNK_BYTES;
    uint8_t *encoded = c->encoded + at * c->slot_bytes;
    mz_status status = MZ_OK;
    mz_kernels_use(c->kernels); /* ends with the thread */
    switch (c->what) {
    case CODING_ENCODE:
        status = c->codec->encode(&mz_profile_shape, plain, encoded, &c->written[at]);
        break;
    case CODING_DECODE:
        status = c->codec->decode(&mz_profile_shape, encoded, c->written[at], plain);
        break;
    case CODING_COPY:
    default:
        memcpy(encoded, plain, CHUNK_BYTES);
        break;
    }
    if (status != MZ_OK) {
        atomic_store(&t->failed, true);
        return false;
    }
    *bytes = CHUNK_BYTES;
    return true;
}

static mz_status coding_measure(coding *c, coding_job what, uint32_t threads, uint64_t limit_ns,
                                double *rate, mz_error *error)
{
    c->what = what;
    c->share = c->chunks / threads;
    team t = {.work = coding_work, .subject = c, .limit_ns = limit_ns};
    return team_run(&t, threads, rate, error);
}

/*
 * Random values between 2^-5 and 2: a sign, 10 bits of fraction and one of six exponents, 5.6 bits
 * of information in the upper byte, so an exact codec saves about what it saves on real KV.
 */
static void fill_halves(void *plain, size_t count)
{
    uint64_t seed = 7;
    uint16_t *halves = plain;
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        halves[i] = (uint16_t)(((seed >> 33) & 0x83ffu) | ((10u + (seed >> 50) % 6u) << 10));
    }
}

/* One codec by one variant on so many threads, as one more row of the record. */
static mz_status measure_row(coding *c, uint32_t threads, uint64_t limit_ns,
                             mz_profile_record *record, mz_error *error)
{
    if (record->codec_count == MZ_PROFILE_CODECS) {
        return mz_error_set(error, MZ_E_UNSUPPORTED, 0, "a profile holds %u codec rates, no more",
                            MZ_PROFILE_CODECS);
    }
    mz_profile_codec *row = &record->codecs[record->codec_count++];
    row->threads = threads;
    snprintf(row->codec, sizeof row->codec, "%s", c->codec->name);
    snprintf(row->variant, sizeof row->variant, "%s", c->kernels->name);
    mz_status status =
        coding_measure(c, CODING_ENCODE, threads, limit_ns, &row->encode_bytes_per_s, error);
    if (status == MZ_OK) {
        status =
            coding_measure(c, CODING_DECODE, threads, limit_ns, &row->decode_bytes_per_s, error);
    }
    return status;
}

/* Fill the chunks anew and encode all of them, so that whatever is decoded was encoded before. */
static mz_status prepare_codec(coding *c, mz_error *error)
{
    fill_halves(c->plain, c->chunks * CHUNK_BYTES / 2);
    mz_status status = MZ_OK;
    for (uint64_t i = 0; i < c->chunks && status == MZ_OK; i++) {
        status = c->codec->encode(&mz_profile_shape, c->plain + i * CHUNK_BYTES,
                                  c->encoded + i * c->slot_bytes, &c->written[i]);
    }
    return status == MZ_OK
               ? MZ_OK
               : mz_error_set(error, status, 0, "the codec %s refused to encode", c->codec->name);
}

static mz_status measure_codec(coding *c, const mz_profile_options *options,
                               mz_profile_record *record, mz_error *error)
{
    const uint64_t limit_ns = options->quick ? 30000000u : 150000000u;
    uint32_t all = record->cores < THREADS_MAX ? record->cores : THREADS_MAX;
    all = all < c->chunks ? all : (uint32_t)c->chunks;
    mz_status status = prepare_codec(c, error);
    for (size_t i = 0; mz_kernels_at(i) != NULL && status == MZ_OK; i++) {
        c->kernels = mz_kernels_at(i);
        if (options->quick && c->kernels != mz_kernels_get()) {
            continue;
        }
        status = measure_row(c, 1, limit_ns, record, error);
        if (status == MZ_OK && all > 1) {
            status = measure_row(c, all, limit_ns, record, error);
        }
    }
    return status;
}

static uint64_t largest_bound(void)
{
    uint64_t largest = CHUNK_BYTES;
    for (size_t i = 0; mz_codec_at(i) != NULL; i++) {
        if (mz_profile_wants(mz_codec_at(i))) {
            uint64_t bound = mz_codec_at(i)->bound(&mz_profile_shape);
            largest = bound > largest ? bound : largest;
        }
    }
    return mz_page_ceil(largest);
}

static mz_status measure_all_codecs(coding *c, const mz_profile_options *options,
                                    mz_profile_record *record, mz_error *error)
{
    c->kernels = mz_kernels_get();
    fill_halves(c->plain, c->chunks * CHUNK_BYTES / 2);
    mz_status status =
        coding_measure(c, CODING_COPY, 1, 50000000u, &record->memcpy_bytes_per_s, error);
    for (size_t i = 0; mz_codec_at(i) != NULL && status == MZ_OK; i++) {
        c->codec = mz_codec_at(i);
        if (mz_profile_wants(c->codec)) {
            say(options, "encoding and decoding", (double)i / 8);
            status = measure_codec(c, options, record, error);
        }
    }
    return status;
}

static mz_status measure_codecs(const mz_os *os, const mz_profile_options *options,
                                mz_profile_record *record, mz_error *error)
{
    const uint64_t chunks = options->quick ? CODEC_CHUNKS_QUICK : CODEC_CHUNKS;
    const uint64_t slot_bytes = largest_bound();
    const uint64_t total = chunks * (CHUNK_BYTES + slot_bytes);
    void *room;
    mz_status status = mz_memory_reserve(os, total, MZ_HUGE_BYTES, &room, error);
    if (status != MZ_OK) {
        return status;
    }
    mz_memory_want_huge(os, room, total);
    status = mz_memory_populate(os, room, total, error);
    if (status == MZ_OK) {
        coding c = {.plain = room,
                    .encoded = (uint8_t *)room + chunks * CHUNK_BYTES,
                    .slot_bytes = slot_bytes,
                    .chunks = chunks};
        status = measure_all_codecs(&c, options, record, error);
    }
    mz_memory_release(os, room, total);
    return status;
}

mz_status mz_profile_measure(const mz_os *os, const mz_profile_options *options,
                             mz_profile_record *record, mz_error *error)
{
    mz_profile_record made;
    memset(&made, 0, sizeof made);
    made.quick = options->quick;
    made.measured_s = (uint64_t)time(NULL);
    mz_status status = mz_profile_identify(options->directory, &made, error);
    if (status == MZ_OK) {
        status = measure_storage(os, options, &made, error);
    }
    if (status == MZ_OK) {
        status = measure_pages(os, options, &made, error);
    }
    if (status == MZ_OK) {
        status = measure_codecs(os, options, &made, error);
    }
    if (status == MZ_OK) {
        *record = made;
    }
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * Suite storage: what bounds a restore on this machine, piece by piece.
 *
 * A restore reads into new pages while all cores compute, that is, stream memory. So direct reads
 * are measured into a few pages again and again (what the storage alone can do), into new pages
 * (which somebody must clear), and both beside as many threads that read memory as there are
 * cores; then clearing on its own. What the streaming threads still get is shown beside it. The
 * reads are those of read_rate.h, so io_uring where the kernel allows it. All cases take turns.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "base/cache_directory.h"
#include "base/clock.h"
#include "bench/child.h"
#include "bench/report.h"
#include "bench/suites.h"
#include "os/directory.h"
#include "os/memory.h"
#include "os/process.h"
#include "profile/measure.h"
#include "profile/read_rate.h"

#define MB (1u << 20)
#define STREAMS_MAX 64u
#define STREAM_BYTES (256ull * MB) /* more than a cache; all streams together */
#define STREAM_STEP MB
#define FILE_BYTES (512ull * MB) /* of our own file, where no model is given */
#define CLEARED_BYTES (256ull * MB)
#define REQUEST_BYTES (2u * MB) /* a slice of a restore */
#define LIMIT_NS 250000000u

typedef enum work { WORK_NOTHING, WORK_READ, WORK_READ_NEW, WORK_CLEAR, WORK_CLEAR_ALL } work;

typedef struct piece {
    const char *what;
    work work;
    uint32_t depth; /* of reads */
    bool beside;    /* threads that read memory */
} piece;

static const piece pieces[] = {
    {"memory read by all cores", WORK_NOTHING, 0, true},
    {"flash into a few pages", WORK_READ, 8, false},
    {"flash into a few pages", WORK_READ, 16, false},
    {"flash into a few pages", WORK_READ, 32, false},
    {"flash into a few pages", WORK_READ, 8, true},
    {"flash into a few pages", WORK_READ, 16, true},
    {"flash into a few pages", WORK_READ, 32, true},
    {"flash into new pages", WORK_READ_NEW, 8, false},
    {"flash into new pages", WORK_READ_NEW, 16, false},
    {"flash into new pages", WORK_READ_NEW, 32, false},
    {"flash into new pages", WORK_READ_NEW, 8, true},
    {"flash into new pages", WORK_READ_NEW, 16, true},
    {"flash into new pages", WORK_READ_NEW, 32, true},
    {"clearing pages, one thread", WORK_CLEAR, 0, false},
    {"clearing pages, one thread", WORK_CLEAR, 0, true},
    {"clearing pages, all cores", WORK_CLEAR_ALL, 0, false},
    {"clearing pages, all cores", WORK_CLEAR_ALL, 0, true},
};
#define PIECES (sizeof pieces / sizeof *pieces)

typedef struct storage_input {
    const char *model;     /* read; NULL: a file of our own */
    const char *directory; /* where that one lies */
    uint32_t repeats;
} storage_input;

/* Bytes per second, 0 for what a piece does not do. */
typedef struct storage_result {
    double rate[PIECES][MZ_BENCH_REPEATS], memory[PIECES][MZ_BENCH_REPEATS];
} storage_result;

/* --- threads that read memory --- */

typedef struct streams streams;

typedef struct stream {
    streams *all;
    const uint64_t *start; /* its own part */
    pthread_t thread;
} stream;

struct streams {
    void *memory;               /* STREAM_BYTES */
    uint64_t part;              /* bytes of each stream */
    atomic_bool stop;           /* relaxed, as the next two */
    atomic_uint_fast64_t bytes; /* read so far */
    atomic_uint_fast64_t sum;   /* of all words, so that reading them is not left out */
    uint64_t begun_ns;
    uint32_t count;
    stream each[STREAMS_MAX];
};

static void *stream_main(void *argument)
{
    stream *s = argument;
    const uint64_t words = STREAM_STEP / sizeof(uint64_t);
    uint64_t steps = s->all->part / STREAM_STEP;
    for (uint64_t step = 0; !atomic_load_explicit(&s->all->stop, memory_order_relaxed); step++) {
        const uint64_t *at = s->start + step % steps * words;
        uint64_t sum = 0;
        for (uint64_t i = 0; i < words; i++) {
            sum += at[i];
        }
        atomic_fetch_add_explicit(&s->all->sum, sum, memory_order_relaxed);
        atomic_fetch_add_explicit(&s->all->bytes, STREAM_STEP, memory_order_relaxed);
    }
    return NULL;
}

static mz_status streams_open(streams *all, mz_error *error)
{
    const mz_os *os = mz_os_linux();
    *all = (streams){.memory = NULL};
    mz_status status = mz_memory_reserve(os, STREAM_BYTES, MZ_HUGE_BYTES, &all->memory, error);
    if (status == MZ_OK) {
        mz_memory_want_huge(os, all->memory, STREAM_BYTES);
        status = mz_memory_populate(os, all->memory, STREAM_BYTES, error);
    }
    return status;
}

/* One for each core, from now on. */
static mz_status streams_start(streams *all, mz_error *error)
{
    uint32_t cores = (uint32_t)mz_machine_cores();
    cores = cores < STREAMS_MAX ? cores : STREAMS_MAX;
    all->part = STREAM_BYTES / cores / STREAM_STEP * STREAM_STEP;
    atomic_store_explicit(&all->stop, false, memory_order_relaxed);
    atomic_store_explicit(&all->bytes, 0, memory_order_relaxed);
    all->begun_ns = mz_now_ns();
    for (all->count = 0; all->count < cores; all->count++) {
        stream *s = &all->each[all->count];
        s->all = all;
        s->start = (const uint64_t *)all->memory + all->count * (all->part / sizeof(uint64_t));
        int failed = pthread_create(&s->thread, NULL, stream_main, s);
        if (failed != 0) {
            return mz_error_set(error, MZ_E_NOMEM, failed, "cannot start a thread");
        }
    }
    return MZ_OK;
}

/* Returns how fast they were together. */
static double streams_stop(streams *all)
{
    double seconds = (double)(mz_now_ns() - all->begun_ns) / 1e9;
    double rate = (double)atomic_load_explicit(&all->bytes, memory_order_relaxed) / seconds;
    atomic_store_explicit(&all->stop, true, memory_order_relaxed);
    for (uint32_t i = 0; i < all->count; i++) {
        pthread_join(all->each[i].thread, NULL);
    }
    all->count = 0;
    return rate;
}

/* --- what is measured --- */

static mz_status do_work(const piece *p, mz_file *file, double *rate, mz_error *error)
{
    const uint32_t threads = p->work == WORK_CLEAR ? 1 : (uint32_t)mz_machine_cores();
    mz_read_load load = {.file = file,
                         .file_bytes = mz_page_floor(file->bytes),
                         .request_bytes = REQUEST_BYTES,
                         .depth = p->depth,
                         .new_pages = p->work == WORK_READ_NEW,
                         .limit_ns = LIMIT_NS};
    if (load.file_bytes < load.request_bytes) {
        load.request_bytes = (uint32_t)load.file_bytes;
    }
    switch (p->work) {
    case WORK_READ:
    case WORK_READ_NEW:
        return mz_read_rate(&load, rate, error);
    case WORK_CLEAR:
    case WORK_CLEAR_ALL:
        return mz_profile_measure_pages(mz_os_linux(), CLEARED_BYTES, true, threads, rate, error);
    case WORK_NOTHING:
    default:
        nanosleep(&(struct timespec){.tv_nsec = LIMIT_NS}, NULL);
        return MZ_OK;
    }
}

static mz_status measure_piece(const piece *p, mz_file *file, streams *all, double *rate,
                               double *memory, mz_error *error)
{
    mz_status status = p->beside ? streams_start(all, error) : MZ_OK;
    if (status == MZ_OK) {
        status = do_work(p, file, rate, error);
    }
    *memory = p->beside ? streams_stop(all) : 0;
    return status;
}

/* A file to read: the model, or one of our own. */
static mz_status open_file(const storage_input *in, mz_file *file, const streams *all,
                           mz_error *error)
{
    const mz_os *os = mz_os_linux();
    if (in->model != NULL) {
        return mz_file_open(file, os, in->model, error);
    }
    mz_status status = mz_file_create_temporary(file, os, in->directory, error);
    if (status != MZ_OK) {
        return status;
    }
    for (uint64_t at = 0; at < FILE_BYTES && status == MZ_OK; at += STREAM_BYTES) {
        status = mz_file_write(file, all->memory, STREAM_BYTES, at, error);
    }
    file->bytes = FILE_BYTES;
    if (status != MZ_OK) {
        mz_file_close(file);
    }
    return status;
}

/* Incompressible, for disks that compress. */
static void fill_memory(const streams *all)
{
    uint64_t *words = all->memory;
    uint64_t seed = 5;
    for (uint64_t i = 0; i < STREAM_BYTES / sizeof *words; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        words[i] = seed;
    }
}

static bool measure(const void *input, void *result, char *message, size_t message_bytes)
{
    const storage_input *in = input;
    storage_result *r = result;
    mz_file file;
    streams all;
    mz_error error = MZ_ERROR_INIT;
    mz_status status = streams_open(&all, &error);
    if (status == MZ_OK) {
        fill_memory(&all);
        status = open_file(in, &file, &all, &error);
        for (size_t i = 0; i < in->repeats * PIECES && status == MZ_OK; i++) {
            size_t which = i % PIECES;
            status = measure_piece(&pieces[which], &file, &all, &r->rate[which][i / PIECES],
                                   &r->memory[which][i / PIECES], &error);
        }
    }
    snprintf(message, message_bytes, "%s", error.text);
    return status == MZ_OK; /* what is open ends with this process */
}

static const mz_report_column columns[] = {
    {"what", "what"}, {"depth", "under way"},         {"beside", "beside"},
    {"gbps", "GB/s"}, {"memory_gbps", "memory GB/s"}, {"file", "file"},
    {NULL, NULL}};

static bool storage_of(const mz_bench_options *options, const char *model, const char *directory)
{
    static storage_result result; /* one at a time; too large for a stack */
    storage_input in = {model, directory, options->repeats};
    if (!mz_bench_child(measure, &in, &result, sizeof result)) {
        return false;
    }
    for (size_t i = 0; i < PIECES; i++) {
        const piece *p = &pieces[i];
        double rate = mz_report_median(result.rate[i], options->repeats);
        double memory = mz_report_median(result.memory[i], options->repeats);
        json_t *line = json_pack("{s:s, s:s, s:s, s:s}", "suite", "storage", "what", p->what,
                                 "beside", p->beside ? "computing" : "nothing", "file",
                                 model != NULL ? mz_report_name(model) : "of its own");
        if (p->depth > 0) {
            json_object_set_new(line, "depth", json_integer(p->depth));
        }
        if (p->work != WORK_NOTHING) {
            json_object_set_new(line, "gbps", json_real(rate / 1e9));
        }
        if (p->beside) {
            json_object_set_new(line, "memory_gbps", json_real(memory / 1e9));
        }
        mz_report_line(options, columns, line);
    }
    return true;
}

bool mz_bench_storage(const mz_bench_options *options)
{
    char found[4096];
    const char *directory = options->llm.store_dir;
    mz_error error = MZ_ERROR_INIT;
    if (directory == NULL && options->model_count == 0) {
        if (mz_cache_directory(found, sizeof found, &error) != MZ_OK) {
            fprintf(stderr, "mzcache bench: %s\n", error.text);
            return false;
        }
        mz_directory_make(found);
        directory = found;
    }
    bool is_done = true;
    mz_report_titles(options, columns);
    for (size_t i = 0; i < options->model_count && is_done; i++) {
        is_done = storage_of(options, options->models[i], directory);
    }
    return options->model_count > 0 ? is_done : storage_of(options, NULL, directory);
}

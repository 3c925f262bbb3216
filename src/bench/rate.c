/* SPDX-License-Identifier: MIT */
/*
 * Threads that take the next piece of work until time is up or none is left; a rate is what they did
 * over how long it took them together.
 *
 * A file is read once from front to back, not a short stretch of it again and again: what a disk
 * gives for some tens of milliseconds, or from a cache of its own, it does not give for a restore.
 */
#include "bench/rate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "codec/codec.h"
#include "os/direct_io.h"
#include "os/memory.h"

#define MAX_THREADS 64u
#define LIMIT_NS 150000000u
#define BUFFER_BYTES (2u << 20)
#define CHUNK_ROWS 256u
#define CHUNK_ROW_BYTES 2048u /* K of one token of Qwen3-0.6B */
#define CHUNK_BYTES (CHUNK_ROWS * CHUNK_ROW_BYTES)
#define CHUNKS 64u /* 32 MB of f16: more than a cache */

typedef struct crew crew;
struct crew {
    /* Do piece `number` on thread `thread`; bytes done, 0 on failure. */
    uint64_t (*piece)(crew *self, uint32_t thread, uint64_t number);
    atomic_uint_fast64_t next, bytes;
    atomic_bool failed;
    uint64_t until_ns, pieces; /* where to end */
    uint32_t threads;
    mz_file *file;
    uint32_t request_bytes;
    uint8_t *memory;       /* buffers of the threads, or f16 of the chunks */
    uint8_t *encoded;      /* [CHUNKS][encoded_room] */
    size_t encoded_room;   /* bytes */
    size_t *encoded_bytes; /* [CHUNKS] */
    const mz_codec *codec;
};

typedef struct hand {
    crew *crew;
    uint32_t number;
} hand;

static void *hand_main(void *argument)
{
    hand *self = argument;
    crew *c = self->crew;
    while (mz_now_ns() < c->until_ns && !atomic_load(&c->failed)) {
        uint64_t number = atomic_fetch_add(&c->next, 1);
        if (number >= c->pieces) {
            break;
        }
        uint64_t done = c->piece(c, self->number, number);
        if (done == 0) {
            atomic_store(&c->failed, true);
        }
        atomic_fetch_add(&c->bytes, done);
    }
    return NULL;
}

static mz_status work(crew *c, double *bytes_per_s, mz_error *error)
{
    pthread_t threads[MAX_THREADS];
    hand hands[MAX_THREADS];
    uint32_t started = 0;
    uint64_t begun_ns = mz_now_ns();
    atomic_store(&c->next, 0);
    atomic_store(&c->bytes, 0);
    for (; started < c->threads && started < MAX_THREADS; started++) {
        hands[started] = (hand){c, started};
        if (pthread_create(&threads[started], NULL, hand_main, &hands[started]) != 0) {
            break;
        }
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    if (started == 0 || atomic_load(&c->failed)) {
        return mz_error_set(error, MZ_E_IO, 0, "a rate can't be measured");
    }
    *bytes_per_s = (double)atomic_load(&c->bytes) * 1e9 / (double)(mz_now_ns() - begun_ns);
    return MZ_OK;
}

static uint64_t read_piece(crew *c, uint32_t thread, uint64_t number)
{
    mz_error error = MZ_ERROR_INIT;
    uint64_t offset = number * c->request_bytes;
    uint64_t left = c->file->bytes - offset;
    uint64_t bytes = left < c->request_bytes ? left : c->request_bytes;
    uint8_t *buffer = c->memory + (uint64_t)thread * BUFFER_BYTES;
    return mz_file_read(c->file, buffer, bytes, offset, &error) == MZ_OK ? bytes : 0;
}

mz_status mz_rate_read(const char *path, mz_rate_request request, double *bytes_per_s,
                       mz_error *error)
{
    const mz_os *os = mz_os_linux();
    const uint64_t room = (uint64_t)request.depth * BUFFER_BYTES;
    mz_file file;
    void *memory = NULL;
    mz_status status = mz_file_open(&file, os, path, error);
    if (status != MZ_OK) {
        return status;
    }
    status = mz_memory_reserve(os, room, MZ_HUGE_BYTES, &memory, error);
    if (status == MZ_OK) {
        mz_memory_want_huge(os, memory, room);
        status = mz_memory_populate(os, memory, room, error);
        crew c = {.piece = read_piece,
                  .until_ns = UINT64_MAX,
                  .pieces = (file.bytes + request.bytes - 1) / request.bytes,
                  .threads = request.depth,
                  .file = &file,
                  .request_bytes = request.bytes,
                  .memory = memory};
        mz_file_drop_cache(&file, 0, file.bytes);
        status = status == MZ_OK ? work(&c, bytes_per_s, error) : status;
        mz_memory_release(os, memory, room);
    }
    mz_file_close(&file);
    return status;
}

static const mz_codec_shape chunk_shape = {MZ_ELEM_F16, CHUNK_ROW_BYTES, CHUNK_ROWS};

static uint64_t encode_piece(crew *c, uint32_t thread, uint64_t number)
{
    uint64_t at = number % CHUNKS;
    (void)thread;
    return c->codec->encode(&chunk_shape, c->memory + at * CHUNK_BYTES,
                            c->encoded + at * c->encoded_room, &c->encoded_bytes[at]) == MZ_OK
               ? CHUNK_BYTES
               : 0;
}

static uint64_t decode_piece(crew *c, uint32_t thread, uint64_t number)
{
    uint64_t at = number % CHUNKS;
    (void)thread;
    return c->codec->decode(&chunk_shape, c->encoded + at * c->encoded_room, c->encoded_bytes[at],
                            c->memory + at * CHUNK_BYTES) == MZ_OK
               ? CHUNK_BYTES
               : 0;
}

/* Values of both signs between 2^-5 and 4. */
static void fill_halves(uint8_t *memory, size_t count)
{
    uint16_t *halves = (uint16_t *)(void *)memory;
    uint64_t seed = 11;
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        halves[i] = (uint16_t)(((seed >> 33) & 0x83ffu) | ((10u + (seed >> 50) % 7u) << 10));
    }
}

mz_status mz_rate_codec(const char *codec, uint32_t threads, double *encode_bytes_per_s,
                        double *decode_bytes_per_s, mz_error *error)
{
    crew c = {.piece = encode_piece,
              .pieces = UINT64_MAX,
              .threads = threads,
              .codec = mz_codec_find(codec)};
    if (c.codec == NULL) {
        return mz_error_set(error, MZ_E_NOTFOUND, 0, "there is no codec %s", codec);
    }
    c.encoded_room = (c.codec->bound(&chunk_shape) + 63) / 64 * 64;
    c.memory = malloc((size_t)CHUNKS * CHUNK_BYTES);
    c.encoded = malloc(CHUNKS * c.encoded_room);
    c.encoded_bytes = calloc(CHUNKS, sizeof *c.encoded_bytes);
    mz_status status = MZ_E_NOMEM;
    if (c.memory != NULL && c.encoded != NULL && c.encoded_bytes != NULL) {
        fill_halves(c.memory, (size_t)CHUNKS * CHUNK_BYTES / 2);
        for (uint64_t i = 0; i < CHUNKS; i++) {
            encode_piece(&c, 0, i); /* all of them, however short the time; touches the pages */
        }
        c.until_ns = mz_now_ns() + LIMIT_NS;
        status = work(&c, encode_bytes_per_s, error);
        c.piece = decode_piece;
        c.until_ns = mz_now_ns() + LIMIT_NS;
        status = status == MZ_OK ? work(&c, decode_bytes_per_s, error) : status;
    } else {
        mz_error_set(error, MZ_E_NOMEM, 0, "no memory to measure a codec");
    }
    free(c.encoded_bytes);
    free(c.encoded);
    free(c.memory);
    return status;
}

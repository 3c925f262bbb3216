/* SPDX-License-Identifier: MIT */
/*
 * Threads that go over their share of the pieces, so many times that a pass takes long enough for
 * the clock; a rate is the bytes of all over the time from the moment all were started to the end
 * of the last one.
 */
#include "bench/timing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/report.h"
#include "os/memory.h"

#define MAX_THREADS 64u
#define LEAST_NS 20000000u /* of a pass: starting threads takes well below 1 % of it */
#define MOST_TURNS 4096u

typedef enum op { OP_COPY, OP_ENCODE, OP_DECODE } op;

struct mz_timing_room {
    const mz_kv_sample *sample;
    uint8_t *memory;
    uint64_t bytes;   /* of `memory` */
    uint8_t *plain;   /* [sample->room] */
    uint8_t *encoded; /* [sum of slots] */
    uint64_t *slots;  /* [pieces] where each piece is encoded to, from `encoded` */
    size_t *kept;     /* [pieces] bytes of each encoded piece */
    /* Of the pass under way. */
    const mz_codec *codec;
    const mz_kernels *kernels;
    op op;
    uint32_t threads, turns;
    pthread_mutex_t gate; /* held until all threads are started */
    atomic_int failed; /* mz_status of a piece */
};

typedef struct hand {
    mz_timing_room *room;
    uint32_t number;
} hand;

/* Room that every codec of the list may need for a piece. */
static uint64_t slot_bytes(const mz_kv_piece *piece)
{
    uint64_t most = piece->bytes;
    for (size_t i = 0; mz_codec_at(i) != NULL; i++) {
        const mz_codec *codec = mz_codec_at(i);
        uint64_t bound = codec->takes(&piece->shape) ? codec->bound(&piece->shape) : 0;
        most = bound > most ? bound : most;
    }
    return (most + 63) / 64 * 64;
}

mz_status mz_timing_room_make(const mz_kv_sample *sample, mz_timing_room **room, mz_error *error)
{
    const mz_os *os = mz_os_linux();
    mz_timing_room *made = calloc(1, sizeof *made);
    uint64_t *slots = calloc(sample->count, sizeof *slots);
    size_t *kept = calloc(sample->count, sizeof *kept);
    void *memory = NULL;
    uint64_t plain = mz_page_ceil(sample->room), total = plain;
    mz_status status = made != NULL && slots != NULL && kept != NULL
                           ? MZ_OK
                           : mz_error_set(error, MZ_E_NOMEM, 0, "no memory to measure codecs");
    for (size_t i = 0; i < sample->count && status == MZ_OK; i++) {
        slots[i] = total - plain;
        total += slot_bytes(&sample->pieces[i]);
    }
    total = mz_page_ceil(total);
    if (status == MZ_OK) {
        status = mz_memory_reserve(os, total, MZ_HUGE_BYTES, &memory, error);
    }
    if (status == MZ_OK) {
        mz_memory_want_huge(os, memory, total);
        status = mz_memory_populate(os, memory, total, error);
    }
    if (status != MZ_OK) {
        if (memory != NULL) {
            mz_memory_release(os, memory, total);
        }
        free(kept);
        free(slots);
        free(made);
        return status;
    }
    *made = (mz_timing_room){.sample = sample,
                             .memory = memory,
                             .bytes = total,
                             .plain = memory,
                             .encoded = (uint8_t *)memory + plain,
                             .slots = slots,
                             .kept = kept,
                             .gate = PTHREAD_MUTEX_INITIALIZER};
    *room = made;
    return MZ_OK;
}

void mz_timing_room_free(mz_timing_room *room)
{
    if (room != NULL) {
        mz_memory_release(mz_os_linux(), room->memory, room->bytes);
        free(room->kept);
        free(room->slots);
        free(room);
    }
}

bool mz_timing_takes(const mz_codec *codec, const mz_kv_sample *sample)
{
    for (size_t i = 0; i < sample->count; i++) {
        if (!codec->takes(&sample->pieces[i].shape)) {
            return false;
        }
    }
    return true;
}

static mz_status do_piece(mz_timing_room *room, size_t at)
{
    const mz_kv_piece *piece = &room->sample->pieces[at];
    const uint8_t *source = room->sample->memory + piece->offset;
    uint8_t *encoded = room->encoded + room->slots[at];
    switch (room->op) {
    case OP_ENCODE:
        return room->codec->encode(&piece->shape, source, encoded, &room->kept[at]);
    case OP_DECODE:
        return room->codec->decode(&piece->shape, encoded, room->kept[at],
                                   room->plain + piece->offset);
    case OP_COPY:
    default:
        memcpy(room->plain + piece->offset, source, piece->bytes);
        return MZ_OK;
    }
}

static void *hand_main(void *argument)
{
    const hand *self = argument;
    mz_timing_room *room = self->room;
    mz_kernels_use(room->kernels); /* ends with the thread */
    pthread_mutex_lock(&room->gate);
    pthread_mutex_unlock(&room->gate);
    for (uint32_t turn = 0; turn < room->turns; turn++) {
        for (size_t at = self->number; at < room->sample->count; at += room->threads) {
            mz_status status = do_piece(room, at);
            if (status != MZ_OK) {
                atomic_store(&room->failed, status);
                return NULL;
            }
        }
    }
    return NULL;
}

/* One pass of `turns` turns; *rate: bytes of KV per second. */
static mz_status pass(mz_timing_room *room, op what, uint32_t turns, double *rate, mz_error *error)
{
    pthread_t threads[MAX_THREADS];
    hand hands[MAX_THREADS];
    uint32_t started = 0;
    room->op = what;
    room->turns = turns;
    atomic_store(&room->failed, MZ_OK);
    pthread_mutex_lock(&room->gate);
    for (; started < room->threads; started++) {
        hands[started] = (hand){room, started};
        if (pthread_create(&threads[started], NULL, hand_main, &hands[started]) != 0) {
            room->turns = 0;
            break;
        }
    }
    uint64_t begun_ns = mz_now_ns();
    pthread_mutex_unlock(&room->gate);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    uint64_t taken_ns = mz_now_ns() - begun_ns;
    mz_status status = (mz_status)atomic_load(&room->failed);
    if (started < room->threads) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "%u threads can't be started", room->threads);
    }
    if (status != MZ_OK) {
        return mz_error_set(error, status, 0, "the codec %s refuses a piece of this KV",
                            room->codec->name);
    }
    *rate = (double)room->sample->bytes * turns * 1e9 / (double)(taken_ns > 0 ? taken_ns : 1);
    return MZ_OK;
}

/* Turns that make a pass long enough, from the rate of a pass of one turn. */
static uint32_t turns_for(const mz_timing_room *room, double rate)
{
    double turns = rate * LEAST_NS / 1e9 / (double)room->sample->bytes + 1;
    return turns < MOST_TURNS ? (uint32_t)turns : MOST_TURNS;
}

/* An operation by turns with a copy; medians of both. */
static mz_status alternate(mz_timing_room *room, op what, uint32_t rounds, double *median,
                           double *memcpy_median, mz_error *error)
{
    double rates[MZ_BENCH_REPEATS], copies[MZ_BENCH_REPEATS], rate = 0, copy = 0;
    mz_status status = pass(room, OP_COPY, 1, &copy, error);
    status = status == MZ_OK ? pass(room, what, 1, &rate, error) : status;
    for (uint32_t i = 0; i < rounds && status == MZ_OK; i++) {
        status = pass(room, OP_COPY, turns_for(room, copy), &copies[i], error);
        status = status == MZ_OK ? pass(room, what, turns_for(room, rate), &rates[i], error)
                                 : status;
    }
    if (status == MZ_OK) {
        *median = mz_report_median(rates, rounds);
        *memcpy_median = mz_report_median(copies, rounds);
    }
    return status;
}

mz_status mz_timing_codec(mz_timing_room *room, const mz_codec *codec, const mz_kernels *kernels,
                          uint32_t threads, uint32_t rounds, mz_codec_timing *timing,
                          mz_error *error)
{
    mz_codec_timing made = {0};
    uint64_t kept = 0;
    room->codec = codec;
    room->kernels = kernels;
    room->threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    mz_status status =
        alternate(room, OP_ENCODE, rounds, &made.encode, &made.encode_memcpy, error);
    for (size_t i = 0; i < room->sample->count; i++) {
        kept += room->kept[i];
    }
    if (status == MZ_OK) {
        status = alternate(room, OP_DECODE, rounds, &made.decode, &made.decode_memcpy, error);
    }
    if (status == MZ_OK) {
        made.kept = (double)kept / (double)room->sample->bytes;
        *timing = made;
    }
    return status;
}

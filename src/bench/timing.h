/* SPDX-License-Identifier: MIT */
/*
 * How fast a codec goes over a sample of KV.
 *
 * All figures are bytes of KV per second, of pieces as in an eviction, through the codec's table
 * (header and checksum included). Each round copies the same bytes by memcpy right before it
 * encodes, and before it decodes, on as many threads, so that both see the machine in the same
 * mood.
 */
#ifndef MZ_BENCH_TIMING_H
#define MZ_BENCH_TIMING_H

#include "bench/sample.h"
#include "kernels/kernels.h"

/* Medians over the rounds. */
typedef struct mz_codec_timing {
    double encode, encode_memcpy, decode, decode_memcpy; /* bytes of KV per second */
    double kept;                                         /* encoded bytes over bytes of KV */
} mz_codec_timing;

/* Room for what a sample is encoded and decoded to; made once for all codecs. */
typedef struct mz_timing_room mz_timing_room;
mz_status mz_timing_room_make(const mz_kv_sample *sample, mz_timing_room **room, mz_error *error);
void mz_timing_room_free(mz_timing_room *room);

/* Whether a codec takes every piece of a sample. */
bool mz_timing_takes(const mz_codec *codec, const mz_kv_sample *sample);

/*
 * One codec by one variant on so many threads.
 * Errors: what a piece was refused with; MZ_E_NOMEM without threads.
 */
mz_status mz_timing_codec(mz_timing_room *room, const mz_codec *codec, const mz_kernels *kernels,
                          uint32_t threads, uint32_t rounds, mz_codec_timing *timing,
                          mz_error *error);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * KV to measure codecs with: pieces as codecs get them in an eviction.
 *
 * A piece is K or V of one chunk (at most 256 tokens) of one layer. Either a model computed it from
 * a text, or it was invented: each channel has a mean and a spread of its own, a few channels are
 * far larger than the others, and neighbouring tokens are alike, which is what codecs live on.
 */
#ifndef MZ_BENCH_SAMPLE_H
#define MZ_BENCH_SAMPLE_H

#include "bench/bench.h"
#include "codec/codec.h"

typedef struct mz_kv_piece {
    mz_codec_shape shape;
    uint64_t offset; /* of its bytes in mz_kv_sample.memory, a multiple of 64 */
    uint64_t bytes;
} mz_kv_piece;

typedef struct mz_kv_sample {
    uint8_t *memory;
    uint64_t room;  /* bytes of `memory`, paddings between the pieces included */
    uint64_t bytes; /* of all pieces */
    mz_kv_piece *pieces;
    size_t count;
} mz_kv_sample;

/* Invent K and V of one layer of Qwen3-0.6B's shape (2048 bytes of each for a token). MZ_E_NOMEM. */
mz_status mz_kv_sample_invent(uint32_t tokens, mz_kv_sample *sample, mz_error *error);

/*
 * Let a model compute the KV of the first `tokens` tokens (all, if there are fewer) of
 * options->text, all layers.
 * Errors: what went wrong with model or text.
 */
mz_status mz_kv_sample_compute(const mz_bench_options *options, const char *model, uint32_t tokens,
                               mz_kv_sample *sample, mz_error *error);

void mz_kv_sample_free(mz_kv_sample *sample);

#endif

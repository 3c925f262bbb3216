/* SPDX-License-Identifier: MIT */
/*
 * Inner loops of attention, a table for each instruction set; see attention/attention.h.
 *
 * All of them work on f32 tiles of MZ_ATTENTION_TILE tokens, to which whatever is stored is converted
 * once for all the rows that share it. Dimensions are padded with zeros to multiples of 16.
 * The variants round sums differently, so their results differ in the last digits.
 */
#ifndef MZ_KERNELS_ATTENTION_H
#define MZ_KERNELS_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#define MZ_ATTENTION_TILE 64u
#define MZ_ATTENTION_ALIGN 16u /* dimensions are multiples of it */

/* Rows up to which scores are taken from a tile as it is; for more it is worth turning it round. */
#define MZ_ATTENTION_FEW 4u

typedef struct mz_attention_kernels {
    /* f16 rows of `dim` values, `stride` bytes apart, to tile [rows][dim]. dim: a multiple of 16. */
    void (*from_f16)(const void *source, size_t stride, size_t rows, size_t dim, float *tile);
    /*
     * Rows of the codec q8: q [dim] i8 and codes [dim / 32] for each, so many bytes apart, to tile
     * [rows][dim]. dim: a multiple of 32; see kernels/q8.h.
     */
    void (*from_q8)(const int8_t *q, size_t q_stride, const uint8_t *codes, size_t code_stride,
                    size_t rows, size_t dim, float *tile);
    /* tile [MZ_ATTENTION_TILE][dim] to columns [dim][MZ_ATTENTION_TILE]. */
    void (*transpose)(const float *tile, size_t dim, float *columns);
    /* scores [rows][MZ_ATTENTION_TILE] = q [rows][dim] . columns */
    void (*scores)(const float *q, size_t rows, size_t dim, const float *columns, float *scores);
    /* The same from a tile [MZ_ATTENTION_TILE][dim], for rows <= MZ_ATTENTION_FEW. */
    void (*scores_few)(const float *q, size_t rows, size_t dim, const float *tile, float *scores);
    /* scores [MZ_ATTENTION_TILE] += slope * mask [MZ_ATTENTION_TILE] f16 */
    void (*add_mask)(float *scores, const uint16_t *mask, float slope);
    /*
     * One step of an online softmax over scores [MZ_ATTENTION_TILE], which become exp(score - new
     * maximum). *max and *sum are of the row so far; returns what its sums so far have to be
     * multiplied by. Scores of -inf count nothing; before the first finite one *max is -inf.
     */
    float (*softmax)(float *scores, float *max, float *sum);
    /* out [dim] *= factor */
    void (*scale)(float *out, size_t dim, float factor);
    /* out [rows][dim] += p [rows][MZ_ATTENTION_TILE] . tile [tokens][dim] */
    void (*accumulate)(const float *p, size_t rows, size_t tokens, const float *tile, size_t dim,
                       float *out);
    /* To measure the processor with: `steps` rounds of independent fused products in registers. */
    float (*fuse)(size_t steps);
    size_t fuse_flops; /* of a round */
} mz_attention_kernels;

extern const mz_attention_kernels mz_attention_generic;
#if defined(__x86_64__)
extern const mz_attention_kernels mz_attention_avx2;
extern const mz_attention_kernels mz_attention_avx512;
#elif defined(__aarch64__)
extern const mz_attention_kernels mz_attention_neon;
#endif

#endif

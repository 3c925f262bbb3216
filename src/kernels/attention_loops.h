/* SPDX-License-Identifier: MIT */
/*
 * The loops of attention, once for all instruction sets: each includes this file after saying what a
 * register is.
 *
 * The compiler's vector types give what these loops need (loads, products, comparisons), so only the
 * rest is written for each instruction set:
 *
 *     LANES                       floats of a register: 4, 8 or 16
 *     ROWS, VECTORS               block of sums kept in registers: ROWS * VECTORS of them, VECTORS
 *                                 loads, and one value that is multiplied with all of them
 *     vector_from_halves(p)       LANES f16 as f32
 *     vector_from_bytes(p)        LANES i8 as f32
 *     vector_sum(v)               of its lanes
 *     transpose_block(source, source_stride, target, target_stride)    LANES x LANES, in floats
 *
 * A sum of products is the bulk of the work. Per step it loads VECTORS registers and multiplies them
 * with ROWS values, so that loads and products are about as many as a core can do of each.
 */
#ifndef MZ_KERNELS_ATTENTION_LOOPS_H
#define MZ_KERNELS_ATTENTION_LOOPS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/attention.h"
#include "kernels/q8.h"

#define TILE MZ_ATTENTION_TILE

static inline vector load(const float *source)
{
    vector v;
    memcpy(&v, source, sizeof v);
    return v;
}

static inline void store(float *target, vector v)
{
    memcpy(target, &v, sizeof v);
}

static inline vector broadcast(float value)
{
    return value - (vector){0};
}

/* Rows ahead of which memory is asked for: heads lie apart, which prefetchers of CPUs don't see. */
#define AHEAD 12u

static inline void prefetch(const void *row, size_t bytes)
{
    const char *at = row;
    for (size_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(at + i, 0, 2);
    }
}

static void from_f16(const void *source, size_t stride, size_t rows, size_t dim, float *tile)
{
    const char *row = source;
    for (size_t r = 0; r < rows; r++, row += stride, tile += dim) {
        const uint16_t *halves = (const uint16_t *)(const void *)row;
        prefetch(row + AHEAD * stride, dim * 2);
        for (size_t i = 0; i < dim; i += LANES) {
            store(tile + i, vector_from_halves(halves + i));
        }
    }
}

static inline float scale_of_code(uint8_t code)
{
    uint32_t bits = ((uint32_t)code << MZ_Q8_SCALE_SHIFT) + (uint32_t)MZ_Q8_SCALE_BASE;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

static void from_q8(const int8_t *q, size_t q_stride, const uint8_t *codes, size_t code_stride,
                    size_t rows, size_t dim, float *tile)
{
    for (size_t r = 0; r < rows; r++, q += q_stride, codes += code_stride, tile += dim) {
        prefetch(q + AHEAD * q_stride, dim);
        for (size_t i = 0; i < dim; i += MZ_Q8_GROUP) {
            vector scale = broadcast(scale_of_code(codes[i / MZ_Q8_GROUP]));
            for (size_t k = i; k < i + MZ_Q8_GROUP; k += LANES) {
                store(tile + k, vector_from_bytes(q + k) * scale);
            }
        }
    }
}

static void transpose(const float *tile, size_t dim, float *columns)
{
    for (size_t t = 0; t < TILE; t += LANES) {
        for (size_t i = 0; i < dim; i += LANES) {
            transpose_block(tile + t * dim + i, dim, columns + i * TILE + t, TILE);
        }
    }
}

/*
 * sums [rows][vectors] += for each of `steps`: value [row * value_stride] * registers at
 * source + step * source_stride. Always inlined with constant rows and vectors.
 */
static inline __attribute__((always_inline)) void
sum_block(const float *values, size_t value_stride, const float *source, size_t source_stride,
          size_t steps, const int rows, const int vectors, vector sums[ROWS][VECTORS])
{
    for (size_t step = 0; step < steps; step++) {
        vector right[VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            right[v] = load(source + step * source_stride + (size_t)v * LANES);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            vector left = broadcast(values[(size_t)r * value_stride + step]);
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) {
                sums[r][v] += left * right[v];
            }
        }
    }
}

/* target [rows][vectors registers], stride apart, = or += the sums. */
static inline __attribute__((always_inline)) void
block(const float *values, size_t value_stride, const float *source, size_t source_stride,
      size_t steps, float *target, size_t target_stride, const int rows, const int vectors,
      const int adds)
{
    vector sums[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            const float *at = target + (size_t)r * target_stride + (size_t)v * LANES;
            sums[r][v] = adds ? load(at) : (vector){0};
        }
    }
    sum_block(values, value_stride, source, source_stride, steps, rows, vectors, sums);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            store(target + (size_t)r * target_stride + (size_t)v * LANES, sums[r][v]);
        }
    }
}

/* A strip of `rows` rows across all `width` columns. */
static inline __attribute__((always_inline)) void
strip(const float *values, size_t value_stride, const float *source, size_t width, size_t steps,
      float *target, const int rows, const int adds)
{
    size_t at = 0;
    for (; at + VECTORS * LANES <= width; at += VECTORS * LANES) {
        block(values, value_stride, source + at, width, steps, target + at, width, rows, VECTORS,
              adds);
    }
    for (; at < width; at += LANES) {
        block(values, value_stride, source + at, width, steps, target + at, width, rows, 1, adds);
    }
}

/* target [rows][width] = or += values [rows][value_stride] . source [steps][width] */
static inline __attribute__((always_inline)) void
product(const float *values, size_t value_stride, const float *source, size_t width, size_t steps,
        float *target, size_t rows, const int adds)
{
    size_t r = 0;
    for (; r + ROWS <= rows; r += ROWS) {
        strip(values + r * value_stride, value_stride, source, width, steps, target + r * width,
              ROWS, adds);
    }
    for (; r + 2 <= rows; r += 2) {
        strip(values + r * value_stride, value_stride, source, width, steps, target + r * width, 2,
              adds);
    }
    if (r < rows) {
        strip(values + r * value_stride, value_stride, source, width, steps, target + r * width, 1,
              adds);
    }
}

static void scores(const float *q, size_t rows, size_t dim, const float *columns, float *result)
{
    product(q, dim, columns, TILE, dim, result, rows, 0);
}

/* Four tokens at a time, so that their sums do not wait for one another. */
static inline __attribute__((always_inline)) void
dots(const float *q, size_t dim, const float *tile, float *result, const int rows)
{
    for (size_t t = 0; t < TILE; t += 4) {
        vector sums[4][MZ_ATTENTION_FEW] = {{{0}}};
        for (size_t i = 0; i < dim; i += LANES) {
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) {
                vector right = load(tile + (t + (size_t)k) * dim + i);
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) {
                    sums[k][r] += load(q + (size_t)r * dim + i) * right;
                }
            }
        }
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                result[(size_t)r * TILE + t + (size_t)k] = vector_sum(sums[k][r]);
            }
        }
    }
}

static void scores_few(const float *q, size_t rows, size_t dim, const float *tile, float *result)
{
    switch (rows) {
    case 1:
        dots(q, dim, tile, result, 1);
        break;
    case 2:
        dots(q, dim, tile, result, 2);
        break;
    case 3:
        dots(q, dim, tile, result, 3);
        break;
    default:
        dots(q, dim, tile, result, 4);
        break;
    }
}

static void add_mask(float *row, const uint16_t *mask, float slope)
{
    for (size_t i = 0; i < TILE; i += LANES) {
        store(row + i, load(row + i) + broadcast(slope) * vector_from_halves(mask + i));
    }
}

static inline vector choose(vector_bits condition, vector yes, vector no)
{
    return (vector)((condition & (vector_bits)yes) | (~condition & (vector_bits)no));
}

/*
 * e^x for x <= 0, 0 below -87. x = n ln 2 + f with |f| <= ln 2 / 2, e^f by a polynomial of degree 7
 * (the coefficients of Cephes' expf, relative error 2^-23), 2^n by adding n to the exponent.
 */
static inline vector exponential(vector x)
{
    const vector magic = broadcast(0x1.8p23f);
    vector bounded = choose(x > broadcast(-87.0f), x, broadcast(-87.0f));
    vector shifted = bounded * broadcast(0x1.715476p0f) + magic;
    vector n = shifted - magic;
    vector f = bounded - n * broadcast(0x1.63p-1f) + n * broadcast(0x1.bd0106p-13f);
    vector p = broadcast(1.9875691500e-4f);
    p = p * f + broadcast(1.3981999507e-3f);
    p = p * f + broadcast(8.3334519073e-3f);
    p = p * f + broadcast(4.1665795894e-2f);
    p = p * f + broadcast(1.6666665459e-1f);
    p = p * f + broadcast(5.0000001201e-1f);
    p = p * f * f + f + broadcast(1.0f);
    vector result = (vector)((vector_bits)p + ((vector_bits)shifted << 23));
    return choose(x > broadcast(-87.0f), result, broadcast(0.0f));
}

static float softmax(float *row, float *max, float *sum)
{
    vector largest = load(row);
    for (size_t i = LANES; i < TILE; i += LANES) {
        vector v = load(row + i);
        largest = choose(v > largest, v, largest);
    }
    float lanes[LANES];
    store(lanes, largest);
    float top = *max;
    for (size_t i = 0; i < LANES; i++) {
        top = lanes[i] > top ? lanes[i] : top;
    }
    if (top == -INFINITY) {
        memset(row, 0, TILE * sizeof *row);
        return 1.0f;
    }
    float factor = *max == top ? 1.0f : expf(*max - top);
    vector total = {0};
    for (size_t i = 0; i < TILE; i += LANES) {
        vector e = exponential(load(row + i) - broadcast(top));
        store(row + i, e);
        total += e;
    }
    *sum = *sum * factor + vector_sum(total);
    *max = top;
    return factor;
}

static void scale(float *out, size_t dim, float factor)
{
    for (size_t i = 0; i < dim; i += LANES) {
        store(out + i, load(out + i) * broadcast(factor));
    }
}

static void accumulate(const float *p, size_t rows, size_t tokens, const float *tile, size_t dim,
                       float *out)
{
    product(p, TILE, tile, dim, tokens, out, rows, 1);
}

/* Twelve sums, more than any core needs to keep two units busy that take five cycles. */
#define FUSED 12

static float fuse(size_t steps)
{
    vector sums[FUSED];
    /* Volatile, so that the compiler can't compute anything in advance. */
    volatile float factor = 0.5f, term = 1.0f;
    vector a = broadcast(factor), b = broadcast(term), total = {0};
#pragma GCC unroll 12
    for (int i = 0; i < FUSED; i++) {
        sums[i] = broadcast((float)i);
    }
    for (size_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < FUSED; i++) {
            sums[i] = sums[i] * a + b;
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < FUSED; i++) {
        total += sums[i];
    }
    return vector_sum(total);
}

#define MZ_ATTENTION_TABLE                                                                        \
    {                                                                                             \
        .from_f16 = from_f16, .from_q8 = from_q8, .transpose = transpose, .scores = scores,       \
        .scores_few = scores_few, .add_mask = add_mask, .softmax = softmax, .scale = scale,       \
        .accumulate = accumulate, .fuse = fuse, .fuse_flops = 2 * FUSED * LANES                   \
    }

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The steps of "cachegen" in plain C, for each instruction set to compile by its own options.
 *
 * Every inner loop goes over the 32 lanes of a strip without a branch, which is what compilers turn
 * into vector instructions, so only what they can't is written by hand in the wide variants: the
 * entropy coder, which takes a number of words that depends on the data, and f16 by hardware. One
 * source for all keeps them equal.
 *
 * The including file defines load_row before: the 32 finite f16 at `from` as f32.
 */
#ifndef MZ_KERNELS_CG_BODY_H
#define MZ_KERNELS_CG_BODY_H

#include <string.h>

#include "kernels/cg.h"
#include "kernels/f16.h"

static inline void load_row(const uint16_t *from, float *value);

static inline int16_t mz_cg_clamp(int32_t value, int32_t limit)
{
    value = value > limit ? limit : value;
    return (int16_t)(value < -limit ? -limit : value);
}

/* To the nearest integer, ties to even, for magnitudes below 2^22: the sum has no further bits. */
static inline float mz_cg_rounded(float value)
{
    return value + 0x1.8p23f - 0x1.8p23f;
}

static void body_measure(const uint16_t *source, size_t stride, size_t rows, mz_cg_measure *sums)
{
    mz_cg_measure of = *sums; /* ours alone: nothing that is stored can change what is read */
    float before[MZ_CG_LANES], value[MZ_CG_LANES];
    for (size_t row = 0; row < rows; row++) {
        const uint16_t *from = source + row * stride;
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            uint16_t magnitude = (uint16_t)(from[lane] & MZ_F16_MAGNITUDE);
            of.largest[lane] = magnitude > of.largest[lane] ? magnitude : of.largest[lane];
        }
        load_row(from, value);
        if (row > 0) {
            for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
                float moved = value[lane] - before[lane];
                of.moved[lane] += moved < 0 ? -moved : moved;
            }
        }
        memcpy(before, value, sizeof before);
    }
    *sums = of;
}

static bool body_on_grid(const uint16_t *source, size_t stride, size_t rows, float inverse)
{
    for (size_t row = 0; row < rows; row++) {
        float value[MZ_CG_LANES];
        int off = 0;
        load_row(source + row * stride, value);
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            float scaled = value[lane] * inverse;
            off |= mz_cg_rounded(scaled) != scaled;
        }
        if (off != 0) {
            return false;
        }
    }
    return true;
}

static uint16_t body_quantize(const uint16_t *source, size_t stride, size_t rows, float inverse,
                              int16_t limit, int16_t *q)
{
    uint16_t any[MZ_CG_LANES] = {0};
    for (size_t row = 0; row < rows; row++) {
        float value[MZ_CG_LANES];
        int16_t made[MZ_CG_LANES];
        load_row(source + row * stride, value);
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            made[lane] = mz_cg_clamp((int32_t)mz_cg_rounded(value[lane] * inverse), limit);
            any[lane] = (uint16_t)(any[lane] | (uint16_t)made[lane]);
        }
        memcpy(q + row * MZ_CG_LANES, made, sizeof made);
    }
    uint16_t all = 0;
    for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
        all = (uint16_t)(all | any[lane]);
    }
    return all;
}

static void body_sum(const int16_t *q, size_t rows, int32_t *sums)
{
    memset(sums, 0, MZ_CG_LANES * sizeof *sums);
    for (size_t row = 0; row < rows; row++) {
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            sums[lane] += q[row * MZ_CG_LANES + lane];
        }
    }
}

static void body_correlate(const int16_t *q, size_t rows, const int16_t *center, int32_t *square,
                           int32_t *product)
{
    int16_t last[MZ_CG_LANES] = {0};
    memset(square, 0, MZ_CG_LANES * sizeof *square);
    memset(product, 0, MZ_CG_LANES * sizeof *product);
    for (size_t row = 0; row < rows; row++) {
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            int16_t y = mz_cg_clamp(q[row * MZ_CG_LANES + lane] - center[lane], 2047);
            square[lane] += (int32_t)last[lane] * last[lane];
            product[lane] += (int32_t)y * last[lane];
            last[lane] = y;
        }
    }
}

/* What y[t-1] predicts for y[t]; the right shift of a negative number rounds down. */
static inline int32_t mz_cg_predicted(int16_t last, int16_t slope)
{
    return ((int32_t)last * slope + MZ_CG_SLOPE_ONE / 2) >> 3;
}

static void body_predict(const int16_t *q, size_t rows, const int16_t *center,
                         const int16_t *slope, int16_t *residual, uint32_t *size)
{
    int16_t last[MZ_CG_LANES] = {0};
    memset(size, 0, MZ_CG_LANES * sizeof *size);
    for (size_t row = 0; row < rows; row++) {
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            int16_t y = (int16_t)(q[row * MZ_CG_LANES + lane] - center[lane]);
            int16_t made = (int16_t)(y - mz_cg_predicted(last[lane], slope[lane]));
            int32_t held = mz_cg_clamp(made, 4095);
            residual[row * MZ_CG_LANES + lane] = made;
            size[lane] += (uint32_t)(held < 0 ? -held : held);
            last[lane] = y;
        }
    }
}

#endif

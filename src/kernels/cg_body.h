/* SPDX-License-Identifier: MIT */
/*
 * The steps of "cachegen" in plain C, for each instruction set to compile by its own options.
 *
 * Every inner loop goes over the 32 lanes of a strip without a branch, which is what compilers turn
 * into vector instructions, so only what they can't (the entropy coder, which takes a number of
 * words that depends on the data, and f16 by hardware) is written by hand in the wide variants. One
 * source for all keeps them equal.
 */
#ifndef MZ_KERNELS_CG_BODY_H
#define MZ_KERNELS_CG_BODY_H

#include <string.h>

#include "kernels/cg.h"
#include "kernels/f16.h"

static inline int16_t mz_cg_clamp(int32_t value, int32_t limit)
{
    value = value > limit ? limit : value;
    return (int16_t)(value < -limit ? -limit : value);
}

static void body_measure(const uint16_t *source, size_t stride, size_t rows, mz_cg_measure *sums)
{
    for (size_t row = 0; row < rows; row++) {
        const uint16_t *from = source + row * stride;
        const uint16_t *before = row > 0 ? from - stride : from;
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            uint16_t magnitude = (uint16_t)(from[lane] & MZ_F16_MAGNITUDE);
            uint16_t largest = sums->largest[lane];
            sums->largest[lane] = magnitude > largest ? magnitude : largest;
        }
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            float moved = mz_f32_from_f16(from[lane]) - mz_f32_from_f16(before[lane]);
            sums->moved[lane] += moved < 0 ? -moved : moved;
        }
    }
}

static bool body_on_grid(const uint16_t *source, size_t stride, size_t rows, float inverse)
{
    for (size_t row = 0; row < rows; row++) {
        int off = 0;
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            float scaled = mz_f32_from_f16(source[row * stride + lane]) * inverse;
            off |= (float)mz_round_f32(scaled) != scaled;
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
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            float scaled = mz_f32_from_f16(source[row * stride + lane]) * inverse;
            int16_t made = mz_cg_clamp(mz_round_f32(scaled), limit);
            q[row * MZ_CG_LANES + lane] = made;
            any[lane] = (uint16_t)(any[lane] | (uint16_t)made);
        }
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

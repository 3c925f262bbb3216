/* SPDX-License-Identifier: MIT */
/*
 * The steps of "cachegen" in plain C: the reference, and what runs where there is nothing wider.
 *
 * The entropy coder is as slow as its chain of operations per symbol is long; the 32 states have a
 * chain each, so that a processor works on several at a time even here.
 */
#include "kernels/cg.h"
#include "kernels/cg_body.h"

static inline void load_row(const uint16_t *from, float *value)
{
    for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
        value[lane] = mz_f32_from_f16(from[lane]);
    }
}

void mz_cg_pack(const int16_t *residual, size_t rows, const uint32_t *symbols, const uint32_t *base,
                uint32_t *state, uint8_t **end)
{
    uint8_t *out = *end;
    for (size_t row = rows; row-- > 0;) {
        for (size_t lane = MZ_CG_LANES; lane-- > 0;) {
            int32_t symbol = residual[row * MZ_CG_LANES + lane];
            uint32_t entry = symbols[base[lane] + (uint32_t)(symbol + (int32_t)MZ_CG_SYMBOLS / 2)];
            uint32_t freq = entry & 0xffffu, start = entry >> MZ_CG_START_SHIFT;
            uint32_t x = state[lane];
            if (x >> (32 - MZ_CG_SLOT_BITS) >= freq) { /* the next state would not fit */
                uint16_t word = (uint16_t)x;
                out -= sizeof word;
                memcpy(out, &word, sizeof word);
                x >>= 16;
            }
            state[lane] = (x / freq << MZ_CG_SLOT_BITS) + x % freq + start;
        }
    }
    *end = out;
}

size_t mz_cg_unpack(const uint8_t **at, const uint8_t *end, size_t rows, const uint32_t *slots,
                    const uint32_t *base, uint32_t *state, int16_t *residual)
{
    const uint8_t *in = *at;
    size_t row = 0;
    for (; row < rows && (size_t)(end - in) >= MZ_CG_ROW_ROOM; row++) {
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            uint32_t x = state[lane];
            uint32_t entry = slots[base[lane] + (x & (MZ_CG_SLOTS - 1))];
            x = (entry & MZ_CG_FREQ_MASK) * (x >> MZ_CG_SLOT_BITS) +
                (entry >> MZ_CG_BIAS_SHIFT & (MZ_CG_SLOTS - 1));
            uint16_t word;
            memcpy(&word, in, sizeof word);
            bool takes = x < MZ_CG_LOW;
            state[lane] = takes ? x << 16 | word : x;
            in += takes ? sizeof word : 0;
            residual[row * MZ_CG_LANES + lane] = (int8_t)(entry >> MZ_CG_SYMBOL_SHIFT);
        }
    }
    *at = in;
    return row;
}

bool mz_cg_restore(const int16_t *residual, size_t rows, const int16_t *center,
                   const int16_t *slope, float scale, int16_t limit, uint16_t *target,
                   size_t stride)
{
    int16_t last[MZ_CG_LANES] = {0};
    int beyond = 0;
    for (size_t row = 0; row < rows; row++) {
        for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
            int16_t y = (int16_t)(residual[row * MZ_CG_LANES + lane] +
                                  mz_cg_predicted(last[lane], slope[lane]));
            int16_t q = (int16_t)(y + center[lane]);
            beyond |= (q > limit) | (q < -limit);
            target[row * stride + lane] = mz_f16_from_f32((float)q * scale);
            last[lane] = y;
        }
    }
    return beyond == 0;
}

const mz_cg_kernels mz_cg_generic = {
    .measure = body_measure,
    .on_grid = body_on_grid,
    .quantize = body_quantize,
    .sum = body_sum,
    .correlate = body_correlate,
    .predict = body_predict,
    .pack = mz_cg_pack,
    .unpack = mz_cg_unpack,
    .restore = mz_cg_restore,
};

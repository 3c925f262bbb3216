/* SPDX-License-Identifier: MIT */
/*
 * The 4-bit kernels in plain C: the reference, and what the wide ones call for strips that have
 * narrow channels (q4.h), which are rare and need all 16 levels at hand.
 */
#include "kernels/f16.h"
#include "kernels/q4.h"

typedef struct range {
    float lo, hi;
    float step, inverse; /* 0 if lo == hi */
    bool narrow;
} range;

static range range_from(float lo, float hi)
{
    float width = hi - lo;
    float magnitude = -lo > hi ? -lo : hi; /* the larger one: lo <= hi */
    range made = {lo, hi, width / MZ_Q4_TOP, width > 0 ? MZ_Q4_TOP / width : 0.0f, false};
    made.narrow =
        width > 0 && (width * MZ_Q4_NARROW_SHARE < magnitude || width < MZ_Q4_NARROW_LEAST);
    return made;
}

static uint16_t level(const range *of, int q)
{
    return mz_f16_from_f32(q == MZ_Q4_TOP ? of->hi : of->lo + (float)q * of->step);
}

/* The first of the levels nearest to value. */
static int nearest_level(const range *of, float value)
{
    int best = 0;
    float least = value - of->lo;
    for (int q = 1; q <= MZ_Q4_TOP; q++) {
        float away = value - mz_f32_from_f16(level(of, q));
        away = away < 0 ? -away : away;
        if (away < least) {
            least = away;
            best = q;
        }
    }
    return best;
}

/* One channel; q goes to q[token]. */
static bool encode_channel(const uint16_t *source, size_t stride, size_t tokens, uint16_t *lo,
                           uint16_t *hi, uint8_t *q)
{
    float least = 65504.0f, largest = -65504.0f;
    for (size_t token = 0; token < tokens; token++) {
        uint16_t half = source[token * stride];
        if ((half & MZ_F16_MAGNITUDE) >= MZ_F16_INFINITY) {
            return false;
        }
        float value = mz_f32_from_f16(half);
        least = value < least ? value : least;
        largest = value > largest ? value : largest;
    }
    range of = range_from(least + 0.0f, largest + 0.0f); /* -0 becomes +0 */
    *lo = mz_f16_from_f32(of.lo);
    *hi = mz_f16_from_f32(of.hi);
    for (size_t token = 0; token < tokens; token++) {
        float value = mz_f32_from_f16(source[token * stride]);
        q[token] = (uint8_t)(of.narrow ? nearest_level(&of, value)
                                       : mz_round_f32((value - of.lo) * of.inverse));
    }
    return true;
}

bool mz_q4_encode(const uint16_t *source, size_t stride, size_t tokens, uint8_t *strip)
{
    uint16_t lo[MZ_Q4_CHANNELS], hi[MZ_Q4_CHANNELS];
    uint8_t q[MZ_Q4_CHANNELS][MZ_Q4_TOKENS];
    for (size_t channel = 0; channel < MZ_Q4_CHANNELS; channel++) {
        if (!encode_channel(source + channel, stride, tokens, &lo[channel], &hi[channel],
                            q[channel])) {
            return false;
        }
    }
    memcpy(strip, lo, sizeof lo);
    memcpy(strip + sizeof lo, hi, sizeof hi);
    uint8_t *out = strip + MZ_Q4_RANGES;
    for (size_t token = 0; token < tokens; token++) {
        for (size_t i = 0; i < MZ_Q4_ROW; i++) {
            *out++ = (uint8_t)(q[i][token] | q[i + MZ_Q4_ROW][token] << 4);
        }
    }
    return true;
}

void mz_q4_decode(const uint8_t *strip, size_t tokens, uint16_t *target, size_t stride)
{
    uint16_t lo[MZ_Q4_CHANNELS], hi[MZ_Q4_CHANNELS];
    memcpy(lo, strip, sizeof lo);
    memcpy(hi, strip + sizeof lo, sizeof hi);
    const uint8_t *from = strip + MZ_Q4_RANGES;
    for (size_t channel = 0; channel < MZ_Q4_CHANNELS; channel++) {
        range of = range_from(mz_f32_from_f16(lo[channel]), mz_f32_from_f16(hi[channel]));
        unsigned shift = channel < MZ_Q4_ROW ? 0 : 4;
        for (size_t token = 0; token < tokens; token++) {
            int q = from[token * MZ_Q4_ROW + channel % MZ_Q4_ROW] >> shift & MZ_Q4_TOP;
            target[token * stride + channel] = level(&of, q);
        }
    }
}

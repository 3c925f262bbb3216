/* SPDX-License-Identifier: MIT */
/*
 * The kernels in plain C: the reference that every other variant must equal bit for bit, and what
 * runs where there is no other.
 *
 * q8's conversions are exact: each finite f16 is an f32, and what decode produces has at most 10
 * significant bits and no part below 2^-24 (q8.h).
 */
#include "kernels/f16.h"
#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "kernels/q4.h"

#include <string.h>

static uint8_t code_from_max(float max)
{
    int32_t bits = (int32_t)mz_bits_from_f32(max);
    int32_t fraction = bits & 0x7fffff;
    int32_t exceeded = (fraction > MZ_Q8_FRACTION_1) + (fraction > MZ_Q8_FRACTION_2) +
                       (fraction > MZ_Q8_FRACTION_3) + (fraction > MZ_Q8_FRACTION_4);
    int32_t code = (bits >> 23) * 4 - MZ_Q8_CODE_BIAS + exceeded;
    return (uint8_t)(code < 0 ? 0 : code);
}

static float scale_from_code(uint8_t code)
{
    return mz_f32_from_bits(((uint32_t)code << MZ_Q8_SCALE_SHIFT) + MZ_Q8_SCALE_BASE);
}

static int8_t quantize(float value, float inverse)
{
    int32_t q = mz_round_f32(value * inverse);
    q = q > MZ_Q8_LIMIT ? MZ_Q8_LIMIT : q;
    return (int8_t)(q < -MZ_Q8_LIMIT ? -MZ_Q8_LIMIT : q);
}

static bool q8_encode(const uint16_t *source, size_t groups, uint8_t *codes, int8_t *q)
{
    for (size_t group = 0; group < groups; group++) {
        uint16_t max = 0;
        for (size_t i = 0; i < MZ_Q8_GROUP; i++) {
            uint16_t magnitude = (uint16_t)(source[i] & MZ_F16_MAGNITUDE);
            max = magnitude > max ? magnitude : max;
        }
        if (max >= MZ_F16_INFINITY) {
            return false;
        }
        codes[group] = code_from_max(mz_f32_from_f16(max));
        float inverse = 1.0f / scale_from_code(codes[group]);
        for (size_t i = 0; i < MZ_Q8_GROUP; i++) {
            q[i] = quantize(mz_f32_from_f16(source[i]), inverse);
        }
        source += MZ_Q8_GROUP;
        q += MZ_Q8_GROUP;
    }
    return true;
}

static void q8_decode(const uint8_t *codes, const int8_t *q, size_t groups, uint16_t *target)
{
    for (size_t group = 0; group < groups; group++) {
        float scale = scale_from_code(codes[group]);
        for (size_t i = 0; i < MZ_Q8_GROUP; i++) {
            target[i] = mz_f16_from_f32((float)q[i] * scale);
        }
        q += MZ_Q8_GROUP;
        target += MZ_Q8_GROUP;
    }
}

static bool is_zero(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint64_t words[8];
    for (; bytes >= sizeof words; bytes -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        if ((words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] |
             words[7]) != 0) {
            return false;
        }
    }
    uint8_t any = 0;
    for (size_t i = 0; i < bytes; i++) {
        any |= at[i];
    }
    return any == 0;
}

void mz_planes_split2(const uint8_t *source, size_t pairs, uint8_t *even, uint8_t *odd)
{
    for (size_t i = 0; i < pairs; i++) {
        even[i] = source[2 * i];
        odd[i] = source[2 * i + 1];
    }
}

void mz_planes_merge2(const uint8_t *even, const uint8_t *odd, size_t pairs, uint8_t *target)
{
    for (size_t i = 0; i < pairs; i++) {
        target[2 * i] = even[i];
        target[2 * i + 1] = odd[i];
    }
}

const mz_kernels mz_kernels_generic = {
    .name = "generic",
    .q8_encode = q8_encode,
    .q8_decode = q8_decode,
    .q4_encode = mz_q4_encode,
    .q4_decode = mz_q4_decode,
    .is_zero = is_zero,
    .split2 = mz_planes_split2,
    .merge2 = mz_planes_merge2,
    .attention = &mz_attention_generic,
    .cg = &mz_cg_generic,
};

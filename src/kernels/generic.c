/* SPDX-License-Identifier: MIT */
/*
 * The kernels in plain C: the reference that every other variant must equal bit for bit, and what
 * runs where there is no other.
 *
 * f16 is handled as bits, so no compiler support for half precision is needed. Both directions are
 * exact here: each finite f16 is an f32, and what decode produces has at most 10 significant bits
 * and no part below 2^-24 (q8.h). Values are rounded to integers by adding 1.5 * 2^23, which leaves
 * the integer, rounded to nearest even, in the low bits of the sum.
 */
#include "kernels/kernels.h"
#include "kernels/planes.h"

#include <string.h>

#define F16_MAGNITUDE 0x7fffu
#define F16_INFINITY 0x7c00u
#define F16_MIN_NORMAL 0x0400
#define F16_SIGN 0x8000u

static uint32_t bits_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A finite f16 as f32. Both ways are cheap and free of traps, so that compilers can vectorize. */
static float f32_from_f16(uint16_t half)
{
    int32_t magnitude = half & F16_MAGNITUDE;
    uint32_t normal = ((uint32_t)magnitude << 13) + ((127u - 15u) << 23);
    uint32_t denormal = bits_from_f32((float)magnitude * 0x1p-24f);
    uint32_t sign = (uint32_t)(half & F16_SIGN) << 16;
    return f32_from_bits((magnitude < F16_MIN_NORMAL ? denormal : normal) | sign);
}

/* A value that f16 can keep exactly, as f16. 0.5f counts its low bits in 2^-24, as denormals do. */
static uint16_t f16_from_f32(float value)
{
    uint32_t bits = bits_from_f32(value);
    uint32_t sign = (bits >> 16) & F16_SIGN;
    float magnitude = f32_from_bits(bits & 0x7fffffffu);
    uint32_t denormal = bits_from_f32(magnitude + 0.5f) - bits_from_f32(0.5f);
    uint32_t normal = ((bits & 0x7fffffffu) >> 13) - ((127u - 15u) << 10);
    return (uint16_t)((magnitude < 0x1p-14f ? denormal : normal) | sign);
}

static uint8_t code_from_max(float max)
{
    int32_t bits = (int32_t)bits_from_f32(max);
    int32_t fraction = bits & 0x7fffff;
    int32_t exceeded = (fraction > MZ_Q8_FRACTION_1) + (fraction > MZ_Q8_FRACTION_2) +
                       (fraction > MZ_Q8_FRACTION_3) + (fraction > MZ_Q8_FRACTION_4);
    int32_t code = (bits >> 23) * 4 - MZ_Q8_CODE_BIAS + exceeded;
    return (uint8_t)(code < 0 ? 0 : code);
}

static float scale_from_code(uint8_t code)
{
    return f32_from_bits(((uint32_t)code << MZ_Q8_SCALE_SHIFT) + MZ_Q8_SCALE_BASE);
}

static int8_t quantize(float value, float inverse)
{
    float shifted = value * inverse + 0x1.8p23f;
    int32_t q = (int32_t)(bits_from_f32(shifted) - bits_from_f32(0x1.8p23f));
    q = q > MZ_Q8_LIMIT ? MZ_Q8_LIMIT : q;
    return (int8_t)(q < -MZ_Q8_LIMIT ? -MZ_Q8_LIMIT : q);
}

static bool q8_encode(const uint16_t *source, size_t groups, uint8_t *codes, int8_t *q)
{
    for (size_t group = 0; group < groups; group++) {
        uint16_t max = 0;
        for (size_t i = 0; i < MZ_Q8_GROUP; i++) {
            uint16_t magnitude = (uint16_t)(source[i] & F16_MAGNITUDE);
            max = magnitude > max ? magnitude : max;
        }
        if (max >= F16_INFINITY) {
            return false;
        }
        codes[group] = code_from_max(f32_from_f16(max));
        float inverse = 1.0f / scale_from_code(codes[group]);
        for (size_t i = 0; i < MZ_Q8_GROUP; i++) {
            q[i] = quantize(f32_from_f16(source[i]), inverse);
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
            target[i] = f16_from_f32((float)q[i] * scale);
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
    .is_zero = is_zero,
    .split2 = mz_planes_split2,
    .merge2 = mz_planes_merge2,
};

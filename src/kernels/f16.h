/* SPDX-License-Identifier: MIT */
/*
 * f16 as bits, for the generic kernels: no compiler support for half precision is needed.
 *
 * Both directions are cheap and free of branches, so that compilers can vectorize them.
 */
#ifndef MZ_KERNELS_F16_H
#define MZ_KERNELS_F16_H

#include <stdint.h>
#include <string.h>

#define MZ_F16_MAGNITUDE 0x7fffu
#define MZ_F16_INFINITY 0x7c00u
#define MZ_F16_MIN_NORMAL 0x0400
#define MZ_F16_SIGN 0x8000u

static inline uint32_t mz_bits_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float mz_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A finite f16 as f32: exact. */
static inline float mz_f32_from_f16(uint16_t half)
{
    int32_t magnitude = half & MZ_F16_MAGNITUDE;
    uint32_t normal = ((uint32_t)magnitude << 13) + ((127u - 15u) << 23);
    uint32_t denormal = mz_bits_from_f32((float)magnitude * 0x1p-24f);
    uint32_t sign = (uint32_t)(half & MZ_F16_SIGN) << 16;
    return mz_f32_from_bits((magnitude < MZ_F16_MIN_NORMAL ? denormal : normal) | sign);
}

/*
 * A value of magnitude up to 65504 as the nearest f16, ties to even. Normal results: half a step
 * less one, and one more if the kept part is odd, carries where rounding goes up. Denormal ones:
 * 0.5f counts its low bits in 2^-24, as they do, so the addition rounds.
 */
static inline uint16_t mz_f16_from_f32(float value)
{
    uint32_t bits = mz_bits_from_f32(value);
    uint32_t sign = (bits >> 16) & MZ_F16_SIGN;
    uint32_t magnitude = bits & 0x7fffffffu;
    float small = mz_f32_from_bits(magnitude);
    uint32_t denormal = mz_bits_from_f32(small + 0.5f) - mz_bits_from_f32(0.5f);
    uint32_t normal = ((magnitude + 0xfffu + (magnitude >> 13 & 1)) >> 13) - ((127u - 15u) << 10);
    return (uint16_t)((small < 0x1p-14f ? denormal : normal) | sign);
}

/* A value of magnitude below 2^22 as the nearest integer, ties to even: in the low bits of a
 * sum. */
static inline int32_t mz_round_f32(float value)
{
    return (int32_t)(mz_bits_from_f32(value + 0x1.8p23f) - mz_bits_from_f32(0x1.8p23f));
}

#endif

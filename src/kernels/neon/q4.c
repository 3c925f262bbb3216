/* SPDX-License-Identifier: MIT */
/*
 * The 4-bit kernels for NEON: eight registers of four channels, whose ranges stay in registers
 * while the tokens of the strip pass.
 */
#include "kernels/q4.h"

#include <arm_neon.h>

#define LANES 4
#define PARTS (MZ_Q4_CHANNELS / LANES)

static inline float32x4_t load_f32(const void *at)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)at)));
}

static inline uint16x4_t to_f16(float32x4_t value)
{
    return vreinterpret_u16_f16(vcvt_f16_f32(value));
}

/* lo and hi of 4 channels; false if a value is not finite or a channel is narrow. */
static inline bool find_ranges(const uint16_t *source, size_t stride, size_t tokens,
                               float32x4_t *lo, float32x4_t *inverse, uint8_t *strip)
{
    const float32x4_t zero = vdupq_n_f32(0.0f);
    float32x4_t least = load_f32(source), largest = least;
    float32x4_t not_finite = vmulq_f32(least, zero); /* NaN from then on */
    for (size_t token = 1; token < tokens; token++) {
        float32x4_t value = load_f32(source + token * stride);
        least = vminq_f32(least, value);
        largest = vmaxq_f32(largest, value);
        not_finite = vaddq_f32(not_finite, vmulq_f32(value, zero));
    }
    least = vaddq_f32(least, zero);
    largest = vaddq_f32(largest, zero);
    float32x4_t width = vsubq_f32(largest, least);
    float32x4_t magnitude = vmaxq_f32(vsubq_f32(zero, least), largest);
    uint32x4_t some = vcgtq_f32(width, zero);
    uint32x4_t narrow =
        vorrq_u32(vcltq_f32(vmulq_f32(width, vdupq_n_f32(MZ_Q4_NARROW_SHARE)), magnitude),
                  vcltq_f32(width, vdupq_n_f32(MZ_Q4_NARROW_LEAST)));
    uint32x4_t refused =
        vorrq_u32(vandq_u32(some, narrow), vmvnq_u32(vceqq_f32(not_finite, not_finite)));
    if (vmaxvq_u32(refused) != 0) {
        return false;
    }
    float32x4_t divided = vdivq_f32(vdupq_n_f32(MZ_Q4_TOP), width);
    *lo = least;
    *inverse = vreinterpretq_f32_u32(vandq_u32(some, vreinterpretq_u32_f32(divided)));
    vst1_u16((uint16_t *)(void *)strip, to_f16(least));
    vst1_u16((uint16_t *)(void *)(strip + MZ_Q4_RANGES / 2), to_f16(largest));
    return true;
}

static inline uint16x4_t quantize(const uint16_t *source, float32x4_t lo, float32x4_t inverse)
{
    return vmovn_u32(vcvtnq_u32_f32(vmulq_f32(vsubq_f32(load_f32(source), lo), inverse)));
}

static inline uint8x8_t quantize_eight(const uint16_t *source, const float32x4_t *lo,
                                       const float32x4_t *inverse)
{
    return vmovn_u16(vcombine_u16(quantize(source, lo[0], inverse[0]),
                                  quantize(source + LANES, lo[1], inverse[1])));
}

bool mz_q4_encode_neon(const uint16_t *source, size_t stride, size_t tokens, uint8_t *strip)
{
    float32x4_t lo[PARTS], inverse[PARTS];
    for (size_t i = 0; i < PARTS; i++) {
        if (!find_ranges(source + i * LANES, stride, tokens, &lo[i], &inverse[i],
                         strip + i * LANES * 2)) {
            return mz_q4_encode(source, stride, tokens, strip);
        }
    }
    for (size_t token = 0; token < tokens; token++) {
        const uint16_t *from = source + token * stride;
        uint8_t *to = strip + MZ_Q4_RANGES + token * MZ_Q4_ROW;
        for (size_t i = 0; i < 2; i++) {
            uint8x8_t low = quantize_eight(from + i * 8, lo + i * 2, inverse + i * 2);
            uint8x8_t high =
                quantize_eight(from + MZ_Q4_ROW + i * 8, lo + 4 + i * 2, inverse + 4 + i * 2);
            vst1_u8(to + i * 8, vorr_u8(low, vshl_n_u8(high, 4)));
        }
    }
    return true;
}

static inline uint16x4_t levels(uint16x4_t q, float32x4_t lo, float32x4_t step)
{
    return to_f16(vaddq_f32(lo, vmulq_f32(vcvtq_f32_u32(vmovl_u16(q)), step)));
}

/* Eight channels of a token; hi where q is the largest. */
static inline void decode_eight(uint8x8_t bytes, const float32x4_t *lo, const float32x4_t *step,
                                uint16x8_t hi, uint16_t *target)
{
    uint16x8_t q = vmovl_u8(bytes);
    uint16x8_t halves = vcombine_u16(levels(vget_low_u16(q), lo[0], step[0]),
                                     levels(vget_high_u16(q), lo[1], step[1]));
    vst1q_u16(target, vbslq_u16(vceqq_u16(q, vdupq_n_u16(MZ_Q4_TOP)), hi, halves));
}

void mz_q4_decode_neon(const uint8_t *strip, size_t tokens, uint16_t *target, size_t stride)
{
    const uint8_t *kept = strip + MZ_Q4_RANGES / 2;
    float32x4_t lo[PARTS], step[PARTS];
    uint16x8_t hi[PARTS / 2];
    for (size_t i = 0; i < PARTS; i++) {
        lo[i] = load_f32(strip + i * LANES * 2);
        step[i] =
            vdivq_f32(vsubq_f32(load_f32(kept + i * LANES * 2), lo[i]), vdupq_n_f32(MZ_Q4_TOP));
        hi[i / 2] = vld1q_u16((const uint16_t *)(const void *)(kept + i / 2 * 16));
    }
    for (size_t token = 0; token < tokens; token++) {
        const uint8_t *from = strip + MZ_Q4_RANGES + token * MZ_Q4_ROW;
        uint16_t *to = target + token * stride;
        for (size_t i = 0; i < 2; i++) {
            uint8x8_t bytes = vld1_u8(from + i * 8);
            decode_eight(vand_u8(bytes, vdup_n_u8(MZ_Q4_TOP)), lo + i * 2, step + i * 2, hi[i],
                         to + i * 8);
            decode_eight(vshr_n_u8(bytes, 4), lo + 4 + i * 2, step + 4 + i * 2, hi[2 + i],
                         to + MZ_Q4_ROW + i * 8);
        }
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * The kernels for NEON, which every 64-bit ARM processor has, its conversions from and to f16
 * included: no question is asked at run time.
 *
 * Encoding goes over blocks as q8_blocks.h says, eight scale codes at a time. There are no stores
 * past the caches: what ARM offers is a hint for pairs of registers, and compilers give no access.
 */
#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "kernels/q4.h"
#include "kernels/q8_blocks.h"

#include <arm_neon.h>

#define LANES 8u /* f16 in a register */

static inline float32x4_t f32_from_halves(uint16x4_t halves)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(halves));
}

static inline uint16_t max_of_group(const uint16_t *source)
{
    const uint16x8_t magnitude = vdupq_n_u16(0x7fff);
    uint16x8_t max = vdupq_n_u16(0);
    for (size_t i = 0; i < MZ_Q8_GROUP; i += LANES) {
        max = vmaxq_u16(max, vandq_u16(vld1q_u16(source + i), magnitude));
    }
    return vmaxvq_u16(max);
}

static inline float32x4_t scales_from_codes(int32x4_t code)
{
    int32x4_t bits = vshlq_n_s32(code, MZ_Q8_SCALE_SHIFT);
    return vreinterpretq_f32_s32(vaddq_s32(bits, vdupq_n_s32(MZ_Q8_SCALE_BASE)));
}

static inline int32x4_t add_if_exceeded(int32x4_t code, int32x4_t fraction, int limit)
{
    /* A comparison that holds is -1. */
    return vsubq_s32(code, vreinterpretq_s32_u32(vcgtq_s32(fraction, vdupq_n_s32(limit))));
}

/* Four codes from four maxima (f16), and 1 / scale. */
static inline int32x4_t derive_four(const uint16_t *maxima, float *inverses)
{
    int32x4_t bits = vreinterpretq_s32_f32(f32_from_halves(vld1_u16(maxima)));
    int32x4_t fraction = vandq_s32(bits, vdupq_n_s32(0x7fffff));
    int32x4_t code = vshlq_n_s32(vshrq_n_s32(bits, 23), 2);
    code = vsubq_s32(code, vdupq_n_s32(MZ_Q8_CODE_BIAS));
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_1);
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_2);
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_3);
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_4);
    code = vmaxq_s32(code, vdupq_n_s32(0));
    vst1q_f32(inverses, vdivq_f32(vdupq_n_f32(1.0f), scales_from_codes(code)));
    return code;
}

static inline void derive_scales(const uint16_t *maxima, uint8_t *codes, float *inverses)
{
    int16x4_t low = vmovn_s32(derive_four(maxima, inverses));
    int16x4_t high = vmovn_s32(derive_four(maxima + 4, inverses + 4));
    vst1_u8(codes, vreinterpret_u8_s8(vmovn_s16(vcombine_s16(low, high))));
}

static inline int8x8_t quantize(const uint16_t *source, float32x4_t inverse)
{
    uint16x8_t halves = vld1q_u16(source);
    float32x4_t low = vmulq_f32(f32_from_halves(vget_low_u16(halves)), inverse);
    float32x4_t high = vmulq_f32(f32_from_halves(vget_high_u16(halves)), inverse);
    /* To nearest even, as the generic kernel rounds. */
    int16x8_t words =
        vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(low)), vqmovn_s32(vcvtnq_s32_f32(high)));
    int8x8_t bytes = vmin_s8(vqmovn_s16(words), vdup_n_s8(MZ_Q8_LIMIT));
    return vmax_s8(bytes, vdup_n_s8(-MZ_Q8_LIMIT));
}

static inline void quantize_group(const uint16_t *source, float inverse, int8_t *q)
{
    float32x4_t factor = vdupq_n_f32(inverse);
    for (size_t i = 0; i < MZ_Q8_GROUP; i += LANES) {
        vst1_s8(q + i, quantize(source + i, factor));
    }
}

static bool q8_encode(const uint16_t *source, size_t groups, uint8_t *codes, int8_t *q)
{
    const mz_q8_steps steps = {8, max_of_group, derive_scales, quantize_group};
    return mz_q8_encode_blocks(steps, source, groups, codes, q);
}

static inline uint16x4_t dequantize(int16x4_t words, float32x4_t scale)
{
    float32x4_t value = vmulq_f32(vcvtq_f32_s32(vmovl_s16(words)), scale);
    return vreinterpret_u16_f16(vcvt_f16_f32(value));
}

static void q8_decode(const uint8_t *codes, const int8_t *q, size_t groups, uint16_t *target)
{
    for (size_t group = 0; group < groups; group++) {
        float32x4_t scale = scales_from_codes(vdupq_n_s32(codes[group]));
        for (size_t i = 0; i < MZ_Q8_GROUP; i += LANES) {
            int16x8_t words = vmovl_s8(vld1_s8(q + i));
            vst1q_u16(target + i, vcombine_u16(dequantize(vget_low_s16(words), scale),
                                               dequantize(vget_high_s16(words), scale)));
        }
        q += MZ_Q8_GROUP;
        target += MZ_Q8_GROUP;
    }
}

static bool is_zero(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (; bytes >= 64; bytes -= 64, at += 64) {
        uint8x16_t any = vorrq_u8(vorrq_u8(vld1q_u8(at), vld1q_u8(at + 16)),
                                  vorrq_u8(vld1q_u8(at + 32), vld1q_u8(at + 48)));
        if (vmaxvq_u8(any) != 0) {
            return false;
        }
    }
    uint8_t any = 0;
    for (size_t i = 0; i < bytes; i++) {
        any |= at[i];
    }
    return any == 0;
}

const mz_kernels mz_kernels_neon = {
    .name = "neon",
    .q8_encode = q8_encode,
    .q8_decode = q8_decode,
    .q4_encode = mz_q4_encode_neon,
    .q4_decode = mz_q4_decode_neon,
    .is_zero = is_zero,
    .split2 = mz_planes_split2_neon,
    .merge2 = mz_planes_merge2_neon,
    .attention = &mz_attention_neon,
    .cg = &mz_cg_neon,
};

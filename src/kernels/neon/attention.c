/* SPDX-License-Identifier: MIT */
/* The loops of attention for NEON: 16 sums of 4 floats leave 16 registers for the rest. */
#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#define LANES 4
#define ROWS 4
#define VECTORS 4

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int32_t vector_bits __attribute__((vector_size(4 * LANES)));

static inline vector vector_from_halves(const uint16_t *p)
{
    return (vector)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline vector vector_from_bytes(const int8_t *p)
{
    int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(word)));
    return (vector)vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

static inline float vector_sum(vector v)
{
    return vaddvq_f32((float32x4_t)v);
}

static inline void transpose_block(const float *source, size_t source_stride, float *target,
                                   size_t target_stride)
{
    float32x4x2_t low = vtrnq_f32(vld1q_f32(source), vld1q_f32(source + source_stride));
    float32x4x2_t high =
        vtrnq_f32(vld1q_f32(source + 2 * source_stride), vld1q_f32(source + 3 * source_stride));
    for (int i = 0; i < 2; i++) {
        vst1q_f32(target + (size_t)i * target_stride,
                  vcombine_f32(vget_low_f32(low.val[i]), vget_low_f32(high.val[i])));
        vst1q_f32(target + (size_t)(i + 2) * target_stride,
                  vcombine_f32(vget_high_f32(low.val[i]), vget_high_f32(high.val[i])));
    }
}

#include "kernels/attention_loops.h"

const mz_attention_kernels mz_attention_neon = MZ_ATTENTION_TABLE;

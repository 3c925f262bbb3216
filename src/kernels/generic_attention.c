/* SPDX-License-Identifier: MIT */
/* The loops of attention in plain C: four floats are what every processor's registers have. */
#include "kernels/f16.h"

#define LANES 4
#define ROWS 2
#define VECTORS 4

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int32_t vector_bits __attribute__((vector_size(4 * LANES)));

/* Infinity too, which masks are made of. */
static inline float float_from_half(uint16_t half)
{
    if ((half & MZ_F16_MAGNITUDE) >= MZ_F16_INFINITY) {
        return mz_f32_from_bits(((uint32_t)(half & MZ_F16_SIGN) << 16) | 0x7f800000u |
                                (half & 0x3ffu) << 13);
    }
    return mz_f32_from_f16(half);
}

static inline vector vector_from_halves(const uint16_t *p)
{
    return (vector){float_from_half(p[0]), float_from_half(p[1]), float_from_half(p[2]),
                    float_from_half(p[3])};
}

static inline vector vector_from_bytes(const int8_t *p)
{
    return (vector){p[0], p[1], p[2], p[3]};
}

static inline float vector_sum(vector v)
{
    return (v[0] + v[1]) + (v[2] + v[3]);
}

static inline void transpose_block(const float *source, size_t source_stride, float *target,
                                   size_t target_stride)
{
    for (size_t i = 0; i < LANES; i++) {
        for (size_t k = 0; k < LANES; k++) {
            target[k * target_stride + i] = source[i * source_stride + k];
        }
    }
}

#include "kernels/attention_loops.h"

const mz_attention_kernels mz_attention_generic = MZ_ATTENTION_TABLE;

/* SPDX-License-Identifier: MIT */
/* The loops of attention for AVX-512: 24 sums of 16 floats leave 8 registers for the rest. */
#include <immintrin.h>
#include <stdint.h>

#define LANES 16
#define ROWS 6
#define VECTORS 4

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int32_t vector_bits __attribute__((vector_size(4 * LANES)));

static inline vector vector_from_halves(const uint16_t *p)
{
    return (vector)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline vector vector_from_bytes(const int8_t *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vector)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

static inline float vector_sum(vector v)
{
    return _mm512_reduce_add_ps((__m512)v);
}

/* Pairs of rows, pairs of pairs, then quarters of registers change places. */
static inline void transpose_block(const float *source, size_t source_stride, float *target,
                                   size_t target_stride)
{
    __m512 a[16], b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        a[i] = _mm512_loadu_ps(source + (size_t)i * source_stride);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    /* a[4 * g + c] has column c + 4 * q of rows 4 * g ... in quarter q. */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512 low = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88);
        __m512 high = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88);
        __m512 low_odd = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xdd);
        __m512 high_odd = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xdd);
        _mm512_storeu_ps(target + (size_t)c * target_stride,
                         _mm512_shuffle_f32x4(low, high, 0x88));
        _mm512_storeu_ps(target + (size_t)(c + 8) * target_stride,
                         _mm512_shuffle_f32x4(low, high, 0xdd));
        _mm512_storeu_ps(target + (size_t)(c + 4) * target_stride,
                         _mm512_shuffle_f32x4(low_odd, high_odd, 0x88));
        _mm512_storeu_ps(target + (size_t)(c + 12) * target_stride,
                         _mm512_shuffle_f32x4(low_odd, high_odd, 0xdd));
    }
}

#include "kernels/attention_loops.h"

const mz_attention_kernels mz_attention_avx512 = MZ_ATTENTION_TABLE;

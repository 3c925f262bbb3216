/* SPDX-License-Identifier: MIT */
/* The loops of attention for AVX2 with FMA: 12 sums of 8 floats leave 4 registers for the rest. */
#include <immintrin.h>
#include <stdint.h>

#define LANES 8
#define ROWS 6
#define VECTORS 2

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int32_t vector_bits __attribute__((vector_size(4 * LANES)));

static inline vector vector_from_halves(const uint16_t *p)
{
    return (vector)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline vector vector_from_bytes(const int8_t *p)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return (vector)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

static inline float vector_sum(vector v)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}

/* Pairs of rows, pairs of pairs, then halves of registers change places. */
static inline void transpose_block(const float *source, size_t source_stride, float *target,
                                   size_t target_stride)
{
    __m256 a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        a[i] = _mm256_loadu_ps(source + (size_t)i * source_stride);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        _mm256_storeu_ps(target + (size_t)c * target_stride,
                         _mm256_permute2f128_ps(a[c], a[4 + c], 0x20));
        _mm256_storeu_ps(target + (size_t)(c + 4) * target_stride,
                         _mm256_permute2f128_ps(a[c], a[4 + c], 0x31));
    }
}

#include "kernels/attention_loops.h"

const mz_attention_kernels mz_attention_avx2 = MZ_ATTENTION_TABLE;

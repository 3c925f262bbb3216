/* SPDX-License-Identifier: MIT */
/*
 * The 4-bit kernels for AVX-512 (F, BW, VL): a token of a strip is one 64-byte register of f16, its
 * channels' ranges stay in registers while the tokens pass.
 */
#include "kernels/q4.h"

#include <immintrin.h>

#define LANES 16

static inline __m512 load_f32(const uint16_t *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

static inline void store_f16(uint8_t *at, __m512 value)
{
    _mm256_storeu_si256((__m256i *)(void *)at,
                        _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* lo and hi of 16 channels; false if a value is not finite or a channel is narrow. */
static inline bool find_ranges(const uint16_t *source, size_t stride, size_t tokens, __m512 *lo,
                               __m512 *inverse, uint8_t *strip)
{
    const __m512 zero = _mm512_setzero_ps();
    __m512 least = load_f32(source), largest = least;
    __m512 not_finite = _mm512_mul_ps(least, zero); /* NaN from then on */
    for (size_t token = 1; token < tokens; token++) {
        __m512 value = load_f32(source + token * stride);
        least = _mm512_min_ps(least, value);
        largest = _mm512_max_ps(largest, value);
        not_finite = _mm512_add_ps(not_finite, _mm512_mul_ps(value, zero));
    }
    least = _mm512_add_ps(least, zero);
    largest = _mm512_add_ps(largest, zero);
    __m512 width = _mm512_sub_ps(largest, least);
    __m512 magnitude = _mm512_max_ps(_mm512_sub_ps(zero, least), largest);
    __mmask16 some = _mm512_cmp_ps_mask(width, zero, _CMP_GT_OQ);
    __mmask16 narrow = _mm512_cmp_ps_mask(_mm512_mul_ps(width, _mm512_set1_ps(MZ_Q4_NARROW_SHARE)),
                                          magnitude, _CMP_LT_OQ) |
                       _mm512_cmp_ps_mask(width, _mm512_set1_ps(MZ_Q4_NARROW_LEAST), _CMP_LT_OQ);
    if ((some & narrow) != 0 || _mm512_cmp_ps_mask(not_finite, not_finite, _CMP_UNORD_Q) != 0) {
        return false;
    }
    *lo = least;
    *inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(MZ_Q4_TOP), width);
    store_f16(strip, least);
    store_f16(strip + MZ_Q4_RANGES / 2, largest);
    return true;
}

static inline __m128i quantize(const uint16_t *source, __m512 lo, __m512 inverse)
{
    __m512 scaled = _mm512_mul_ps(_mm512_sub_ps(load_f32(source), lo), inverse);
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(scaled));
}

bool mz_q4_encode_avx512(const uint16_t *source, size_t stride, size_t tokens, uint8_t *strip)
{
    __m512 lo[2], inverse[2];
    for (size_t i = 0; i < 2; i++) {
        if (!find_ranges(source + i * LANES, stride, tokens, &lo[i], &inverse[i],
                         strip + i * LANES * 2)) {
            return mz_q4_encode(source, stride, tokens, strip);
        }
    }
    for (size_t token = 0; token < tokens; token++) {
        const uint16_t *from = source + token * stride;
        __m128i low = quantize(from, lo[0], inverse[0]);
        __m128i high = quantize(from + LANES, lo[1], inverse[1]);
        __m128i bytes = _mm_or_si128(low, _mm_slli_epi16(high, 4));
        _mm_storeu_si128((__m128i *)(void *)(strip + MZ_Q4_RANGES + token * MZ_Q4_ROW), bytes);
    }
    return true;
}

static inline __m256i levels(__m128i q, __m512 lo, __m512 step)
{
    __m512 value =
        _mm512_add_ps(lo, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(q)), step));
    return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

void mz_q4_decode_avx512(const uint8_t *strip, size_t tokens, uint16_t *target, size_t stride)
{
    const __m128i half = _mm_set1_epi8(MZ_Q4_TOP);
    const uint8_t *kept = strip + MZ_Q4_RANGES / 2;
    __m512 lo[2], step[2];
    for (size_t i = 0; i < 2; i++) {
        lo[i] = load_f32((const uint16_t *)(const void *)(strip + i * LANES * 2));
        __m512 top = load_f32((const uint16_t *)(const void *)(kept + i * LANES * 2));
        step[i] = _mm512_div_ps(_mm512_sub_ps(top, lo[i]), _mm512_set1_ps(MZ_Q4_TOP));
    }
    __m512i hi = _mm512_loadu_si512(kept);
    for (size_t token = 0; token < tokens; token++) {
        const void *at = strip + MZ_Q4_RANGES + token * MZ_Q4_ROW;
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i low = _mm_and_si128(bytes, half);
        __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), half);
        __m512i halves = _mm512_inserti64x4(_mm512_castsi256_si512(levels(low, lo[0], step[0])),
                                            levels(high, lo[1], step[1]), 1);
        __mmask32 top =
            _mm256_cmpeq_epi8_mask(_mm256_set_m128i(high, low), _mm256_set1_epi8(MZ_Q4_TOP));
        _mm512_storeu_si512(target + token * stride, _mm512_mask_mov_epi16(halves, top, hi));
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * The 4-bit kernels for AVX2 + F16C: four registers of eight channels, whose ranges stay in
 * registers while the tokens of the strip pass.
 */
#include "kernels/q4.h"

#include <immintrin.h>

#define LANES 8
#define PARTS (MZ_Q4_CHANNELS / LANES)
#define ROUND (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

static inline __m256 load_f32(const void *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
}

static inline void store_f16(uint8_t *at, __m256 value)
{
    _mm_storeu_si128((__m128i *)(void *)at, _mm256_cvtps_ph(value, ROUND));
}

/* lo and hi of 8 channels; false if a value is not finite or a channel is narrow. */
static inline bool find_ranges(const uint16_t *source, size_t stride, size_t tokens, __m256 *lo,
                               __m256 *inverse, uint8_t *strip)
{
    const __m256 zero = _mm256_setzero_ps();
    __m256 least = load_f32(source), largest = least;
    __m256 not_finite = _mm256_mul_ps(least, zero); /* NaN from then on */
    for (size_t token = 1; token < tokens; token++) {
        __m256 value = load_f32(source + token * stride);
        least = _mm256_min_ps(least, value);
        largest = _mm256_max_ps(largest, value);
        not_finite = _mm256_add_ps(not_finite, _mm256_mul_ps(value, zero));
    }
    least = _mm256_add_ps(least, zero);
    largest = _mm256_add_ps(largest, zero);
    __m256 width = _mm256_sub_ps(largest, least);
    __m256 magnitude = _mm256_max_ps(_mm256_sub_ps(zero, least), largest);
    __m256 some = _mm256_cmp_ps(width, zero, _CMP_GT_OQ);
    __m256 share = _mm256_mul_ps(width, _mm256_set1_ps(MZ_Q4_NARROW_SHARE));
    __m256 narrow =
        _mm256_or_ps(_mm256_cmp_ps(share, magnitude, _CMP_LT_OQ),
                     _mm256_cmp_ps(width, _mm256_set1_ps(MZ_Q4_NARROW_LEAST), _CMP_LT_OQ));
    __m256 refused = _mm256_or_ps(_mm256_and_ps(some, narrow),
                                  _mm256_cmp_ps(not_finite, not_finite, _CMP_UNORD_Q));
    if (_mm256_movemask_ps(refused) != 0) {
        return false;
    }
    *lo = least;
    *inverse = _mm256_and_ps(some, _mm256_div_ps(_mm256_set1_ps(MZ_Q4_TOP), width));
    store_f16(strip, least);
    store_f16(strip + MZ_Q4_RANGES / 2, largest);
    return true;
}

static inline __m256i quantize(const uint16_t *source, __m256 lo, __m256 inverse)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_sub_ps(load_f32(source), lo), inverse));
}

/* Sixteen q as bytes, in order. */
static inline __m128i quantize_half(const uint16_t *source, const __m256 *lo, const __m256 *inverse)
{
    __m256i words = _mm256_packs_epi32(quantize(source, lo[0], inverse[0]),
                                       quantize(source + LANES, lo[1], inverse[1]));
    /* Packing works within 128-bit halves: words 0-3 8-11 4-7 12-15. */
    words = _mm256_permute4x64_epi64(words, 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

bool mz_q4_encode_avx2(const uint16_t *source, size_t stride, size_t tokens, uint8_t *strip)
{
    __m256 lo[PARTS], inverse[PARTS];
    for (size_t i = 0; i < PARTS; i++) {
        if (!find_ranges(source + i * LANES, stride, tokens, &lo[i], &inverse[i],
                         strip + i * LANES * 2)) {
            return mz_q4_encode(source, stride, tokens, strip);
        }
    }
    for (size_t token = 0; token < tokens; token++) {
        const uint16_t *from = source + token * stride;
        __m128i low = quantize_half(from, lo, inverse);
        __m128i high = quantize_half(from + 2 * LANES, lo + 2, inverse + 2);
        __m128i bytes = _mm_or_si128(low, _mm_slli_epi16(high, 4));
        _mm_storeu_si128((__m128i *)(void *)(strip + MZ_Q4_RANGES + token * MZ_Q4_ROW), bytes);
    }
    return true;
}

static inline __m128i levels(__m128i q, __m256 lo, __m256 step)
{
    __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(q)), step);
    return _mm256_cvtps_ph(_mm256_add_ps(lo, value), ROUND);
}

/* Sixteen channels of a token; hi where q is the largest. */
static inline void decode_half(__m128i q, const __m256 *lo, const __m256 *step, __m256i hi,
                               uint16_t *target)
{
    __m256i halves = _mm256_set_m128i(levels(_mm_srli_si128(q, LANES), lo[1], step[1]),
                                      levels(q, lo[0], step[0]));
    __m256i top = _mm256_cmpeq_epi16(_mm256_cvtepu8_epi16(q), _mm256_set1_epi16(MZ_Q4_TOP));
    _mm256_storeu_si256((__m256i *)(void *)target, _mm256_blendv_epi8(halves, hi, top));
}

void mz_q4_decode_avx2(const uint8_t *strip, size_t tokens, uint16_t *target, size_t stride)
{
    const __m128i half = _mm_set1_epi8(MZ_Q4_TOP);
    const uint8_t *kept = strip + MZ_Q4_RANGES / 2;
    __m256 lo[PARTS], step[PARTS];
    for (size_t i = 0; i < PARTS; i++) {
        lo[i] = load_f32(strip + i * LANES * 2);
        step[i] = _mm256_div_ps(_mm256_sub_ps(load_f32(kept + i * LANES * 2), lo[i]),
                                _mm256_set1_ps(MZ_Q4_TOP));
    }
    __m256i hi_low = _mm256_loadu_si256((const __m256i *)(const void *)kept);
    __m256i hi_high = _mm256_loadu_si256((const __m256i *)(const void *)(kept + 32));
    for (size_t token = 0; token < tokens; token++) {
        const void *at = strip + MZ_Q4_RANGES + token * MZ_Q4_ROW;
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        uint16_t *to = target + token * stride;
        decode_half(_mm_and_si128(bytes, half), lo, step, hi_low, to);
        decode_half(_mm_and_si128(_mm_srli_epi16(bytes, 4), half), lo + 2, step + 2, hi_high,
                    to + 2 * LANES);
    }
}

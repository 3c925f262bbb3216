/* SPDX-License-Identifier: MIT */
/*
 * The kernels for AVX-512 (F, BW, VL): those of avx2/q8.c with sixteen values at a time.
 *
 * A group of 32 f16 is one 64-byte register, so decoding writes whole cache lines, which is what
 * stores past the caches need most. q8_blocks.h explains the passes of
 * encoding.
 */
#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "kernels/q4.h"
#include "kernels/q8_blocks.h"

#include <immintrin.h>
#include <string.h>

/* Targets from this size on are stored past the caches: about a core's second-level cache. */
#define STREAM_BYTES (256u << 10)

static inline uint16_t max_of_group(const uint16_t *source)
{
    __m512i all = _mm512_and_si512(_mm512_loadu_si512(source), _mm512_set1_epi16(0x7fff));
    __m256i max = _mm256_max_epi16(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    __m128i half = _mm_max_epi16(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    half = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
    return (uint16_t)~_mm_cvtsi128_si32(half);
}

static inline __m512 scales_from_codes(__m512i code)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(code, MZ_Q8_SCALE_SHIFT),
                                                _mm512_set1_epi32(MZ_Q8_SCALE_BASE)));
}

static inline __m512i add_if_exceeded(__m512i code, __m512i fraction, int limit)
{
    __mmask16 exceeded = _mm512_cmpgt_epi32_mask(fraction, _mm512_set1_epi32(limit));
    return _mm512_mask_add_epi32(code, exceeded, code, _mm512_set1_epi32(1));
}

/* Sixteen codes from sixteen maxima (f16), and 1 / scale. */
static inline void derive_scales(const uint16_t *maxima, uint8_t *codes, float *inverses)
{
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)maxima);
    __m512i bits = _mm512_castps_si512(_mm512_cvtph_ps(halves));
    __m512i fraction = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffff));
    __m512i code = _mm512_slli_epi32(_mm512_srli_epi32(bits, 23), 2);
    code = _mm512_sub_epi32(code, _mm512_set1_epi32(MZ_Q8_CODE_BIAS));
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_1);
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_2);
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_3);
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_4);
    code = _mm512_max_epi32(code, _mm512_setzero_si512());
    _mm512_storeu_ps(inverses, _mm512_div_ps(_mm512_set1_ps(1.0f), scales_from_codes(code)));
    _mm_storeu_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8(code));
}

static inline __m128i quantize(const uint16_t *source, __m512 inverse)
{
    __m512 value = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)source));
    return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(value, inverse)));
}

static inline void quantize_group(const uint16_t *source, float inverse, int8_t *q)
{
    const __m256i limit = _mm256_set1_epi8(MZ_Q8_LIMIT);
    __m512 factor = _mm512_set1_ps(inverse);
    __m256i bytes = _mm256_set_m128i(quantize(source + 16, factor), quantize(source, factor));
    bytes = _mm256_min_epi8(bytes, limit);
    bytes = _mm256_max_epi8(bytes, _mm256_sub_epi8(_mm256_setzero_si256(), limit));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
}

static bool q8_encode(const uint16_t *source, size_t groups, uint8_t *codes, int8_t *q)
{
    const mz_q8_steps steps = {16, max_of_group, derive_scales, quantize_group};
    return mz_q8_encode_blocks(steps, source, groups, codes, q);
}

static inline __m256i dequantize(const int8_t *q, __m512 scale)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)q);
    __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), scale);
    return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline __m512i dequantize_group(const int8_t *q, float scale)
{
    __m512 factor = _mm512_set1_ps(scale);
    return _mm512_inserti64x4(_mm512_castsi256_si512(dequantize(q, factor)),
                              dequantize(q + 16, factor), 1);
}

static void q8_decode(const uint8_t *codes, const int8_t *q, size_t groups, uint16_t *target)
{
    uint8_t block_codes[MZ_Q8_BLOCK] = {0};
    float scales[MZ_Q8_BLOCK];
    bool stream = (uintptr_t)target % 64 == 0 && groups >= STREAM_BYTES / (MZ_Q8_GROUP * 2);
    while (groups > 0) {
        size_t count = groups < MZ_Q8_BLOCK ? groups : MZ_Q8_BLOCK;
        memcpy(block_codes, codes, count);
        for (size_t i = 0; i < count; i += 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(block_codes + i));
            _mm512_storeu_ps(scales + i, scales_from_codes(_mm512_cvtepu8_epi32(bytes)));
        }
        for (size_t i = 0; i < count; i++) {
            __m512i halves = dequantize_group(q + i * MZ_Q8_GROUP, scales[i]);
            uint16_t *at = target + i * MZ_Q8_GROUP;
            if (stream) {
                _mm512_stream_si512((__m512i *)(void *)at, halves);
            } else {
                _mm512_storeu_si512(at, halves);
            }
        }
        groups -= count;
        codes += count;
        q += count * MZ_Q8_GROUP;
        target += count * MZ_Q8_GROUP;
    }
    if (stream) {
        _mm_sfence(); /* streamed lines are ordered before whatever says that they are there */
    }
}

static bool is_zero(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (; bytes >= 128; bytes -= 128, at += 128) {
        __m512i any = _mm512_or_si512(_mm512_loadu_si512(at), _mm512_loadu_si512(at + 64));
        if (_mm512_test_epi64_mask(any, any) != 0) {
            return false;
        }
    }
    uint8_t any = 0;
    for (size_t i = 0; i < bytes; i++) {
        any |= at[i];
    }
    return any == 0;
}

const mz_kernels mz_kernels_avx512 = {
    .name = "avx512",
    .q8_encode = q8_encode,
    .q8_decode = q8_decode,
    .q4_encode = mz_q4_encode_avx512,
    .q4_decode = mz_q4_decode_avx512,
    .is_zero = is_zero,
    .split2 = mz_planes_split2_avx512,
    .merge2 = mz_planes_merge2_avx512,
    .attention = &mz_attention_avx512,
    .cg = &mz_cg_avx512,
};

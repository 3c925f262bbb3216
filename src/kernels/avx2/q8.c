/* SPDX-License-Identifier: MIT */
/*
 * The kernels for AVX2 + F16C.
 *
 * Encoding goes over blocks as q8_blocks.h says, eight scale codes at a time.
 *
 * Decoding stores past the caches if the target is aligned and large: what is decoded is read by
 * inference much later, and a plain store would first fetch every line it overwrites.
 */
#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "kernels/q4.h"
#include "kernels/q8_blocks.h"

#include <immintrin.h>
#include <string.h>

/* Targets from this size on are stored past the caches: about a core's second-level cache. */
#define STREAM_BYTES (256u << 10)

/* The largest of 16 magnitudes; phminposuw finds a minimum, so of the complement. */
static inline uint16_t max_of_group(const uint16_t *source)
{
    const __m256i magnitude = _mm256_set1_epi16(0x7fff);
    __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)source);
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(source + 16));
    __m256i max = _mm256_max_epi16(_mm256_and_si256(a, magnitude), _mm256_and_si256(b, magnitude));
    __m128i half = _mm_max_epi16(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    half = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
    return (uint16_t)~_mm_cvtsi128_si32(half);
}

static inline __m256 scales_from_codes(__m256i code)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(code, MZ_Q8_SCALE_SHIFT),
                                                _mm256_set1_epi32(MZ_Q8_SCALE_BASE)));
}

static inline __m256i add_if_exceeded(__m256i code, __m256i fraction, int limit)
{
    /* A comparison that holds is -1. */
    return _mm256_sub_epi32(code, _mm256_cmpgt_epi32(fraction, _mm256_set1_epi32(limit)));
}

/* Eight codes from eight maxima (f16), and 1 / scale. */
static inline void derive_scales(const uint16_t *maxima, uint8_t *codes, float *inverses)
{
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)maxima);
    __m256i bits = _mm256_castps_si256(_mm256_cvtph_ps(halves));
    __m256i fraction = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffff));
    __m256i code = _mm256_slli_epi32(_mm256_srli_epi32(bits, 23), 2);
    code = _mm256_sub_epi32(code, _mm256_set1_epi32(MZ_Q8_CODE_BIAS));
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_1);
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_2);
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_3);
    code = add_if_exceeded(code, fraction, MZ_Q8_FRACTION_4);
    code = _mm256_max_epi32(code, _mm256_setzero_si256());
    _mm256_storeu_ps(inverses, _mm256_div_ps(_mm256_set1_ps(1.0f), scales_from_codes(code)));
    __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    _mm_storel_epi64((__m128i *)(void *)codes, _mm_packus_epi16(words, words));
}

static inline __m256i quantize(const uint16_t *source, __m256 inverse)
{
    __m256 value = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)source));
    return _mm256_cvtps_epi32(_mm256_mul_ps(value, inverse));
}

static inline void quantize_group(const uint16_t *source, float inverse, int8_t *q)
{
    const __m256i limit = _mm256_set1_epi8(MZ_Q8_LIMIT);
    __m256 factor = _mm256_set1_ps(inverse);
    __m256i low = _mm256_packs_epi32(quantize(source, factor), quantize(source + 8, factor));
    __m256i high = _mm256_packs_epi32(quantize(source + 16, factor), quantize(source + 24, factor));
    /* Packing works within 128-bit halves; this puts the eight words back in order. */
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                                _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    bytes = _mm256_min_epi8(bytes, limit);
    bytes = _mm256_max_epi8(bytes, _mm256_sub_epi8(_mm256_setzero_si256(), limit));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
}

static bool q8_encode(const uint16_t *source, size_t groups, uint8_t *codes, int8_t *q)
{
    const mz_q8_steps steps = {8, max_of_group, derive_scales, quantize_group};
    return mz_q8_encode_blocks(steps, source, groups, codes, q);
}

static inline __m128i dequantize(const int8_t *q, __m256 scale)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)q);
    __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), scale);
    return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline void dequantize_group(const int8_t *q, float scale, uint16_t *target, bool stream)
{
    __m256 factor = _mm256_set1_ps(scale);
    for (size_t i = 0; i < MZ_Q8_GROUP; i += 16) {
        __m256i halves = _mm256_set_m128i(dequantize(q + i + 8, factor), dequantize(q + i, factor));
        if (stream) {
            _mm256_stream_si256((__m256i *)(void *)(target + i), halves);
        } else {
            _mm256_storeu_si256((__m256i *)(void *)(target + i), halves);
        }
    }
}

static void q8_decode(const uint8_t *codes, const int8_t *q, size_t groups, uint16_t *target)
{
    uint8_t block_codes[MZ_Q8_BLOCK] = {0};
    float scales[MZ_Q8_BLOCK];
    bool stream = (uintptr_t)target % 32 == 0 && groups >= STREAM_BYTES / (MZ_Q8_GROUP * 2);
    while (groups > 0) {
        size_t count = groups < MZ_Q8_BLOCK ? groups : MZ_Q8_BLOCK;
        memcpy(block_codes, codes, count);
        for (size_t i = 0; i < count; i += 8) {
            __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(block_codes + i));
            _mm256_storeu_ps(scales + i, scales_from_codes(_mm256_cvtepu8_epi32(bytes)));
        }
        if (stream) {
            for (size_t i = 0; i < count; i++) {
                dequantize_group(q + i * MZ_Q8_GROUP, scales[i], target + i * MZ_Q8_GROUP, true);
            }
        } else {
            for (size_t i = 0; i < count; i++) {
                dequantize_group(q + i * MZ_Q8_GROUP, scales[i], target + i * MZ_Q8_GROUP, false);
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
        const __m256i *words = (const __m256i *)(const void *)at;
        __m256i any = _mm256_or_si256(
            _mm256_or_si256(_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)),
            _mm256_or_si256(_mm256_loadu_si256(words + 2), _mm256_loadu_si256(words + 3)));
        if (!_mm256_testz_si256(any, any)) {
            return false;
        }
    }
    uint8_t any = 0;
    for (size_t i = 0; i < bytes; i++) {
        any |= at[i];
    }
    return any == 0;
}

const mz_kernels mz_kernels_avx2 = {
    .name = "avx2",
    .q8_encode = q8_encode,
    .q8_decode = q8_decode,
    .q4_encode = mz_q4_encode_avx2,
    .q4_decode = mz_q4_decode_avx2,
    .is_zero = is_zero,
    .split2 = mz_planes_split2_avx2,
    .merge2 = mz_planes_merge2_avx2,
    .attention = &mz_attention_avx2,
    .cg = &mz_cg_avx2,
};

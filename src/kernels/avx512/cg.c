/* SPDX-License-Identifier: MIT */
/*
 * The steps of "cachegen" for AVX-512 (F, BW, VL): the loops of cg_body.h compiled for it, the
 * entropy coder and the way back to f16 by hand.
 *
 * Two registers of sixteen states run at once. Words reach and leave the lanes that need them by
 * expansion and compression, in the order of lanes.
 */
#include "kernels/cg.h"
#include "kernels/cg_body.h"

#include <immintrin.h>

#define VECTORS 2u
#define STATES 16u

static inline __m512i load(const uint32_t *at)
{
    return _mm512_loadu_si512(at);
}

static inline void load_row(const uint16_t *from, float *value)
{
    for (size_t lane = 0; lane < MZ_CG_LANES; lane += STATES) {
        __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)(from + lane));
        _mm512_storeu_ps(value + lane, _mm512_cvtph_ps(half));
    }
}

/* Decode one symbol in each of sixteen lanes; *in moves past the words taken. */
static inline __m256i step(__m512i *state, const uint32_t *slots, __m512i base, const uint8_t **in)
{
    const __m512i slot_mask = _mm512_set1_epi32(MZ_CG_SLOTS - 1);
    const __m512i freq_mask = _mm512_set1_epi32(MZ_CG_FREQ_MASK);
    __m512i index = _mm512_add_epi32(base, _mm512_and_si512(*state, slot_mask));
    __m512i entry = _mm512_i32gather_epi32(index, slots, 4);
    __m512i x = _mm512_mullo_epi32(_mm512_and_si512(entry, freq_mask),
                                   _mm512_srli_epi32(*state, MZ_CG_SLOT_BITS));
    __m512i bias = _mm512_and_si512(_mm512_srli_epi32(entry, MZ_CG_BIAS_SHIFT), slot_mask);
    x = _mm512_add_epi32(x, bias);
    __mmask16 takes = _mm512_cmplt_epu32_mask(x, _mm512_set1_epi32(MZ_CG_LOW));
    __m512i words = _mm512_maskz_expand_epi32(
        takes, _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)*in)));
    *state = _mm512_mask_or_epi32(x, takes, _mm512_slli_epi32(x, 16), words);
    *in += 2 * (size_t)__builtin_popcount(takes);
    return _mm512_cvtepi32_epi16(_mm512_srai_epi32(entry, MZ_CG_SYMBOL_SHIFT));
}

static size_t unpack(const uint8_t **at, const uint8_t *end, size_t rows, const uint32_t *slots,
                     const uint32_t *base, uint32_t *state, int16_t *residual)
{
    __m512i x[VECTORS] = {load(state), load(state + STATES)};
    const __m512i from[VECTORS] = {load(base), load(base + STATES)};
    const uint8_t *in = *at;
    size_t row = 0;
    for (; row < rows && (size_t)(end - in) >= MZ_CG_ROW_ROOM; row++) {
        int16_t *to = residual + row * MZ_CG_LANES;
        for (size_t i = 0; i < VECTORS; i++) {
            __m256i symbol = step(&x[i], slots, from[i], &in);
            _mm256_storeu_si256((__m256i *)(void *)(to + i * STATES), symbol);
        }
    }
    _mm512_storeu_si512(state, x[0]);
    _mm512_storeu_si512(state + STATES, x[1]);
    *at = in;
    return row;
}

/* x / freq for x < freq * 2^22: exact, see below. */
static inline __m512i divide(__m512i x, __m512i freq)
{
    /*
     * By doubles: x * (1 / freq), both roundings together off by less than 2^-51 of a quotient
     * below 2^22, so by less than 2^-29, plus 2^-20: too large, but by less than the 2^-10 that a
     * quotient which is no integer is at least below the next one.
     */
    const __m512d above = _mm512_set1_pd(0x1p-20), one = _mm512_set1_pd(1.0);
    __m256i quotient[2];
    for (int i = 0; i < 2; i++) {
        __m256i part = i == 0 ? _mm512_castsi512_si256(x) : _mm512_extracti64x4_epi64(x, 1);
        __m256i by = i == 0 ? _mm512_castsi512_si256(freq) : _mm512_extracti64x4_epi64(freq, 1);
        __m512d inverse = _mm512_div_pd(one, _mm512_cvtepu32_pd(by));
        __m512d exact = _mm512_add_pd(_mm512_mul_pd(_mm512_cvtepu32_pd(part), inverse), above);
        quotient[i] = _mm512_cvttpd_epu32(exact);
    }
    return _mm512_inserti64x4(_mm512_castsi256_si512(quotient[0]), quotient[1], 1);
}

/* Encode one symbol in each of sixteen lanes; words go below *out. */
static inline void unstep(__m512i *state, const uint32_t *symbols, __m512i base,
                          const int16_t *residual, uint8_t **out)
{
    __m256i symbol = _mm256_loadu_si256((const __m256i *)(const void *)residual);
    __m512i index = _mm512_add_epi32(_mm512_cvtepi16_epi32(symbol), base);
    __m512i entry = _mm512_i32gather_epi32(index, symbols, 4);
    __m512i freq = _mm512_and_si512(entry, _mm512_set1_epi32(0xffff));
    __m512i start = _mm512_srli_epi32(entry, MZ_CG_START_SHIFT);
    __mmask16 gives =
        _mm512_cmpge_epu32_mask(_mm512_srli_epi32(*state, 32 - MZ_CG_SLOT_BITS), freq);
    __m256i words = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(gives, *state));
    unsigned count = (unsigned)__builtin_popcount(gives);
    *out -= 2 * count;
    _mm256_mask_storeu_epi16(*out, (__mmask16)((1u << count) - 1), words);
    __m512i x = _mm512_mask_srli_epi32(*state, gives, *state, 16);
    __m512i quotient = divide(x, freq);
    __m512i rest = _mm512_sub_epi32(x, _mm512_mullo_epi32(quotient, freq));
    x = _mm512_add_epi32(_mm512_slli_epi32(quotient, MZ_CG_SLOT_BITS), rest);
    *state = _mm512_add_epi32(x, start);
}

static void pack(const int16_t *residual, size_t rows, const uint32_t *symbols,
                 const uint32_t *base, uint32_t *state, uint8_t **end)
{
    const __m512i middle = _mm512_set1_epi32(MZ_CG_SYMBOLS / 2);
    __m512i x[VECTORS] = {load(state), load(state + STATES)};
    const __m512i from[VECTORS] = {_mm512_add_epi32(load(base), middle),
                                   _mm512_add_epi32(load(base + STATES), middle)};
    uint8_t *out = *end;
    for (size_t row = rows; row-- > 0;) {
        for (size_t i = VECTORS; i-- > 0;) {
            unstep(&x[i], symbols, from[i], residual + row * MZ_CG_LANES + i * STATES, &out);
        }
    }
    _mm512_storeu_si512(state, x[0]);
    _mm512_storeu_si512(state + STATES, x[1]);
    *end = out;
}

static inline __m256i halves(__m256i q, __m512 scale)
{
    __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(q)), scale);
    return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static bool restore(const int16_t *residual, size_t rows, const int16_t *center,
                    const int16_t *slope, float scale, int16_t limit, uint16_t *target,
                    size_t stride)
{
    /* (y * slope * 4096 + 2^14) >> 15 is (y * slope + 4) >> 3. */
    const __m512i share = _mm512_slli_epi16(_mm512_loadu_si512(slope), 12);
    const __m512i middle = _mm512_loadu_si512(center);
    const __m512 factor = _mm512_set1_ps(scale);
    __m512i y = _mm512_setzero_si512(), largest = y;
    for (size_t row = 0; row < rows; row++) {
        y = _mm512_add_epi16(_mm512_mulhrs_epi16(y, share),
                             _mm512_loadu_si512(residual + row * MZ_CG_LANES));
        __m512i q = _mm512_add_epi16(y, middle);
        largest = _mm512_max_epu16(largest, _mm512_abs_epi16(q));
        __m256i low = halves(_mm512_castsi512_si256(q), factor);
        __m256i high = halves(_mm512_extracti64x4_epi64(q, 1), factor);
        _mm512_storeu_si512(target + row * stride,
                            _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
    }
    return _mm512_cmpgt_epu16_mask(largest, _mm512_set1_epi16(limit)) == 0;
}

const mz_cg_kernels mz_cg_avx512 = {
    .measure = body_measure,
    .on_grid = body_on_grid,
    .quantize = body_quantize,
    .sum = body_sum,
    .correlate = body_correlate,
    .predict = body_predict,
    .pack = pack,
    .unpack = unpack,
    .restore = restore,
};

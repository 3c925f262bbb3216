/* SPDX-License-Identifier: MIT */
/*
 * The steps of "cachegen" for AVX2: the loops of cg_body.h compiled for it, decoding by hand.
 *
 * Four registers of eight states run at once. Their slots are gathered; the lanes that need a word
 * get the next ones in the order of lanes by a permutation, which is the number of such lanes
 * before each, worked out for all eight at once in the bytes of a 64-bit integer. A table of all
 * 256 permutations would take 2 KB of the first-level cache that the slots need.
 */
#include "kernels/cg.h"
#include "kernels/cg_body.h"

#include <immintrin.h>

#define VECTORS 4u
#define STATES 8u

static inline void load_row(const uint16_t *from, float *value)
{
    for (size_t lane = 0; lane < MZ_CG_LANES; lane += STATES) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(from + lane));
        _mm256_storeu_ps(value + lane, _mm256_cvtph_ps(half));
    }
}

/* Decode one symbol in each of eight lanes; *in moves past the words taken. */
static inline __m256i step(__m256i *state, const uint32_t *slots, __m256i base, const uint8_t **in)
{
    const __m256i slot_mask = _mm256_set1_epi32(MZ_CG_SLOTS - 1);
    const __m256i freq_mask = _mm256_set1_epi32(MZ_CG_FREQ_MASK);
    const uint64_t ones = 0x0101010101010101u;
    __m256i index = _mm256_add_epi32(base, _mm256_and_si256(*state, slot_mask));
    __m256i entry = _mm256_i32gather_epi32((const int *)(const void *)slots, index, 4);
    __m256i x = _mm256_mullo_epi32(_mm256_and_si256(entry, freq_mask),
                                   _mm256_srli_epi32(*state, MZ_CG_SLOT_BITS));
    __m256i bias = _mm256_and_si256(_mm256_srli_epi32(entry, MZ_CG_BIAS_SHIFT), slot_mask);
    x = _mm256_add_epi32(x, bias);
    __m256i takes = _mm256_cmpeq_epi32(_mm256_srli_epi32(x, 16), _mm256_setzero_si256());
    uint64_t mask = (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(takes));
    /* Byte i: 1 if lane i takes a word; then how many lanes before i do. */
    uint64_t each = (mask * ones & 0x8040201008040201u) + 0x7f7f7f7f7f7f7f7fu;
    each = each >> 7 & ones;
    uint64_t before = each * (ones << 8);
    __m256i order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)before));
    __m128i next = _mm_loadu_si128((const __m128i *)(const void *)*in);
    __m256i words = _mm256_permutevar8x32_epi32(_mm256_cvtepu16_epi32(next), order);
    __m256i refilled = _mm256_or_si256(_mm256_slli_epi32(x, 16), words);
    *state = _mm256_blendv_epi8(x, refilled, takes);
    *in += 2 * (each * ones >> 56);
    return _mm256_srai_epi32(entry, MZ_CG_SYMBOL_SHIFT);
}

static size_t unpack(const uint8_t **at, const uint8_t *end, size_t rows, const uint32_t *slots,
                     const uint32_t *base, uint32_t *state, int16_t *residual)
{
    __m256i x[VECTORS], from[VECTORS];
    for (size_t i = 0; i < VECTORS; i++) {
        x[i] = _mm256_loadu_si256((const __m256i *)(const void *)(state + i * STATES));
        from[i] = _mm256_loadu_si256((const __m256i *)(const void *)(base + i * STATES));
    }
    const uint8_t *in = *at;
    size_t row = 0;
    for (; row < rows && (size_t)(end - in) >= MZ_CG_ROW_ROOM; row++) {
        __m256i symbol[VECTORS];
        for (size_t i = 0; i < VECTORS; i++) {
            symbol[i] = step(&x[i], slots, from[i], &in);
        }
        /* Packing works within halves: put the quarters in order again. */
        int16_t *to = residual + row * MZ_CG_LANES;
        __m256i low = _mm256_permute4x64_epi64(_mm256_packs_epi32(symbol[0], symbol[1]), 0xd8);
        __m256i high = _mm256_permute4x64_epi64(_mm256_packs_epi32(symbol[2], symbol[3]), 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)to, low);
        _mm256_storeu_si256((__m256i *)(void *)(to + 2 * STATES), high);
    }
    for (size_t i = 0; i < VECTORS; i++) {
        _mm256_storeu_si256((__m256i *)(void *)(state + i * STATES), x[i]);
    }
    *at = in;
    return row;
}

static inline __m128i halves(__m128i q, __m256 scale)
{
    __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(q)), scale);
    return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* One half of the lanes; the largest |q| of each goes into *largest. */
static void restore_half(const int16_t *residual, size_t rows, const int16_t *center,
                         const int16_t *slope, float scale, __m256i *largest, uint16_t *target,
                         size_t stride)
{
    /* (y * slope * 4096 + 2^14) >> 15 is (y * slope + 4) >> 3. */
    __m256i share = _mm256_loadu_si256((const __m256i *)(const void *)slope);
    share = _mm256_slli_epi16(share, 12);
    const __m256i middle = _mm256_loadu_si256((const __m256i *)(const void *)center);
    const __m256 factor = _mm256_set1_ps(scale);
    __m256i y = _mm256_setzero_si256();
    for (size_t row = 0; row < rows; row++) {
        const int16_t *from = residual + row * MZ_CG_LANES;
        y = _mm256_add_epi16(_mm256_mulhrs_epi16(y, share),
                             _mm256_loadu_si256((const __m256i *)(const void *)from));
        __m256i q = _mm256_add_epi16(y, middle);
        *largest = _mm256_max_epu16(*largest, _mm256_abs_epi16(q));
        uint16_t *to = target + row * stride;
        _mm_storeu_si128((__m128i *)(void *)to, halves(_mm256_castsi256_si128(q), factor));
        _mm_storeu_si128((__m128i *)(void *)(to + STATES),
                         halves(_mm256_extracti128_si256(q, 1), factor));
    }
}

static bool restore(const int16_t *residual, size_t rows, const int16_t *center,
                    const int16_t *slope, float scale, int16_t limit, uint16_t *target,
                    size_t stride)
{
    __m256i largest = _mm256_setzero_si256();
    for (size_t half = 0; half < MZ_CG_LANES; half += MZ_CG_LANES / 2) {
        restore_half(residual + half, rows, center + half, slope + half, scale, &largest,
                     target + half, stride);
    }
    const __m256i most = _mm256_set1_epi16(limit);
    __m256i fits = _mm256_cmpeq_epi16(_mm256_max_epu16(largest, most), most);
    return _mm256_movemask_epi8(fits) == -1;
}

const mz_cg_kernels mz_cg_avx2 = {
    .measure = body_measure,
    .on_grid = body_on_grid,
    .quantize = body_quantize,
    .sum = body_sum,
    .correlate = body_correlate,
    .predict = body_predict,
    .pack = mz_cg_pack,
    .unpack = unpack,
    .restore = restore,
};

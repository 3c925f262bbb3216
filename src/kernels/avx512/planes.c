/* SPDX-License-Identifier: MIT */
/*
 * Byte planes with AVX-512 (BW), 32 pairs at a time: a register of pairs becomes half a register
 * of each plane by narrowing words to bytes, and comes back by widening. No permutation is needed,
 * and both ways are bound by loads and stores.
 */
#include "kernels/planes.h"

#include <immintrin.h>

#define PAIRS 32

void mz_planes_split2_avx512(const uint8_t *source, size_t pairs, uint8_t *even, uint8_t *odd)
{
    size_t i = 0;
    for (; i + PAIRS <= pairs; i += PAIRS) {
        __m512i both = _mm512_loadu_si512(source + 2 * i);
        __m256i low = _mm512_cvtepi16_epi8(both);
        __m256i high = _mm512_cvtepi16_epi8(_mm512_srli_epi16(both, 8));
        _mm256_storeu_si256((__m256i *)(void *)(even + i), low);
        _mm256_storeu_si256((__m256i *)(void *)(odd + i), high);
    }
    mz_planes_split2(source + 2 * i, pairs - i, even + i, odd + i);
}

void mz_planes_merge2_avx512(const uint8_t *even, const uint8_t *odd, size_t pairs, uint8_t *target)
{
    size_t i = 0;
    for (; i + PAIRS <= pairs; i += PAIRS) {
        __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)(even + i));
        __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(odd + i));
        __m512i both = _mm512_or_si512(_mm512_cvtepu8_epi16(low),
                                       _mm512_slli_epi16(_mm512_cvtepu8_epi16(high), 8));
        _mm512_storeu_si512(target + 2 * i, both);
    }
    mz_planes_merge2(even + i, odd + i, pairs - i, target + 2 * i);
}

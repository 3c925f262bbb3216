/* SPDX-License-Identifier: MIT */
/*
 * Byte planes with AVX2, 32 pairs at a time.
 *
 * Packing and unpacking work within 128-bit halves; one permutation puts the quarters in order
 * again. Plain stores: the planes are compressed at once, and what is merged is small enough to
 * stay in the cache until the next block overwrites the source.
 */
#include "kernels/planes.h"

#include <immintrin.h>

#define PAIRS 32

static inline __m256i load(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

static inline void store(uint8_t *at, __m256i value)
{
    _mm256_storeu_si256((__m256i *)(void *)at, value);
}

/* Order of the quarters that packing two registers leaves: 0 2 1 3. */
static inline __m256i pack(__m256i first, __m256i second)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(first, second), 0xd8);
}

void mz_planes_split2_avx2(const uint8_t *source, size_t pairs, uint8_t *even, uint8_t *odd)
{
    const __m256i low = _mm256_set1_epi16(0xff);
    size_t i = 0;
    for (; i + PAIRS <= pairs; i += PAIRS) {
        __m256i a = load(source + 2 * i);
        __m256i b = load(source + 2 * i + 32);
        store(even + i, pack(_mm256_and_si256(a, low), _mm256_and_si256(b, low)));
        store(odd + i, pack(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8)));
    }
    mz_planes_split2(source + 2 * i, pairs - i, even + i, odd + i);
}

void mz_planes_merge2_avx2(const uint8_t *even, const uint8_t *odd, size_t pairs, uint8_t *target)
{
    size_t i = 0;
    for (; i + PAIRS <= pairs; i += PAIRS) {
        __m256i a = load(even + i);
        __m256i b = load(odd + i);
        __m256i first = _mm256_unpacklo_epi8(a, b);
        __m256i second = _mm256_unpackhi_epi8(a, b);
        store(target + 2 * i, _mm256_permute2x128_si256(first, second, 0x20));
        store(target + 2 * i + 32, _mm256_permute2x128_si256(first, second, 0x31));
    }
    mz_planes_merge2(even + i, odd + i, pairs - i, target + 2 * i);
}

/* SPDX-License-Identifier: MIT */
/*
 * split2 and merge2 of every instruction set, for the tables; others go through mz_kernels.
 *
 * The upper byte of an f16 holds sign, exponent and two bits of fraction, and few of its values
 * are frequent; the lower byte is close to random. A general compressor sees nothing in the
 * mixture and a quarter less in the upper bytes alone, so they are kept apart. The wide variants
 * hand the rest that fills no register to the generic functions.
 */
#ifndef MZ_KERNELS_PLANES_H
#define MZ_KERNELS_PLANES_H

#include <stddef.h>
#include <stdint.h>

/* Generic. even and odd: [pairs]; source and target: [2 * pairs]. */
void mz_planes_split2(const uint8_t *source, size_t pairs, uint8_t *even, uint8_t *odd);
void mz_planes_merge2(const uint8_t *even, const uint8_t *odd, size_t pairs, uint8_t *target);

#if defined(__x86_64__)
void mz_planes_split2_avx2(const uint8_t *source, size_t pairs, uint8_t *even, uint8_t *odd);
void mz_planes_merge2_avx2(const uint8_t *even, const uint8_t *odd, size_t pairs, uint8_t *target);
void mz_planes_split2_avx512(const uint8_t *source, size_t pairs, uint8_t *even, uint8_t *odd);
void mz_planes_merge2_avx512(const uint8_t *even, const uint8_t *odd, size_t pairs,
                             uint8_t *target);
#elif defined(__aarch64__)
void mz_planes_split2_neon(const uint8_t *source, size_t pairs, uint8_t *even, uint8_t *odd);
void mz_planes_merge2_neon(const uint8_t *even, const uint8_t *odd, size_t pairs, uint8_t *target);
#endif

#endif

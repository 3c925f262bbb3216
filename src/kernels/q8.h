/* SPDX-License-Identifier: MIT */
/*
 * The 8-bit format of f16 data, as every kernel writes and reads it.
 *
 * A *group* is 32 consecutive f16 elements. It becomes 32 integers q in [-124, 124] and one scale
 * code c; the element is q * scale(c). Scales are {1, 1.25, 1.5, 1.75} * 2^e with e >= -22, and
 * c = (e + 22) * 4 + m, so codes grow with scales. The scale of a group is the smallest with
 * round(max|x| / scale) <= 124, that is max|x| <= 124.5 * scale (124.5 rounds to the even 124). A
 * group of zeros has code 0 and q = 0; -0 comes back as +0.
 *
 * Repeated cycles don't drift: encode(decode(encode(x))) == encode(x), because
 * 1. q * scale = (q * {4,5,6,7}) * 2^(e-2). |q * 7| <= 868 < 2^10 has at most 10 significant bits
 *    (f16 keeps 11) and 2^(e-2) >= 2^-24, f16's least step, so decoding is exact. The largest
 *    results, 124 * 512 and round(65504 / 640) * 640 = 65280, are below 65504, so finite.
 * 2. The scale is found again. It was minimal, so max|x| > 124.5 * (next smaller scale) =
 *    124.5 * scale / r with r one of 5/4, 6/5, 7/6, 8/7. Hence max|x| / scale > 124.5 / r = 99.6,
 *    103.75, 106.71, 108.94: their fractions are all >= 0.5, so qmax is at least 100, 104,
 *    107, 109, and qmax * r >= 125, 124.8, 124.83, 124.57 is above 124.5 again: the smaller scale
 *    still does not fit. (At code 0 there is no smaller one.)
 * 3. With the same scale, (q * scale) / scale is q.
 *
 * Rejected: any f16 as scale (max|x| / 127). Decoding then rounds, the next encode finds another
 * scale, and values walk away a little with each cycle.
 *
 * How variants agree bit for bit: x * (1.0f / scale) and q * scale are single f32 operations in the
 * default rounding mode, never fused; every operand and result is a normal f32 or zero, so flushing
 * of denormals changes nothing. x * (1 / scale) may miss a tie by an ulp; then the other, equally
 * near neighbour is taken, and 124.5 is held to 124 by clamping.
 */
#ifndef MZ_KERNELS_Q8_H
#define MZ_KERNELS_Q8_H

#define MZ_Q8_GROUP 32     /* f16 elements of a group */
#define MZ_Q8_LIMIT 124    /* largest |q| */
#define MZ_Q8_CODE_MAX 125 /* scale 640, the code of max|x| = 65504 */

/*
 * The code straight from max|x| = (1 + f) * 2^E: within a binade the limits 124.5 * scale are
 * 155.625, 186.75, 217.875 and 249 (= 2 * 124.5), over 128: 1.2158203125, 1.458984375,
 * 1.7021484375, 1.9453125. So c = (E - 7 + 22) * 4 + 1 + (how many of them 1 + f exceeds), at least
 * 0. In the bits of an f32: E is (bits >> 23) - 127 and f is the low 23 bits; the limits are exact.
 */
#define MZ_Q8_FRACTION_1 (221 << 13)
#define MZ_Q8_FRACTION_2 (470 << 13)
#define MZ_Q8_FRACTION_3 (719 << 13)
#define MZ_Q8_FRACTION_4 (968 << 13)
#define MZ_Q8_CODE_BIAS ((127 + 7 - 22) * 4 - 1) /* c = (bits >> 23) * 4 - this + exceeded */

/* Bits of the f32 scale(c): exponent field (c >> 2) - 22 + 127, top fraction bits c & 3. */
#define MZ_Q8_SCALE_SHIFT 21
#define MZ_Q8_SCALE_BASE ((127 - 22) << 23)

#endif

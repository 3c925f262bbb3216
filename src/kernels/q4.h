/* SPDX-License-Identifier: MIT */
/*
 * The 4-bit format of f16 data, as every kernel writes and reads it.
 *
 * A *strip* is 32 neighbouring channels of 1 to 64 tokens. Each channel has its own range over the
 * tokens: lo and hi, the least and the largest value, kept exactly as f16. An element is a number q
 * in 0 to 15, and comes back as the level
 *
 *     L(q) = f16(lo + q * step), step = (hi - lo) / 15, all in f32; and L(15) = hi.
 *
 * Bytes of a strip: lo [32] f16, hi [32] f16, then for each token [16] bytes, of which byte j holds
 * q of channel j in the low half and of channel j + 16 in the high half.
 *
 * Repeated cycles don't drift: encode(decode(encode(x))) == encode(x), because
 * 1. lo and hi are found again. The channel has elements equal to both, which become q = 0 and 15
 *    and come back exactly; rounding is monotone, so every other level lies between them.
 * 2. With the same lo and hi each level gets its q back. A channel is *narrow* if its range is less
 *    than 1/32 of its largest magnitude or than 2^-19. In any other, step is at least two units in
 *    the last place of any level, so that a level is within step / 4 of lo + q * step, and
 *    round((level - lo) / step) is q. In narrow channels levels may coincide; there q is the first
 *    of the levels nearest to the element, which for a level is the first that equals it.
 * -0 comes back as +0. NaN and infinity have no place: encode refuses.
 *
 * Measured on real KV (docs/codecs.md): ranges of channels beat ranges of tokens for K by far, as
 * KIVI says, and for V as well, because 64 tokens of a channel are more alike than 64 channels of a
 * token. A Hadamard rotation before quantizing (QuaRot) repairs ranges of tokens to half their
 * error and does not help those of channels; its results need rounding to f16, with which lo and hi
 * are no longer found again. Both were rejected.
 *
 * How variants agree bit for bit: subtraction, multiplication, division and addition are single f32
 * operations in the default rounding mode, never fused.
 */
#ifndef MZ_KERNELS_Q4_H
#define MZ_KERNELS_Q4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MZ_Q4_CHANNELS 32 /* of a strip */
#define MZ_Q4_TOKENS 64   /* of a strip at most. With 32 the error is 0.7 of this, the size 1.11 */
#define MZ_Q4_TOP 15      /* largest q */
#define MZ_Q4_ROW (MZ_Q4_CHANNELS / 2)    /* bytes of a token */
#define MZ_Q4_RANGES (MZ_Q4_CHANNELS * 4) /* bytes of lo and hi */

#define MZ_Q4_NARROW_SHARE 32.0f    /* narrow: (hi - lo) * this < largest magnitude */
#define MZ_Q4_NARROW_LEAST 0x1p-19f /* or hi - lo below this, and not 0 */

/* Bytes of a strip of so many tokens. */
static inline size_t mz_q4_strip_bytes(size_t tokens)
{
    return MZ_Q4_RANGES + tokens * MZ_Q4_ROW;
}

/* The functions of each instruction set, for the tables; others go through mz_kernels. */
bool mz_q4_encode(const uint16_t *source, size_t stride, size_t tokens, uint8_t *strip);
void mz_q4_decode(const uint8_t *strip, size_t tokens, uint16_t *target, size_t stride);
#if defined(__x86_64__)
bool mz_q4_encode_avx2(const uint16_t *source, size_t stride, size_t tokens, uint8_t *strip);
void mz_q4_decode_avx2(const uint8_t *strip, size_t tokens, uint16_t *target, size_t stride);
bool mz_q4_encode_avx512(const uint16_t *source, size_t stride, size_t tokens, uint8_t *strip);
void mz_q4_decode_avx512(const uint8_t *strip, size_t tokens, uint16_t *target, size_t stride);
#elif defined(__aarch64__)
bool mz_q4_encode_neon(const uint16_t *source, size_t stride, size_t tokens, uint8_t *strip);
void mz_q4_decode_neon(const uint8_t *strip, size_t tokens, uint16_t *target, size_t stride);
#endif

#endif

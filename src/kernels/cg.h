/* SPDX-License-Identifier: MIT */
/*
 * The steps of the codec "cachegen", as every instruction set does them.
 *
 * A *strip* is 32 neighbouring channels of up to 256 tokens: 32 lanes that do the same, token after
 * token. f16 becomes integers q on a grid (x = q * 2^e), q becomes the distance from its channel's
 * center, the distance becomes the *residual* against what the token before predicts, and residuals
 * become bits. All but the first step is exact integer arithmetic:
 *
 *     y[t] = q[t] - center                            center: near the channel's mean
 *     r[t] = y[t] - floor((slope * y[t-1] + 4) / 8)   slope: 0 to 7, of the channel; y[-1] = 0
 *
 * The entropy coder is rANS (Duda 2013) with 32 interleaved states, one for each lane, that take
 * 16-bit words from one stream: in each token, lane 0 first. A lane's symbols have the distribution
 * of its channel, 1024 slots shared out among the symbols. With state x, 2^16 <= x < 2^32:
 *
 *     slot = x mod 1024; the symbol is the one whose slots [start, start + freq) hold it
 *     x = freq * floor(x / 1024) + slot - start;  if x < 2^16: x = x * 2^16 + next word
 *
 * One word is always enough (x is at least 2^6 before), and encoding undoes this from the last
 * token to the first, so that all lanes can run at the same time in both directions.
 *
 * How variants agree bit for bit: integers wrap at 16 bits where r and y are stored; floats are
 * multiplied by powers of two, which is exact, and rounded to integers, ties to even; sums of
 * floats are made lane by lane in the order of tokens.
 */
#ifndef MZ_KERNELS_CG_H
#define MZ_KERNELS_CG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MZ_CG_LANES 32u /* channels of a strip */
#define MZ_CG_ROWS 256u /* tokens of a strip at most */
#define MZ_CG_SLOT_BITS 10u
#define MZ_CG_SLOTS (1u << MZ_CG_SLOT_BITS)
#define MZ_CG_LOW (1u << 16)              /* least state; where encoding begins */
#define MZ_CG_ROW_ROOM (MZ_CG_LANES * 2u) /* bytes of words that a token may take */
#define MZ_CG_TOP 127                     /* largest symbol; the least is -this */
#define MZ_CG_SYMBOLS 256u                /* room for the symbols of a class */
#define MZ_CG_SLOPE_ONE 8                 /* slope that would mean 1; slopes are less */

/* A slot of a class, for decoding: freq, slot - start and the symbol. */
#define MZ_CG_FREQ_MASK 0x7ffu
#define MZ_CG_BIAS_SHIFT 11u
#define MZ_CG_SYMBOL_SHIFT 24u

/* A symbol of a class, for encoding: freq, and start above it. */
#define MZ_CG_START_SHIFT 16u

/* What is measured of source before a grid is chosen; add up strips in one of these. */
typedef struct mz_cg_measure {
    float moved[MZ_CG_LANES];      /* sum over tokens of |x[t] - x[t-1]| */
    uint16_t largest[MZ_CG_LANES]; /* largest |x|, as bits of an f16; above 0x7bff: not finite */
} mz_cg_measure;

typedef struct mz_cg_kernels {
    /* Measure a strip of f16, `stride` elements from token to token. */
    void (*measure)(const uint16_t *source, size_t stride, size_t rows, mz_cg_measure *sums);
    /* Whether all elements are multiples of the grid: x * inverse is an integer, below 2^15. */
    bool (*on_grid)(const uint16_t *source, size_t stride, size_t rows, float inverse);
    /*
     * q[row][lane] = x * inverse, rounded, and held within `limit`; inverse is a power of two.
     * Returns all q or'ed together.
     */
    uint16_t (*quantize)(const uint16_t *source, size_t stride, size_t rows, float inverse,
                         int16_t limit, int16_t *q);
    /* Of each lane: sum of q; then, with the center, sums of y[t-1]^2 and y[t] * y[t-1], y held
     * within +-2047 so that they fit. */
    void (*sum)(const int16_t *q, size_t rows, int32_t *sums);
    void (*correlate)(const int16_t *q, size_t rows, const int16_t *center, int32_t *square,
                      int32_t *product);
    /* Residuals [rows][lanes], and of each lane the sum of |r|, each held within 4095. */
    void (*predict)(const int16_t *q, size_t rows, const int16_t *center, const int16_t *slope,
                    int16_t *residual, uint32_t *size);
    /*
     * Encode the residuals of a strip, last token first, lane by lane, words from *end downwards;
     * *end moves. symbols: MZ_CG_SYMBOLS of each class, that of symbol s at s + 128; base[lane]:
     * where the lane's class begins. At most 2 bytes for each residual are written.
     */
    void (*pack)(const int16_t *residual, size_t rows, const uint32_t *symbols,
                 const uint32_t *base, uint32_t *state, uint8_t **end);
    /*
     * Decode up to `rows` tokens while MZ_CG_ROW_ROOM bytes are left before `end`; *at moves.
     * slots: MZ_CG_SLOTS of each class; base[lane] as above. Returns the tokens decoded.
     */
    size_t (*unpack)(const uint8_t **at, const uint8_t *end, size_t rows, const uint32_t *slots,
                     const uint32_t *base, uint32_t *state, int16_t *residual);
    /*
     * f16 from residuals: target[row][lane] = q * scale, scale a power of two. Returns false, the
     * target being unspecified, if a q is outside +-limit.
     */
    bool (*restore)(const int16_t *residual, size_t rows, const int16_t *center,
                    const int16_t *slope, float scale, int16_t limit, uint16_t *target,
                    size_t stride);
} mz_cg_kernels;

/* Generic, for the tables of instruction sets that have nothing better. */
void mz_cg_pack(const int16_t *residual, size_t rows, const uint32_t *symbols, const uint32_t *base,
                uint32_t *state, uint8_t **end);
size_t mz_cg_unpack(const uint8_t **at, const uint8_t *end, size_t rows, const uint32_t *slots,
                    const uint32_t *base, uint32_t *state, int16_t *residual);
bool mz_cg_restore(const int16_t *residual, size_t rows, const int16_t *center,
                   const int16_t *slope, float scale, int16_t limit, uint16_t *target,
                   size_t stride);

extern const mz_cg_kernels mz_cg_generic;
#if defined(__x86_64__)
extern const mz_cg_kernels mz_cg_avx2;
extern const mz_cg_kernels mz_cg_avx512;
#elif defined(__aarch64__)
extern const mz_cg_kernels mz_cg_neon;
#endif

#endif

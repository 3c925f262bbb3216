/* SPDX-License-Identifier: MIT */
/*
 * A block of the codec "cachegen": what its encoder and its decoder both know of it.
 *
 * A *block* is up to 256 rows of up to 256 channels of the data, encoded by itself; the format of
 * what it becomes, and why it is so, are in cachegen.c.
 */
#ifndef MZ_CODEC_CACHEGEN_BLOCK_H
#define MZ_CODEC_CACHEGEN_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/cachegen_model.h"
#include "codec/library.h"
#include "kernels/f16.h"

#define MZ_CG_BLOCK_CHANNELS 256u
#define MZ_CG_STRIP_BYTES (MZ_CG_LANES * 2u)
#define MZ_CG_LEAST_EXPONENT (-24)
#define MZ_CG_MOST_EXPONENT 15
#define MZ_CG_MOST_Q 16383 /* so that the difference of two fits 16 bits */

enum { MZ_CG_KIND_ZEROS = 0, MZ_CG_KIND_EXACT = 1, MZ_CG_KIND_CODED = 2 };
#define MZ_CG_FIXED_BYTES (8u + MZ_CG_LANES * 4u)
#define MZ_CG_CORRECTION_BYTES 4u

_Static_assert(MZ_CG_ROWS * MZ_CG_BLOCK_CHANNELS * 2u <= MZ_BLOCK_MOST, "a block fits the tools");
_Static_assert(MZ_CG_CLASSES * MZ_CG_SLOTS * 4u <= MZ_BLOCK_MOST, "as do the slots");
_Static_assert(MZ_CG_ROWS * MZ_CG_BLOCK_CHANNELS <= 65536u, "a place has 16 bits");

/* Where a block lies in the data. */
typedef struct mz_cg_block {
    size_t offset; /* in f16s */
    size_t stride; /* f16s of a row of the data */
    uint32_t rows, strips;
} mz_cg_block;

/* What a coded block says of its channels. */
typedef struct mz_cg_channels {
    int16_t center[MZ_CG_BLOCK_CHANNELS], slope[MZ_CG_BLOCK_CHANNELS];
    uint8_t class[MZ_CG_BLOCK_CHANNELS];
} mz_cg_channels;

/* Bytes of a block's rows as they are. */
static inline size_t mz_cg_plain_bytes(const mz_cg_block *of)
{
    return (size_t)of->rows * of->strips * MZ_CG_STRIP_BYTES;
}

static inline float mz_cg_power_of_two(int exponent)
{
    return mz_f32_from_bits((uint32_t)(exponent + 127) << 23);
}

/* Largest |q| that is a finite f16 and that decoding needs to allow. */
static inline int16_t mz_cg_most_q(int exponent)
{
    float most = 65504.0f * mz_cg_power_of_two(-exponent);
    return (int16_t)(most < MZ_CG_MOST_Q ? most : MZ_CG_MOST_Q);
}

/* How many classes below this one are in use: the number of its model. */
static inline unsigned mz_cg_model_number(uint16_t in_use, unsigned class)
{
    return (unsigned)__builtin_popcount(in_use & ((1u << class) - 1));
}

/* Where the model of each lane of a strip begins in an array of `room` for each. */
static inline void mz_cg_bases(const uint8_t *class, uint16_t in_use, uint32_t room,
                               uint32_t *bases)
{
    for (unsigned lane = 0; lane < MZ_CG_LANES; lane++) {
        bases[lane] = mz_cg_model_number(in_use, class[lane]) * room;
    }
}

/*
 * Encode the block whose first element is *source; at most 1 + mz_cg_plain_bytes are written to
 * `out`, *end lies behind them. The same block always becomes the same bytes. Returns false if a
 * value is not finite; `out` is unspecified then.
 */
bool mz_cg_encode_block(const mz_cg_block *of, const uint16_t *source, mz_codec_tools *tools,
                        uint8_t *out, uint8_t **end);

/*
 * Decode the `bytes` bytes (1 or more) of a block into place; zeros are not written. Returns false,
 * the target being unspecified, if they are not what the encoder writes.
 */
bool mz_cg_decode_block(const mz_cg_block *of, const uint8_t *source, size_t bytes,
                        mz_codec_tools *tools, uint16_t *target);

#endif

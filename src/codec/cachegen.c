/* SPDX-License-Identifier: MIT */
/*
 * The codec "cachegen": f16 in about 28 % of its bytes, for those to whom memory is worth the time
 * of an entropy coder. After CacheGen (Liu et al. 2024): differences between tokens are smaller
 * than values, and an arithmetic coder whose tables belong to channels turns that into bytes.
 *
 * Data is cut into *blocks* of up to 256 rows of up to 256 channels, each by itself: its own grid,
 * tables and stream, so that several cores could share a span. In a block:
 *
 * 1. All values go to one grid of step 2^e, which suits the block: the largest power of two that is
 *    at most a quarter (STRENGTH) of the mean |x[t] - x[t-1]|. The noise is the same in all
 *    channels, and those that spread further get more bits from the entropy coder, which is what
 *    costs least for a given mean error; grids by channel were worse in keys (docs/codecs.md). A
 *    layer with finer structure gets a finer grid without the codec knowing its number, which
 *    stands in for CacheGen's table of bins by layer.
 * 2. What is left is lossless: center, prediction from the token before, model of the channel's
 *    class, rANS with 32 interleaved states (kernels/cg.h, codec/cachegen_model.h). CacheGen takes
 *    the difference to an anchor token per group so that tokens can be decoded side by side. Here
 *    channels are side by side, so the token before is at hand, which saves a tenth of the bytes
 *    (docs/codecs.md).
 *
 * Why cycles don't drift, encode(decode(encode(x))) == encode(x): what follows the grid is lossless
 * and a function of q and e, so it is enough that decoded values y find the same e, hence the same
 * q.
 * Let c(x) be the exponent by the rule above, at least -24 and at least such that |x| / 2^c < 2^13.
 * (a) If all of x lies on the grid 2^(c-1), x stays as it is; else it is rounded to the grid 2^c.
 * (b) Then e is the largest for which all of y is multiples of 2^e, a function of y alone.
 * So it must be shown that y, on a grid of at least 2^c(x), takes the first branch of (a), which is
 * so if c(y) <= c(x) + 1. Rounding moves a value by at most half a step (one step, if it is close
 * below 65504 and must not be rounded up out of f16), so the mean difference grows by at most two
 * steps, which are 2 * STRENGTH < 1 of it: it doesn't double, nor does the maximum. (If the maximum
 * sets c, STRENGTH of the mean difference is below one step and stays below 1 + 2 * STRENGTH.) All
 * q * 2^e are f16s: where |q| is above 2^11, x has no finer parts than the step and wasn't rounded.
 *
 * Payload: [blocks] u32 bytes of each block, then the blocks: those of the first 256 rows by
 * channel, then those of the next rows. A block:
 *
 *     u8 kind               0 all zeros, nothing follows; 1 the rows as they are; 2 coded:
 *     u8 e + 24, u16 classes in use (a bit each), u16 corrections, u16 zero, u32 state[32]
 *     u8 class | slope << 4 [channels]
 *     center   [channels]   numbers (cachegen_model.h), sign in the lowest bit
 *     model    [classes in use]
 *     u16 place, i16 added  [corrections]  place: (strip * rows + row) * 32 + lane, rising
 *     u16 words             to the end of the block
 *
 * A block that coding doesn't make smaller, such as one of few rows, is kept as it is, exactly.
 * NaN and infinity have no place on a grid: encode refuses the span.
 */
#include "codec/builtin.h"
#include "codec/cachegen_block.h"
#include "codec/header.h"

#include <string.h>

static size_t block_columns(const mz_codec_shape *shape)
{
    size_t wide = shape->row_bytes / 2;
    return (wide + MZ_CG_BLOCK_CHANNELS - 1) / MZ_CG_BLOCK_CHANNELS;
}

static size_t block_count(const mz_codec_shape *shape)
{
    size_t parts = shape->rows / MZ_CG_ROWS + (shape->rows % MZ_CG_ROWS != 0);
    return parts * block_columns(shape);
}

static mz_cg_block block_at(const mz_codec_shape *shape, size_t index)
{
    size_t row = index / block_columns(shape) * MZ_CG_ROWS;
    size_t channel = index % block_columns(shape) * MZ_CG_BLOCK_CHANNELS;
    size_t stride = shape->row_bytes / 2, wide = stride - channel, rows = shape->rows - row;
    wide = wide < MZ_CG_BLOCK_CHANNELS ? wide : MZ_CG_BLOCK_CHANNELS;
    rows = rows < MZ_CG_ROWS ? rows : MZ_CG_ROWS;
    return (mz_cg_block){row * stride + channel, stride, (uint32_t)rows,
                         (uint32_t)(wide / MZ_CG_LANES)};
}

static bool takes(const mz_codec_shape *shape)
{
    return shape->elem == MZ_ELEM_F16 && shape->row_bytes > 0 &&
           shape->row_bytes % MZ_CG_STRIP_BYTES == 0 && mz_codec_shape_bytes(shape) <= SIZE_MAX / 4;
}

static size_t bound(const mz_codec_shape *shape)
{
    return sizeof(mz_codec_header) + block_count(shape) * (sizeof(uint32_t) + 1) +
           (size_t)mz_codec_shape_bytes(shape);
}

/* 5/16, a little more than measured on real KV, so that an eviction frees no less than planned. */
static size_t expected(const mz_codec_shape *shape)
{
    size_t total = (size_t)mz_codec_shape_bytes(shape);
    return bound(shape) - total + total / 16 * 5;
}

static mz_status encode(const mz_codec_shape *shape, const void *source, void *target,
                        size_t *bytes)
{
    mz_codec_tools *tools = takes(shape) ? mz_codec_tools_get() : NULL;
    if (tools == NULL) {
        return MZ_E_UNSUPPORTED;
    }
    size_t blocks = block_count(shape);
    uint8_t *table = (uint8_t *)target + sizeof(mz_codec_header);
    uint8_t *out = table + blocks * sizeof(uint32_t);
    for (size_t i = 0; i < blocks; i++) {
        mz_cg_block of = block_at(shape, i);
        uint8_t *end;
        if (!mz_cg_encode_block(&of, (const uint16_t *)source + of.offset, tools, out, &end)) {
            return MZ_E_UNSUPPORTED;
        }
        uint32_t kept = (uint32_t)(end - out);
        memcpy(table + i * sizeof kept, &kept, sizeof kept);
        out = end;
    }
    *bytes = mz_codec_header_write(MZ_CODEC_ID_CACHEGEN, shape, target, (size_t)(out - table));
    return MZ_OK;
}

static uint32_t kept_bytes(const uint8_t *table, size_t index)
{
    uint32_t kept;
    memcpy(&kept, table + index * sizeof kept, sizeof kept);
    return kept;
}

/* Whether the blocks have bytes that they can have, and together all that is there. */
static bool table_is_valid(const mz_codec_shape *shape, const uint8_t *table, size_t payload_bytes)
{
    size_t blocks = block_count(shape), wanted = blocks * sizeof(uint32_t);
    if (payload_bytes < wanted) {
        return false;
    }
    for (size_t i = 0; i < blocks; i++) {
        mz_cg_block of = block_at(shape, i);
        uint32_t kept = kept_bytes(table, i);
        if (kept < 1 || kept > 1 + mz_cg_plain_bytes(&of)) {
            return false;
        }
        wanted += kept;
    }
    return wanted == payload_bytes;
}

static mz_status decode(const mz_codec_shape *shape, const void *source, size_t bytes, void *target)
{
    size_t payload_bytes;
    mz_status status =
        mz_codec_header_check(MZ_CODEC_ID_CACHEGEN, shape, source, bytes, &payload_bytes);
    if (status != MZ_OK) {
        return status;
    }
    const uint8_t *table = (const uint8_t *)source + sizeof(mz_codec_header);
    if (!takes(shape) || !table_is_valid(shape, table, payload_bytes)) {
        return MZ_E_CORRUPT;
    }
    mz_codec_tools *tools = mz_codec_tools_get();
    if (tools == NULL) {
        return MZ_E_NOMEM;
    }
    size_t blocks = block_count(shape);
    const uint8_t *in = table + blocks * sizeof(uint32_t);
    for (size_t i = 0; i < blocks; i++) {
        mz_cg_block of = block_at(shape, i);
        if (!mz_cg_decode_block(&of, in, kept_bytes(table, i), tools,
                                (uint16_t *)target + of.offset)) {
            return MZ_E_CORRUPT;
        }
        in += kept_bytes(table, i);
    }
    return MZ_OK;
}

const mz_codec mz_codec_cachegen = {
    .name = "cachegen",
    .id = MZ_CODEC_ID_CACHEGEN,
    .exact = false,
    .takes = takes,
    .bound = bound,
    .expected = expected,
    .encode = encode,
    .decode = decode,
};

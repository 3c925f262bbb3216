/* SPDX-License-Identifier: MIT */
/*
 * The codecs "lossless", "lz4" and "zstd": exact, by general-purpose compressors.
 *
 * "lossless" keeps the bytes of an element in planes of their own, so that sign and exponent, of
 * which few values are frequent, stand apart from the random fraction; the better library is chosen
 * for each plane. It promises no ratio. "lz4" and "zstd" compress pages of 4096 bytes as they are,
 * which is what zRAM does to them: they are there to compare with and not to be used.
 *
 * Exact codecs are idempotent because the same bytes give the same bytes. NaN, infinity and -0 are
 * bits like others. Without memory for the libraries encode says MZ_E_UNSUPPORTED, so that an
 * eviction goes to the store instead.
 */
#include "codec/blocks.h"
#include "codec/builtin.h"
#include "codec/header.h"
#include "codec/library.h"

#define PAGE_BYTES 4096u

static const mz_blocks lossless = {MZ_CODEC_ID_LOSSLESS, MZ_BLOCK_MOST, true, true, true};
static const mz_blocks lz4 = {MZ_CODEC_ID_LZ4, PAGE_BYTES, false, true, false};
static const mz_blocks zstd = {MZ_CODEC_ID_ZSTD, PAGE_BYTES, false, false, true};

/*
 * Planning figures in sixty-fourths, from the measurements in docs/codecs.md, rounded up so that an
 * eviction frees no less than planned: f16 0.85 to 0.86, bf16 0.69 and opaque (f16 without known
 * rows) 0.92. f32 that was f32 all along has two random planes of four.
 */
static size_t lossless_expected(const mz_codec_shape *shape)
{
    static const uint8_t of_64[] = {
        [MZ_ELEM_OPAQUE] = 60, [MZ_ELEM_F16] = 56, [MZ_ELEM_BF16] = 48, [MZ_ELEM_F32] = 56};
    size_t bound = mz_blocks_bound(&lossless, shape);
    size_t total = (size_t)mz_codec_shape_bytes(shape);
    return bound - total + total / 64 * of_64[shape->elem];
}

static size_t lossless_bound(const mz_codec_shape *shape)
{
    return mz_blocks_bound(&lossless, shape);
}

static mz_status lossless_encode(const mz_codec_shape *shape, const void *source, void *target,
                                 size_t *bytes)
{
    return mz_blocks_encode(&lossless, shape, source, target, bytes);
}

static mz_status lossless_decode(const mz_codec_shape *shape, const void *source, size_t bytes,
                                 void *target)
{
    return mz_blocks_decode(&lossless, shape, source, bytes, target);
}

static size_t lz4_bound(const mz_codec_shape *shape)
{
    return mz_blocks_bound(&lz4, shape);
}

static mz_status lz4_encode(const mz_codec_shape *shape, const void *source, void *target,
                            size_t *bytes)
{
    return mz_blocks_encode(&lz4, shape, source, target, bytes);
}

static mz_status lz4_decode(const mz_codec_shape *shape, const void *source, size_t bytes,
                            void *target)
{
    return mz_blocks_decode(&lz4, shape, source, bytes, target);
}

static size_t zstd_bound(const mz_codec_shape *shape)
{
    return mz_blocks_bound(&zstd, shape);
}

static mz_status zstd_encode(const mz_codec_shape *shape, const void *source, void *target,
                             size_t *bytes)
{
    return mz_blocks_encode(&zstd, shape, source, target, bytes);
}

static mz_status zstd_decode(const mz_codec_shape *shape, const void *source, size_t bytes,
                             void *target)
{
    return mz_blocks_decode(&zstd, shape, source, bytes, target);
}

const mz_codec mz_codec_lossless = {
    .name = "lossless",
    .id = MZ_CODEC_ID_LOSSLESS,
    .exact = true,
    .takes = mz_blocks_takes,
    .bound = lossless_bound,
    .expected = lossless_expected,
    .encode = lossless_encode,
    .decode = lossless_decode,
};

const mz_codec mz_codec_lz4 = {
    .name = "lz4",
    .id = MZ_CODEC_ID_LZ4,
    .exact = true,
    .takes = mz_blocks_takes,
    .bound = lz4_bound,
    .encode = lz4_encode,
    .decode = lz4_decode,
};

const mz_codec mz_codec_zstd = {
    .name = "zstd",
    .id = MZ_CODEC_ID_ZSTD,
    .exact = true,
    .takes = mz_blocks_takes,
    .bound = zstd_bound,
    .encode = zstd_encode,
    .decode = zstd_decode,
};

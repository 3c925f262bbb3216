/* SPDX-License-Identifier: MIT */
/*
 * The codec "sparse": exact, leaves out what is zero.
 *
 * It takes whatever a lossy codec must not touch, so all it may save is blocks of 4096 zero bytes:
 * rows that inference has not written yet, and padding. A block is as large as a page, so that a
 * block left out is a page that decoding does not commit. Payload:
 *
 *     bitmap  one bit per block, lowest bit first, set if the block is stored; zeros up to a
 *             multiple of 64 bytes
 *     blocks  the stored ones, one after another; the last block of the data may be short
 *
 * Decoding relies on a target that reads as zero and writes the stored blocks only. Blocks that
 * follow each other are copied in one go.
 */
#include "codec/builtin.h"
#include "codec/header.h"
#include "kernels/kernels.h"

#include <string.h>

#define BLOCK_BYTES 4096u

/* Blocks that cover the data, and the bytes of their bitmap in the payload. */
typedef struct layout {
    size_t total_bytes;  /* of the data */
    size_t blocks;       /* the last may be short */
    size_t bitmap_bytes; /* with its padding */
} layout;

static layout layout_of(const mz_codec_shape *shape)
{
    uint64_t total = mz_codec_shape_bytes(shape);
    uint64_t blocks = total / BLOCK_BYTES + (total % BLOCK_BYTES != 0);
    return (layout){(size_t)total, (size_t)blocks, (size_t)mz_codec_align((blocks + 7) / 8)};
}

/* Bytes of the blocks [first, end). */
static size_t run_bytes(const layout *at, size_t first, size_t end)
{
    size_t stop = end == at->blocks ? at->total_bytes : end * BLOCK_BYTES;
    return stop - first * BLOCK_BYTES;
}

static bool is_stored(const uint8_t *bitmap, size_t block)
{
    return (bitmap[block / 8] >> (block % 8) & 1) != 0;
}

static bool takes(const mz_codec_shape *shape)
{
    return mz_codec_shape_bytes(shape) <= SIZE_MAX / 2;
}

static size_t bound(const mz_codec_shape *shape)
{
    layout at = layout_of(shape);
    return sizeof(mz_codec_header) + at.bitmap_bytes + at.total_bytes;
}

static mz_status encode(const mz_codec_shape *shape, const void *source, void *target,
                        size_t *bytes)
{
    if (!takes(shape)) {
        return MZ_E_UNSUPPORTED;
    }
    layout at = layout_of(shape);
    const mz_kernels *kernels = mz_kernels_get();
    const uint8_t *data = source;
    uint8_t *bitmap = (uint8_t *)target + sizeof(mz_codec_header);
    uint8_t *out = bitmap + at.bitmap_bytes;
    memset(bitmap, 0, at.bitmap_bytes);
    for (size_t block = 0; block < at.blocks; block++) {
        const uint8_t *from = data + block * BLOCK_BYTES;
        size_t length = run_bytes(&at, block, block + 1);
        if (!kernels->is_zero(from, length)) {
            bitmap[block / 8] = (uint8_t)(bitmap[block / 8] | 1u << (block % 8));
            memcpy(out, from, length); /* at once: the block is in the cache now */
            out += length;
        }
    }
    *bytes = mz_codec_header_write(MZ_CODEC_ID_SPARSE, shape, target, (size_t)(out - bitmap));
    return MZ_OK;
}

/* The next run of stored blocks at or behind `block`: [*first, returned end), empty at the end. */
static size_t next_run(const layout *at, const uint8_t *bitmap, size_t block, size_t *first)
{
    while (block < at->blocks && !is_stored(bitmap, block)) {
        block++;
    }
    *first = block;
    while (block < at->blocks && is_stored(bitmap, block)) {
        block++;
    }
    return block;
}

/* Whether the bitmap has no bit behind the last block and asks for exactly `stored_bytes`. */
static bool bitmap_is_valid(const layout *at, const uint8_t *bitmap, size_t stored_bytes)
{
    for (size_t bit = at->blocks; bit < at->bitmap_bytes * 8; bit++) {
        if (is_stored(bitmap, bit)) {
            return false;
        }
    }
    size_t first = 0;
    size_t wanted = 0;
    for (size_t end = 0; end < at->blocks;) {
        end = next_run(at, bitmap, end, &first);
        wanted += first < end ? run_bytes(at, first, end) : 0;
    }
    return wanted == stored_bytes;
}

static mz_status decode(const mz_codec_shape *shape, const void *source, size_t bytes, void *target)
{
    size_t payload_bytes;
    mz_status status =
        mz_codec_header_check(MZ_CODEC_ID_SPARSE, shape, source, bytes, &payload_bytes);
    if (status != MZ_OK) {
        return status;
    }
    layout at = layout_of(shape);
    const uint8_t *bitmap = (const uint8_t *)source + sizeof(mz_codec_header);
    if (!takes(shape) || payload_bytes < at.bitmap_bytes ||
        !bitmap_is_valid(&at, bitmap, payload_bytes - at.bitmap_bytes)) {
        return MZ_E_CORRUPT;
    }
    const uint8_t *from = bitmap + at.bitmap_bytes;
    size_t first = 0;
    for (size_t end = 0; end < at.blocks;) {
        end = next_run(&at, bitmap, end, &first);
        if (first < end) {
            size_t length = run_bytes(&at, first, end);
            memcpy((uint8_t *)target + first * BLOCK_BYTES, from, length);
            from += length;
        }
    }
    return MZ_OK;
}

const mz_codec mz_codec_sparse = {
    .name = "sparse",
    .id = MZ_CODEC_ID_SPARSE,
    .exact = true,
    .takes = takes,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};

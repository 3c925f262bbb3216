/* SPDX-License-Identifier: MIT */
/*
 * Cutting data into blocks and planes, and putting it together again.
 *
 * Everything that the table says is checked before the target is touched; the libraries then get
 * the exact size of each plane and must fill it. The table entry is the only thing trusted, and
 * only within its bounds: 30 bits of length hold any block.
 *
 * Rejected: a transposed plane (all tokens of a channel together). It was tried on real KV and
 * gains nothing, since the entropy coder looks at the frequency of bytes and not at their order.
 */
#include "codec/blocks.h"
#include "codec/header.h"
#include "codec/library.h"
#include "kernels/kernels.h"

#include <string.h>

#define METHOD_SHIFT 30
#define KEPT_MASK ((1u << METHOD_SHIFT) - 1)

typedef struct layout {
    size_t total_bytes;
    size_t block_bytes;
    size_t blocks;
    unsigned planes; /* 1, 2 or 4 */
    size_t table_bytes;
} layout;

/* Planes that rows of this type fall into; rows that end within an element are plain bytes. */
static unsigned plane_count(const mz_blocks *blocks, const mz_codec_shape *shape)
{
    unsigned width = shape->elem == MZ_ELEM_F32 ? 4 : shape->elem == MZ_ELEM_OPAQUE ? 1 : 2;
    return blocks->split && shape->row_bytes % width == 0 ? width : 1;
}

static layout layout_of(const mz_blocks *blocks, const mz_codec_shape *shape)
{
    uint64_t total = mz_codec_shape_bytes(shape);
    uint64_t count = total / blocks->block_bytes + (total % blocks->block_bytes != 0);
    unsigned planes = plane_count(blocks, shape);
    return (layout){(size_t)total, blocks->block_bytes, (size_t)count, planes,
                    (size_t)count * planes * sizeof(uint32_t)};
}

static size_t block_size(const layout *at, size_t block)
{
    size_t rest = at->total_bytes - block * at->block_bytes;
    return rest < at->block_bytes ? rest : at->block_bytes;
}

static uint32_t entry_get(const uint8_t *table, size_t index)
{
    uint32_t entry;
    memcpy(&entry, table + index * sizeof entry, sizeof entry);
    return entry;
}

static void entry_put(uint8_t *table, size_t index, mz_method method, size_t kept)
{
    uint32_t entry = (uint32_t)method << METHOD_SHIFT | (uint32_t)kept;
    memcpy(table + index * sizeof entry, &entry, sizeof entry);
}

/* The planes of a block, one after another; bytes 0 to 3 of elements in this order. */
static const uint8_t *split(mz_codec_tools *tools, unsigned planes, const uint8_t *block,
                            size_t bytes)
{
    const mz_kernels *kernels = mz_kernels_get();
    size_t plane = bytes / planes;
    if (planes == 1) {
        return block;
    }
    if (planes == 2) {
        kernels->split2(block, plane, tools->planes, tools->planes + plane);
        return tools->planes;
    }
    uint8_t *even = tools->scratch, *odd = tools->scratch + 2 * plane;
    kernels->split2(block, 2 * plane, even, odd);
    kernels->split2(even, plane, tools->planes, tools->planes + 2 * plane);
    kernels->split2(odd, plane, tools->planes + plane, tools->planes + 3 * plane);
    return tools->planes;
}

/* The inverse of split, from tools->planes; one plane is where it belongs already. */
static void merge(mz_codec_tools *tools, unsigned planes, uint8_t *block, size_t bytes)
{
    const mz_kernels *kernels = mz_kernels_get();
    size_t plane = bytes / planes;
    if (planes == 2) {
        kernels->merge2(tools->planes, tools->planes + plane, plane, block);
    } else if (planes == 4) {
        uint8_t *even = tools->scratch, *odd = tools->scratch + 2 * plane;
        kernels->merge2(tools->planes, tools->planes + 2 * plane, plane, even);
        kernels->merge2(tools->planes + plane, tools->planes + 3 * plane, plane, odd);
        kernels->merge2(even, odd, 2 * plane, block);
    }
}

bool mz_blocks_takes(const mz_codec_shape *shape)
{
    return mz_codec_shape_bytes(shape) <= SIZE_MAX / 4;
}

size_t mz_blocks_bound(const mz_blocks *blocks, const mz_codec_shape *shape)
{
    layout at = layout_of(blocks, shape);
    return sizeof(mz_codec_header) + at.table_bytes + at.total_bytes;
}

mz_status mz_blocks_encode(const mz_blocks *blocks, const mz_codec_shape *shape, const void *source,
                           void *target, size_t *bytes)
{
    mz_codec_tools *tools = mz_blocks_takes(shape) ? mz_codec_tools_get() : NULL;
    if (tools == NULL) {
        return MZ_E_UNSUPPORTED;
    }
    layout at = layout_of(blocks, shape);
    uint8_t *table = (uint8_t *)target + sizeof(mz_codec_header);
    uint8_t *out = table + at.table_bytes;
    if (at.table_bytes > 0) {
        memset(table, 0, at.table_bytes);
    }
    for (size_t block = 0; block < at.blocks; block++) {
        const uint8_t *from = (const uint8_t *)source + block * at.block_bytes;
        size_t length = block_size(&at, block), plane = length / at.planes;
        if (mz_kernels_get()->is_zero(from, length)) {
            continue;
        }
        const uint8_t *planes = split(tools, at.planes, from, length);
        for (unsigned i = 0; i < at.planes; i++) {
            mz_method method = MZ_METHOD_ZEROS;
            size_t kept = 0;
            if (!mz_kernels_get()->is_zero(planes + i * plane, plane)) {
                kept = mz_library_pack(tools, blocks->lz4, blocks->zstd, planes + i * plane, plane,
                                       out, &method);
            }
            entry_put(table, block * at.planes + i, method, kept);
            out += kept;
        }
    }
    *bytes = mz_codec_header_write(blocks->id, shape, target, (size_t)(out - table));
    return MZ_OK;
}

/* Whether every entry is one that encode writes and together they ask for `kept_bytes`. */
static bool table_is_valid(const layout *at, const uint8_t *table, size_t kept_bytes)
{
    size_t wanted = 0;
    for (size_t block = 0; block < at->blocks; block++) {
        size_t plane = block_size(at, block) / at->planes;
        for (unsigned i = 0; i < at->planes; i++) {
            uint32_t entry = entry_get(table, block * at->planes + i);
            size_t kept = entry & KEPT_MASK;
            bool fits = false;
            switch ((mz_method)(entry >> METHOD_SHIFT)) {
            case MZ_METHOD_ZEROS:
                fits = kept == 0;
                break;
            case MZ_METHOD_STORED:
                fits = kept == plane;
                break;
            case MZ_METHOD_LZ4:
            case MZ_METHOD_ZSTD:
                fits = kept > 0 && kept < plane;
                break;
            }
            if (!fits) {
                return false;
            }
            wanted += kept;
        }
    }
    return wanted == kept_bytes;
}

/* Decode one block; *from moves past its bytes. */
static mz_status decode_block(mz_codec_tools *tools, unsigned planes, const uint8_t *entries,
                              const uint8_t **from, uint8_t *block, size_t bytes)
{
    uint32_t any = 0;
    for (unsigned i = 0; i < planes; i++) {
        any |= entry_get(entries, i);
    }
    if (any == 0) {
        return MZ_OK; /* the target reads as zero */
    }
    size_t plane = bytes / planes;
    uint8_t *target = planes == 1 ? block : tools->planes;
    for (unsigned i = 0; i < planes; i++) {
        uint32_t entry = entry_get(entries, i);
        size_t kept = entry & KEPT_MASK;
        mz_status status = mz_library_unpack(tools, (mz_method)(entry >> METHOD_SHIFT), *from, kept,
                                             target + i * plane, plane);
        if (status != MZ_OK) {
            return status;
        }
        *from += kept;
    }
    merge(tools, planes, block, bytes);
    return MZ_OK;
}

mz_status mz_blocks_decode(const mz_blocks *blocks, const mz_codec_shape *shape, const void *source,
                           size_t bytes, void *target)
{
    size_t payload_bytes;
    mz_status status = mz_codec_header_check(blocks->id, shape, source, bytes, &payload_bytes);
    if (status != MZ_OK) {
        return status;
    }
    layout at = layout_of(blocks, shape);
    const uint8_t *table = (const uint8_t *)source + sizeof(mz_codec_header);
    if (!mz_blocks_takes(shape) || payload_bytes < at.table_bytes ||
        !table_is_valid(&at, table, payload_bytes - at.table_bytes)) {
        return MZ_E_CORRUPT;
    }
    mz_codec_tools *tools = mz_codec_tools_get();
    if (tools == NULL) {
        return MZ_E_NOMEM;
    }
    const uint8_t *from = table + at.table_bytes;
    for (size_t block = 0; block < at.blocks && status == MZ_OK; block++) {
        status = decode_block(tools, at.planes, table + block * at.planes * sizeof(uint32_t), &from,
                              (uint8_t *)target + block * at.block_bytes, block_size(&at, block));
    }
    return status;
}

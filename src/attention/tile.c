/* SPDX-License-Identifier: MIT */
/*
 * Every stored type becomes f32 here, once for all rows that read it; what follows knows one type.
 *
 * The types that a cache has most (f16, and q8 in the stack) have loops of their own where a head is
 * a whole number of registers and groups; the rest is converted value by value.
 */
#include "attention/tile.h"

#include <string.h>

#include "kernels/f16.h"
#include "kernels/q8.h"

#define BLOCK 32u /* values of a ggml block */
#define Q8_0_BYTES (2u + BLOCK)
#define Q4_0_BYTES (2u + BLOCK / 2u)

bool mz_tile_takes(const mz_attention_piece *piece, uint32_t dim, uint32_t kv_heads)
{
    switch (piece->kind) {
    case MZ_ATTENTION_F16:
    case MZ_ATTENTION_BF16:
    case MZ_ATTENTION_F32:
        return true;
    case MZ_ATTENTION_Q8_0:
    case MZ_ATTENTION_Q4_0:
        return dim % BLOCK == 0;
    case MZ_ATTENTION_CODEC_Q8:
        return piece->row_bytes % (2 * MZ_Q8_GROUP) == 0 &&
               piece->row_bytes / 2 == (uint64_t)dim * kv_heads && piece->first_row <= piece->rows &&
               piece->tokens <= piece->rows - piece->first_row;
    }
    return false;
}

static float half_at(const uint8_t *bytes)
{
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    return mz_f32_from_f16(half);
}

/* Scale of a group of the codec q8. */
static float code_scale(uint8_t code)
{
    return mz_f32_from_bits(((uint32_t)code << MZ_Q8_SCALE_SHIFT) + (uint32_t)MZ_Q8_SCALE_BASE);
}

static void load_codec_q8(const mz_attention_kernels *kernels, const mz_attention_piece *piece,
                          uint32_t first, uint32_t count, uint32_t head, uint32_t dim, float *tile)
{
    size_t elements = piece->row_bytes / 2;
    size_t row_groups = elements / MZ_Q8_GROUP;
    size_t codes_bytes = (piece->rows * row_groups + 63) / 64 * 64;
    size_t row = piece->first_row + first;
    const uint8_t *codes = (const uint8_t *)piece->data + row * row_groups;
    const int8_t *q = (const int8_t *)piece->data + codes_bytes + row * elements;
    size_t start = (size_t)head * dim;
    if (dim % MZ_Q8_GROUP == 0) {
        kernels->from_q8(q + start, elements, codes + start / MZ_Q8_GROUP, row_groups, count, dim,
                         tile);
        return;
    }
    size_t padded = mz_tile_dim(dim);
    for (uint32_t r = 0; r < count; r++, q += elements, codes += row_groups, tile += padded) {
        for (size_t i = 0; i < dim; i++) {
            tile[i] = (float)q[start + i] * code_scale(codes[(start + i) / MZ_Q8_GROUP]);
        }
        memset(tile + dim, 0, (padded - dim) * sizeof *tile);
    }
}

static void row_f16(const uint8_t *row, size_t dim, float *out)
{
    for (size_t i = 0; i < dim; i++) {
        out[i] = half_at(row + 2 * i);
    }
}

static void row_bf16(const uint8_t *row, size_t dim, float *out)
{
    for (size_t i = 0; i < dim; i++) {
        uint16_t upper;
        memcpy(&upper, row + 2 * i, sizeof upper);
        out[i] = mz_f32_from_bits((uint32_t)upper << 16);
    }
}

static void row_q8_0(const uint8_t *row, size_t dim, float *out)
{
    for (size_t i = 0; i < dim; i += BLOCK, row += Q8_0_BYTES) {
        float scale = half_at(row);
        const int8_t *q = (const int8_t *)row + 2;
        for (size_t k = 0; k < BLOCK; k++) {
            out[i + k] = (float)q[k] * scale;
        }
    }
}

/* The low halves of the bytes are the first 16 values. */
static void row_q4_0(const uint8_t *row, size_t dim, float *out)
{
    for (size_t i = 0; i < dim; i += BLOCK, row += Q4_0_BYTES) {
        float scale = half_at(row);
        for (size_t k = 0; k < BLOCK / 2; k++) {
            out[i + k] = (float)((row[2 + k] & 15) - 8) * scale;
            out[i + k + BLOCK / 2] = (float)((row[2 + k] >> 4) - 8) * scale;
        }
    }
}

static void row_f32(const uint8_t *row, size_t dim, float *out)
{
    memcpy(out, row, dim * sizeof *out);
}

void mz_tile_load(const mz_attention_kernels *kernels, const mz_attention_piece *piece,
                  uint32_t first, uint32_t count, uint32_t head, uint32_t dim, float *tile)
{
    static void (*const rows[])(const uint8_t *row, size_t dim, float *out) = {
        [MZ_ATTENTION_F16] = row_f16,   [MZ_ATTENTION_BF16] = row_bf16, [MZ_ATTENTION_F32] = row_f32,
        [MZ_ATTENTION_Q8_0] = row_q8_0, [MZ_ATTENTION_Q4_0] = row_q4_0,
    };
    if (piece->kind == MZ_ATTENTION_CODEC_Q8) {
        load_codec_q8(kernels, piece, first, count, head, dim, tile);
        return;
    }
    size_t padded = mz_tile_dim(dim);
    const uint8_t *row = (const uint8_t *)piece->data + first * piece->row_stride +
                         head * piece->head_stride;
    if (piece->kind == MZ_ATTENTION_F16 && padded == dim) {
        kernels->from_f16(row, piece->row_stride, count, dim, tile);
        return;
    }
    for (uint32_t r = 0; r < count; r++, row += piece->row_stride, tile += padded) {
        rows[piece->kind](row, dim, tile);
        memset(tile + dim, 0, (padded - dim) * sizeof *tile);
    }
}

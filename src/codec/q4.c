/* SPDX-License-Identifier: MIT */
/*
 * The codec "q4": f16 in about 9/32 of its bytes, for those who accept what 4 bits do to a model.
 *
 * The format of a strip (32 channels of up to 64 tokens), why repeated cycles do not drift, and
 * what was rejected are in kernels/q4.h; here is only how strips lie in the payload:
 *
 *     for each 64 rows: the strips of these rows, by channel
 *     last rows, at least 8: strips of as many tokens; fewer: the rows as they are
 *
 * Ranges of few tokens would cost more than they save, so fewer than 8 rows stay exact. Every strip
 * is decoded by itself. NaN and infinity have no place in the format: encode refuses the span.
 */
#include "kernels/q4.h"
#include "codec/builtin.h"
#include "codec/header.h"
#include "kernels/f16.h"
#include "kernels/kernels.h"

#include <string.h>

#define STRIP_ROW_BYTES (MZ_Q4_CHANNELS * 2u)
#define LEAST_TOKENS 8u

/* Rows that the part of the payload beginning at `row` describes. */
static uint32_t part_rows(const mz_codec_shape *shape, uint32_t row)
{
    uint32_t left = shape->rows - row;
    return left < MZ_Q4_TOKENS ? left : MZ_Q4_TOKENS;
}

static size_t part_bytes(const mz_codec_shape *shape, uint32_t rows)
{
    return rows < LEAST_TOKENS ? (size_t)rows * shape->row_bytes
                               : shape->row_bytes / STRIP_ROW_BYTES * mz_q4_strip_bytes(rows);
}

static size_t payload_size(const mz_codec_shape *shape)
{
    return shape->rows / MZ_Q4_TOKENS * part_bytes(shape, MZ_Q4_TOKENS) +
           part_bytes(shape, shape->rows % MZ_Q4_TOKENS);
}

static bool takes(const mz_codec_shape *shape)
{
    return shape->elem == MZ_ELEM_F16 && shape->row_bytes % STRIP_ROW_BYTES == 0;
}

static size_t bound(const mz_codec_shape *shape)
{
    return sizeof(mz_codec_header) + payload_size(shape);
}

static mz_status encode(const mz_codec_shape *shape, const void *source, void *target,
                        size_t *bytes)
{
    if (!takes(shape)) {
        return MZ_E_UNSUPPORTED;
    }
    const mz_kernels *kernels = mz_kernels_get();
    const uint16_t *from = source;
    size_t stride = shape->row_bytes / 2;
    uint8_t *out = (uint8_t *)target + sizeof(mz_codec_header);
    for (uint32_t row = 0, rows; row < shape->rows; row += rows, from += rows * stride) {
        rows = part_rows(shape, row);
        if (rows < LEAST_TOKENS) {
            memcpy(out, from, part_bytes(shape, rows));
            break;
        }
        for (size_t channel = 0; channel < stride; channel += MZ_Q4_CHANNELS) {
            if (!kernels->q4_encode(from + channel, stride, rows, out)) {
                return MZ_E_UNSUPPORTED;
            }
            out += mz_q4_strip_bytes(rows);
        }
    }
    *bytes = mz_codec_header_write(MZ_CODEC_ID_Q4, shape, target, payload_size(shape));
    return MZ_OK;
}

/* Whether all lo and hi of a strip are finite and in order, as encode writes them. */
static bool ranges_are_valid(const uint8_t *strip)
{
    int wrong = 0;
    for (size_t i = 0; i < MZ_Q4_CHANNELS; i++) {
        uint16_t lo, hi;
        memcpy(&lo, strip + i * 2, sizeof lo);
        memcpy(&hi, strip + MZ_Q4_RANGES / 2 + i * 2, sizeof hi);
        /* Numbers that are ordered as the values are. */
        int lo_order = (lo & MZ_F16_SIGN) != 0 ? -(lo & 0x7fff) : lo;
        int hi_order = (hi & MZ_F16_SIGN) != 0 ? -(hi & 0x7fff) : hi;
        wrong |= (lo_order > hi_order) | (hi_order >= 0x7c00) | (lo_order <= -0x7c00);
    }
    return wrong == 0;
}

static bool strips_are_valid(const mz_codec_shape *shape, const uint8_t *payload)
{
    for (uint32_t row = 0, rows; row < shape->rows; row += rows) {
        rows = part_rows(shape, row);
        size_t strips = rows < LEAST_TOKENS ? 0 : shape->row_bytes / STRIP_ROW_BYTES;
        for (size_t i = 0; i < strips; i++) {
            if (!ranges_are_valid(payload + i * mz_q4_strip_bytes(rows))) {
                return false;
            }
        }
        payload += part_bytes(shape, rows);
    }
    return true;
}

static mz_status decode(const mz_codec_shape *shape, const void *source, size_t bytes, void *target)
{
    size_t payload_bytes;
    mz_status status = mz_codec_header_check(MZ_CODEC_ID_Q4, shape, source, bytes, &payload_bytes);
    if (status != MZ_OK) {
        return status;
    }
    const uint8_t *in = (const uint8_t *)source + sizeof(mz_codec_header);
    if (!takes(shape) || payload_bytes != payload_size(shape) || !strips_are_valid(shape, in)) {
        return MZ_E_CORRUPT;
    }
    const mz_kernels *kernels = mz_kernels_get();
    uint16_t *to = target;
    size_t stride = shape->row_bytes / 2;
    for (uint32_t row = 0, rows; row < shape->rows; row += rows, to += rows * stride) {
        rows = part_rows(shape, row);
        if (rows < LEAST_TOKENS) {
            memcpy(to, in, part_bytes(shape, rows));
            break;
        }
        for (size_t channel = 0; channel < stride; channel += MZ_Q4_CHANNELS) {
            kernels->q4_decode(in, rows, to + channel, stride);
            in += mz_q4_strip_bytes(rows);
        }
    }
    return MZ_OK;
}

const mz_codec mz_codec_q4 = {
    .name = "q4",
    .id = MZ_CODEC_ID_Q4,
    .exact = false,
    .in_place = true,
    .needs_gate = true,
    .takes = takes,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};

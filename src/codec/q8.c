/* SPDX-License-Identifier: MIT */
/*
 * The codec "q8": f16 in 33/64 of its bytes.
 *
 * KV caches tolerate 8 bits per element if the scale is local: each group of 32 channels of one
 * token has its own. The error is at most half a scale: max|x| / 199 of the group, or 2^-23 where
 * all is tiny. The format of a group, and why repeated cycles do not drift, are in kernels/q8.h;
 * here is only how groups lie in the payload:
 *
 *     codes  [rows][row_bytes / 64] u8, zeros up to a multiple of 64 bytes
 *     q      [rows][row_bytes / 2] i8
 *
 * Codes stand apart so that both arrays are read in order and whole q rows can be used in place.
 * NaN and infinity have no place in the format: encode refuses the span.
 */
#include "codec/builtin.h"
#include "codec/header.h"
#include "kernels/kernels.h"

#include <string.h>

#define GROUP_BYTES (MZ_Q8_GROUP * 2u)

static size_t group_count(const mz_codec_shape *shape)
{
    return (size_t)(mz_codec_shape_bytes(shape) / GROUP_BYTES);
}

static size_t payload_size(size_t groups)
{
    return (size_t)mz_codec_align(groups) + groups * MZ_Q8_GROUP;
}

static bool takes(const mz_codec_shape *shape)
{
    return shape->elem == MZ_ELEM_F16 && shape->row_bytes % GROUP_BYTES == 0;
}

static size_t bound(const mz_codec_shape *shape)
{
    return sizeof(mz_codec_header) + payload_size(group_count(shape));
}

static mz_status encode(const mz_codec_shape *shape, const void *source, void *target,
                        size_t *bytes)
{
    if (!takes(shape)) {
        return MZ_E_UNSUPPORTED;
    }
    size_t groups = group_count(shape);
    size_t codes_bytes = (size_t)mz_codec_align(groups);
    uint8_t *codes = (uint8_t *)target + sizeof(mz_codec_header);
    int8_t *q = (int8_t *)(codes + codes_bytes);
    if (!mz_kernels_get()->q8_encode(source, groups, codes, q)) {
        return MZ_E_UNSUPPORTED;
    }
    memset(codes + groups, 0, codes_bytes - groups);
    *bytes = mz_codec_header_write(MZ_CODEC_ID_Q8, shape, target, payload_size(groups));
    return MZ_OK;
}

/* A larger code would decode to values that encode never saw, up to infinity. */
static bool codes_are_valid(const uint8_t *codes, size_t groups)
{
    uint8_t largest = 0;
    for (size_t i = 0; i < groups; i++) {
        largest = codes[i] > largest ? codes[i] : largest;
    }
    return largest <= MZ_Q8_CODE_MAX;
}

static mz_status decode(const mz_codec_shape *shape, const void *source, size_t bytes, void *target)
{
    size_t payload_bytes;
    mz_status status = mz_codec_header_check(MZ_CODEC_ID_Q8, shape, source, bytes, &payload_bytes);
    if (status != MZ_OK) {
        return status;
    }
    size_t groups = group_count(shape);
    if (!takes(shape) || payload_bytes != payload_size(groups)) {
        return MZ_E_CORRUPT;
    }
    const uint8_t *codes = (const uint8_t *)source + sizeof(mz_codec_header);
    if (!codes_are_valid(codes, groups)) {
        return MZ_E_CORRUPT;
    }
    const int8_t *q = (const int8_t *)(codes + mz_codec_align(groups));
    mz_kernels_get()->q8_decode(codes, q, groups, target);
    return MZ_OK;
}

const mz_codec mz_codec_q8 = {
    .name = "q8",
    .id = MZ_CODEC_ID_Q8,
    .exact = false,
    .in_place = true,
    .takes = takes,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};

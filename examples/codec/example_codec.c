/* SPDX-License-Identifier: MIT */
/*
 * A codec from outside: f16 in half of its bytes, as 8-bit floats (sign, 5 bits of exponent, 2 of
 * fraction). It is idempotent, because what it keeps is an f16 whose lower byte is zero.
 *
 *     cc -O2 -shared -fPIC -o libexample-codec.so example_codec.c $(pkg-config --cflags mzcache)
 *     MZCACHE_CODEC_LIBRARY=$PWD/libexample-codec.so mzcache run --codec example -m MODEL ...
 */
#include <mzcache/codec.h>
#include <string.h>

static bool takes(const mz_codec_shape *shape)
{
    return shape->elem == MZ_ELEM_F16 && shape->row_bytes % 2 == 0;
}

static size_t bound(const mz_codec_shape *shape)
{
    return (size_t)shape->row_bytes / 2 * shape->rows;
}

static mz_status encode(const mz_codec_shape *shape, const void *source, void *target, size_t room,
                        size_t *bytes)
{
    for (size_t i = 0; i < room; i++) {
        uint16_t half;
        memcpy(&half, (const char *)source + 2 * i, sizeof half);
        unsigned nearest = (half + 0x7fu + (half >> 8 & 1)) >> 8; /* ties to even */
        if ((nearest & 0x7c) == 0x7c) {
            return MZ_E_UNSUPPORTED; /* NaN, infinity, or rounded to it */
        }
        ((uint8_t *)target)[i] = (uint8_t)nearest;
    }
    *bytes = bound(shape);
    return MZ_OK;
}

static mz_status decode(const mz_codec_shape *shape, const void *source, size_t bytes, void *target)
{
    for (size_t i = 0; i < bytes && i < bound(shape); i++) {
        uint16_t half = (uint16_t)(((const uint8_t *)source)[i] << 8);
        memcpy((char *)target + 2 * i, &half, sizeof half);
    }
    return MZ_OK;
}

__attribute__((visibility("default"))) const mz_codec_table *mz_codec_library(uint32_t index);

const mz_codec_table *mz_codec_library(uint32_t index)
{
    static const mz_codec_table table = {
        .abi = MZ_CODEC_ABI, .table_bytes = sizeof table, .name = "example", .id = 0x8001,
        .takes = takes, .bound = bound, .encode = encode, .decode = decode};
    return index == 0 ? &table : NULL;
}

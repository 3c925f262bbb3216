/* SPDX-License-Identifier: MIT */
/*
 * The codec "last-bit", a yardstick and not for use: f16 without its last bit, in 15/16 of the
 * bytes. No codec changes KV less, apart from those that change nothing. It is added from outside,
 * as a user's would be.
 *
 * 16 elements lose their last bit and become 15 pieces of 16 bits: the upper 15 bits of element i
 * stand behind those of i - 1, the lowest bit first.
 */
#include <string.h>

#include "cli/eval.h"
#include "mzcache/codec.h"

#define BLOCK 16u /* elements */
#define KEPT 15u  /* bits of an element, and pieces of a block */

static size_t block_count(const mz_codec_shape *shape)
{
    return (size_t)shape->row_bytes / (2 * BLOCK) * shape->rows;
}

static bool takes(const mz_codec_shape *shape)
{
    return shape->elem == MZ_ELEM_F16 && shape->row_bytes % (2 * BLOCK) == 0;
}

static size_t bound(const mz_codec_shape *shape)
{
    return block_count(shape) * KEPT * 2;
}

static mz_status encode(const mz_codec_shape *shape, const void *source, void *target, size_t room,
                        size_t *bytes)
{
    const uint16_t *in = source;
    uint16_t *out = target;
    size_t elements = block_count(shape) * BLOCK;
    uint32_t bits = 0, held = 0;
    for (size_t i = 0; i < elements; i++) {
        bits |= (uint32_t)(in[i] >> 1) << held;
        held += KEPT;
        if (held >= 16) {
            *out++ = (uint16_t)bits;
            bits >>= 16;
            held -= 16;
        }
    }
    *bytes = room;
    return MZ_OK;
}

static mz_status decode(const mz_codec_shape *shape, const void *source, size_t bytes, void *target)
{
    const uint16_t *in = source;
    uint16_t *out = target;
    if (bytes != bound(shape)) {
        return MZ_E_CORRUPT;
    }
    uint32_t bits = 0, held = 0;
    for (size_t i = 0; i < block_count(shape) * BLOCK; i++) {
        if (held < KEPT) {
            bits |= (uint32_t)*in++ << held;
            held += 16;
        }
        out[i] = (uint16_t)((bits & 0x7fffu) << 1);
        bits >>= KEPT;
        held -= KEPT;
    }
    return MZ_OK;
}

bool mz_eval_add_last_bit(void)
{
    static const mz_codec_table table = {.abi = MZ_CODEC_ABI,
                                         .table_bytes = sizeof table,
                                         .name = MZ_EVAL_LAST_BIT,
                                         .id = MZ_CODEC_ID_OUTSIDE_LAST,
                                         .takes = takes,
                                         .bound = bound,
                                         .encode = encode,
                                         .decode = decode};
    char message[256] = "";
    if (mz_codec_add(&table, message, sizeof message) != MZ_OK) {
        fprintf(stderr, "mzcache eval: %s\n", message);
        return false;
    }
    return true;
}

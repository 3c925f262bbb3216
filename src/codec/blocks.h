/* SPDX-License-Identifier: MIT */
/*
 * The format that the exact codecs with a library share: blocks of planes.
 *
 * An *mz_blocks* says how a codec cuts its data; each block is kept by itself, so that working
 * memory is one block whatever is encoded. Payload, after mz_codec_header:
 *
 *     table   [blocks][planes] u32: bytes kept, and mz_method in the top two bits
 *     planes  the kept bytes, in the order of the table
 *
 * A block of zeros has zeros in the table and is not written by decoding: its pages stay free.
 *
 * Threads: all functions use the tools of the calling thread (library.h) and share nothing.
 */
#ifndef MZ_CODEC_BLOCKS_H
#define MZ_CODEC_BLOCKS_H

#include "codec/codec.h"

typedef struct mz_blocks {
    uint16_t id;          /* codec id in the header */
    uint32_t block_bytes; /* a multiple of 4, at most MZ_BLOCK_MOST; the last block may be short */
    bool split;           /* the bytes of an element go to a plane each; else one plane */
    bool lz4, zstd;       /* methods that encode may choose */
} mz_blocks;

bool mz_blocks_takes(const mz_codec_shape *shape);
size_t mz_blocks_bound(const mz_blocks *blocks, const mz_codec_shape *shape);

/* As mz_codec.encode. Errors: MZ_E_UNSUPPORTED without memory for the thread's tools. */
mz_status mz_blocks_encode(const mz_blocks *blocks, const mz_codec_shape *shape, const void *source,
                           void *target, size_t *bytes);

/* As mz_codec.decode. Errors: MZ_E_CORRUPT; MZ_E_NOMEM without memory for the thread's tools. */
mz_status mz_blocks_decode(const mz_blocks *blocks, const mz_codec_shape *shape, const void *source,
                           size_t bytes, void *target);

#endif

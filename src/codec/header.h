/* SPDX-License-Identifier: MIT */
/*
 * What stands before everything that a codec writes.
 *
 * An *mz_codec_header* says which codec wrote the payload behind it, for which shape, how long the
 * payload is, and its checksum. Bytes come back from flash after crashes and bit rot, so nothing
 * behind the header is looked at before mz_codec_header_check has found all of it intact and meant
 * for the shape at hand.
 *
 * Layout: 32 bytes, little endian, without padding; the payload follows at once.
 */
#ifndef MZ_CODEC_HEADER_H
#define MZ_CODEC_HEADER_H

#include "codec/codec.h"

#define MZ_CODEC_MAGIC "MZC1"
#define MZ_CODEC_VERSION 1

typedef struct mz_codec_header {
    char magic[4];          /* MZ_CODEC_MAGIC without its 0 */
    uint16_t codec;         /* mz_codec.id */
    uint8_t elem;           /* mz_elem */
    uint8_t version;        /* MZ_CODEC_VERSION */
    uint32_t row_bytes;     /* of the shape */
    uint32_t rows;          /* of the shape */
    uint64_t payload_bytes; /* behind the header */
    uint64_t checksum;      /* XXH3 of the payload, seeded with the XXH3 of the fields above */
} mz_codec_header;

_Static_assert(sizeof(mz_codec_header) == 32, "the header is written as it lies in memory");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "headers and payloads are little endian; this machine needs conversions"
#endif

/* Parts of a payload start at multiples of this: a cache line. */
#define MZ_CODEC_ALIGN 64u

static inline uint64_t mz_codec_align(uint64_t bytes)
{
    return (bytes + MZ_CODEC_ALIGN - 1) & ~(uint64_t)(MZ_CODEC_ALIGN - 1);
}

/* Bytes of the data that a shape describes. */
static inline uint64_t mz_codec_shape_bytes(const mz_codec_shape *shape)
{
    return (uint64_t)shape->row_bytes * shape->rows;
}

/*
 * Write the header at `target`, whose payload already stands behind it.
 * Returns the bytes of header and payload.
 */
size_t mz_codec_header_write(uint16_t codec, const mz_codec_shape *shape, void *target,
                             size_t payload_bytes);

/*
 * Check `bytes` bytes at `source` from magic to checksum; *payload_bytes stand behind the header.
 * Errors: MZ_E_CORRUPT if they were not written by this codec for this shape, or not wholly.
 */
mz_status mz_codec_header_check(uint16_t codec, const mz_codec_shape *shape, const void *source,
                                size_t bytes, size_t *payload_bytes);

/*
 * The same without the checksum, which costs a read of all bytes: for what this process wrote and
 * kept in its own memory.
 */
bool mz_codec_header_fits(uint16_t codec, const mz_codec_shape *shape, const void *source,
                          size_t bytes);

#endif

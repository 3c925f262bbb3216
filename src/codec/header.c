/* SPDX-License-Identifier: MIT */
/*
 * Writing and checking mz_codec_header.
 *
 * The checksum covers the header's other fields and the payload. Hashing the fields first and
 * seeding the payload's hash with the result joins both without a streaming state (576 bytes of
 * another library's layout). XXH3 reads about as fast as memory delivers; it finds damage, it does
 * not authenticate.
 */
#include "codec/header.h"

#include <string.h>
#include <xxhash.h>

static uint64_t checksum_of(const mz_codec_header *header, const uint8_t *payload)
{
    uint64_t fields = XXH3_64bits(header, offsetof(mz_codec_header, checksum));
    return XXH3_64bits_withSeed(payload, (size_t)header->payload_bytes, fields);
}

size_t mz_codec_header_write(uint16_t codec, const mz_codec_shape *shape, void *target,
                             size_t payload_bytes)
{
    mz_codec_header header = {
        .codec = codec,
        .elem = (uint8_t)shape->elem,
        .version = MZ_CODEC_VERSION,
        .row_bytes = shape->row_bytes,
        .rows = shape->rows,
        .payload_bytes = payload_bytes,
    };
    memcpy(header.magic, MZ_CODEC_MAGIC, sizeof header.magic);
    header.checksum = checksum_of(&header, (const uint8_t *)target + sizeof header);
    memcpy(target, &header, sizeof header);
    return sizeof header + payload_bytes;
}

bool mz_codec_header_fits(uint16_t codec, const mz_codec_shape *shape, const void *source,
                          size_t bytes)
{
    mz_codec_header header;
    if (bytes < sizeof header) {
        return false;
    }
    memcpy(&header, source, sizeof header);
    return memcmp(header.magic, MZ_CODEC_MAGIC, sizeof header.magic) == 0 &&
           header.version == MZ_CODEC_VERSION && header.codec == codec &&
           header.elem == (uint8_t)shape->elem && header.row_bytes == shape->row_bytes &&
           header.rows == shape->rows && header.payload_bytes == bytes - sizeof header;
}

mz_status mz_codec_header_check(uint16_t codec, const mz_codec_shape *shape, const void *source,
                                size_t bytes, size_t *payload_bytes)
{
    mz_codec_header header;
    /* The length bounds every read from here on, the checksum's included. */
    if (!mz_codec_header_fits(codec, shape, source, bytes)) {
        return MZ_E_CORRUPT;
    }
    memcpy(&header, source, sizeof header);
    if (header.checksum != checksum_of(&header, (const uint8_t *)source + sizeof header)) {
        return MZ_E_CORRUPT;
    }
    *payload_bytes = bytes - sizeof header;
    return MZ_OK;
}

/* SPDX-License-Identifier: MIT */
/*
 * The list of codecs: by the name that a user says, and by the id that a header holds.
 *
 * A new codec is one file and one line here; those from outside (outside.h) stand behind ours.
 */
#include "codec/codec.h"

#include "codec/builtin.h"
#include "codec/header.h"
#include "codec/outside.h"

#include <string.h>

static const mz_codec *const codecs[] = {&mz_codec_sparse, &mz_codec_q8,   &mz_codec_lossless,
                                         &mz_codec_lz4,    &mz_codec_zstd, &mz_codec_q4,
                                         &mz_codec_cachegen};
#define CODECS (sizeof codecs / sizeof codecs[0])

const mz_codec *mz_codec_find(const char *name)
{
    const mz_codec *codec;
    for (size_t i = 0; (codec = mz_codec_at(i)) != NULL; i++) {
        if (strcmp(codec->name, name) == 0) {
            return codec;
        }
    }
    return NULL;
}

const mz_codec *mz_codec_by_id(uint16_t id)
{
    const mz_codec *codec;
    for (size_t i = 0; (codec = mz_codec_at(i)) != NULL; i++) {
        if (codec->id == id) {
            return codec;
        }
    }
    return NULL;
}

const mz_codec *mz_codec_at(size_t index)
{
    return index < CODECS ? codecs[index] : mz_outside_at(index - CODECS);
}

const mz_codec *mz_codec_or_exact(const mz_codec *codec, const mz_codec_shape *shape)
{
    if (codec->takes(shape)) {
        return codec;
    }
    return shape->elem != MZ_ELEM_OPAQUE ? &mz_codec_lossless : NULL;
}

size_t mz_codec_expected(const mz_codec *codec, const mz_codec_shape *shape)
{
    return codec->expected != NULL ? codec->expected(shape) : codec->bound(shape);
}

mz_status mz_codec_decode(const mz_codec_shape *shape, const void *source, size_t bytes,
                          void *target)
{
    mz_codec_header header;
    if (bytes < sizeof header) {
        return MZ_E_CORRUPT;
    }
    memcpy(&header, source, sizeof header);
    const mz_codec *codec = mz_codec_by_id(header.codec);
    if (codec == NULL) {
        size_t payload_bytes;
        mz_status status =
            mz_codec_header_check(header.codec, shape, source, bytes, &payload_bytes);
        return status == MZ_OK && mz_outside_has_id(header.codec) ? MZ_E_NOTFOUND : MZ_E_CORRUPT;
    }
    return codec->decode(shape, source, bytes, target);
}

const mz_codec *mz_codec_view(const mz_codec_shape *shape, const void *source, size_t bytes,
                              const uint8_t **payload)
{
    mz_codec_header header;
    if (bytes < sizeof header) {
        return NULL;
    }
    memcpy(&header, source, sizeof header);
    const mz_codec *codec = mz_codec_by_id(header.codec);
    if (codec == NULL || !codec->in_place || !codec->takes(shape) ||
        bytes != codec->bound(shape) ||
        !mz_codec_header_fits(header.codec, shape, source, bytes)) {
        return NULL;
    }
    *payload = (const uint8_t *)source + sizeof header;
    return codec;
}

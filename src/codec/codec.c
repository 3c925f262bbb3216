/* SPDX-License-Identifier: MIT */
/*
 * The list of codecs: by the name that a user says, and by the id that a header holds.
 *
 * A new codec is one file and one line here.
 */
#include "codec/codec.h"

#include "codec/builtin.h"
#include "codec/header.h"

#include <string.h>

static const mz_codec *const codecs[] = {&mz_codec_sparse, &mz_codec_q8,   &mz_codec_lossless,
                                         &mz_codec_lz4,    &mz_codec_zstd, &mz_codec_q4};
#define CODECS (sizeof codecs / sizeof codecs[0])

const mz_codec *mz_codec_find(const char *name)
{
    for (size_t i = 0; i < CODECS; i++) {
        if (strcmp(codecs[i]->name, name) == 0) {
            return codecs[i];
        }
    }
    return NULL;
}

const mz_codec *mz_codec_by_id(uint16_t id)
{
    for (size_t i = 0; i < CODECS; i++) {
        if (codecs[i]->id == id) {
            return codecs[i];
        }
    }
    return NULL;
}

const mz_codec *mz_codec_at(size_t index)
{
    return index < CODECS ? codecs[index] : NULL;
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
        return MZ_E_CORRUPT;
    }
    return codec->decode(shape, source, bytes, target);
}

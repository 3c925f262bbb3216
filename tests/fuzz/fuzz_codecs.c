/* SPDX-License-Identifier: MIT */
/*
 * Goal: no bytes make a decoder read or write out of bounds, say anything but MZ_OK, MZ_E_CORRUPT,
 * MZ_E_NOMEM or (an unknown codec) MZ_E_NOTFOUND, or give other rows than were encoded unless the
 * checksum was put right too.
 *
 * Every codec of the list, the example from outside among them, with every type that it takes and
 * several shapes. An input is the number of a sample (one byte) and what is decoded for its shape.
 * Source and target end at guard pages.
 */
#include "fuzz.h"

#include <string.h>
#include <xxhash.h>

#include "codec/codec.h"
#include "codec/outside.h"

#define HEADER 32u
#define SAMPLES_MOST 200u
#define DATA_MOST 16384u

const mz_codec_table *mz_codec_library(uint32_t index); /* of examples/codec */

typedef struct sample {
    const mz_codec *codec;
    mz_codec_shape shape;
    size_t total;     /* bytes of the rows */
    uint8_t *rows;    /* what a decoder gives, as it was found right by decoding the seed */
    uint8_t *target;  /* [total], ends at a guard page */
    uint8_t *encoded; /* [encoded_bytes] */
    size_t encoded_bytes;
} sample;

static sample samples[SAMPLES_MOST];
static size_t sample_count;

static const mz_codec_shape shapes[] = {
    {MZ_ELEM_F16, 64, 74},  {MZ_ELEM_F16, 192, 9},    {MZ_ELEM_F16, 128, 1},
    {MZ_ELEM_F16, 6, 50},   {MZ_ELEM_BF16, 64, 130},  {MZ_ELEM_F32, 64, 3},
    {MZ_ELEM_F32, 256, 40}, {MZ_ELEM_OPAQUE, 2500, 2}, {MZ_ELEM_OPAQUE, 9001, 1}};

/* Values as in KV, with a page of zeros where there is room for one; the seed decides the rest. */
static void fill(uint8_t *data, size_t total, unsigned kind)
{
    uint64_t state = 77 + kind;
    for (size_t i = 0; i < total; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        uint8_t byte = (uint8_t)(state >> 40);
        uint8_t upper = (uint8_t)((byte & 0x81) | 0x38);
        data[i] = i % 2 == 1 ? upper : kind == 0 ? byte : 0;
        if (kind == 1 && i / 4096 == 1) {
            data[i] = 0;
        }
    }
}

static void add_sample(const mz_codec *codec, const mz_codec_shape *shape, unsigned kind)
{
    static uint8_t data[DATA_MOST], encoded[4 * DATA_MOST];
    sample *s = &samples[sample_count];
    *s = (sample){.codec = codec, .shape = *shape, .total = (size_t)shape->row_bytes * shape->rows};
    MZ_FUZZ_CHECK(sample_count < SAMPLES_MOST && s->total <= sizeof data);
    MZ_FUZZ_CHECK(codec->bound(shape) <= sizeof encoded);
    fill(data, s->total, kind);
    if (codec->encode(shape, data, encoded, &s->encoded_bytes) != MZ_OK) {
        return;
    }
    s->encoded = malloc(s->encoded_bytes);
    s->rows = calloc(1, s->total);
    s->target = mz_fuzz_guarded(s->total);
    MZ_FUZZ_CHECK(s->encoded != NULL && s->rows != NULL);
    memcpy(s->encoded, encoded, s->encoded_bytes);
    MZ_FUZZ_CHECK(codec->decode(shape, encoded, s->encoded_bytes, s->rows) == MZ_OK);
    MZ_FUZZ_CHECK(!codec->exact || memcmp(s->rows, data, s->total) == 0);
    sample_count++;
}

static void make_samples(void)
{
    mz_error error = MZ_ERROR_INIT;
    MZ_FUZZ_CHECK(mz_outside_add(mz_codec_library(0), &error) == MZ_OK);
    for (size_t i = 0; mz_codec_at(i) != NULL; i++) {
        for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
            if (mz_codec_at(i)->takes(&shapes[k])) {
                add_sample(mz_codec_at(i), &shapes[k], 0);
                add_sample(mz_codec_at(i), &shapes[k], 1);
            }
        }
    }
}

static size_t seed(size_t index, uint8_t *data)
{
    if (sample_count == 0) {
        make_samples();
    }
    if (index >= sample_count) {
        return 0;
    }
    data[0] = (uint8_t)index;
    memcpy(data + 1, samples[index].encoded, samples[index].encoded_bytes);
    return 1 + samples[index].encoded_bytes;
}

/* By the documented layout: length of the payload, then the checksum of header and payload. */
static void seal(uint8_t *data, size_t bytes)
{
    if (bytes < 1 + HEADER) {
        return;
    }
    uint8_t *header = data + 1;
    uint64_t length = bytes - 1 - HEADER;
    memcpy(header + 16, &length, sizeof length);
    uint64_t sum = XXH3_64bits_withSeed(header + HEADER, length, XXH3_64bits(header, 24));
    memcpy(header + 24, &sum, sizeof sum);
}

/* Whether these are the very bytes that a codec wrote for this shape, and what they decode to. */
static const uint8_t *rows_of(const sample *of, const uint8_t *encoded, size_t bytes)
{
    for (size_t i = 0; i < sample_count; i++) {
        const sample *s = &samples[i];
        if (s->encoded_bytes == bytes && memcmp(s->encoded, encoded, bytes) == 0 &&
            memcmp(&s->shape, &of->shape, sizeof s->shape) == 0) {
            return s->rows;
        }
    }
    return NULL;
}

static void run(const uint8_t *data, size_t bytes, mz_fuzz_kind kind)
{
    static uint8_t again[DATA_MOST];
    if (sample_count == 0) {
        make_samples();
    }
    if (bytes == 0) {
        return;
    }
    const sample *s = &samples[data[0] % sample_count];
    memset(s->target, 0, s->total);
    mz_status status = mz_codec_decode(&s->shape, data + 1, bytes - 1, s->target);
    MZ_FUZZ_CHECK(status == MZ_OK || status == MZ_E_CORRUPT || status == MZ_E_NOMEM ||
                  status == MZ_E_NOTFOUND);
    MZ_FUZZ_CHECK(kind != MZ_FUZZ_SEED || status == MZ_OK);
    if (status == MZ_OK && kind != MZ_FUZZ_SEALED) {
        const uint8_t *rows = rows_of(s, data + 1, bytes - 1);
        MZ_FUZZ_CHECK(rows != NULL && memcmp(s->target, rows, s->total) == 0);
    } else if (status == MZ_OK) {
        memset(again, 0, s->total);
        MZ_FUZZ_CHECK(mz_codec_decode(&s->shape, data + 1, bytes - 1, again) == MZ_OK);
        MZ_FUZZ_CHECK(memcmp(again, s->target, s->total) == 0);
    }
}

const mz_fuzz_target mz_fuzz = {"codecs", seed, seal, run};

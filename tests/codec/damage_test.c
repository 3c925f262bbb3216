/* SPDX-License-Identifier: MIT */
/*
 * Goal: bytes that a codec did not write for this shape give MZ_E_CORRUPT, touch nothing out of
 * bounds, and leave the target as it was.
 * Method: all flips of every byte, every truncation, bytes too many, other shapes and other ids;
 * then forgeries whose checksum is right (computed here from the documented layout) but whose
 * contents are not. Sources and targets end right before an inaccessible page.
 */
#include "fixture.h"

#include <xxhash.h>

#include "codec/codec.h"

#define HEADER 32u
#define CHECKSUM_AT 24u

typedef struct sample {
    const char *name;
    mz_codec_shape shape;
} sample;

static const sample samples[] = {
    {"q8", {MZ_ELEM_F16, 128, 3}},
    {"q4", {MZ_ELEM_F16, 64, 74}},      /* a whole strip and a short one */
    {"cachegen", {MZ_ELEM_F16, 64, 74}},
    {"sparse", {MZ_ELEM_F16, 64, 130}}, /* two blocks of 4096 and a short one, zeros in between */
    {"lossless", {MZ_ELEM_F16, 64, 130}},
    {"lossless", {MZ_ELEM_F32, 64, 3}},
    {"lz4", {MZ_ELEM_OPAQUE, 2500, 2}},
    {"zstd", {MZ_ELEM_OPAQUE, 2500, 2}},
};
#define SAMPLES (sizeof samples / sizeof samples[0])

/* Encoded sample, in a buffer that ends with it. */
static guarded encode_sample(const sample *from, size_t *bytes)
{
    const mz_codec *codec = mz_codec_find(from->name);
    size_t total = (size_t)from->shape.row_bytes * from->shape.rows;
    guarded data = guarded_new(total), packed = guarded_new(codec->bound(&from->shape));
    for (size_t i = 0; i < total; i++) {
        data.data[i] = (uint8_t)(i / PAGE == 1 ? 0 : i % 2 == 0 ? i : 0x3c);
    }
    assert_int_equal(codec->encode(&from->shape, data.data, packed.data, bytes), MZ_OK);
    guarded tight = guarded_new(*bytes);
    memcpy(tight.data, packed.data, *bytes);
    guarded_free(&data);
    guarded_free(&packed);
    return tight;
}

/* Both ways to decode must refuse and leave the target zero. */
static void expect_corrupt(const sample *of, const mz_codec_shape *shape, const uint8_t *source,
                           size_t bytes, const guarded *target)
{
    static const uint8_t zeros[3 * PAGE];
    const mz_codec *codec = mz_codec_find(of->name);
    size_t total = (size_t)of->shape.row_bytes * of->shape.rows;
    assert_int_equal(codec->decode(shape, source, bytes, target->data), MZ_E_CORRUPT);
    assert_int_equal(mz_codec_decode(shape, source, bytes, target->data), MZ_E_CORRUPT);
    assert_memory_equal(target->data, zeros, total);
}

static guarded target_for(const sample *of)
{
    return guarded_new((size_t)of->shape.row_bytes * of->shape.rows);
}

static void test_every_flip(void **unused)
{
    (void)unused;
    for (const sample *of = samples; of < samples + SAMPLES; of++) {
        size_t bytes = 0;
        guarded packed = encode_sample(of, &bytes), target = target_for(of);
        for (size_t at = 0; at < bytes; at++) {
            /* All patterns where decisions are made, a few in the long run of values. */
            for (unsigned flip = 1; flip < 256; flip = at < HEADER + 16 ? flip + 1 : flip * 2) {
                packed.data[at] = (uint8_t)(packed.data[at] ^ flip);
                expect_corrupt(of, &of->shape, packed.data, bytes, &target);
                packed.data[at] = (uint8_t)(packed.data[at] ^ flip);
            }
        }
        assert_int_equal(mz_codec_decode(&of->shape, packed.data, bytes, target.data), MZ_OK);
        guarded_free(&packed);
        guarded_free(&target);
    }
}

static void test_every_truncation(void **unused)
{
    (void)unused;
    for (const sample *of = samples; of < samples + SAMPLES; of++) {
        size_t bytes = 0;
        guarded packed = encode_sample(of, &bytes), target = target_for(of);
        guarded cut = guarded_new(bytes);
        for (size_t length = 0; length < bytes; length++) {
            /* Ends at the guard page: reading what is cut off faults. */
            uint8_t *start = cut.data + bytes - length;
            memcpy(start, packed.data, length);
            expect_corrupt(of, &of->shape, start, length, &target);
        }
        guarded longer = guarded_new(bytes + 1);
        memcpy(longer.data, packed.data, bytes);
        expect_corrupt(of, &of->shape, longer.data, bytes + 1, &target);
        guarded_free(&longer);
        guarded_free(&cut);
        guarded_free(&packed);
        guarded_free(&target);
    }
}

static void test_other_shapes(void **unused)
{
    (void)unused;
    for (const sample *of = samples; of < samples + SAMPLES; of++) {
        size_t bytes = 0;
        guarded packed = encode_sample(of, &bytes), target = target_for(of);
        mz_codec_shape other = of->shape;
        other.elem = MZ_ELEM_BF16;
        expect_corrupt(of, &other, packed.data, bytes, &target);
        other = of->shape;
        other.rows--;
        expect_corrupt(of, &other, packed.data, bytes, &target);
        other = (mz_codec_shape){of->shape.elem, of->shape.row_bytes * of->shape.rows, 1};
        expect_corrupt(of, &other, packed.data, bytes, &target);
        guarded_free(&packed);
        guarded_free(&target);
    }
}

/* Put the right checksum into bytes that were changed. */
static void seal(uint8_t *packed, size_t bytes)
{
    uint64_t length = bytes - HEADER;
    memcpy(packed + 16, &length, sizeof length);
    uint64_t fields = XXH3_64bits(packed, CHECKSUM_AT);
    uint64_t checksum = XXH3_64bits_withSeed(packed + HEADER, bytes - HEADER, fields);
    memcpy(packed + CHECKSUM_AT, &checksum, sizeof checksum);
}

static void test_forgeries(void **unused)
{
    (void)unused;
    for (const sample *of = samples; of < samples + SAMPLES; of++) {
        size_t bytes = 0;
        guarded packed = encode_sample(of, &bytes), target = target_for(of);
        uint8_t *first = packed.data + HEADER;
        uint8_t kept = first[0], kept_next = first[1];
        /* A code that is too large; a block that isn't there; a plane of another length. */
        *first = strcmp(of->name, "q8") == 0 ? 126 : 7;
        if (strcmp(of->name, "q4") == 0) {
            first[1] = 0x7c; /* lo of the first channel: NaN */
        }
        seal(packed.data, bytes);
        expect_corrupt(of, &of->shape, packed.data, bytes, &target);
        first[1] = kept_next;
        *first = kept | 8; /* q8: another value, which is fine; sparse: bit behind the last block */
        seal(packed.data, bytes);
        if (strcmp(of->name, "sparse") == 0) {
            expect_corrupt(of, &of->shape, packed.data, bytes, &target);
        }
        *first = kept;
        for (size_t length = HEADER; length < bytes; length += 31) {
            guarded cut = guarded_new(length);
            memcpy(cut.data, packed.data, length);
            seal(cut.data, length);
            expect_corrupt(of, &of->shape, cut.data, length, &target);
            guarded_free(&cut);
        }
        seal(packed.data, bytes);
        assert_int_equal(mz_codec_decode(&of->shape, packed.data, bytes, target.data), MZ_OK);
        guarded_free(&packed);
        guarded_free(&target);
    }
}

static void test_ids(void **unused)
{
    (void)unused;
    assert_null(mz_codec_find("raw"));
    assert_null(mz_codec_find(""));
    assert_string_equal(mz_codec_by_id(1)->name, "sparse");
    assert_string_equal(mz_codec_by_id(2)->name, "q8");
    assert_string_equal(mz_codec_by_id(3)->name, "lossless");
    assert_string_equal(mz_codec_by_id(4)->name, "lz4");
    assert_string_equal(mz_codec_by_id(5)->name, "zstd");
    assert_string_equal(mz_codec_by_id(6)->name, "q4");
    assert_string_equal(mz_codec_by_id(7)->name, "cachegen");
    assert_true(mz_codec_find("sparse")->exact);
    assert_false(mz_codec_find("q8")->exact);
    size_t bytes = 0;
    guarded packed = encode_sample(&samples[0], &bytes), target = target_for(&samples[0]);
    for (unsigned id = 0; id < 65536; id++) {
        packed.data[4] = (uint8_t)id;
        packed.data[5] = (uint8_t)(id >> 8);
        seal(packed.data, bytes);
        if (id >= 1 && id <= 7) {
            assert_non_null(mz_codec_by_id((uint16_t)id));
        } else {
            assert_null(mz_codec_by_id((uint16_t)id));
        }
        if (id != 2) {
            /* Intact, and of a range kept for codecs from outside: somebody else may know it. */
            mz_status wanted = id >= 0x8000 && id < 0xffff ? MZ_E_NOTFOUND : MZ_E_CORRUPT;
            assert_int_equal(mz_codec_decode(&samples[0].shape, packed.data, bytes, target.data),
                             wanted);
        }
    }
    guarded_free(&packed);
    guarded_free(&target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_flip),   cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_other_shapes), cmocka_unit_test(test_forgeries),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

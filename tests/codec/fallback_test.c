/* SPDX-License-Identifier: MIT */
/*
 * Goal: what a lossy codec does not take has an exact codec that keeps it.
 * Method: every codec of the list is asked for every element type, with rows that a q8_0 cache
 * (opaque bytes to a codec) or a cache of floats has. A lossy one takes f16 only and writes nothing
 * for the others; the exact ones, "sparse" of the store among them, give back the bytes of the
 * test. Which of them a pool takes instead is compared with the table of docs/codecs.md.
 */
#include "fixture.h"

#include "codec/codec.h"

#define ROW 64u
#define ROWS 64u
#define BYTES (ROW * ROWS)

static void check_refused(const mz_codec *codec, const mz_codec_shape *shape, const uint8_t *data)
{
    guarded target = guarded_new(BYTES);
    size_t bytes = 77;
    assert_false(codec->takes(shape));
    assert_int_equal(codec->encode(shape, data, target.data, &bytes), MZ_E_UNSUPPORTED);
    assert_int_equal(bytes, 77);
    for (size_t i = 0; i < BYTES; i++) {
        assert_int_equal(target.data[i], 0);
    }
    guarded_free(&target);
}

static void check_kept(const mz_codec *codec, const mz_codec_shape *shape, const uint8_t *data)
{
    guarded kept = guarded_new(codec->bound(shape)), back = guarded_new(BYTES);
    size_t bytes = 0;
    assert_true(codec->takes(shape));
    assert_int_equal(codec->encode(shape, data, kept.data, &bytes), MZ_OK);
    assert_int_equal(mz_codec_decode(shape, kept.data, bytes, back.data), MZ_OK);
    assert_memory_equal(back.data, data, BYTES);
    guarded_free(&kept);
    guarded_free(&back);
}

static void test_every_type_has_a_codec(void **unused)
{
    (void)unused;
    uint8_t data[BYTES];
    uint64_t random = 5;
    size_t lossy = 0, exact = 0;
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)(random_next(&random) >> 40);
    }
    for (size_t i = 0; mz_codec_at(i) != NULL; i++) {
        const mz_codec *codec = mz_codec_at(i);
        for (int elem = MZ_ELEM_OPAQUE; elem <= MZ_ELEM_F32; elem++) {
            const mz_codec_shape shape = {(mz_elem)elem, ROW, ROWS};
            if (codec->exact) {
                check_kept(codec, &shape, data);
                exact++;
            } else if (elem == MZ_ELEM_F16) {
                assert_true(codec->takes(&shape));
            } else {
                check_refused(codec, &shape, data);
                lossy++;
            }
        }
    }
    assert_true(lossy > 0 && exact > 0);
}

static const char *chosen(const char *codec, mz_elem elem, uint32_t row_bytes)
{
    const mz_codec_shape shape = {elem, row_bytes, ROWS};
    const mz_codec *keeps = mz_codec_or_exact(mz_codec_find(codec), &shape);
    return keeps != NULL ? keeps->name : "raw";
}

static void test_who_keeps_what_a_codec_does_not_take(void **unused)
{
    (void)unused;
    assert_string_equal(chosen("q8", MZ_ELEM_F16, ROW), "q8");
    assert_string_equal(chosen("q8", MZ_ELEM_F16, ROW + 2), "lossless");
    for (int i = 0; i < 2; i++) {
        const char *codec = i == 0 ? "q8" : "q4";
        assert_string_equal(chosen(codec, MZ_ELEM_BF16, ROW), "lossless");
        assert_string_equal(chosen(codec, MZ_ELEM_F32, ROW), "lossless");
        assert_string_equal(chosen(codec, MZ_ELEM_OPAQUE, ROW), "raw");
    }
    assert_string_equal(chosen("lossless", MZ_ELEM_OPAQUE, ROW), "lossless");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_has_a_codec),
        cmocka_unit_test(test_who_keeps_what_a_codec_does_not_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

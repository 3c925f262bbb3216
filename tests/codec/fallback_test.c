/* SPDX-License-Identifier: MIT */
/*
 * Goal: what a lossy codec does not take has an exact codec that keeps it.
 * Method: every codec of the list is asked for every element type, with rows that a q8_0 cache
 * (opaque bytes to a codec) or a cache of floats has. A lossy one takes f16 only and writes nothing
 * for the others; the exact ones, "sparse" of the store among them, give back the bytes of the
 * test.
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_type_has_a_codec)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

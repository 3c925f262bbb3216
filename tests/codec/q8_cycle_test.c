/* SPDX-License-Identifier: MIT */
/*
 * Goal: the codec "q8" keeps each value within half a scale, does not drift over repeated cycles,
 * and refuses what it can't keep.
 * Method: random rows of every magnitude, ten cycles compared with one; the bound is computed from
 * the payload's own codes in double arithmetic; NaN and infinities at every place of a row.
 */
#include "fixture.h"

#include "codec/codec.h"

#define ROWS 37u
#define ROW_BYTES 192u /* three groups: odd on purpose */
#define TOTAL (ROWS * ROW_BYTES)
#define HEADER 32u
#define CODES_BYTES 128u /* 111 codes, rounded up to 64 */

static const mz_codec_shape shape = {MZ_ELEM_F16, ROW_BYTES, ROWS};

static void test_ten_cycles_equal_one(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("q8");
    uint64_t state = 5;
    for (int round = 0; round < 50; round++) {
        guarded data = guarded_new(TOTAL), once = guarded_new(TOTAL);
        guarded first = guarded_new(codec->bound(&shape));
        guarded other = guarded_new(codec->bound(&shape));
        size_t bytes = 0, other_bytes = 0;
        fill_groups((uint16_t *)(void *)data.data, ROWS * 3, &state);
        assert_int_equal(codec->encode(&shape, data.data, first.data, &bytes), MZ_OK);
        assert_int_equal(bytes, HEADER + CODES_BYTES + TOTAL / 2);
        assert_int_equal(bytes, codec->bound(&shape));
        assert_int_equal(codec->decode(&shape, first.data, bytes, once.data), MZ_OK);
        memcpy(data.data, once.data, TOTAL);
        for (int cycle = 1; cycle < 10; cycle++) {
            memset(other.data, 0xa5, bytes);
            assert_int_equal(codec->encode(&shape, data.data, other.data, &other_bytes), MZ_OK);
            assert_int_equal(other_bytes, bytes);
            assert_memory_equal(other.data, first.data, bytes);
            memset(data.data, 0, TOTAL);
            assert_int_equal(codec->decode(&shape, other.data, bytes, data.data), MZ_OK);
            assert_memory_equal(data.data, once.data, TOTAL);
        }
        guarded_free(&data);
        guarded_free(&once);
        guarded_free(&first);
        guarded_free(&other);
    }
}

static void test_error_is_within_half_a_scale(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("q8");
    uint64_t state = 6;
    guarded data = guarded_new(TOTAL), back = guarded_new(TOTAL);
    guarded packed = guarded_new(codec->bound(&shape));
    const uint16_t *source = (const uint16_t *)(const void *)data.data;
    const uint16_t *decoded = (const uint16_t *)(const void *)back.data;
    for (int round = 0; round < 200; round++) {
        size_t bytes = 0;
        fill_groups((uint16_t *)(void *)data.data, ROWS * 3, &state);
        assert_int_equal(codec->encode(&shape, data.data, packed.data, &bytes), MZ_OK);
        assert_int_equal(codec->decode(&shape, packed.data, bytes, back.data), MZ_OK);
        for (size_t i = 0; i < TOTAL / 2; i++) {
            double scale = scale_value(packed.data[HEADER + i / 32]);
            assert_true(fabs(f16_value(source[i]) - f16_value(decoded[i])) <= scale / 2);
        }
    }
    guarded_free(&data);
    guarded_free(&back);
    guarded_free(&packed);
}

static void test_not_finite_is_refused(void **unused)
{
    (void)unused;
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xfe00, 0x7fff, 0xffff};
    const mz_codec *codec = mz_codec_find("q8");
    guarded data = guarded_new(TOTAL), packed = guarded_new(codec->bound(&shape));
    uint16_t *source = (uint16_t *)(void *)data.data;
    for (size_t i = 0; i < TOTAL / 2; i++) {
        uint16_t kept = source[i];
        size_t bytes = 77;
        source[i] = bad[i % (sizeof bad / sizeof bad[0])];
        assert_int_equal(codec->encode(&shape, source, packed.data, &bytes), MZ_E_UNSUPPORTED);
        assert_int_equal(bytes, 77);
        source[i] = kept;
    }
    guarded_free(&data);
    guarded_free(&packed);
}

/* By hand: the smallest scale is 2^-22; 2^-24 is a quarter of it, 3 * 2^-24 three quarters. */
static void test_denormals_and_zeros(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("q8");
    const mz_codec_shape one = {MZ_ELEM_F16, 64, 1};
    uint16_t source[32] = {0x0001, 0x8001, 0x0003, 0x8003, 0x0004, 0x8000, 0x01f2};
    uint16_t right[32] = {0, 0, 0x0004, 0x8004, 0x0004, 0, 0x01f0}; /* 498 / 4 = 124.5: to 124 */
    uint16_t back[32] = {0};
    uint8_t packed[HEADER + 64 + 32];
    size_t bytes = 0;
    assert_int_equal(codec->bound(&one), sizeof packed);
    assert_int_equal(codec->encode(&one, source, packed, &bytes), MZ_OK);
    assert_int_equal(packed[HEADER], 0);
    assert_int_equal(codec->decode(&one, packed, bytes, back), MZ_OK);
    assert_memory_equal(back, right, sizeof right);
}

static void test_takes(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("q8");
    const mz_codec_shape not_f16 = {MZ_ELEM_BF16, 64, 4}, odd = {MZ_ELEM_F16, 96, 4};
    const mz_codec_shape none = {MZ_ELEM_F16, 64, 0};
    uint8_t buffer[512] = {0}, packed[512];
    size_t bytes = 0;
    assert_true(codec->takes(&shape));
    assert_false(codec->takes(&not_f16));
    assert_false(codec->takes(&odd));
    assert_int_equal(codec->encode(&not_f16, buffer, packed, &bytes), MZ_E_UNSUPPORTED);
    assert_int_equal(codec->encode(&odd, buffer, packed, &bytes), MZ_E_UNSUPPORTED);
    assert_int_equal(codec->encode(&none, buffer, packed, &bytes), MZ_OK);
    assert_int_equal(bytes, HEADER);
    assert_int_equal(codec->decode(&none, packed, bytes, buffer), MZ_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_cycles_equal_one),
        cmocka_unit_test(test_error_is_within_half_a_scale),
        cmocka_unit_test(test_not_finite_is_refused),
        cmocka_unit_test(test_denormals_and_zeros),
        cmocka_unit_test(test_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

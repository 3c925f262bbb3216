/* SPDX-License-Identifier: MIT */
/*
 * Goal: the codec "q4" takes about 9/32, gives the same bytes in every cycle, keeps rows that are
 * too few for ranges exactly, and refuses what it can't keep.
 * Method: every number of rows up to three strips; sizes by hand; ten cycles compared with one.
 */
#include "fixture.h"

#include "codec/codec.h"

#define MOST_ROWS 140u
#define ROW_BYTES 192u /* three strips: odd on purpose */
#define HEADER 32u

static void test_ten_cycles_of_any_rows(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("q4");
    uint64_t state = 51;
    for (uint32_t rows = 0; rows <= MOST_ROWS; rows++) {
        const mz_codec_shape shape = {MZ_ELEM_F16, ROW_BYTES, rows};
        size_t total = (size_t)rows * ROW_BYTES, bytes = 0, other_bytes = 0;
        guarded data = guarded_new(total), once = guarded_new(total);
        guarded first = guarded_new(codec->bound(&shape)), other = guarded_new(first.mapped);
        fill_groups((uint16_t *)(void *)data.data, (size_t)rows * 3, &state);
        /* By hand: 3 strips of 128 + 64 * 16 bytes for 64 rows, 3 * (128 + rows * 16) for
         * others. */
        uint32_t rest = rows % 64;
        size_t right = HEADER + rows / 64 * 3456u + (rest < 8 ? rest * 192u : 384u + rest * 48u);
        assert_int_equal(codec->bound(&shape), right);
        assert_int_equal(codec->encode(&shape, data.data, first.data, &bytes), MZ_OK);
        assert_int_equal(bytes, right);
        assert_int_equal(codec->decode(&shape, first.data, bytes, once.data), MZ_OK);
        if (rest < 8) {
            size_t exact = rest * ROW_BYTES;
            assert_memory_equal(once.data + total - exact, data.data + total - exact, exact);
        }
        memcpy(data.data, once.data, total);
        for (int cycle = 1; cycle < 10; cycle++) {
            assert_int_equal(codec->encode(&shape, data.data, other.data, &other_bytes), MZ_OK);
            assert_int_equal(other_bytes, bytes);
            assert_memory_equal(other.data, first.data, bytes);
            memset(data.data, 0, total);
            assert_int_equal(codec->decode(&shape, other.data, bytes, data.data), MZ_OK);
            assert_memory_equal(data.data, once.data, total);
        }
        guarded *all[] = {&data, &once, &first, &other};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            guarded_free(all[i]);
        }
    }
}

/* By hand: lo 0, hi 15, step 1: integers are kept, halves go to the even neighbour. */
static void test_known_values(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("q4");
    const mz_codec_shape shape = {MZ_ELEM_F16, 64, 8};
    static const uint16_t column[8] = {0x0000, 0x4b80, 0x3c00, 0x3e00,
                                       0x4100, 0x4880, 0x8000, 0x4880};
    /*                                 0       15      1       1.5     2.5     9       -0      9 */
    static const uint16_t decoded[8] = {0, 0x4b80, 0x3c00, 0x4000, 0x4000, 0x4880, 0, 0x4880};
    uint16_t source[8 * 32], back[8 * 32] = {0};
    uint8_t packed[HEADER + 128 + 8 * 16];
    size_t bytes = 0;
    for (size_t i = 0; i < 8 * 32; i++) {
        source[i] = column[i / 32];
    }
    assert_int_equal(codec->bound(&shape), sizeof packed);
    assert_int_equal(codec->encode(&shape, source, packed, &bytes), MZ_OK);
    assert_int_equal(packed[HEADER + 128 + 16], 0xff);
    assert_int_equal(codec->decode(&shape, packed, bytes, back), MZ_OK);
    for (size_t i = 0; i < 8 * 32; i++) {
        assert_int_equal(back[i], decoded[i / 32]);
    }
}

static void test_refusals(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("q4");
    const mz_codec_shape shape = {MZ_ELEM_F16, 64, 9};
    const mz_codec_shape others[] = {
        {MZ_ELEM_BF16, 64, 9}, {MZ_ELEM_F32, 64, 9}, {MZ_ELEM_OPAQUE, 64, 9}, {MZ_ELEM_F16, 96, 6}};
    uint16_t source[9 * 32] = {0};
    uint8_t packed[1024];
    size_t bytes = 77;
    assert_false(codec->exact);
    assert_true(codec->takes(&shape));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_false(codec->takes(&others[i]));
        assert_int_equal(codec->encode(&others[i], source, packed, &bytes), MZ_E_UNSUPPORTED);
    }
    source[100] = 0x7c00;
    assert_int_equal(codec->encode(&shape, source, packed, &bytes), MZ_E_UNSUPPORTED);
    assert_int_equal(bytes, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_cycles_of_any_rows),
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

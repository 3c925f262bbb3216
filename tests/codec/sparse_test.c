/* SPDX-License-Identifier: MIT */
/*
 * Goal: the codec "sparse" gives back the very bytes, takes little for zeros, and leaves the pages
 * of zero blocks alone.
 * Method: random data with random zero blocks at odd sizes; the expected size is counted from the
 * blocks that the test filled; during decoding the zero pages of the target are inaccessible, so
 * that a write there faults.
 */
#include "fixture.h"

#include "codec/codec.h"

#define HEADER 32u

static size_t round_up(size_t value, size_t to)
{
    return (value + to - 1) / to * to;
}

/* Fill about `of_eight` in eight blocks of `data`; returns the bytes of those that are not zero. */
static size_t fill_some_blocks(uint8_t *data, size_t bytes, unsigned of_eight, uint64_t *state)
{
    size_t filled = 0;
    for (size_t start = 0; start < bytes; start += PAGE) {
        size_t length = bytes - start < PAGE ? bytes - start : PAGE;
        if (random_next(state) >> 61 < of_eight) {
            /* One bit is enough to make a block count, wherever it lies. */
            data[start + random_next(state) % length] = (uint8_t)(1u << (random_next(state) >> 61));
            filled += length;
        }
    }
    return filled;
}

static void test_exact_at_all_sizes(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("sparse");
    uint64_t state = 31;
    for (uint32_t rows = 0; rows < 120; rows++) {
        const mz_codec_shape shape = {MZ_ELEM_F32, 1028, rows};
        size_t total = (size_t)rows * 1028;
        guarded data = guarded_new(total), back = guarded_new(total);
        guarded packed = guarded_new(codec->bound(&shape));
        size_t filled = fill_some_blocks(data.data, total, rows % 8, &state);
        size_t bytes = 0;
        assert_true(codec->takes(&shape));
        memset(packed.data, 0xa5, codec->bound(&shape));
        assert_int_equal(codec->encode(&shape, data.data, packed.data, &bytes), MZ_OK);
        size_t blocks = round_up(total, PAGE) / PAGE;
        assert_int_equal(bytes, HEADER + round_up(round_up(blocks, 8) / 8, 64) + filled);
        assert_int_equal(codec->decode(&shape, packed.data, bytes, back.data), MZ_OK);
        assert_memory_equal(back.data, data.data, total);
        guarded_free(&data);
        guarded_free(&back);
        guarded_free(&packed);
    }
}

static void test_full_data_fits_the_bound(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("sparse");
    const mz_codec_shape shape = {MZ_ELEM_OPAQUE, 5 * PAGE + 17, 1};
    guarded data = guarded_new(shape.row_bytes), back = guarded_new(shape.row_bytes);
    guarded packed = guarded_new(codec->bound(&shape));
    size_t bytes = 0;
    uint64_t state = 32;
    for (size_t i = 0; i < shape.row_bytes; i++) {
        data.data[i] = (uint8_t)(random_next(&state) | 1);
    }
    assert_int_equal(codec->encode(&shape, data.data, packed.data, &bytes), MZ_OK);
    assert_int_equal(bytes, codec->bound(&shape));
    assert_int_equal(codec->decode(&shape, packed.data, bytes, back.data), MZ_OK);
    assert_memory_equal(back.data, data.data, shape.row_bytes);
    guarded_free(&data);
    guarded_free(&back);
    guarded_free(&packed);
}

static void test_zero_pages_stay_untouched(void **unused)
{
    (void)unused;
    enum { PAGES = 64 };
    const mz_codec *codec = mz_codec_find("sparse");
    const mz_codec_shape shape = {MZ_ELEM_F16, PAGE / 2, PAGES * 2};
    guarded data = guarded_new(PAGES * PAGE), back = guarded_new(PAGES * PAGE);
    guarded packed = guarded_new(codec->bound(&shape));
    size_t bytes = 0;
    for (size_t page = 0; page < PAGES; page++) {
        if (page % 5 < 2) {
            memset(data.data + page * PAGE, (int)page + 1, PAGE);
        } else {
            assert_int_equal(mprotect(back.data + page * PAGE, PAGE, PROT_NONE), 0);
        }
    }
    assert_int_equal(codec->encode(&shape, data.data, packed.data, &bytes), MZ_OK);
    assert_int_equal(codec->decode(&shape, packed.data, bytes, back.data), MZ_OK);
    assert_int_equal(mprotect(back.data, PAGES * PAGE, PROT_READ), 0);
    assert_memory_equal(back.data, data.data, PAGES * PAGE);
    guarded_free(&data);
    guarded_free(&back);
    guarded_free(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_at_all_sizes),
        cmocka_unit_test(test_full_data_fits_the_bound),
        cmocka_unit_test(test_zero_pages_stay_untouched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

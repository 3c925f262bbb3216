/* SPDX-License-Identifier: MIT */
/*
 * Goal: "lossless", "lz4" and "zstd" give back the very bytes at every size and type, stay within
 * their bound, write the same bytes in each of ten cycles, leave zeros unwritten, and survive
 * forgeries whose checksum is right.
 * Method: what must come back is what the test wrote; buffers end at guard pages. Sizes by hand
 * from the format: a header of 32 bytes and 4 bytes per plane. The saving on values with few
 * exponents is bounded by their entropy, computed here. Several threads run at once, because the
 * working memory is per thread.
 */
#include "fixture.h"

#include <pthread.h>
#include <stdlib.h>

#include <xxhash.h>

#include "codec/codec.h"

#define HEADER 32u

static const char *const names[] = {"lossless", "lz4", "zstd"};
#define NAMES (sizeof names / sizeof names[0])

typedef enum fill { FILL_ZERO, FILL_RANDOM, FILL_KV, FILL_REPEAT, FILL_MIXED, FILLS } fill;

/* FILL_KV: f16 between 2^-3 and 2 with any fraction: 2 random bits of exponent, 11 others. */
static void fill_data(uint8_t *data, size_t bytes, fill how, uint64_t *state)
{
    for (size_t i = 0; i < bytes; i++) {
        uint64_t bits = random_next(state);
        fill now = how == FILL_MIXED ? (fill)(i / 5000 % FILL_MIXED) : how;
        uint64_t sign = bits >> 63, exponent = 12 + (bits >> 61 & 3);
        uint8_t upper = (uint8_t)(sign << 7 | exponent << 2 | (bits >> 58 & 3));
        uint8_t any = (uint8_t)(bits >> 40);
        data[i] = now == FILL_ZERO     ? 0
                  : now == FILL_RANDOM ? any
                  : now == FILL_REPEAT ? (uint8_t)(i % 7)
                                       : (i % 2 == 0 ? any : upper);
    }
}

static void check_cycles(const mz_codec *codec, const mz_codec_shape *shape, fill how,
                         uint64_t *state)
{
    size_t total = (size_t)shape->row_bytes * shape->rows, bytes = 0;
    guarded data = guarded_new(total), back = guarded_new(total);
    guarded first = guarded_new(codec->bound(shape)), again = guarded_new(codec->bound(shape));
    fill_data(data.data, total, how, state);
    memset(first.data, 0xa5, codec->bound(shape));
    assert_true(codec->takes(shape));
    assert_int_equal(codec->encode(shape, data.data, first.data, &bytes), MZ_OK);
    assert_true(bytes <= codec->bound(shape));
    guarded tight = guarded_new(bytes);
    memcpy(tight.data, first.data, bytes);
    for (int cycle = 0; cycle < 10; cycle++) {
        size_t again_bytes = 0;
        if (total > 0) {
            memset(back.data, 0, total);
        }
        assert_int_equal(codec->decode(shape, tight.data, bytes, back.data), MZ_OK);
        assert_memory_equal(back.data, data.data, total);
        assert_int_equal(codec->encode(shape, back.data, again.data, &again_bytes), MZ_OK);
        assert_int_equal(again_bytes, bytes);
        assert_memory_equal(again.data, first.data, bytes);
    }
    guarded_free(&data);
    guarded_free(&back);
    guarded_free(&first);
    guarded_free(&again);
    guarded_free(&tight);
}

static void test_ten_cycles_at_odd_sizes(void **unused)
{
    (void)unused;
    static const uint32_t rows[] = {0, 1, 2, 3, 63, 64, 65, 257};
    static const uint32_t row_bytes[] = {1, 2, 4, 6, 64, 1028, 4096};
    uint64_t state = 41;
    for (size_t name = 0; name < NAMES; name++) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            for (size_t j = 0; j < sizeof row_bytes / sizeof row_bytes[0]; j++) {
                mz_codec_shape shape = {(mz_elem)((i + j) % 4), row_bytes[j], rows[i]};
                fill how = (fill)((i * 3 + j) % FILLS);
                check_cycles(mz_codec_find(names[name]), &shape, how, &state);
            }
        }
    }
}

/* Bits that no 8-bit type has: rows that end within an element are plain bytes. */
static void test_every_type(void **unused)
{
    (void)unused;
    uint64_t state = 42;
    for (int elem = MZ_ELEM_OPAQUE; elem <= MZ_ELEM_F32; elem++) {
        for (int how = 0; how < FILLS; how++) {
            mz_codec_shape whole = {(mz_elem)elem, 1540, 200}, cut = {(mz_elem)elem, 1541, 90};
            check_cycles(mz_codec_find("lossless"), &whole, (fill)how, &state);
            check_cycles(mz_codec_find("lossless"), &cut, (fill)how, &state);
        }
    }
}

static size_t encoded_size(const char *name, const mz_codec_shape *shape, const uint8_t *data)
{
    const mz_codec *codec = mz_codec_find(name);
    guarded packed = guarded_new(codec->bound(shape));
    size_t bytes = 0;
    assert_int_equal(codec->encode(shape, data, packed.data, &bytes), MZ_OK);
    guarded_free(&packed);
    return bytes;
}

/* Upper bytes have 1 + 2 + 2 random bits of 8, so 13 of 16 bits at best; coded within 3 %. */
static void test_sizes(void **unused)
{
    (void)unused;
    const mz_codec_shape shape = {MZ_ELEM_F16, 1024, 256};
    size_t total = 1024 * 256;
    uint8_t *data = calloc(1, total);
    uint64_t state = 43;
    assert_non_null(data);
    assert_int_equal(encoded_size("lossless", &shape, data), HEADER + 2 * 2 * 4);
    assert_int_equal(encoded_size("lz4", &shape, data), HEADER + 64 * 4);
    fill_data(data, total, FILL_RANDOM, &state);
    assert_int_equal(encoded_size("lossless", &shape, data), HEADER + 2 * 2 * 4 + total);
    assert_int_equal(mz_codec_find("lossless")->bound(&shape), HEADER + 2 * 2 * 4 + total);
    assert_int_equal(encoded_size("zstd", &shape, data), HEADER + 64 * 4 + total);
    fill_data(data, total, FILL_KV, &state);
    size_t bytes = encoded_size("lossless", &shape, data);
    assert_in_range(bytes, total * 13 / 16, total * 13 / 16 + total * 3 / 100);
    assert_int_equal(encoded_size("lz4", &shape, data), HEADER + 64 * 4 + total);
    free(data);
}

/* Planning: KV that keeps rows is expected to shrink; a codec without an idea says its bound. */
static void test_expected(void **unused)
{
    (void)unused;
    for (int elem = MZ_ELEM_OPAQUE; elem <= MZ_ELEM_F32; elem++) {
        const mz_codec_shape shape = {(mz_elem)elem, 512, 256};
        size_t expected = mz_codec_expected(mz_codec_find("lossless"), &shape);
        assert_in_range(expected, 512 * 256 / 2, 512 * 256 - 4096);
        const mz_codec *lz4 = mz_codec_find("lz4");
        assert_int_equal(mz_codec_expected(lz4, &shape), lz4->bound(&shape));
    }
    const mz_codec_shape none = {MZ_ELEM_F16, 512, 0};
    assert_int_equal(mz_codec_expected(mz_codec_find("lossless"), &none), HEADER);
}

static void test_zero_blocks_stay_untouched(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("lossless");
    const mz_codec_shape shape = {MZ_ELEM_F16, 1024, 384}; /* three blocks, the middle one zero */
    size_t block = 128u << 10, bytes = 0;
    uint64_t state = 44;
    guarded data = guarded_new(3 * block), back = guarded_new(3 * block);
    guarded packed = guarded_new(codec->bound(&shape));
    fill_data(data.data, block, FILL_KV, &state);
    fill_data(data.data + 2 * block, block, FILL_KV, &state);
    assert_int_equal(mprotect(back.data + block, block, PROT_NONE), 0);
    assert_int_equal(codec->encode(&shape, data.data, packed.data, &bytes), MZ_OK);
    assert_int_equal(codec->decode(&shape, packed.data, bytes, back.data), MZ_OK);
    assert_int_equal(mprotect(back.data, 3 * block, PROT_READ), 0);
    assert_memory_equal(back.data, data.data, 3 * block);
    guarded_free(&data);
    guarded_free(&back);
    guarded_free(&packed);
}

/* Put the right checksum into bytes that were changed (layout: header.h). */
static void seal(uint8_t *packed, size_t bytes)
{
    uint64_t fields = XXH3_64bits(packed, 24);
    uint64_t checksum = XXH3_64bits_withSeed(packed + HEADER, bytes - HEADER, fields);
    memcpy(packed + 24, &checksum, sizeof checksum);
}

/* Sealed damage may decode to other bytes or be refused; it must stay within both buffers. */
static void test_sealed_damage_stays_in_bounds(void **unused)
{
    (void)unused;
    uint64_t state = 45;
    for (size_t name = 0; name < NAMES; name++) {
        const mz_codec *codec = mz_codec_find(names[name]);
        const mz_codec_shape shape = {MZ_ELEM_F16, 128, 160};
        size_t total = 128 * 160, bytes = 0, refused = 0;
        guarded data = guarded_new(total), back = guarded_new(total);
        guarded packed = guarded_new(codec->bound(&shape));
        fill_data(data.data, total, FILL_MIXED, &state);
        assert_int_equal(codec->encode(&shape, data.data, packed.data, &bytes), MZ_OK);
        guarded tight = guarded_new(bytes);
        for (int round = 0; round < 4000; round++) {
            memcpy(tight.data, packed.data, bytes);
            for (int flips = 0; flips < 1 + round % 3; flips++) {
                size_t range = round % 2 == 0 ? 64 : bytes - HEADER;
                size_t at = HEADER + (size_t)(random_next(&state) >> 8) % range;
                tight.data[at] = (uint8_t)(tight.data[at] ^ (1 + random_next(&state) % 255));
            }
            seal(tight.data, bytes);
            mz_status status = codec->decode(&shape, tight.data, bytes, back.data);
            assert_true(status == MZ_OK || status == MZ_E_CORRUPT);
            refused += status == MZ_E_CORRUPT;
        }
        assert_true(refused > 0);
        guarded_free(&data);
        guarded_free(&back);
        guarded_free(&packed);
        guarded_free(&tight);
    }
}

static void *cycle_in_thread(void *argument)
{
    uint64_t state = *(uint64_t *)argument;
    const mz_codec_shape shape = {MZ_ELEM_F16, 512, 300};
    for (int how = 0; how < FILLS; how++) {
        check_cycles(mz_codec_find("lossless"), &shape, (fill)how, &state);
    }
    return NULL;
}

static void test_threads(void **unused)
{
    (void)unused;
    pthread_t threads[4];
    uint64_t seeds[4] = {51, 52, 53, 54};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, cycle_in_thread, &seeds[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_cycles_at_odd_sizes),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_expected),
        cmocka_unit_test(test_zero_blocks_stay_untouched),
        cmocka_unit_test(test_sealed_damage_stays_in_bounds),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

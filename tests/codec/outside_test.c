/* SPDX-License-Identifier: MIT */
/*
 * Goal: a codec from outside that keeps its contract is a codec like others; whatever one that
 * breaks it says or writes, wrong bytes are never taken as right; and tables that are not allowed
 * are refused in a sentence that says what is wrong.
 * Method: one codec whose behaviour a test chooses, which copies the data and adds one; the right
 * answers are the data of the test. Sources and targets end at guard pages. The library of
 * examples/codec is loaded as a process does it.
 */
#include "fixture.h"

#include <stdlib.h>
#include <xxhash.h>

#include "codec/outside.h"

#define ROW 64u
#define ROWS 70u
#define BYTES (ROW * ROWS)

/* What the codec of these tests does wrong. */
typedef enum fault {
    NOTHING,
    ENCODE_FAILS,
    ENCODE_SAYS_TOO_MUCH,
    ENCODE_SAYS_SIZE_MAX,
    ENCODE_WRITES_BEHIND,
    ENCODE_WRITES_OTHER_BYTES,
    ENCODE_WRITES_TOO_LITTLE,
    DECODE_FAILS,
    DECODE_WRITES_BEHIND,
    DECODE_GIVES_NAN,
    DECODE_DOES_NOTHING,
    DECODE_HAS_NO_MEMORY,
    BOUND_IS_HUGE,
    BOUND_IS_ZERO,
} fault;

static fault chosen;

static bool takes(const mz_codec_shape *shape)
{
    return shape->elem != MZ_ELEM_OPAQUE;
}

static size_t bound(const mz_codec_shape *shape)
{
    return chosen == BOUND_IS_HUGE ? SIZE_MAX - 8
                                   : (chosen == BOUND_IS_ZERO ? 0 : shape->row_bytes * shape->rows);
}

static mz_status encode(const mz_codec_shape *shape, const void *source, void *target, size_t room,
                        size_t *bytes)
{
    size_t total = (size_t)shape->row_bytes * shape->rows;
    assert_int_equal(room, total);
    for (size_t i = 0; i < total; i++) {
        ((uint8_t *)target)[i] = (uint8_t)(((const uint8_t *)source)[i] + 1);
    }
    *bytes = total;
    switch (chosen) {
    case ENCODE_FAILS:
        return MZ_E_IO;
    case ENCODE_SAYS_TOO_MUCH:
        *bytes = total + 1;
        break;
    case ENCODE_SAYS_SIZE_MAX:
        *bytes = SIZE_MAX;
        break;
    case ENCODE_WRITES_BEHIND:
        ((uint8_t *)target)[total + 17] = 0;
        break;
    case ENCODE_WRITES_OTHER_BYTES:
        ((uint8_t *)target)[total / 2] ^= 1;
        break;
    case ENCODE_WRITES_TOO_LITTLE:
        *bytes = total - 1;
        break;
    default:
        break;
    }
    return MZ_OK;
}

static mz_status decode(const mz_codec_shape *shape, const void *source, size_t bytes, void *target)
{
    size_t total = (size_t)shape->row_bytes * shape->rows;
    for (size_t i = 0; i < bytes && chosen != DECODE_DOES_NOTHING; i++) {
        ((uint8_t *)target)[i] = (uint8_t)(((const uint8_t *)source)[i] - 1);
    }
    if (chosen == DECODE_WRITES_BEHIND) {
        ((uint8_t *)target)[total + 200] = 1;
    } else if (chosen == DECODE_GIVES_NAN) {
        ((uint8_t *)target)[total - 1] = 0x7f;
        ((uint8_t *)target)[total - 2] = 0xff;
    }
    return chosen == DECODE_FAILS ? MZ_E_IO : chosen == DECODE_HAS_NO_MEMORY ? MZ_E_NOMEM : MZ_OK;
}

static mz_codec_table table_of(const char *name, uint16_t id, bool exact)
{
    return (mz_codec_table){.abi = MZ_CODEC_ABI,
                            .table_bytes = sizeof(mz_codec_table),
                            .name = name,
                            .id = id,
                            .exact = exact,
                            .takes = takes,
                            .bound = bound,
                            .encode = encode,
                            .decode = decode};
}

static const mz_codec_shape shape = {MZ_ELEM_F16, ROW, ROWS};

/* Values as in KV: finite whether they are f16, bf16 or the upper half of f32. */
static guarded make_data(void)
{
    guarded data = guarded_new(BYTES);
    uint64_t random = 3;
    for (size_t i = 0; i < BYTES; i++) {
        uint8_t byte = (uint8_t)(random_next(&random) >> 40);
        data.data[i] = (uint8_t)(i % 2 == 0 ? byte : (byte & 0x83) | 0x38);
    }
    return data;
}

static void add_codecs(void)
{
    mz_error error = MZ_ERROR_INIT;
    mz_codec_table exact = table_of("plus-one", 0x8123, true);
    mz_codec_table lossy = table_of("plus_1", 0xfffe, false);
    assert_int_equal(mz_outside_add(&exact, &error), MZ_OK);
    assert_int_equal(mz_outside_add(&lossy, &error), MZ_OK);
}

static void test_is_a_codec_like_others(void **unused)
{
    (void)unused;
    size_t before = 0, bytes = 0;
    while (mz_codec_at(before) != NULL) {
        before++;
    }
    add_codecs();
    add_codecs(); /* the same again changes nothing */
    const mz_codec *codec = mz_codec_find("plus-one");
    assert_non_null(codec);
    assert_ptr_equal(mz_codec_by_id(0x8123), codec);
    assert_ptr_equal(mz_codec_at(before), codec);
    assert_string_equal(mz_codec_at(before + 1)->name, "plus_1");
    assert_null(mz_codec_at(before + 2));
    assert_true(codec->exact);
    assert_false(mz_codec_find("plus_1")->exact);
    guarded data = make_data(), kept = guarded_new(codec->bound(&shape)), back = guarded_new(BYTES);
    assert_int_equal(codec->encode(&shape, data.data, kept.data, &bytes), MZ_OK);
    assert_in_range(bytes, BYTES, codec->bound(&shape));
    assert_int_equal(mz_codec_expected(codec, &shape), bytes);
    assert_int_equal(mz_codec_decode(&shape, kept.data, bytes, back.data), MZ_OK);
    assert_memory_equal(back.data, data.data, BYTES);
    mz_codec_shape opaque = {MZ_ELEM_OPAQUE, BYTES, 1}, large = {MZ_ELEM_F16, 1u << 20, 17};
    assert_false(codec->takes(&opaque));
    assert_false(codec->takes(&large));
    assert_int_equal(codec->encode(&opaque, data.data, kept.data, &bytes), MZ_E_UNSUPPORTED);
    guarded_free(&data);
    guarded_free(&kept);
    guarded_free(&back);
}

/* What encode must say of each fault, by the codec that claims to be exact and by the other. */
static void test_encode_faults(void **unused)
{
    (void)unused;
    static const struct {
        fault fault;
        mz_status exact, lossy;
    } cases[] = {
        {NOTHING, MZ_OK, MZ_OK},
        {ENCODE_FAILS, MZ_E_UNSUPPORTED, MZ_E_UNSUPPORTED},
        {ENCODE_SAYS_TOO_MUCH, MZ_E_CORRUPT, MZ_E_CORRUPT},
        {ENCODE_SAYS_SIZE_MAX, MZ_E_CORRUPT, MZ_E_CORRUPT},
        {ENCODE_WRITES_BEHIND, MZ_E_CORRUPT, MZ_E_CORRUPT},
        {ENCODE_WRITES_OTHER_BYTES, MZ_E_CORRUPT, MZ_OK}, /* it may be what a lossy codec does */
        {ENCODE_WRITES_TOO_LITTLE, MZ_E_CORRUPT, MZ_OK},
        {DECODE_FAILS, MZ_E_CORRUPT, MZ_E_CORRUPT},
        {DECODE_WRITES_BEHIND, MZ_E_CORRUPT, MZ_E_CORRUPT},
        {DECODE_GIVES_NAN, MZ_E_CORRUPT, MZ_E_CORRUPT},
        {DECODE_DOES_NOTHING, MZ_E_CORRUPT, MZ_OK},
        {DECODE_HAS_NO_MEMORY, MZ_E_UNSUPPORTED, MZ_E_UNSUPPORTED},
        {BOUND_IS_HUGE, MZ_E_UNSUPPORTED, MZ_E_UNSUPPORTED},
        {BOUND_IS_ZERO, MZ_E_UNSUPPORTED, MZ_E_UNSUPPORTED},
    };
    guarded data = make_data();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int k = 0; k < 2; k++) {
            const mz_codec *codec = mz_codec_find(k == 0 ? "plus-one" : "plus_1");
            chosen = NOTHING;
            guarded kept = guarded_new(codec->bound(&shape));
            size_t bytes = 77;
            chosen = cases[i].fault;
            mz_status wanted = k == 0 ? cases[i].exact : cases[i].lossy;
            assert_int_equal(codec->encode(&shape, data.data, kept.data, &bytes), wanted);
            assert_true(wanted == MZ_OK || bytes == 77);
            guarded_free(&kept);
        }
    }
    chosen = NOTHING;
    guarded_free(&data);
}

/* The upper byte of each type that makes a value infinite or NaN. */
static void test_nan_is_noticed_in_every_type(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("plus_1");
    guarded data = make_data(), kept = guarded_new(codec->bound(&shape));
    for (int elem = MZ_ELEM_F16; elem <= MZ_ELEM_F32; elem++) {
        mz_codec_shape of = {(mz_elem)elem, ROW, ROWS};
        size_t bytes;
        chosen = DECODE_GIVES_NAN;
        assert_int_equal(codec->encode(&of, data.data, kept.data, &bytes), MZ_E_CORRUPT);
        chosen = NOTHING;
        assert_int_equal(codec->encode(&of, data.data, kept.data, &bytes), MZ_OK);
        data.data[BYTES - 1] = 0x7f; /* NaN in what is encoded is no fault of the codec */
        data.data[BYTES - 2] = 0xff;
        assert_int_equal(codec->encode(&of, data.data, kept.data, &bytes), MZ_OK);
        data.data[BYTES - 1] = 0x38;
    }
    guarded_free(&data);
    guarded_free(&kept);
}

/* A codec that turns bad after the encode: each way is an error, and the target reads as zero. */
static void test_decode_faults(void **unused)
{
    (void)unused;
    static const uint8_t zeros[BYTES];
    static const struct {
        fault fault;
        mz_status status;
    } cases[] = {{DECODE_FAILS, MZ_E_CORRUPT},        {DECODE_GIVES_NAN, MZ_E_CORRUPT},
                 {DECODE_DOES_NOTHING, MZ_E_CORRUPT}, {DECODE_HAS_NO_MEMORY, MZ_E_NOMEM},
                 {BOUND_IS_ZERO, MZ_E_CORRUPT},       {NOTHING, MZ_OK}};
    for (int k = 0; k < 2; k++) {
        const mz_codec *codec = mz_codec_find(k == 0 ? "plus-one" : "plus_1");
        guarded data = make_data(), kept = guarded_new(codec->bound(&shape));
        guarded back = guarded_new(BYTES);
        size_t bytes;
        assert_int_equal(codec->encode(&shape, data.data, kept.data, &bytes), MZ_OK);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            chosen = cases[i].fault;
            assert_int_equal(mz_codec_decode(&shape, kept.data, bytes, back.data), cases[i].status);
            assert_memory_equal(back.data, cases[i].status == MZ_OK ? data.data : zeros, BYTES);
        }
        chosen = NOTHING;
        guarded_free(&data);
        guarded_free(&kept);
        guarded_free(&back);
    }
}

static void test_every_flip_and_truncation(void **unused)
{
    (void)unused;
    static const uint8_t zeros[BYTES];
    const mz_codec *codec = mz_codec_find("plus-one");
    guarded data = make_data(), kept = guarded_new(codec->bound(&shape)), back = guarded_new(BYTES);
    size_t bytes;
    assert_int_equal(codec->encode(&shape, data.data, kept.data, &bytes), MZ_OK);
    guarded tight = guarded_new(bytes);
    for (size_t at = 0; at < bytes; at++) {
        memcpy(tight.data, kept.data, bytes);
        tight.data[at] ^= 0x10;
        assert_int_equal(mz_codec_decode(&shape, tight.data, bytes, back.data), MZ_E_CORRUPT);
        memcpy(tight.data + bytes - at, kept.data, at);
        assert_int_equal(mz_codec_decode(&shape, tight.data + bytes - at, at, back.data),
                         MZ_E_CORRUPT);
        assert_memory_equal(back.data, zeros, BYTES);
    }
    guarded_free(&tight);
    guarded_free(&data);
    guarded_free(&kept);
    guarded_free(&back);
}

/* Header of something intact, by the documented layout, from an id that nobody has. */
static void test_missing_codec(void **unused)
{
    (void)unused;
    uint8_t kept[32 + 5] = "MZC1", target[BYTES] = {0};
    uint16_t id = 0x9999;
    uint32_t row_bytes = ROW, rows = ROWS;
    uint64_t length = 5;
    memcpy(kept + 4, &id, 2);
    kept[6] = MZ_ELEM_F16;
    kept[7] = 1;
    memcpy(kept + 8, &row_bytes, 4);
    memcpy(kept + 12, &rows, 4);
    memcpy(kept + 16, &length, 8);
    uint64_t sum = XXH3_64bits_withSeed(kept + 32, 5, XXH3_64bits(kept, 24));
    memcpy(kept + 24, &sum, 8);
    assert_int_equal(mz_codec_decode(&shape, kept, sizeof kept, target), MZ_E_NOTFOUND);
    kept[33] ^= 1; /* damaged and unknown: damaged */
    assert_int_equal(mz_codec_decode(&shape, kept, sizeof kept, target), MZ_E_CORRUPT);
}

static void check_refused(const mz_codec_table *table, mz_status status, const char *word)
{
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_outside_add(table, &error), status);
    assert_non_null(strstr(error.text, word));
}

static void test_bad_tables(void **unused)
{
    (void)unused;
    mz_codec_table bad = table_of("other", 0x8200, true);
    check_refused(NULL, MZ_E_INVALID, "no table");
    bad.abi = 2;
    check_refused(&bad, MZ_E_UNSUPPORTED, "version 2");
    bad.abi = MZ_CODEC_ABI;
    bad.table_bytes -= 8;
    check_refused(&bad, MZ_E_UNSUPPORTED, "build it again");
    static const char *const names[] = {NULL, "", "sixteen-letters-", "Upper", "a b", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bad = table_of(names[i], 0x8200, true);
        check_refused(&bad, MZ_E_INVALID, "name of a codec");
    }
    static const uint16_t ids[] = {0, 2, 0x7fff, 0xffff};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        bad = table_of("other", ids[i], true);
        check_refused(&bad, MZ_E_INVALID, "ids from outside");
    }
    for (int lacking = 0; lacking < 4; lacking++) {
        bad = table_of("other", 0x8200, true);
        bad.takes = lacking == 0 ? NULL : takes;
        bad.bound = lacking == 1 ? NULL : bound;
        bad.encode = lacking == 2 ? NULL : encode;
        bad.decode = lacking == 3 ? NULL : decode;
        check_refused(&bad, MZ_E_INVALID, "lacks a function");
    }
    static const char *const taken[] = {"raw", "q8", "lossless", "plus-one"};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        bad = table_of(taken[i], 0x8200, true);
        check_refused(&bad, MZ_E_BUSY, taken[i]);
    }
    bad = table_of("other", 0x8123, true);
    check_refused(&bad, MZ_E_BUSY, "plus-one");
    assert_null(mz_codec_find("other"));
}

/* The last tests: what is added stays. */
static void test_example_library(void **unused)
{
    (void)unused;
    mz_error error = MZ_ERROR_INIT;
    setenv("MZCACHE_CODEC_LIBRARY", MZ_TEST_EXAMPLE, 1);
    assert_int_equal(mz_outside_load(&error), MZ_OK);
    setenv("MZCACHE_CODEC_LIBRARY", "/nowhere/x.so", 1);
    assert_int_equal(mz_outside_load(&error), MZ_OK); /* once */
    const mz_codec *codec = mz_codec_find("example");
    assert_non_null(codec);
    guarded kept = guarded_new(codec->bound(&shape)), back = guarded_new(BYTES);
    guarded data = guarded_new(BYTES);
    uint16_t halves[BYTES / 2];
    uint64_t random = 9;
    /* Every third value is kept exactly: two bits of fraction. 1 + 1/8 is a tie, 1 + 3/8 too. */
    for (size_t i = 0; i < BYTES / 2; i++) {
        uint16_t top = (uint16_t)((random_next(&random) >> 30 & 0x83) | 0x38);
        halves[i] = (uint16_t)(top << 8 | (i % 3 == 0 ? 0 : i % 3 == 1 ? 0x80 : 0x81));
    }
    memcpy(data.data, halves, BYTES);
    size_t bytes = 0, again = 0;
    assert_int_equal(codec->encode(&shape, data.data, kept.data, &bytes), MZ_OK);
    assert_int_equal(bytes, 64 + BYTES / 2);
    assert_int_equal(mz_codec_decode(&shape, kept.data, bytes, back.data), MZ_OK);
    for (size_t i = 0; i < BYTES / 2; i++) {
        uint16_t half;
        memcpy(&half, back.data + 2 * i, 2);
        double step = ldexp(1, (halves[i] >> 10 & 31) - 15 - 2);
        double error_of = fabs(f16_value(half) - f16_value(halves[i]));
        assert_true(i % 3 == 0 ? error_of == 0 : error_of <= step / 2);
    }
    guarded twice = guarded_new(codec->bound(&shape));
    assert_int_equal(codec->encode(&shape, back.data, twice.data, &again), MZ_OK);
    assert_int_equal(again, bytes);
    assert_memory_equal(twice.data, kept.data, bytes);
    data.data[11] = 0x7c; /* infinity */
    assert_int_equal(codec->encode(&shape, data.data, kept.data, &bytes), MZ_E_UNSUPPORTED);
    guarded_free(&twice);
    guarded_free(&data);
    guarded_free(&kept);
    guarded_free(&back);
}

static void test_one_too_many(void **unused)
{
    (void)unused;
    mz_error error = MZ_ERROR_INIT;
    mz_codec_table fourth = table_of("fourth", 0x8300, true);
    mz_codec_table fifth = table_of("fifth", 0x8301, true);
    assert_int_equal(mz_outside_add(&fourth, &error), MZ_OK);
    check_refused(&fifth, MZ_E_BUSY, "one too many");
    assert_int_equal(mz_outside_add(&fourth, &error), MZ_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_a_codec_like_others),
        cmocka_unit_test(test_encode_faults),
        cmocka_unit_test(test_nan_is_noticed_in_every_type),
        cmocka_unit_test(test_decode_faults),
        cmocka_unit_test(test_every_flip_and_truncation),
        cmocka_unit_test(test_missing_codec),
        cmocka_unit_test(test_bad_tables),
        cmocka_unit_test(test_example_library),
        cmocka_unit_test(test_one_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

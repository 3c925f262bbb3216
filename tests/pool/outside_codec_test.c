/* SPDX-License-Identifier: MIT */
/*
 * Goal: a pool with a codec from outside reads right, however that codec behaves.
 * Method: the toy model with its shadow. An exact codec that packs 14 bits of each half is told to
 * break in the middle; KV then goes to the store, the status says why, and every byte is right.
 * One that breaks only when it decodes makes units lost, never wrong.
 */
#include "pool/fixture.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "mzcache/codec.h"
#include "pool/internal.h"

static atomic_bool writes_nonsense, reads_nonsense; /* restore threads decode */

static bool takes(const mz_codec_shape *shape)
{
    return shape->elem == MZ_ELEM_F16;
}

static size_t bound(const mz_codec_shape *shape)
{
    return (size_t)shape->row_bytes * shape->rows;
}

static size_t expected(const mz_codec_shape *shape)
{
    return bound(shape) / 2;
}

/* The toy's halves: sign and 10 bits of fraction, 3 bits of exponent above 10: 14 bits kept. */
static mz_status encode(const mz_codec_shape *shape, const void *source, void *target, size_t room,
                        size_t *bytes)
{
    const uint16_t *halves = source;
    uint8_t *out = target;
    size_t count = room / 2, at = 0;
    uint32_t bits = 0, held = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t exponent = halves[i] >> 10 & 31u;
        if (exponent < 10 || exponent > 17) {
            return MZ_E_UNSUPPORTED;
        }
        bits |= ((halves[i] & 0x3ffu) | (exponent - 10) << 10 | (halves[i] >> 15 & 1u) << 13)
                << held;
        for (held += 14; held >= 8; held -= 8, bits >>= 8) {
            out[at++] = (uint8_t)bits;
        }
    }
    if (held > 0) {
        out[at++] = (uint8_t)bits;
    }
    if (atomic_load(&writes_nonsense)) {
        out[shape->rows] ^= 4;
    }
    *bytes = at;
    return MZ_OK;
}

static mz_status decode(const mz_codec_shape *shape, const void *source, size_t bytes, void *target)
{
    const uint8_t *in = source;
    uint16_t *halves = target;
    size_t at = 0;
    uint32_t bits = 0, held = 0;
    for (size_t i = 0; i < bound(shape) / 2; i++) {
        for (; held < 14 && at < bytes; held += 8) {
            bits |= (uint32_t)in[at++] << held;
        }
        halves[i] = (uint16_t)((bits & 0x3ffu) | ((bits >> 10 & 7u) + 10) << 10 |
                               (bits >> 13 & 1u) << 15);
        bits >>= 14;
        held -= 14;
    }
    if (atomic_load(&reads_nonsense)) {
        halves[7] ^= 1;
    }
    return MZ_OK;
}

static void add_codec(void)
{
    mz_codec_table table = {.abi = MZ_CODEC_ABI,
                            .table_bytes = sizeof table,
                            .name = "pack14",
                            .id = 0x8014,
                            .exact = true,
                            .takes = takes,
                            .bound = bound,
                            .expected = expected,
                            .encode = encode,
                            .decode = decode};
    char message[200] = "";
    assert_int_equal(mz_codec_add(&table, message, sizeof message), MZ_OK);
    table.id = 0x8015;
    assert_int_equal(mz_codec_add(&table, message, sizeof message), MZ_E_BUSY);
    assert_non_null(strstr(message, "pack14"));
    assert_int_equal(mz_codec_add(&table, NULL, 0), MZ_E_BUSY);
}

static mz_pool_status status_of(toy_model *toy)
{
    mz_pool_status status;
    assert_int_equal(mz_status_get(toy->pool, &status), MZ_OK);
    return status;
}

/* Some KV into the stack: little enough that none of it is spilled. */
static void evict_some(toy_model *toy)
{
    toy_write_kv(toy, 256);
    assert_true(toy_is_right(toy));
    (void)mz_evict_tagged(toy->pool, TOY_KV_BYTES / 16, MZ_TAG_KV_CACHE, NULL);
}

static void a_good_codec_is_bit_exact_in_the_stack(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "pack14", true);
    for (int cycle = 0; cycle < 3; cycle++) {
        evict_some(&toy);
        assert_true(status_of(&toy).kv_cache.compressed_units > 0);
        assert_string_equal(status_of(&toy).codec, "pack14");
        assert_true(toy_check(&toy));
        assert_true(toy_is_right(&toy));
        (void)mz_evict(toy.pool, UINT64_MAX, NULL);
        assert_true(toy_check(&toy));
        assert_true(toy_is_right(&toy));
    }
    assert_null(strstr(status_of(&toy).last_error, "pack14"));
    toy_close(&toy);
}

static void one_that_writes_nonsense_is_used_no_more(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "pack14", true);
    evict_some(&toy);
    uint64_t compressed = status_of(&toy).kv_cache.compressed_units;
    assert_true(compressed > 0);
    atomic_store(&writes_nonsense, true);
    (void)mz_evict_tagged(toy.pool, TOY_KV_BYTES / 2, MZ_TAG_KV_CACHE, NULL);
    mz_pool_status status = status_of(&toy);
    assert_true(status.kv_cache.stored_units > 0);
    assert_true(status.kv_cache.compressed_units <= compressed);
    assert_non_null(strstr(status.last_error, "pack14"));
    assert_true(toy_check(&toy));
    assert_true(toy_is_right(&toy)); /* what it wrote before is read by it */
    atomic_store(&writes_nonsense, false);
    evict_some(&toy);
    assert_int_equal(status_of(&toy).kv_cache.compressed_units, 0);
    assert_true(toy_check(&toy));
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void one_that_reads_nonsense_is_an_error(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "pack14", true);
    evict_some(&toy);
    assert_true(status_of(&toy).kv_cache.compressed_units > 0);
    atomic_store(&reads_nonsense, true);
    mz_error error = MZ_ERROR_INIT;
    mz_status restored = toy_restore(&toy, &error); /* the second try finds the unit lost */
    assert_true(restored == MZ_E_CORRUPT || restored == MZ_E_LOST);
    atomic_store(&reads_nonsense, false);
    assert_true(status_of(&toy).kv_cache.lost_units > 0);
    assert_true(toy_check(&toy));
    toy_close(&toy);
}

int main(void)
{
    add_codec();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_codec_is_bit_exact_in_the_stack),
        cmocka_unit_test(one_that_writes_nonsense_is_used_no_more),
        cmocka_unit_test(one_that_reads_nonsense_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * Goal: the scale of a group is the one that q8.h promises, decoding is exact in f16, and encoding
 * what was decoded finds the same bytes.
 * Method: exhaustive over all 31744 finite magnitudes that can be the maximum of a group, in every
 * variant. The right scale comes from a search through the set of scales in double arithmetic, the
 * right values from the definitions of f16 and of the codes.
 */
#include "fixture.h"

#define MAGNITUDES 0x7c00u /* finite ones, 0 included */

/* The smallest scale with round-to-nearest-even(max / scale) <= 124, by trying all of them. */
static uint8_t search_code(double max)
{
    for (unsigned code = 0; code < 256; code++) {
        if (nearbyint(max / scale_value((uint8_t)code)) <= 124.0) {
            return (uint8_t)code;
        }
    }
    fail_msg("no scale for %g", max);
    return 0;
}

/* One group per magnitude: the maximum itself, its negative, and values below it in all sizes. */
static void fill(uint16_t *source)
{
    uint64_t state = 11;
    for (unsigned max = 0; max < MAGNITUDES; max++) {
        for (unsigned i = 0; i < 32; i++) {
            uint64_t bits = random_next(&state);
            unsigned magnitude = i < 2 ? max : (unsigned)(bits >> 8) % (max + 1) >> i % 4;
            uint64_t sign = i == 0 ? 0 : i == 1 ? 1 : bits & 1;
            source[max * 32 + i] = (uint16_t)(magnitude | sign << 15);
        }
    }
}

static void check_variant(const mz_kernels *kernels, const uint16_t *source)
{
    guarded codes = guarded_new(MAGNITUDES), again_codes = guarded_new(MAGNITUDES);
    guarded q = guarded_new(MAGNITUDES * 32), again_q = guarded_new(MAGNITUDES * 32);
    guarded back = guarded_new(MAGNITUDES * 64);
    uint16_t *decoded = (uint16_t *)(void *)back.data;
    assert_true(kernels->q8_encode(source, MAGNITUDES, codes.data, (int8_t *)q.data));
    kernels->q8_decode(codes.data, (const int8_t *)q.data, MAGNITUDES, decoded);
    for (unsigned max = 0; max < MAGNITUDES; max++) {
        assert_int_equal(codes.data[max], search_code(f16_value((uint16_t)max)));
        double scale = scale_value(codes.data[max]);
        for (unsigned i = max * 32; i < max * 32 + 32; i++) {
            int value = (int8_t)q.data[i];
            assert_in_range((unsigned)(value + 124), 0, 248);
            assert_true(fabs(f16_value(source[i]) - value * scale) <= scale / 2);
            assert_true((decoded[i] & 0x7c00) != 0x7c00); /* neither infinite nor NaN */
            assert_true(f16_value(decoded[i]) == value * scale);
            assert_true(value != 0 || decoded[i] == 0); /* zero is +0 */
        }
    }
    assert_true(kernels->q8_encode(decoded, MAGNITUDES, again_codes.data, (int8_t *)again_q.data));
    assert_memory_equal(again_codes.data, codes.data, MAGNITUDES);
    assert_memory_equal(again_q.data, q.data, MAGNITUDES * 32);
    guarded_free(&codes);
    guarded_free(&again_codes);
    guarded_free(&q);
    guarded_free(&again_q);
    guarded_free(&back);
}

static void test_every_maximum(void **unused)
{
    (void)unused;
    guarded source = guarded_new(MAGNITUDES * 64);
    fill((uint16_t *)(void *)source.data);
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        const mz_kernels *kernels = mz_kernels_variant(variant_names[i]);
        if (kernels != NULL) {
            check_variant(kernels, (const uint16_t *)(const void *)source.data);
        }
    }
    guarded_free(&source);
}

/* By hand: 65504 / 512 = 127.9 is too large, 65504 / 640 = 102.35; code (9 + 22) * 4 + 1. */
static void test_largest_f16(void **unused)
{
    (void)unused;
    uint16_t source[32] = {0x7bff, 0xfbff}, back[32];
    uint8_t code = 0;
    int8_t q[32];
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        const mz_kernels *kernels = mz_kernels_variant(variant_names[i]);
        if (kernels == NULL) {
            continue;
        }
        assert_true(kernels->q8_encode(source, 1, &code, q));
        assert_int_equal(code, 125);
        assert_int_equal(q[0], 102);
        assert_int_equal(q[1], -102);
        kernels->q8_decode(&code, q, 1, back);
        assert_true(f16_value(back[0]) == 65280.0);
        assert_true(f16_value(back[1]) == -65280.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_maximum),
        cmocka_unit_test(test_largest_f16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

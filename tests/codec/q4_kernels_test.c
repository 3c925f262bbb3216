/* SPDX-License-Identifier: MIT */
/*
 * Goal: every variant of the 4-bit kernels gives the bytes of the generic one within its buffers,
 * which keep the least and the largest value of a channel exactly, any other within half a step,
 * and give the same bytes again after a cycle.
 * Method: strips of every number of tokens, with channels of every magnitude, narrow ones, constant
 * ones and denormals; the bounds are computed from the data in double arithmetic; buffers end right
 * before an inaccessible page.
 */
#include "fixture.h"

#include "kernels/q4.h"

#define TOKENS 64u
#define CHANNELS 32u
#define STRIDE 40u /* more than a strip: what lies between must stay untouched */
#define FILLER 0x5a5a

/* What a channel holds: of everything, of values close to each other, one value, denormals. */
static uint16_t element(unsigned kind, unsigned top, uint64_t bits)
{
    uint16_t sign = (uint16_t)((bits >> 63) << 15);
    switch (kind) {
    case 0:
        return (uint16_t)((bits >> 20) % (top + 1) | sign);
    case 1:
        return (uint16_t)(top + (bits >> 20) % 40 > 0x7bff ? 0x7bff : top + (bits >> 20) % 40);
    case 2:
        return (uint16_t)top;
    case 3:
        return (uint16_t)((bits >> 20) % 70 | sign);
    case 4:
        return (uint16_t)(0x7bff | sign);
    default:
        return sign; /* zeros of both signs */
    }
}

static void fill(uint16_t *source, size_t tokens, bool usual, uint64_t *state)
{
    for (size_t channel = 0; channel < CHANNELS; channel++) {
        unsigned kind = usual ? 0 : (unsigned)(random_next(state) >> 32) % 6;
        unsigned top = (unsigned)(random_next(state) >> 32) % 0x7c00;
        top = usual ? 0x4000 | top % 0x800 : top;
        for (size_t token = 0; token < tokens; token++) {
            source[token * STRIDE + channel] = element(kind, top, random_next(state));
        }
    }
}

/* The generic kernel's bytes are right by what the format promises. */
static void check_promises(const uint16_t *source, const uint16_t *back, size_t tokens)
{
    for (size_t channel = 0; channel < CHANNELS; channel++) {
        double lo = INFINITY, hi = -INFINITY;
        for (size_t token = 0; token < tokens; token++) {
            double value = f16_value(source[token * STRIDE + channel]);
            lo = fmin(lo, value);
            hi = fmax(hi, value);
        }
        for (size_t token = 0; token < tokens; token++) {
            double value = f16_value(source[token * STRIDE + channel]);
            double decoded = f16_value(back[token * STRIDE + channel]);
            /* Half a step, and half a unit in the last place for rounding the level to f16. */
            double unit = fmax(ldexp(fmax(fabs(lo), fabs(hi)), -10), ldexp(1, -24));
            assert_true(fabs(value - decoded) <= ((hi - lo) / 15 + unit) / 2 * 1.0001);
            assert_true((value != lo && value != hi) || decoded == value);
        }
    }
}

static void check_strip(const mz_kernels *kernels, size_t tokens, bool usual, uint64_t *state)
{
    const mz_kernels *generic = mz_kernels_variant("generic");
    size_t elements = (tokens - 1) * STRIDE + CHANNELS, bytes = mz_q4_strip_bytes(tokens);
    guarded source = guarded_new(elements * 2), strips[3], backs[2];
    uint16_t *values = (uint16_t *)(void *)source.data;
    fill(values, tokens, usual, state);
    for (size_t i = 0; i < 3; i++) {
        strips[i] = guarded_new(bytes);
    }
    for (size_t i = 0; i < 2; i++) {
        backs[i] = guarded_new(elements * 2);
        memset(backs[i].data, FILLER & 0xff, elements * 2);
    }
    uint16_t *right = (uint16_t *)(void *)backs[0].data, *back = (uint16_t *)(void *)backs[1].data;
    assert_true(generic->q4_encode(values, STRIDE, tokens, strips[0].data));
    generic->q4_decode(strips[0].data, tokens, right, STRIDE);
    check_promises(values, right, tokens);
    assert_true(kernels->q4_encode(values, STRIDE, tokens, strips[1].data));
    assert_memory_equal(strips[1].data, strips[0].data, bytes);
    kernels->q4_decode(strips[1].data, tokens, back, STRIDE);
    assert_memory_equal(back, right, elements * 2);
    for (size_t token = 0; token + 1 < tokens; token++) {
        for (size_t i = CHANNELS; i < STRIDE; i++) {
            assert_int_equal(back[token * STRIDE + i], FILLER);
        }
    }
    assert_true(kernels->q4_encode(back, STRIDE, tokens, strips[2].data));
    assert_memory_equal(strips[2].data, strips[0].data, bytes);
    guarded *all[] = {&source, &strips[0], &strips[1], &strips[2], &backs[0], &backs[1]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        guarded_free(all[i]);
    }
}

static void test_strips(void **unused)
{
    (void)unused;
    uint64_t state = 41;
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        const mz_kernels *kernels = mz_kernels_variant(variant_names[i]);
        for (size_t round = 0; kernels != NULL && round < 640; round++) {
            check_strip(kernels, 1 + round % TOKENS, round % 3 == 0, &state);
        }
    }
}

/* Every q of every range that decode may meet gives the generic kernel's level. */
static void test_decode_of_everything(void **unused)
{
    (void)unused;
    uint64_t state = 42;
    uint8_t strip[MZ_Q4_RANGES + TOKENS * MZ_Q4_ROW];
    uint16_t right[TOKENS * CHANNELS], back[TOKENS * CHANNELS];
    for (size_t round = 0; round < 500; round++) {
        for (size_t i = 0; i < CHANNELS; i++) {
            uint16_t a = (uint16_t)(random_next(&state) >> 40), b = (uint16_t)(a + 1 + round % 9);
            a = (a & 0x7fff) >= 0x7c00 ? 0xfbff : a;
            b = (b & 0x7fff) >= 0x7c00 ? 0x7bff : b;
            bool in_order = f16_value(a) <= f16_value(b);
            memcpy(strip + i * 2, in_order ? &a : &b, 2);
            memcpy(strip + MZ_Q4_RANGES / 2 + i * 2, in_order ? &b : &a, 2);
        }
        for (size_t i = MZ_Q4_RANGES; i < sizeof strip; i++) {
            strip[i] = (uint8_t)(random_next(&state) >> 40);
        }
        mz_kernels_variant("generic")->q4_decode(strip, TOKENS, right, CHANNELS);
        for (size_t i = 0; i < VARIANT_NAMES; i++) {
            const mz_kernels *kernels = mz_kernels_variant(variant_names[i]);
            if (kernels != NULL) {
                kernels->q4_decode(strip, TOKENS, back, CHANNELS);
                assert_memory_equal(back, right, sizeof right);
            }
        }
    }
}

static void test_not_finite_is_refused(void **unused)
{
    (void)unused;
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xfe00, 0xffff};
    uint8_t strip[MZ_Q4_RANGES + TOKENS * MZ_Q4_ROW];
    uint16_t source[TOKENS * CHANNELS];
    uint64_t state = 43;
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        const mz_kernels *kernels = mz_kernels_variant(variant_names[i]);
        for (size_t at = 0; kernels != NULL && at < TOKENS * CHANNELS; at++) {
            for (size_t j = 0; j < TOKENS * CHANNELS; j++) {
                source[j] = (uint16_t)(random_next(&state) >> 40 & 0x3fff);
            }
            source[at] = bad[at % (sizeof bad / sizeof bad[0])];
            assert_false(kernels->q4_encode(source, CHANNELS, TOKENS, strip));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strips),
        cmocka_unit_test(test_decode_of_everything),
        cmocka_unit_test(test_not_finite_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

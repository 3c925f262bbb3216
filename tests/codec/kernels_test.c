/* SPDX-License-Identifier: MIT */
/*
 * Goal: every variant gives the bytes of the generic one and stays within its buffers.
 * Method: all counts around the block sizes, all offsets within a cache line, sources and targets
 * that end right before an inaccessible page, and one size that is stored past the caches. What is
 * zero is known because the test wrote it.
 */
#include "fixture.h"

#include <pthread.h>
#include <stdlib.h>

#define MOST_GROUPS 200u
#define LARGE_GROUPS 9001u /* 576 KB of f16: above the limit of streaming stores, and odd */

/* Encode and decode `groups` groups by both, at `offset` bytes before the end of each buffer. */
static void compare(const mz_kernels *kernels, size_t groups, size_t offset, uint64_t *state)
{
    const mz_kernels *generic = mz_kernels_variant("generic");
    guarded source = guarded_new(groups * 64 + offset);
    guarded codes[2] = {guarded_new(groups + offset), guarded_new(groups + offset)};
    guarded q[2] = {guarded_new(groups * 32 + offset), guarded_new(groups * 32 + offset)};
    guarded back[2] = {guarded_new(groups * 64 + offset), guarded_new(groups * 64 + offset)};
    const mz_kernels *pair[2] = {generic, kernels};
    uint16_t *values = (uint16_t *)(void *)source.data;
    fill_groups(values, groups, state);
    for (int i = 0; i < 2; i++) {
        memset(codes[i].data, 0x5a, groups + offset);
        memset(q[i].data, 0x5a, groups * 32 + offset);
        memset(back[i].data, 0x5a, groups * 64 + offset);
        assert_true(pair[i]->q8_encode(values, groups, codes[i].data, (int8_t *)q[i].data));
        pair[i]->q8_decode(codes[i].data, (const int8_t *)q[i].data, groups,
                           (uint16_t *)(void *)back[i].data);
    }
    /* The bytes behind the groups are compared too: nobody wrote them. */
    assert_memory_equal(codes[1].data, codes[0].data, groups + offset);
    assert_memory_equal(q[1].data, q[0].data, groups * 32 + offset);
    assert_memory_equal(back[1].data, back[0].data, groups * 64 + offset);
    guarded_free(&source);
    for (int i = 0; i < 2; i++) {
        guarded_free(&codes[i]);
        guarded_free(&q[i]);
        guarded_free(&back[i]);
    }
}

static void test_variants_equal_generic(void **unused)
{
    (void)unused;
    uint64_t state = 21;
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        const mz_kernels *kernels = mz_kernels_variant(variant_names[i]);
        if (kernels == NULL) {
            continue;
        }
        for (size_t groups = 0; groups <= MOST_GROUPS; groups++) {
            compare(kernels, groups, 0, &state);
            compare(kernels, groups, 2 * (groups % 33), &state);
        }
        for (size_t offset = 0; offset <= 64; offset += 2) {
            compare(kernels, 67, offset, &state);
            compare(kernels, LARGE_GROUPS, offset, &state);
        }
    }
}

/* Every code and every q that decode may meet, whoever encoded them. */
static void test_decode_of_everything(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        const mz_kernels *kernels = mz_kernels_variant(variant_names[i]);
        if (kernels == NULL) {
            continue;
        }
        for (unsigned code = 0; code <= 125; code++) {
            for (int start = -124; start <= 93; start += 31) {
                uint8_t codes[1] = {(uint8_t)code};
                int8_t q[32];
                uint16_t back[32];
                for (int j = 0; j < 32; j++) {
                    q[j] = (int8_t)(start + j);
                }
                if (124 * scale_value(codes[0]) > 65504.0) {
                    q[0] = 0; /* scale 640 goes with |q| <= 102 only */
                    memset(q, 102, sizeof q);
                }
                kernels->q8_decode(codes, q, 1, back);
                for (int j = 0; j < 32; j++) {
                    assert_true(f16_value(back[j]) == q[j] * scale_value(codes[0]));
                }
            }
        }
    }
}

static void test_not_finite_in_any_block(void **unused)
{
    (void)unused;
    uint8_t codes[MOST_GROUPS];
    int8_t q[MOST_GROUPS * 32];
    guarded source = guarded_new(MOST_GROUPS * 64);
    uint16_t *values = (uint16_t *)(void *)source.data;
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        const mz_kernels *kernels = mz_kernels_variant(variant_names[i]);
        for (size_t at = 0; kernels != NULL && at < MOST_GROUPS * 32; at += 7) {
            values[at] = at % 2 == 0 ? 0x7c00 : 0xfc01;
            assert_false(kernels->q8_encode(values, MOST_GROUPS, codes, q));
            values[at] = 0;
        }
    }
    guarded_free(&source);
}

static void test_is_zero(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        const mz_kernels *kernels = mz_kernels_variant(variant_names[i]);
        for (size_t bytes = 0; kernels != NULL && bytes <= 600; bytes++) {
            guarded data = guarded_new(bytes);
            assert_true(kernels->is_zero(data.data, bytes));
            for (size_t at = 0; at < bytes; at++) {
                data.data[at] = (uint8_t)(1u << at % 8);
                assert_false(kernels->is_zero(data.data, bytes));
                data.data[at] = 0;
            }
            guarded_free(&data);
        }
    }
}

/* The right planes are what the test wrote; merging must give the source again. */
static void check_planes(const mz_kernels *kernels, size_t pairs, size_t offset, uint64_t *state)
{
    guarded source = guarded_new(2 * pairs + offset), back = guarded_new(2 * pairs + offset);
    guarded even = guarded_new(pairs + offset), odd = guarded_new(pairs + offset);
    guarded right_even = guarded_new(pairs + offset), right_odd = guarded_new(pairs + offset);
    for (size_t i = 0; i < pairs; i++) {
        right_even.data[i] = (uint8_t)(random_next(state) >> 56);
        right_odd.data[i] = (uint8_t)(random_next(state) >> 56);
        source.data[2 * i] = right_even.data[i];
        source.data[2 * i + 1] = right_odd.data[i];
    }
    kernels->split2(source.data, pairs, even.data, odd.data);
    assert_memory_equal(even.data, right_even.data, pairs + offset);
    assert_memory_equal(odd.data, right_odd.data, pairs + offset);
    kernels->merge2(even.data, odd.data, pairs, back.data);
    assert_memory_equal(back.data, source.data, 2 * pairs + offset);
    guarded *all[] = {&source, &back, &even, &odd, &right_even, &right_odd};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        guarded_free(all[i]);
    }
}

static void test_planes(void **unused)
{
    (void)unused;
    uint64_t state = 22;
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        const mz_kernels *kernels = mz_kernels_variant(variant_names[i]);
        for (size_t pairs = 0; kernels != NULL && pairs <= MOST_GROUPS; pairs++) {
            check_planes(kernels, pairs, 0, &state);
            check_planes(kernels, pairs, 1 + pairs % 67, &state);
        }
    }
}

static void test_dispatch(void **unused)
{
    (void)unused;
    assert_null(mz_kernels_variant("none"));
    assert_string_equal(mz_kernels_variant("generic")->name, "generic");
    assert_int_equal(setenv("MZCACHE_CPU", "generic", 1), 0);
    const mz_kernels *chosen = mz_kernels_get();
    assert_string_equal(chosen->name, "generic");
    assert_int_equal(setenv("MZCACHE_CPU", "avx2", 1), 0);
    assert_ptr_equal(mz_kernels_get(), chosen); /* never changes */
}

/* Who measures a variant gets it, and only on its own thread; the codecs write the same bytes. */
static void *get_kernels(void *argument)
{
    const mz_kernels **seen = argument;
    *seen = mz_kernels_get();
    return NULL;
}

static void test_measured_variants(void **unused)
{
    (void)unused;
    const mz_kernels *chosen = mz_kernels_get();
    size_t count = 0;
    for (const mz_kernels *kernels; (kernels = mz_kernels_at(count)) != NULL; count++) {
        assert_ptr_equal(mz_kernels_variant(kernels->name), kernels);
        mz_kernels_use(kernels);
        assert_ptr_equal(mz_kernels_get(), kernels);
        pthread_t other;
        const mz_kernels *seen = NULL;
        assert_int_equal(pthread_create(&other, NULL, get_kernels, &seen), 0);
        assert_int_equal(pthread_join(other, NULL), 0);
        assert_ptr_equal(seen, chosen);
        mz_kernels_use(NULL);
        assert_ptr_equal(mz_kernels_get(), chosen);
    }
    assert_true(count >= 1);
    assert_string_equal(mz_kernels_at(count - 1)->name, "generic");
    assert_null(mz_kernels_at(count + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants_equal_generic),
        cmocka_unit_test(test_decode_of_everything),
        cmocka_unit_test(test_not_finite_in_any_block),
        cmocka_unit_test(test_is_zero),
        cmocka_unit_test(test_planes),
        cmocka_unit_test(test_dispatch),
        cmocka_unit_test(test_measured_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

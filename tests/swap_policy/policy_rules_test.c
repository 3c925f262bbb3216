/* SPDX-License-Identifier: MIT */
/*
 * Goal: the rules for what the paper leaves open (docs/policy.md) hold: slow codecs, unequal
 * layers, no stack, no store, one tag, clean, empty and pinned units, other orders, odd arguments.
 *
 * Method: small models whose plans are written out by hand. Everything is in units of the time to
 * read 1 MiB, which is also the time to decode 1 MiB unless a test says otherwise.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "model.h"

#define MIB ((uint64_t)1 << 20)
#define HALF (MIB / 2)

static mz_plan_step steps[2 * MODEL_UNITS];

/*
 * Plan everything and compare with a script, one letter a step: K stack, S store, D drop, P spill.
 */
static size_t assert_paths(const model *m, const char *script)
{
    static const char letters[] = {
        [MZ_PATH_DROP] = 'D', [MZ_PATH_STACK] = 'K', [MZ_PATH_STORE] = 'S', [MZ_PATH_SPILL] = 'P'};
    char actual[256] = "";
    uint64_t planned;
    const size_t count = model_plan(m, UINT64_MAX, steps, &planned);
    assert_true(count < sizeof(actual));
    for (size_t i = 0; i < count; i++) {
        actual[i] = letters[steps[i].path];
    }
    assert_string_equal(actual, script);
    return count;
}

static void assert_units(size_t count, const uint32_t *units)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(steps[i].unit, units[i]);
    }
}

/*
 * A chunk takes 2 to decode, a layer 1 to read: floor(1 / 2) = 0 for each of 4 layers, so the
 * rounding is done once: T = floor(4 / 2) = 2. KVonly takes 6 of 8 chunks, one to the stack for two
 * to flash: 4 against 4. KVandW: one chunk for two layers: 8 against 8.
 */
static void test_codec_slower_than_a_layer(void **state)
{
    (void)state;
    model m;
    model_init(&m, 2e9, 1e9);
    model_add_layers(&m, 4, MIB, 2, MIB, HALF);
    mz_policy_survey survey;
    mz_policy_survey_units(&m.profile, m.units, m.count, &m.options, &survey);
    assert_int_equal(survey.threshold, 2);
    assert_paths(&m, "SKSSKS"
                     "DKDDKD"
                     "PPPP");
}

/* Output weights of 10 behind a layer of 2: ten chunks go with the first, two with the second. */
static void test_unequal_layers_are_weighed_by_time(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    model_add_weights(&m, 0, 2 * MIB);
    for (uint32_t chunk = 0; chunk < 12; chunk++) {
        model_add_chunk(&m, 0, chunk, MIB, HALF);
    }
    model_add_weights(&m, 1, 10 * MIB);
    assert_paths(&m, "KKKKKKKKKK"
                     "D"
                     "KK"
                     "D"
                     "PPPPPPPPPPPP");
    assert_int_equal(steps[10].unit, 13);
    assert_int_equal(steps[13].unit, 0);
}

/* Half-filled chunks weigh half: 2 layers of 1 take two of them each. */
static void test_unequal_chunks_are_weighed_by_time(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    model_add_weights(&m, 0, MIB);
    model_add_chunk(&m, 0, 0, HALF, HALF / 2);
    model_add_chunk(&m, 0, 1, HALF, HALF / 2);
    model_add_weights(&m, 1, MIB);
    model_add_chunk(&m, 1, 0, MIB, HALF);
    assert_paths(&m, "KD"
                     "KKD"
                     "PPP");
}

/* Without a stack the order is that of need, reversed: KV and weights of a layer leave together. */
static void test_exact_mode(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    m.options.stack_allowed = false;
    model_add_layers(&m, 2, 3 * MIB, 2, MIB, HALF);
    m.units[4].clean = true; /* first chunk of layer 1 */
    const size_t count = assert_paths(&m, "SDD"
                                          "SSD");
    assert_units(count, (const uint32_t[]){5, 4, 3, 2, 1, 0});
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(steps[i].stage, MZ_STAGE_EXACT);
        assert_int_equal(steps[i].frees, m.units[steps[i].unit].bytes);
    }
}

/*
 * Without a store chunks can't be split, so weights balance them from the start although N_KV = 6
 * is above T = 2. Nothing is written and nothing spilled; weights without a copy on flash stay.
 */
static void test_no_store(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    m.options.store_allowed = false;
    model_add_layers(&m, 2, MIB, 3, MIB, HALF);
    const size_t count = assert_paths(&m, "KDKD"
                                          "KKKK");
    assert_int_equal(steps[0].stage, MZ_STAGE_KV_AND_W);
    model_apply(&m, steps, count);
    assert_paths(&m, "");

    model_init(&m, 1e9, 1e9);
    m.options.store_allowed = false;
    model_add_weights(&m, 0, MIB);
    m.units[0].clean = false;
    model_add_chunk(&m, 0, 0, MIB, HALF);
    model_add_chunk(&m, 0, 1, MIB, 0);
    assert_paths(&m, "K");
}

/* With neither, only clean units leave. */
static void test_no_store_no_stack(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    m.options.store_allowed = false;
    m.options.stack_allowed = false;
    model_add_layers(&m, 1, MIB, 3, MIB, HALF);
    m.units[2].clean = true;
    assert_units(assert_paths(&m, "DD"), (const uint32_t[]){2, 0});
}

/* KV only: all chunks are split, T is 0 because no weights may follow. Weights only: Wonly. */
static void test_tags(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    model_add_layers(&m, 2, 8 * MIB, 2, MIB, HALF);
    m.options.tags = MZ_TAG_KV_CACHE;
    assert_paths(&m, "KSKS"
                     "PP");
    assert_int_equal(steps[0].stage, MZ_STAGE_KV_ONLY);
    m.options.tags = MZ_TAG_WEIGHTS;
    assert_units(assert_paths(&m, "DD"), (const uint32_t[]){3, 0});
    assert_int_equal(steps[0].stage, MZ_STAGE_W_ONLY);
    m.options.tags = 0;
    assert_paths(&m, "");
}

/* Chunks alone and no store: all to the stack, and still called KVonly. */
static void test_kv_alone_without_store(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    model_add_layers(&m, 1, MIB, 2, MIB, HALF);
    m.options.tags = MZ_TAG_KV_CACHE;
    m.options.store_allowed = false;
    assert_paths(&m, "KK");
    assert_int_equal(steps[0].stage, MZ_STAGE_KV_ONLY);
}

/* t_d^KV is that of a full chunk, though the last one is half filled: T = floor(5 / 1) = 5. */
static void test_threshold_of_full_chunks(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    model_add_layers(&m, 1, 5 * MIB, 1, MIB, HALF);
    model_add_chunk(&m, 0, 1, HALF, HALF / 2);
    mz_policy_survey survey;
    mz_policy_survey_units(&m.profile, m.units, m.count, &m.options, &survey);
    assert_int_equal(survey.threshold, 5);
    assert_int_equal(survey.kv_chunks, 2);
}

/* A spilled chunk is read in its encoded size and decoded in full; 1 MiB takes 1048576 ns here. */
static void test_spilled_chunks_take_both_paths(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    model_add_chunk(&m, 0, 0, MIB, MIB / 4);
    m.units[0].where = MZ_WHERE_SPILLED;
    mz_policy_survey survey;
    mz_policy_survey_units(&m.profile, m.units, m.count, &m.options, &survey);
    assert_int_equal(survey.decode_ns, 1048576);
    assert_int_equal(survey.read_ns, 262144);
    assert_int_equal(survey.stage, MZ_STAGE_NONE);
}

/*
 * Weights that are on flash already (just loaded, or evicted alone) count: 8 to read, nothing to
 * decode. Ten of 12 chunks go to the stack before the paths are level, 10 against 10.
 */
static void test_imbalance_is_made_up_for(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    model_add_layers(&m, 2, 4 * MIB, 6, MIB, HALF);
    m.units[0].where = MZ_WHERE_STORED;
    m.units[7].where = MZ_WHERE_STORED;
    assert_paths(&m, "KKKKKKKKK"
                     "SKS"
                     "PPPPPPPPPP");
}

/* A clean chunk that the balance sends to flash is dropped; the choice of path is the same. */
static void test_clean_chunks_are_not_written(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    model_add_layers(&m, 1, MIB, 5, MIB, HALF);
    m.options.tags = MZ_TAG_KV_CACHE;
    assert_paths(&m, "KSKSK"
                     "PPP");
    for (size_t i = 1; i < m.count; i++) {
        m.units[i].clean = true;
    }
    assert_paths(&m, "KDKDK"
                     "PPP");
}

/* Empty, pinned and lost units are neither planned nor waited for. */
static void test_skipped_units(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    model_add_layers(&m, 2, MIB, 2, MIB, HALF);
    m.units[5].bytes = 0;
    m.units[5].encoded_bytes = 0;
    m.units[3].where = MZ_WHERE_UNAVAILABLE;
    /* T = 1 for the one layer left; of three chunks the two above T go in KVonly. */
    assert_units(assert_paths(&m, "KSKD"
                                  "PP"),
                 (const uint32_t[]){4, 2, 1, 0, 4, 1});
    model_init(&m, 1e9, 1e9);
    assert_paths(&m, "");
}

/* What can't be encoded with a gain is read back like a weight, in its place of the order. */
static void test_opaque_state_counts_as_a_layer(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    model_add_weights(&m, 0, MIB);
    model_add_chunk(&m, 0, 0, MIB, HALF);
    model_add_chunk(&m, 0, 1, MIB, HALF);
    model_add_chunk(&m, 0, 2, MIB, MIB);
    assert_units(assert_paths(&m, "KSKD"
                                  "PP"),
                 (const uint32_t[]){2, 3, 1, 0, 2, 1});
}

static void test_forward_out(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    m.options.order = MZ_ORDER_FORWARD;
    model_add_layers(&m, 2, MIB, 1, MIB, HALF);
    assert_units(assert_paths(&m, "KDKD"
                                  "PP"),
                 (const uint32_t[]){1, 0, 3, 2, 1, 3});
}

/* Every unit once, in an order that depends on the seed and on nothing else. */
static void test_random_out(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    m.options.order = MZ_ORDER_RANDOM;
    m.options.stack_allowed = false;
    uint32_t first[2][100];
    for (uint64_t seed = 0; seed < 50; seed++) {
        m.options.seed = seed;
        for (m.count = 0; m.count < 100;) {
            model_add_chunk(&m, 0, (uint32_t)m.count, MIB, HALF);
            bool seen[100] = {false};
            uint64_t planned;
            assert_int_equal(model_plan(&m, UINT64_MAX, steps, &planned), m.count);
            for (size_t i = 0; i < m.count; i++) {
                assert_true(steps[i].unit < m.count);
                assert_false(seen[steps[i].unit]);
                seen[steps[i].unit] = true;
                first[seed % 2][i] = steps[i].unit;
            }
        }
        assert_true(seed == 0 || memcmp(first[0], first[1], sizeof(first[0])) != 0);
    }
}

/* A small array cuts the plan; going on gives the rest. Nothing asked for, nothing planned. */
static void test_capacity_and_zero(void **state)
{
    (void)state;
    model m;
    model_init(&m, 1e9, 1e9);
    model_add_layers(&m, 2, MIB, 2, MIB, HALF);
    assert_paths(&m, "KSKDKD"
                     "PPP");
    uint64_t planned;
    const size_t count =
        mz_policy_plan(&m.profile, m.units, m.count, &m.options, UINT64_MAX, steps, 2, &planned);
    assert_int_equal(count, 2);
    assert_int_equal(planned, HALF + MIB);
    model_apply(&m, steps, count);
    assert_paths(&m, "KDKD"
                     "PPP");
    assert_int_equal(model_plan(&m, 0, steps, &planned), 0);
    assert_int_equal(planned, 0);
}

/* A throughput that was not measured counts as 1 GB/s instead of dividing by zero. */
static void test_bad_profile(void **state)
{
    (void)state;
    model m;
    model_init(&m, 0.0, -1.0);
    model_add_layers(&m, 2, MIB, 2, MIB, HALF);
    assert_paths(&m, "KSKDKD"
                     "PPP");
    m.profile.read_bytes_per_s = 0.0 / (m.profile.read_bytes_per_s + 0.0);
    assert_paths(&m, "KSKDKD"
                     "PPP");
    m.profile.decode_bytes_per_s = 1e-300; /* hangs nor overflows */
    uint64_t planned;
    assert_true(model_plan(&m, UINT64_MAX, steps, &planned) > 0);
    assert_int_equal(planned, model_bytes(&m));
}

static void test_stage_names(void **state)
{
    (void)state;
    assert_string_equal(mz_policy_stage_name(MZ_STAGE_NONE), "none");
    assert_string_equal(mz_policy_stage_name(MZ_STAGE_KV_ONLY), "KVonly");
    assert_string_equal(mz_policy_stage_name(MZ_STAGE_KV_AND_W), "KVandW");
    assert_string_equal(mz_policy_stage_name(MZ_STAGE_W_ONLY), "Wonly");
    assert_string_equal(mz_policy_stage_name(MZ_STAGE_COMP_KV), "CompKV");
    assert_string_equal(mz_policy_stage_name(MZ_STAGE_EXACT), "exact");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codec_slower_than_a_layer),
        cmocka_unit_test(test_unequal_layers_are_weighed_by_time),
        cmocka_unit_test(test_unequal_chunks_are_weighed_by_time),
        cmocka_unit_test(test_exact_mode),
        cmocka_unit_test(test_no_store),
        cmocka_unit_test(test_no_store_no_stack),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_kv_alone_without_store),
        cmocka_unit_test(test_threshold_of_full_chunks),
        cmocka_unit_test(test_spilled_chunks_take_both_paths),
        cmocka_unit_test(test_imbalance_is_made_up_for),
        cmocka_unit_test(test_clean_chunks_are_not_written),
        cmocka_unit_test(test_skipped_units),
        cmocka_unit_test(test_opaque_state_counts_as_a_layer),
        cmocka_unit_test(test_forward_out),
        cmocka_unit_test(test_random_out),
        cmocka_unit_test(test_capacity_and_zero),
        cmocka_unit_test(test_bad_profile),
        cmocka_unit_test(test_stage_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

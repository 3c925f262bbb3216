/* SPDX-License-Identifier: MIT */
/*
 * Goal: the four stages come in the paper's order and split as it says, on its own model.
 *
 * Method: Qwen3-0.6B in f16. Per layer: attention 1024 x (2048 + 1024 + 1024) + 2048 x 1024 =
 * 6,291,456 and FFN 3 x 1024 x 3072 = 9,437,184 weights, 15.7 M together, times 2 bytes = 30 MiB.
 * A KV chunk of one layer: 256 tokens x 8 heads x 128 x (K, V) x 2 bytes = 1 MiB. 28 layers.
 * All expectations are worked out by hand in "reads": the time to read 1 MiB from flash is 1, so a
 * layer takes 30 to read and a chunk takes 1 to read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model.h"

#define LAYERS 28u
#define MIB ((uint64_t)1 << 20)
#define ENCODED (MIB / 2 + MIB / 64) /* 8 bits per value and a scale in f16 per 64 values */

static model the_model(uint32_t chunks, double decode_rate)
{
    model m;
    model_init(&m, 2e9, decode_rate);
    model_add_layers(&m, LAYERS, 30 * MIB, chunks, MIB, ENCODED);
    return m;
}

/* Steps by stage and path. */
typedef struct tally {
    unsigned n[MZ_STAGE_EXACT + 1][MZ_PATH_SPILL + 1];
    unsigned stage_changes;
} tally;

static tally count_steps(const mz_plan_step *steps, size_t count)
{
    tally t = {0};
    for (size_t i = 0; i < count; i++) {
        t.n[steps[i].stage][steps[i].path]++;
        t.stage_changes += i > 0 && steps[i].stage != steps[i - 1].stage;
    }
    return t;
}

static mz_plan_step steps[2 * MODEL_UNITS];

static tally plan_all(const model *m)
{
    uint64_t planned;
    const size_t count = model_plan(m, UINT64_MAX, steps, &planned);
    assert_int_equal(planned, model_bytes(m));
    return count_steps(steps, count);
}

static mz_policy_survey look(const model *m)
{
    mz_policy_survey survey;
    mz_policy_survey_units(&m->profile, m->units, m->count, &m->options, &survey);
    return survey;
}

/*
 * Decoding at 8 GB/s: a chunk takes 1/4, T = 28 x floor(30 / (1/4)) = 28 x 120 = 3360.
 * 8k tokens: 32 chunks x 28 = 896 <= T. KVandW: 120 chunks per layer; 896 = 7 x 120 + 56, so 7
 * layers go with all chunks. Wonly: the other 21. CompKV: the 896 chunks.
 */
static void test_8k_starts_at_kv_and_w(void **state)
{
    (void)state;
    const model m = the_model(32, 8e9);
    const mz_policy_survey survey = look(&m);
    assert_int_equal(survey.threshold, 3360);
    assert_int_equal(survey.kv_chunks, 896);
    assert_int_equal(survey.stage, MZ_STAGE_KV_AND_W);
    const tally t = plan_all(&m);
    assert_int_equal(t.n[MZ_STAGE_KV_AND_W][MZ_PATH_STACK], 896);
    assert_int_equal(t.n[MZ_STAGE_KV_AND_W][MZ_PATH_DROP], 7);
    assert_int_equal(t.n[MZ_STAGE_W_ONLY][MZ_PATH_DROP], 21);
    assert_int_equal(t.n[MZ_STAGE_COMP_KV][MZ_PATH_SPILL], 896);
    assert_int_equal(t.stage_changes, 2);
}

/* 16k tokens: 1792 = 14 x 120 + 112, so 14 layers go in KVandW and 14 in Wonly. */
static void test_16k_starts_at_kv_and_w(void **state)
{
    (void)state;
    const model m = the_model(64, 8e9);
    const tally t = plan_all(&m);
    assert_int_equal(t.n[MZ_STAGE_KV_AND_W][MZ_PATH_STACK], 1792);
    assert_int_equal(t.n[MZ_STAGE_KV_AND_W][MZ_PATH_DROP], 14);
    assert_int_equal(t.n[MZ_STAGE_W_ONLY][MZ_PATH_DROP], 14);
    assert_int_equal(t.n[MZ_STAGE_COMP_KV][MZ_PATH_SPILL], 1792);
}

/*
 * 32k tokens: 3584 > T, so 224 chunks go in KVonly, four to the stack for one to flash (1/4 : 1):
 * 44 rounds of 5, and 4 more to the stack: 180 and 44. Then decoding is at 45 and reading at 44.
 * KVandW: the first layer needs (44 + 30 - 45) x 4 = 116 chunks, the 27 others 120 each: 3356. The
 * 4 that are left go to the stack too: 885 against 884. Weights and chunks run out together.
 */
static void test_32k_starts_at_kv_only(void **state)
{
    (void)state;
    const model m = the_model(128, 8e9);
    assert_int_equal(look(&m).stage, MZ_STAGE_KV_ONLY);
    const tally t = plan_all(&m);
    assert_int_equal(t.n[MZ_STAGE_KV_ONLY][MZ_PATH_STACK], 180);
    assert_int_equal(t.n[MZ_STAGE_KV_ONLY][MZ_PATH_STORE], 44);
    assert_int_equal(t.n[MZ_STAGE_KV_AND_W][MZ_PATH_STACK], 3360);
    assert_int_equal(t.n[MZ_STAGE_KV_AND_W][MZ_PATH_STORE], 0);
    assert_int_equal(t.n[MZ_STAGE_KV_AND_W][MZ_PATH_DROP], 28);
    assert_int_equal(t.n[MZ_STAGE_W_ONLY][MZ_PATH_DROP], 0);
    assert_int_equal(t.n[MZ_STAGE_COMP_KV][MZ_PATH_SPILL], 3540);
}

/*
 * A slow codec, 0.5 GB/s: a chunk takes 4 to decode, T = 28 x floor(30 / 4) = 28 x 7 = 196. 8k
 * tokens: 896 - 196 = 700 chunks in KVonly, one to the stack for four to flash: 140 and 560. Both
 * paths are at 560. KVandW by time: 7.5 chunks per layer, 15 for two: 196 = 13 x 15 + 1 goes with
 * 26 layers; the paper's count of 7 would leave decoding half a chunk short at every layer. Wonly:
 * 2 layers.
 */
static void test_slow_codec_keeps_fractions_of_a_chunk(void **state)
{
    (void)state;
    const model m = the_model(32, 0.5e9);
    assert_int_equal(look(&m).threshold, 196);
    const tally t = plan_all(&m);
    assert_int_equal(t.n[MZ_STAGE_KV_ONLY][MZ_PATH_STACK], 140);
    assert_int_equal(t.n[MZ_STAGE_KV_ONLY][MZ_PATH_STORE], 560);
    assert_int_equal(t.n[MZ_STAGE_KV_AND_W][MZ_PATH_STACK], 196);
    assert_int_equal(t.n[MZ_STAGE_KV_AND_W][MZ_PATH_DROP], 26);
    assert_int_equal(t.n[MZ_STAGE_W_ONLY][MZ_PATH_DROP], 2);
}

/* The threshold itself: N_KV = T starts at KVandW, one chunk more starts at KVonly. */
static void test_threshold_is_exact(void **state)
{
    (void)state;
    model m = the_model(120, 8e9);
    assert_int_equal(look(&m).kv_chunks, 3360);
    assert_int_equal(look(&m).stage, MZ_STAGE_KV_AND_W);
    model_add_chunk(&m, LAYERS - 1, 120, MIB, ENCODED);
    assert_int_equal(look(&m).stage, MZ_STAGE_KV_ONLY);
}

/*
 * A small request takes small units. 10 MiB at 8k: 21 chunks free 31/64 MiB each, 10.17 MiB. They
 * are the rearmost ones: chunks 31 down to 11 of layer 27.
 */
static void test_small_request_takes_rearmost_chunks(void **state)
{
    (void)state;
    const model m = the_model(32, 8e9);
    uint64_t planned;
    const size_t count = model_plan(&m, 10 * MIB, steps, &planned);
    assert_int_equal(count, 21);
    assert_int_equal(planned, 21 * (MIB - ENCODED));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(m.units[steps[i].unit].layer, 27);
        assert_int_equal(m.units[steps[i].unit].chunk, 31 - i);
    }
}

/* After all of 32k was evicted short of CompKV a restore decodes for 885 and reads for 884. */
static void test_survey_gives_the_restore_times(void **state)
{
    (void)state;
    model m = the_model(128, 8e9);
    uint64_t planned;
    const uint64_t short_of_comp_kv = model_bytes(&m) - 3540 * ENCODED;
    const size_t count = model_plan(&m, short_of_comp_kv, steps, &planned);
    model_apply(&m, steps, count);
    assert_int_equal(planned, short_of_comp_kv);
    const mz_policy_survey survey = look(&m);
    assert_int_equal(survey.stage, MZ_STAGE_COMP_KV);
    /* 1 MiB at 2 GB/s is 524288 ns. */
    assert_int_equal(survey.decode_ns, (uint64_t)885 * 524288);
    assert_int_equal(survey.read_ns, (uint64_t)884 * 524288);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_8k_starts_at_kv_and_w),
        cmocka_unit_test(test_16k_starts_at_kv_and_w),
        cmocka_unit_test(test_32k_starts_at_kv_only),
        cmocka_unit_test(test_slow_codec_keeps_fractions_of_a_chunk),
        cmocka_unit_test(test_threshold_is_exact),
        cmocka_unit_test(test_small_request_takes_rearmost_chunks),
        cmocka_unit_test(test_survey_gives_the_restore_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * Goal: what must hold for every model holds: the two restore paths stay level wherever eviction
 * stops, plans can be cut anywhere, nothing is planned twice, and no more is freed than needed.
 *
 * Method: thousands of seeded random models. The test keeps its own account of the two paths, in
 * floating-point seconds from bytes and throughputs, and replays each plan on the model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model.h"

#define CASES 4000u
#define KIB ((uint64_t)1 << 10)

static model m, other;
static mz_plan_step steps[2 * MODEL_UNITS], parts[2 * MODEL_UNITS];

/* splitmix64 */
static uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A number in [low, high]. */
static uint64_t pick(uint64_t *seed, uint64_t low, uint64_t high)
{
    return low + next_random(seed) % (high - low + 1);
}

/* Layers and chunks of mixed size, everything resident, everything allowed. */
static void random_model(uint64_t *seed)
{
    model_init(&m, 1e6 * (double)pick(seed, 50, 8000), 1e6 * (double)pick(seed, 50, 20000));
    const uint32_t layers = (uint32_t)pick(seed, 1, 30);
    const uint32_t chunks = (uint32_t)pick(seed, 0, 40);
    const uint64_t weight_bytes = KIB * pick(seed, 100, 30000);
    const uint64_t chunk_bytes = KIB * pick(seed, 16, 2048);
    const bool mixed = pick(seed, 0, 1) == 1;
    for (uint32_t layer = 0; layer < layers; layer++) {
        model_add_weights(&m, layer, mixed ? KIB * pick(seed, 100, 30000) : weight_bytes);
        for (uint32_t chunk = 0; chunk < chunks; chunk++) {
            const uint64_t bytes = mixed ? KIB * pick(seed, 0, chunk_bytes / KIB) : chunk_bytes;
            model_add_chunk(&m, layer, chunk, bytes, bytes / 2);
            m.units[m.count - 1].clean = pick(seed, 0, 9) == 0;
        }
    }
    m.options.order = (mz_order)pick(seed, MZ_ORDER_BACKWARD, MZ_ORDER_RANDOM);
    m.options.seed = *seed;
}

/* Any state that units can be in, and any options. */
static void disturb_model(uint64_t *seed)
{
    m.options.tags = (unsigned)pick(seed, 0, MZ_TAG_ALL);
    m.options.stack_allowed = pick(seed, 0, 3) != 0;
    m.options.store_allowed = pick(seed, 0, 3) != 0;
    for (size_t i = 0; i < m.count; i++) {
        mz_policy_unit *unit = &m.units[i];
        if (pick(seed, 0, 3) == 0) {
            unit->where = (uint8_t)pick(seed, 0, MZ_WHERE_UNAVAILABLE);
            if (unit->tag == MZ_TAG_WEIGHTS && unit->where != MZ_WHERE_UNAVAILABLE) {
                unit->where = MZ_WHERE_STORED;
            }
        }
        if (pick(seed, 0, 15) == 0) {
            unit->clean = !unit->clean;
            unit->encoded_bytes = pick(seed, 0, 1) == 0 ? 0 : unit->bytes;
        }
    }
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Longest time that one unit of a tag takes on either path that it can come back by, seconds. */
static double longest_unit(mz_tag tag)
{
    double longest = 0.0;
    for (size_t i = 0; i < m.count; i++) {
        if (m.units[i].tag == tag) {
            const double bytes = (double)m.units[i].bytes;
            longest = larger(longest, bytes / m.profile.read_bytes_per_s);
            if (tag == MZ_TAG_KV_CACHE) {
                longest = larger(longest, bytes / m.profile.decode_bytes_per_s);
            }
        }
    }
    return longest;
}

/* Replay a plan from an all-resident model; the paths must be level after every balanced step. */
static void assert_balanced(size_t count)
{
    const double kv_unit = longest_unit(MZ_TAG_KV_CACHE);
    const double any_unit = larger(kv_unit, longest_unit(MZ_TAG_WEIGHTS));
    double decode = 0.0;
    double read = 0.0;
    for (size_t i = 0; i < count; i++) {
        const double bytes = (double)m.units[steps[i].unit].bytes;
        if (steps[i].path == MZ_PATH_STACK) {
            decode += bytes / m.profile.decode_bytes_per_s;
        } else if (steps[i].path != MZ_PATH_SPILL) {
            read += bytes / m.profile.read_bytes_per_s;
        }
        const double gap = larger(decode - read, read - decode);
        if (steps[i].stage == MZ_STAGE_KV_ONLY) {
            assert_true(gap <= kv_unit * (1.0 + 1e-6));
        } else if (steps[i].stage == MZ_STAGE_KV_AND_W) {
            assert_true(gap <= any_unit * (1.0 + 1e-6));
        }
    }
}

static void test_paths_stay_level(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        uint64_t random = seed;
        random_model(&random);
        uint64_t planned;
        const size_t count = model_plan(&m, UINT64_MAX, steps, &planned);
        assert_int_equal(planned, model_bytes(&m));
        assert_balanced(count);
    }
}

/* With equal units the end of KVonly is the paper's: N_KV > T in it, N_KV <= T in KVandW. */
static void test_stages_follow_the_threshold(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        uint64_t random = seed;
        const uint64_t ratio = pick(&random, 1, 60); /* whole: t_r^W / t_d^KV */
        const uint32_t layers = (uint32_t)pick(&random, 1, 30);
        const uint32_t chunks = (uint32_t)pick(&random, 1, 100);
        model_init(&m, 1e9, 1e9);
        model_add_layers(&m, layers, ratio * 64 * KIB, chunks, 64 * KIB, 30 * KIB);
        uint64_t left = (uint64_t)layers * chunks;
        uint64_t planned;
        const size_t count = model_plan(&m, UINT64_MAX, steps, &planned);
        mz_stage reached = MZ_STAGE_NONE;
        for (size_t i = 0; i < count; i++) {
            assert_true(steps[i].stage >= reached);
            reached = steps[i].stage;
            if (left > 0) {
                assert_int_equal(reached,
                                 left > layers * ratio ? MZ_STAGE_KV_ONLY : MZ_STAGE_KV_AND_W);
            }
            left -= left > 0 && m.units[steps[i].unit].tag == MZ_TAG_KV_CACHE;
        }
        assert_int_equal(left, 0);
    }
}

/* Plan in random pieces, carrying each out, and compare with the plan of their sum. */
static void assert_pieces_equal_whole(uint64_t *seed)
{
    uint64_t planned;
    const size_t whole = model_plan(&m, UINT64_MAX, steps, &planned);
    other = m;
    size_t done = 0;
    uint64_t freed = 0;
    while (done < whole) {
        const uint64_t asked = pick(seed, 1, 1 + model_bytes(&m) / 3);
        const size_t count = model_plan(&other, asked, parts, &planned);
        assert_true(count > 0 && count <= whole - done);
        for (size_t i = 0; i < count; i++) {
            const mz_plan_step *expected = &steps[done + i];
            assert_int_equal(parts[i].unit, expected->unit);
            assert_int_equal(parts[i].path, expected->path);
            assert_int_equal(parts[i].frees, expected->frees);
        }
        assert_true(planned >= asked || done + count == whole);
        assert_true(planned - parts[count - 1].frees < asked);
        freed += planned;
        model_apply(&other, parts, count);
        done += count;
    }
    assert_int_equal(model_plan(&other, UINT64_MAX, parts, &planned), 0);
    model_plan(&m, UINT64_MAX, steps, &planned);
    assert_int_equal(freed, planned);
}

static void test_pieces_equal_the_whole(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= CASES / 2; seed++) {
        uint64_t random = seed;
        random_model(&random);
        assert_pieces_equal_whole(&random);
        disturb_model(&random);
        assert_pieces_equal_whole(&random);
    }
}

/* What a plan may touch, whatever the state: model_apply checks places, this the options. */
static void test_plans_keep_to_the_options(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        uint64_t random = seed;
        random_model(&random);
        disturb_model(&random);
        uint64_t planned;
        const size_t count = model_plan(&m, UINT64_MAX, steps, &planned);
        uint64_t sum = 0;
        for (size_t i = 0; i < count; i++) {
            const mz_policy_unit *unit = &m.units[steps[i].unit];
            assert_true(((unsigned)unit->tag & m.options.tags) != 0);
            assert_true(steps[i].frees > 0);
            assert_true(m.options.stack_allowed || steps[i].path != MZ_PATH_STACK);
            assert_true(m.options.store_allowed ||
                        (steps[i].path != MZ_PATH_STORE && steps[i].path != MZ_PATH_SPILL));
            sum += steps[i].frees;
        }
        assert_int_equal(sum, planned);
        model_apply(&m, steps, count);
    }
}

/* Backward-out: within a kind of unit, what is needed later always leaves earlier. */
static void test_order_is_backward(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        uint64_t random = seed;
        random_model(&random);
        m.options.order = MZ_ORDER_BACKWARD;
        uint64_t planned;
        const size_t count = model_plan(&m, UINT64_MAX, steps, &planned);
        uint64_t last[3] = {UINT64_MAX, UINT64_MAX, UINT64_MAX}; /* weights, KV out, KV spilled */
        for (size_t i = 0; i < count; i++) {
            const bool spill = steps[i].path == MZ_PATH_SPILL;
            const size_t kind = m.units[steps[i].unit].tag == MZ_TAG_WEIGHTS ? 0 : 1 + spill;
            assert_true(steps[i].unit < last[kind]);
            last[kind] = steps[i].unit;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_stay_level),
        cmocka_unit_test(test_stages_follow_the_threshold),
        cmocka_unit_test(test_pieces_equal_the_whole),
        cmocka_unit_test(test_plans_keep_to_the_options),
        cmocka_unit_test(test_order_is_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * The model of model.h: plain arrays, so that a test can look at and change everything.
 * Carrying out a step checks with assertions that the step fits the unit's place: an executor could
 * do nothing sensible with a plan that stacks a unit twice or spills one that is not compressed.
 */
#include "model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

void model_init(model *m, double read_rate, double decode_rate)
{
    m->count = 0;
    m->profile = (mz_profile){.read_bytes_per_s = read_rate,
                              .decode_bytes_per_s = decode_rate,
                              .write_bytes_per_s = read_rate};
    m->options =
        (mz_policy_options){.tags = MZ_TAG_ALL, .stack_allowed = true, .store_allowed = true};
}

static void add(model *m, mz_policy_unit unit)
{
    assert_true(m->count < MODEL_UNITS);
    m->units[m->count++] = unit;
}

void model_add_weights(model *m, uint32_t layer, uint64_t bytes)
{
    add(m, (mz_policy_unit){.tag = MZ_TAG_WEIGHTS, .layer = layer, .bytes = bytes, .clean = true});
}

void model_add_chunk(model *m, uint32_t layer, uint32_t chunk, uint64_t bytes, uint64_t encoded)
{
    add(m, (mz_policy_unit){.tag = MZ_TAG_KV_CACHE,
                            .layer = layer,
                            .chunk = chunk,
                            .bytes = bytes,
                            .encoded_bytes = encoded});
}

void model_add_layers(model *m, uint32_t layers, uint64_t weight_bytes, uint32_t chunks,
                      uint64_t chunk_bytes, uint64_t encoded)
{
    for (uint32_t layer = 0; layer < layers; layer++) {
        model_add_weights(m, layer, weight_bytes);
        for (uint32_t chunk = 0; chunk < chunks; chunk++) {
            model_add_chunk(m, layer, chunk, chunk_bytes, encoded);
        }
    }
}

size_t model_plan(const model *m, uint64_t bytes, mz_plan_step *steps, uint64_t *planned)
{
    return mz_policy_plan(&m->profile, m->units, m->count, &m->options, bytes, steps,
                          2 * (size_t)MODEL_UNITS, planned);
}

void model_apply(model *m, const mz_plan_step *steps, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mz_policy_unit *unit = &m->units[steps[i].unit];
        switch (steps[i].path) {
        case MZ_PATH_DROP:
            assert_int_equal(unit->where, MZ_WHERE_RESIDENT);
            assert_true(unit->clean);
            unit->where = MZ_WHERE_STORED;
            break;
        case MZ_PATH_STORE:
            assert_int_equal(unit->where, MZ_WHERE_RESIDENT);
            assert_false(unit->clean);
            unit->where = MZ_WHERE_STORED;
            unit->clean = true;
            break;
        case MZ_PATH_STACK:
            assert_int_equal(unit->where, MZ_WHERE_RESIDENT);
            unit->where = MZ_WHERE_COMPRESSED;
            break;
        case MZ_PATH_SPILL:
            assert_int_equal(unit->where, MZ_WHERE_COMPRESSED);
            unit->where = MZ_WHERE_SPILLED;
            break;
        default:
            fail_msg("unknown path %d", (int)steps[i].path);
        }
    }
}

uint64_t model_bytes(const model *m)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->count; i++) {
        bytes += m->units[i].bytes;
    }
    return bytes;
}

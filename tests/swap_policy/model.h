/* SPDX-License-Identifier: MIT */
/*
 * A model to plan for: units in need order, and what carrying out a plan does to them.
 *
 * Shared by the tests of the policy. model_apply is the executor's contract in its smallest form;
 * it knows nothing of stages or times.
 */
#ifndef MZ_TESTS_SWAP_POLICY_MODEL_H
#define MZ_TESTS_SWAP_POLICY_MODEL_H

#include "swap/policy.h"

#define MODEL_UNITS 8192

typedef struct model {
    mz_policy_unit units[MODEL_UNITS];
    size_t count;
    mz_profile profile;
    mz_policy_options options;
} model;

/* An empty model with everything allowed. */
void model_init(model *m, double read_rate, double decode_rate);

/* Append a clean resident weight layer, or a dirty resident KV chunk. */
void model_add_weights(model *m, uint32_t layer, uint64_t bytes);
void model_add_chunk(model *m, uint32_t layer, uint32_t chunk, uint64_t bytes, uint64_t encoded);

/* Append `layers` equal layers of `chunks` chunks each. */
void model_add_layers(model *m, uint32_t layers, uint64_t weight_bytes, uint32_t chunks,
                      uint64_t chunk_bytes, uint64_t encoded);

/* Plan with the model's own settings into `steps` [2 * MODEL_UNITS]. */
size_t model_plan(const model *m, uint64_t bytes, mz_plan_step *steps, uint64_t *planned);

/* Carry out a plan. */
void model_apply(model *m, const mz_plan_step *steps, size_t count);

/* Sum of bytes over all units. */
uint64_t model_bytes(const model *m);

#endif

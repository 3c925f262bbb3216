/* SPDX-License-Identifier: MIT */
/*
 * The right tokens: stock llama.cpp, driven by its own batch and sampler calls, none of our code.
 */
#ifndef MZ_TESTS_LLM_REFERENCE_H
#define MZ_TESTS_LLM_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mzcache/llm.h"

#define REFERENCE_SKIP 77
#define REFERENCE_CONTEXT 768u
#define REFERENCE_BATCH 192

/* Path of the test model; NULL if it is not there (then the program returns REFERENCE_SKIP). */
const char *reference_model(void);

/* A folder of this process for the store. */
const char *reference_store(void);

/* One turn: what is said, and how many tokens the answer has. */
typedef struct reference_turn {
    const char *text;
    size_t answer;
} reference_turn;

/* Tokens that mz_llm_restore_generate reported; asks to stop after `stop_after`, 0: never. */
typedef struct reference_taken {
    int32_t tokens[64];
    size_t count, stop_after;
} reference_taken;

/* An mz_on_token; context: reference_taken. */
bool reference_take(void *context, int32_t token, const char *text, size_t text_bytes);

/* About 330 tokens: more than one KV chunk and more than one prefill step. */
const char *reference_long_text(void);

/*
 * Greedy answers of the turns, one after the other, into tokens. Of `options` it takes the model,
 * kv_type, flash_attention, no_mmap and threads. logits: of the last token, [vocabulary], may be
 * NULL.
 */
void reference_run(const mz_llm_options *options, const reference_turn *turns, size_t count,
                   int32_t *tokens, float *logits);

#endif

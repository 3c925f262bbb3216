/* SPDX-License-Identifier: MIT */
/*
 * A host for tests: stock llama.cpp by its own calls, on our device or on its CPU.
 *
 * A *session* is a model and a context. What is said in it is a script of the test, which runs once
 * without our device and once with it while an *evictor* takes memory away between the calls. What
 * the engine answered is kept as a *trace*: the best token and a hash of all logits of each output.
 * The two traces have to be equal. Both sides use the same kernels, repacked weights included, so
 * equal means bit for bit.
 */
#ifndef MZ_TESTS_PLUGIN_ENGINE_H
#define MZ_TESTS_PLUGIN_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <llama.h>

#include "mzcache/mzcache.h"

#define ENGINE_SKIP 77
#define ENGINE_TRACE_MAX 512

#define ENGINE_SMOL "SmolLM2-135M-Instruct.Q4_1.gguf"
#define ENGINE_GEMMA "gemma-3-270m-q4_k_m.gguf"

/* One way to run a model. */
typedef struct engine_setting {
    const char *model; /* ENGINE_SMOL or ENGINE_GEMMA */
    bool device;       /* on our device; false: the right values */
    uint32_t context_tokens;
    uint32_t step_tokens; /* n_batch and n_ubatch */
    uint32_t sequences;
    bool unified; /* all sequences in one stream of KV */
    bool flash_attention;
    const enum ggml_type *kv_type;            /* of K and V; NULL: f16 */
    ggml_backend_sched_eval_callback on_node; /* NULL: none */
} engine_setting;

typedef struct engine_trace {
    size_t count;
    llama_token tokens[ENGINE_TRACE_MAX];
    uint64_t logits[ENGINE_TRACE_MAX]; /* hash of the whole row */
} engine_trace;

typedef struct engine_session {
    engine_setting how;
    struct llama_model *model;
    struct llama_context *context;
    const struct llama_vocab *vocabulary;
    mz_pool *pool;
    uint64_t seed; /* of the evictor; 0: nothing is evicted */
    engine_trace trace;
} engine_session;

/* Whether both models are there; the program returns ENGINE_SKIP if not. */
bool engine_has_models(void);

/* Load the plug-in with a codec and guarded evicted ranges; once per process. NULL on failure. */
mz_pool *engine_load_plugin(const char *codec);

void engine_open(engine_session *session, const engine_setting *how, mz_pool *pool);
void engine_close(engine_session *session);

/* `count` tokens of a text that does not repeat itself; `variant` chooses the text. */
void engine_text(const engine_session *session, unsigned variant, llama_token *tokens, int count);

/* One token for each of some sequences, or many tokens for one. */
typedef struct engine_input {
    llama_token token;
    llama_pos position;
    llama_seq_id sequence;
    bool output;
} engine_input;

/* Decode, with an eviction before it; what came out is appended to the trace. */
void engine_decode(engine_session *session, const engine_input *inputs, int count);

/* Prefill one sequence behind what it holds, in steps of the setting's size; one output. */
void engine_prefill(engine_session *session, llama_seq_id sequence, const llama_token *tokens,
                    int count);

/* Go on with each of the sequences [0, count) from its last output, `steps` times, in parallel. */
void engine_generate(engine_session *session, llama_seq_id count, int steps);

/* KV of sequence 0 as the host saves it; reading it restores it. The caller frees it. */
uint8_t *engine_save(const engine_session *session, size_t *bytes);

/* Evict 1 byte, 25, 50, 75 or 100 %, at random by the session's seed; nothing if that is 0. */
void engine_evict(engine_session *session);

/* Evict all there is and check that nothing is left. */
void engine_evict_all(mz_pool *pool);

void engine_assert_same(const engine_trace *ours, const engine_trace *right);

#endif

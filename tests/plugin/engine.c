/* SPDX-License-Identifier: MIT */
/* Stock llama.cpp by its own calls, see engine.h. */
#include "engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define STEP_TOKENS_MAX 512

static void silence(enum ggml_log_level level, const char *text, void *data)
{
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static void model_path(const char *name, char *path, size_t capacity)
{
    snprintf(path, capacity, "%s/%s", MZ_TEST_MODELS, name);
}

bool engine_has_models(void)
{
    static const char *const names[] = {ENGINE_SMOL, ENGINE_GEMMA};
    for (int i = 0; i < 2; i++) {
        char path[1024];
        model_path(names[i], path, sizeof path);
        if (access(path, R_OK) != 0) {
            fprintf(stderr, "skipped: no %s\n", path);
            return false;
        }
    }
    return true;
}

mz_pool *engine_load_plugin(const char *codec)
{
    setenv("MZCACHE_STORE", MZ_TEST_STORE, 1);
    setenv("MZCACHE_CODEC", codec, 1);
    setenv("MZCACHE_GUARD", "1", 1);
    llama_log_set(silence, NULL);
    llama_backend_init();
    ggml_backend_reg_t registry = ggml_backend_load(MZ_TEST_PLUGIN);
    if (registry == NULL) {
        return NULL;
    }
    mz_plugin_pool_fn get_pool =
        (mz_plugin_pool_fn)ggml_backend_reg_get_proc_address(registry, MZ_PLUGIN_POOL_PROC);
    return get_pool();
}

void engine_open(engine_session *session, const engine_setting *how, mz_pool *pool)
{
    static ggml_backend_dev_t none[] = {NULL};
    *session = (engine_session){.how = *how, .pool = pool};
    char path[1024];
    model_path(how->model, path, sizeof path);
    struct llama_model_params model = llama_model_default_params();
    model.n_gpu_layers = how->device ? -1 : 0;
    model.devices = how->device ? NULL : none;
    session->model = llama_model_load_from_file(path, model);
    assert_non_null(session->model);
    session->vocabulary = llama_model_get_vocab(session->model);
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = how->context_tokens;
    params.n_batch = how->step_tokens;
    params.n_ubatch = how->step_tokens;
    params.n_seq_max = how->sequences;
    params.kv_unified = how->unified;
    params.swa_full = false;
    params.flash_attn_type =
        how->flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    if (how->kv_type != NULL) {
        params.type_k = *how->kv_type;
        params.type_v = *how->kv_type;
    }
    params.n_threads = 2;
    params.n_threads_batch = 2;
    params.cb_eval = how->on_node;
    session->context = llama_init_from_model(session->model, params);
    assert_non_null(session->context);
}

void engine_close(engine_session *session)
{
    llama_free(session->context);
    llama_model_free(session->model);
}

void engine_text(const engine_session *session, unsigned variant, llama_token *tokens, int count)
{
    static const char *const places[] = {"harbour", "mill", "school", "bridge", "market"};
    static const char *const things[] = {"a lamp", "two boats", "the old map", "salt",
                                         "a red door"};
    char text[32768] = "";
    size_t used = 0;
    for (unsigned i = 0; used + 128 < sizeof text && i < 160; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "On day %u they carried %s to the %s, %u miles away. ",
                                 i + variant, things[(i * 3 + variant) % 5],
                                 places[(i / 2 + variant) % 5], (i * 37 + 11 * variant) % 97);
    }
    static llama_token all[8192];
    int made = llama_tokenize(session->vocabulary, text, (int)used, all, 8192, true, false);
    assert_true(made >= count);
    memcpy(tokens, all, (size_t)count * sizeof *tokens);
}

static uint64_t random_of(engine_session *session)
{
    session->seed = session->seed * 6364136223846793005u + 1442695040888963407u;
    return session->seed >> 33;
}

uint8_t *engine_save(const engine_session *session, size_t *bytes)
{
    *bytes = llama_state_seq_get_size(session->context, 0);
    uint8_t *state = malloc(*bytes);
    assert_non_null(state);
    assert_int_equal(llama_state_seq_get_data(session->context, state, *bytes, 0), *bytes);
    return state;
}

void engine_evict(engine_session *session)
{
    static const unsigned shares[] = {0, 25, 50, 75, 100};
    if (session->seed == 0) {
        return;
    }
    mz_pool_status now;
    assert_int_equal(mz_status_get(session->pool, &now), MZ_OK);
    uint64_t resident = now.weights.resident_bytes + now.kv_cache.resident_bytes;
    uint64_t bytes = resident * shares[random_of(session) % 5] / 100;
    mz_status status = mz_evict(session->pool, bytes > 0 ? bytes : 1, NULL);
    assert_true(status == MZ_OK || status == MZ_E_PARTIAL);
}

void engine_evict_all(mz_pool *pool)
{
    mz_pool_status now;
    mz_status status = mz_evict(pool, UINT64_MAX / 2, NULL);
    assert_true(status == MZ_OK || status == MZ_E_PARTIAL);
    assert_int_equal(mz_status_get(pool, &now), MZ_OK);
    assert_int_equal(now.weights.resident_bytes + now.kv_cache.resident_bytes, 0);
}

static void trace_output(engine_session *session, int index)
{
    const float *logits = llama_get_logits_ith(session->context, index);
    assert_non_null(logits);
    int best = 0;
    uint64_t hash = 14695981039346656037u; /* FNV-1a over the words of the row */
    for (int i = 0; i < llama_vocab_n_tokens(session->vocabulary); i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
        best = logits[i] > logits[best] ? i : best;
    }
    engine_trace *trace = &session->trace;
    assert_true(trace->count < ENGINE_TRACE_MAX);
    trace->tokens[trace->count] = best;
    trace->logits[trace->count++] = hash;
}

void engine_decode(engine_session *session, const engine_input *inputs, int count)
{
    struct llama_batch batch = llama_batch_init(count, 0, 1);
    for (int i = 0; i < count; i++) {
        batch.token[i] = inputs[i].token;
        batch.pos[i] = inputs[i].position;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = inputs[i].sequence;
        batch.logits[i] = inputs[i].output;
    }
    batch.n_tokens = count;
    engine_evict(session);
    assert_int_equal(llama_decode(session->context, batch), 0);
    llama_batch_free(batch);
    for (int i = 0; i < count; i++) {
        if (inputs[i].output) {
            trace_output(session, i);
        }
    }
}

static llama_pos next_position(const engine_session *session, llama_seq_id sequence)
{
    return llama_memory_seq_pos_max(llama_get_memory(session->context), sequence) + 1;
}

void engine_prefill(engine_session *session, llama_seq_id sequence, const llama_token *tokens,
                    int count)
{
    engine_input inputs[STEP_TOKENS_MAX];
    int step = (int)session->how.step_tokens;
    assert_true(step <= STEP_TOKENS_MAX);
    llama_pos position = next_position(session, sequence);
    for (int done = 0; done < count; done += step) {
        int now = count - done < step ? count - done : step;
        for (int i = 0; i < now; i++) {
            inputs[i] = (engine_input){.token = tokens[done + i],
                                       .position = position + done + i,
                                       .sequence = sequence,
                                       .output = done + i == count - 1};
        }
        engine_decode(session, inputs, now);
    }
}

void engine_generate(engine_session *session, llama_seq_id count, int steps)
{
    engine_input inputs[8];
    engine_trace *trace = &session->trace;
    assert_true(count <= 8 && trace->count >= (size_t)count);
    for (int step = 0; step < steps; step++) {
        for (llama_seq_id i = 0; i < count; i++) {
            inputs[i] = (engine_input){.token = trace->tokens[trace->count - (size_t)(count - i)],
                                       .position = next_position(session, i),
                                       .sequence = i,
                                       .output = true};
        }
        engine_decode(session, inputs, count);
    }
}

void engine_assert_same(const engine_trace *ours, const engine_trace *right)
{
    assert_int_equal(ours->count, right->count);
    for (size_t i = 0; i < right->count; i++) {
        if (ours->tokens[i] != right->tokens[i] || ours->logits[i] != right->logits[i]) {
            fail_msg("output %zu: token %d, right is %d; logits %s", i, ours->tokens[i],
                     right->tokens[i], ours->logits[i] == right->logits[i] ? "equal" : "differ");
        }
    }
}

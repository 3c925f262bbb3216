/* SPDX-License-Identifier: MIT */
/*
 * Goal: an unmodified llama.cpp says the same tokens on our device as on its CPU, however much was
 * evicted in between, for every way in which it can lay out weights and KV.
 * Method: greedy decoding of a real model; all memory is evicted after the prefill and every few
 * tokens, with evicted ranges guarded so that a stray read faults. Right values: the same
 * llama.cpp without our device, as it loads a model by default. Skipped without the model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <llama.h>

#include "mzcache/mzcache.h"

#define MAX_NEW 12
#define MAX_PROMPT 600
#define EVICT_EVERY 5

/* One way to run the model. */
typedef struct setting {
    const char *name;
    bool device; /* on our device */
    bool mmap;
    int layers; /* offloaded */
    enum llama_flash_attn_type attention;
    enum ggml_type kv_type;
    uint32_t sequences;
} setting;

static mz_pool *pool;

static void silence(enum ggml_log_level level, const char *text, void *data)
{
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static struct llama_model *open_model(const setting *how)
{
    static ggml_backend_dev_t none[] = {NULL};
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = how->device ? how->layers : 0;
    params.devices = how->device ? NULL : none;
    params.load_mode = how->mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    return llama_model_load_from_file(MZ_TEST_MODEL, params);
}

static struct llama_context *open_context(struct llama_model *model, const setting *how)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 1024 * how->sequences;
    params.n_seq_max = how->sequences;
    params.n_batch = 256;
    params.n_ubatch = 256;
    params.flash_attn_type = how->attention;
    params.type_k = how->kv_type;
    params.type_v = how->kv_type;
    params.n_threads = 2;
    params.n_threads_batch = 2;
    return llama_init_from_model(model, params);
}

/* Evict everything; weights must be gone wholly and KV in part (a chunk may be empty). */
static void evict_all(void)
{
    uint64_t freed = 0;
    mz_pool_status now;
    mz_status status = mz_evict(pool, UINT64_MAX / 2, &freed);
    assert_true(status == MZ_OK || status == MZ_E_PARTIAL);
    assert_true(freed > 0);
    assert_int_equal(mz_status_get(pool, &now), MZ_OK);
    assert_int_equal(now.weights.resident_units, 0);
    assert_true(now.weights.stored_units > 0);
    assert_true(now.kv_cache.stored_units + now.kv_cache.compressed_units > 0);
    assert_int_equal(now.kv_cache.lost_units, 0);
}

static llama_token best_token(struct llama_context *context, int vocabulary)
{
    const float *logits = llama_get_logits_ith(context, -1);
    llama_token best = 0;
    for (int i = 1; i < vocabulary; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static void decode(struct llama_context *context, llama_token *tokens, int count, int position,
                   llama_seq_id sequence)
{
    struct llama_batch batch = llama_batch_init(count, 0, 1);
    for (int i = 0; i < count; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = position + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = sequence;
        batch.logits[i] = i == count - 1;
    }
    batch.n_tokens = count;
    assert_int_equal(llama_decode(context, batch), 0);
    llama_batch_free(batch);
}

static int make_prompt(const struct llama_vocab *vocabulary, llama_token *tokens)
{
    char text[4096] = "";
    for (int i = 0; i < 22; i++) {
        char line[80];
        snprintf(line, sizeof line, "Day %d: the ship sailed %d miles to the north. ", i,
                 17 * i % 90);
        strncat(text, line, sizeof text - strlen(text) - 1);
    }
    int count =
        llama_tokenize(vocabulary, text, (int)strlen(text), tokens, MAX_PROMPT, true, false);
    assert_true(count > 260);
    return count;
}

/* Prefill in two batches and generate; evicts all the while if it runs on our device. */
static void generate(const setting *how, llama_token *out)
{
    struct llama_model *model = open_model(how);
    assert_non_null(model);
    struct llama_context *context = open_context(model, how);
    assert_non_null(context);
    const struct llama_vocab *vocabulary = llama_model_get_vocab(model);
    llama_token prompt[MAX_PROMPT];
    int count = make_prompt(vocabulary, prompt);
    llama_seq_id sequence = (llama_seq_id)how->sequences - 1;
    decode(context, prompt, 200, 0, sequence);
    if (how->device) {
        evict_all();
    }
    for (int done = 200; done < count; done += 200) {
        decode(context, prompt + done, count - done < 200 ? count - done : 200, done, sequence);
    }
    for (int i = 0; i < MAX_NEW; i++) {
        out[i] = best_token(context, llama_vocab_n_tokens(vocabulary));
        if (how->device && i % EVICT_EVERY == 0) {
            evict_all();
        }
        decode(context, &out[i], 1, count + i, sequence);
    }
    llama_free(context);
    llama_model_free(model);
}

static void check_setting(setting how)
{
    llama_token right[MAX_NEW];
    llama_token ours[MAX_NEW];
    how.device = false;
    generate(&how, right);
    how.device = true;
    generate(&how, ours);
    assert_memory_equal(ours, right, sizeof right);
    mz_pool_status status;
    assert_int_equal(mz_status_get(pool, &status), MZ_OK);
    assert_true(status.restores > 0);
    /* All buffers are gone, so all units are. */
    assert_int_equal(status.weights.total_units, 0);
    assert_int_equal(status.kv_cache.total_units, 0);
}

/* What a conversation leaves when it is saved, and how it goes on in another context. */
typedef struct saved {
    size_t bytes;
    uint8_t *state;
    llama_token tokens[MAX_NEW];
} saved;

static void save_and_continue(const setting *how, saved *out)
{
    llama_token prompt[MAX_PROMPT];
    struct llama_model *model = open_model(how);
    struct llama_context *context = open_context(model, how);
    const struct llama_vocab *vocabulary = llama_model_get_vocab(model);
    int count = make_prompt(vocabulary, prompt);
    decode(context, prompt, 200, 0, 0);
    if (how->device) {
        evict_all();
    }
    out->bytes = llama_state_seq_get_size(context, 0);
    out->state = malloc(out->bytes);
    assert_non_null(out->state);
    assert_int_equal(llama_state_seq_get_data(context, out->state, out->bytes, 0), out->bytes);
    llama_free(context);

    context = open_context(model, how);
    assert_int_equal(llama_state_seq_set_data(context, out->state, out->bytes, 0), out->bytes);
    decode(context, prompt + 200, count - 200, 200, 0);
    for (int i = 0; i < MAX_NEW; i++) {
        if (how->device && i % EVICT_EVERY == 0) {
            evict_all();
        }
        /* The logits stay valid; the shift below makes the host rewrite K of evicted chunks. */
        out->tokens[i] = best_token(context, llama_vocab_n_tokens(vocabulary));
        if (i == MAX_NEW / 2) {
            llama_memory_t memory = llama_get_memory(context);
            assert_true(llama_memory_seq_rm(memory, 0, 10, 40));
            llama_memory_seq_add(memory, 0, 40, -1, -30);
            count -= 30;
        }
        decode(context, &out->tokens[i], 1, count + i, 0);
    }
    llama_free(context);
    llama_model_free(model);
}

static void test_saved_loaded_and_shifted(void **state)
{
    (void)state;
    setting how = {.mmap = true,
                   .layers = -1,
                   .attention = LLAMA_FLASH_ATTN_TYPE_ENABLED,
                   .kv_type = GGML_TYPE_F16,
                   .sequences = 1};
    saved right;
    saved ours;
    save_and_continue(&how, &right);
    how.device = true;
    save_and_continue(&how, &ours);
    assert_int_equal(ours.bytes, right.bytes);
    assert_memory_equal(ours.state, right.state, right.bytes);
    assert_memory_equal(ours.tokens, right.tokens, sizeof right.tokens);
    free(right.state);
    free(ours.state);
}

#define ON LLAMA_FLASH_ATTN_TYPE_ENABLED
#define OFF LLAMA_FLASH_ATTN_TYPE_DISABLED

static void test_mapped(void **state)
{
    (void)state;
    check_setting((setting){
        .mmap = true, .layers = -1, .attention = ON, .kv_type = GGML_TYPE_F16, .sequences = 1});
}

static void test_mapped_transposed_v(void **state)
{
    (void)state;
    check_setting((setting){
        .mmap = true, .layers = -1, .attention = OFF, .kv_type = GGML_TYPE_F16, .sequences = 1});
}

static void test_set_by_the_host(void **state)
{
    (void)state;
    check_setting((setting){
        .mmap = false, .layers = -1, .attention = ON, .kv_type = GGML_TYPE_F16, .sequences = 1});
}

static void test_partly_offloaded(void **state)
{
    (void)state;
    check_setting((setting){
        .mmap = true, .layers = 7, .attention = ON, .kv_type = GGML_TYPE_F16, .sequences = 1});
}

static void test_quantized_kv(void **state)
{
    (void)state;
    check_setting((setting){
        .mmap = true, .layers = -1, .attention = ON, .kv_type = GGML_TYPE_Q8_0, .sequences = 1});
}

static void test_several_sequences(void **state)
{
    (void)state;
    check_setting((setting){
        .mmap = true, .layers = -1, .attention = ON, .kv_type = GGML_TYPE_F32, .sequences = 3});
}

static int load_plugin(void **state)
{
    (void)state;
    setenv("MZCACHE_STORE", MZ_TEST_STORE, 1);
    setenv("MZCACHE_GUARD", "1", 1);
    llama_log_set(silence, NULL);
    llama_backend_init();
    ggml_backend_reg_t registry = ggml_backend_load(MZ_TEST_PLUGIN);
    if (registry == NULL) {
        return 1;
    }
    mz_plugin_pool_fn get_pool =
        (mz_plugin_pool_fn)ggml_backend_reg_get_proc_address(registry, MZ_PLUGIN_POOL_PROC);
    pool = get_pool();
    return 0;
}

int main(void)
{
    if (access(MZ_TEST_MODEL, R_OK) != 0) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mapped),
        cmocka_unit_test(test_mapped_transposed_v),
        cmocka_unit_test(test_set_by_the_host),
        cmocka_unit_test(test_partly_offloaded),
        cmocka_unit_test(test_quantized_kv),
        cmocka_unit_test(test_several_sequences),
        cmocka_unit_test(test_saved_loaded_and_shifted),
    };
    return cmocka_run_group_tests(tests, load_plugin, NULL);
}

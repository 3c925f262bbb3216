/* SPDX-License-Identifier: MIT */
/* Stock llama.cpp by its own calls; see reference.h. */
#include "reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llama.h"

const char *reference_model(void)
{
    static const char path[] = MZ_TEST_MODELS "/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "skipped: no %s\n", path);
        return NULL;
    }
    return path;
}

const char *reference_store(void)
{
    static const char path[] = MZ_TEST_STORE "/store";
    mkdir(path, 0700);
    return path;
}

const char *reference_long_text(void)
{
    static const char sentence[] =
        "Day after day the keeper of the light wrote down the wind, the ships and the price of "
        "oil, "
        "and on the seventh day he read it all again to see what he had missed. ";
    static char text[20 * sizeof sentence];
    text[0] = '\0';
    for (int i = 0; i < 8; i++) {
        strcat(text, sentence);
    }
    return text;
}

static void say_nothing(enum ggml_log_level level, const char *text, void *context)
{
    (void)level;
    (void)text;
    (void)context;
}

/* Release builds drop assert. */
static void must(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "reference: %s failed\n", what);
        abort();
    }
}

static enum ggml_type type_of(const char *name)
{
    return name != NULL && strcmp(name, "q8_0") == 0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
}

static struct llama_model *load(const mz_llm_options *options)
{
    static ggml_backend_dev_t none[1] = {NULL};
    struct llama_model_params params = llama_model_default_params();
    params.devices = none;
    params.n_gpu_layers = 0;
    params.load_mode = options->no_mmap ? LLAMA_LOAD_MODE_NONE : LLAMA_LOAD_MODE_MMAP;
    struct llama_model *model = llama_model_load_from_file(options->model_path, params);
    must(model != NULL, "loading");
    return model;
}

static struct llama_context *make_context(struct llama_model *model, const mz_llm_options *options)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = REFERENCE_CONTEXT;
    params.n_batch = REFERENCE_BATCH;
    params.n_ubatch = REFERENCE_BATCH;
    params.n_threads = options->threads;
    params.n_threads_batch = options->threads;
    params.type_k = type_of(options->kv_type);
    params.type_v = params.type_k;
    params.flash_attn_type = (enum llama_flash_attn_type)options->flash_attention;
    struct llama_context *context = llama_init_from_model(model, params);
    must(context != NULL, "making a context");
    return context;
}

static void decode(struct llama_context *context, llama_token *tokens, int32_t count)
{
    for (int32_t done = 0; done < count; done += REFERENCE_BATCH) {
        int32_t step = count - done < REFERENCE_BATCH ? count - done : REFERENCE_BATCH;
        int result = llama_decode(context, llama_batch_get_one(tokens + done, step));
        must(result == 0, "decoding");
    }
}

void reference_run(const mz_llm_options *options, const reference_turn *turns, size_t count,
                   int32_t *tokens, float *logits)
{
    llama_log_set(say_nothing, NULL);
    llama_backend_init();
    struct llama_model *model = load(options);
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    struct llama_context *context = make_context(model, options);
    struct llama_sampler *greedy = llama_sampler_init_greedy();
    llama_token input[2048];
    int32_t kept = 0; /* the last generated token is decoded with the next input */
    for (size_t turn = 0; turn < count; turn++) {
        kept += llama_tokenize(vocab, turns[turn].text, (int32_t)strlen(turns[turn].text),
                               input + kept, 2000, turn == 0, true);
        for (size_t i = 0; i < turns[turn].answer; i++) {
            decode(context, input, kept);
            input[0] = llama_sampler_sample(greedy, context, -1);
            kept = 1;
            *tokens++ = input[0];
        }
    }
    if (logits != NULL) {
        memcpy(logits, llama_get_logits_ith(context, -1),
               (size_t)llama_vocab_n_tokens(vocab) * sizeof *logits);
    }
    llama_sampler_free(greedy);
    llama_free(context);
    llama_model_free(model);
}

bool reference_take(void *context, int32_t token, const char *text, size_t text_bytes)
{
    reference_taken *t = context;
    (void)text;
    (void)text_bytes;
    t->tokens[t->count++] = token;
    return t->count != t->stop_after;
}

/* SPDX-License-Identifier: MIT */
/*
 * Open and close a model.
 *
 * The whole model goes to the mzCache device (or, for a stock engine, to no device at all, so that
 * everything runs on llama.cpp's CPU backend): the two differ in who owns the memory and in nothing
 * else. One output per step is asked for, because greedy generation reads the last row only; this
 * keeps the output buffers small, which are not elastic.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/engine.h"
#include "llm/state.h"
#include "os/process.h"
#include "pool/pool.h"

/* A step as large as llama.cpp's own default micro batch: larger ones were not faster on CPUs. */
#define DEFAULT_BATCH_TOKENS 512u

void mz_llm_options_default(mz_llm_options *options)
{
    memset(options, 0, sizeof *options);
    options->flash_attention = -1;
}

static mz_status check_model_file(const char *path, mz_error *error)
{
    if (path == NULL || path[0] == '\0') {
        return mz_error_set(error, MZ_E_INVALID, 0, "no model file given");
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return mz_error_set(error, mz_status_from_errno(errno), errno, "can't open model %s", path);
    }
    fclose(file);
    return MZ_OK;
}

static mz_status parse_kv_type(const char *name, enum ggml_type *type, mz_error *error)
{
    const enum ggml_type known[] = {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_F32, GGML_TYPE_BF16};
    if (name == NULL) {
        *type = GGML_TYPE_F16;
        return MZ_OK;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, ggml_type_name(known[i])) == 0) {
            *type = known[i];
            return MZ_OK;
        }
    }
    return mz_error_set(error, MZ_E_INVALID, 0, "KV type %s is none of f16, q8_0, f32, bf16", name);
}

/* The device and the pool behind the plug-in; device stays NULL for a stock engine. */
static mz_status find_device(const mz_llm_options *options, mz_llm *llm, ggml_backend_dev_t *device,
                             mz_error *error)
{
    if (options->stock) {
        return MZ_OK;
    }
    ggml_backend_reg_t reg = NULL;
    mz_status status = mz_engine_load_plugin(options, &reg, error);
    if (status != MZ_OK) {
        return status;
    }
    /* POSIX makes a void pointer hold a function; ISO C wants it copied, not cast. */
    void *address = ggml_backend_reg_get_proc_address(reg, MZ_PLUGIN_POOL_PROC);
    mz_plugin_pool_fn pool_of_plugin = NULL;
    memcpy(&pool_of_plugin, &address, sizeof pool_of_plugin);
    if (pool_of_plugin == NULL || ggml_backend_reg_dev_count(reg) == 0) {
        return mz_error_set(error, MZ_E_HOST, 0, "the plug-in loaded is none of this version");
    }
    llm->pool = pool_of_plugin();
    *device = ggml_backend_reg_dev_get(reg, 0);
    return MZ_OK;
}

static mz_status load_model(const mz_llm_options *options, mz_llm *llm, mz_error *error)
{
    ggml_backend_dev_t devices[2] = {NULL, NULL};
    mz_status status = find_device(options, llm, &devices[0], error);
    if (status != MZ_OK) {
        return status;
    }
    struct llama_model_params params = llama_model_default_params();
    params.devices = devices;
    params.n_gpu_layers = options->stock ? 0 : -1; /* -1: all, the output layer included */
    params.load_mode = options->no_mmap ? LLAMA_LOAD_MODE_NONE : LLAMA_LOAD_MODE_MMAP;
    mz_engine_complaint complaint;
    mz_engine_listen(&complaint);
    llm->model = llama_model_load_from_file(options->model_path, params);
    mz_engine_hush();
    if (llm->model == NULL) {
        return mz_error_set(error, MZ_E_ENGINE, 0, "can't load %s: %s", options->model_path,
                            complaint.text);
    }
    if (llm->pool != NULL) {
        mz_pool_pass_gate(llm->pool, options->model_path); /* without mmap only we know the file */
    }
    llm->vocab = llama_model_get_vocab(llm->model);
    return MZ_OK;
}

static mz_status make_context(const mz_llm_options *options, mz_llm *llm, mz_error *error)
{
    struct llama_context_params params = llama_context_default_params();
    mz_status status = parse_kv_type(options->kv_type, &params.type_k, error);
    if (status != MZ_OK) {
        return status;
    }
    uint32_t batch = options->batch_tokens != 0 ? options->batch_tokens : DEFAULT_BATCH_TOKENS;
    params.type_v = params.type_k;
    params.n_ctx = options->context_tokens;
    params.n_batch = batch;
    params.n_ubatch = batch;
    params.n_seq_max = 1;
    params.n_outputs_max = 1;
    params.n_threads = options->threads > 0 ? options->threads : mz_machine_cores();
    params.n_threads_batch = params.n_threads;
    params.flash_attn_type = options->flash_attention < 0   ? LLAMA_FLASH_ATTN_TYPE_AUTO
                             : options->flash_attention > 0 ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                                                            : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.offload_kqv = true;
    mz_engine_complaint complaint;
    mz_engine_listen(&complaint);
    llm->context = llama_init_from_model(llm->model, params);
    mz_engine_hush();
    if (llm->context == NULL) {
        return mz_error_set(error, MZ_E_ENGINE, 0, "can't make a context: %s", complaint.text);
    }
    /* llama.cpp lowers the batch to the context's size. */
    llm->batch_tokens = (int32_t)llama_n_batch(llm->context);
    llm->batch = llama_batch_init(llm->batch_tokens, 0, 1);
    return MZ_OK;
}

static mz_status open_all(const mz_llm_options *options, mz_llm *llm, mz_error *error)
{
    mz_status status = check_model_file(options->model_path, error);
    if (status == MZ_OK) {
        status = load_model(options, llm, error);
    }
    if (status == MZ_OK) {
        status = make_context(options, llm, error);
    }
    return status;
}

mz_status mz_llm_open(const mz_llm_options *options, mz_llm **llm, char *message,
                      size_t message_bytes)
{
    if (options == NULL || llm == NULL) {
        return MZ_E_INVALID;
    }
    mz_error error = MZ_ERROR_INIT;
    mz_llm *opened = calloc(1, sizeof *opened);
    mz_status status;
    if (opened == NULL) {
        status = mz_error_set(&error, MZ_E_NOMEM, 0, "no memory for a model");
    } else {
        mz_engine_hush();
        llama_backend_init();
        status = open_all(options, opened, &error);
    }
    if (status != MZ_OK) {
        if (message != NULL && message_bytes > 0) {
            snprintf(message, message_bytes, "%s", error.text);
        }
        mz_llm_close(opened);
        return status;
    }
    *llm = opened;
    return MZ_OK;
}

void mz_llm_close(mz_llm *llm)
{
    if (llm == NULL) {
        return;
    }
    if (llm->context != NULL) {
        llama_batch_free(llm->batch);
        llama_free(llm->context);
    }
    if (llm->model != NULL) {
        llama_model_free(llm->model);
    }
    free(llm);
}

mz_pool *mz_llm_pool(mz_llm *llm)
{
    return llm != NULL ? llm->pool : NULL;
}

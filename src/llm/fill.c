/* SPDX-License-Identifier: MIT */
/*
 * Filling a context: llama.cpp is asked to decode, so that its cells, positions and graphs are
 * those of a real conversation, while the plug-in leaves out the computing.
 */
#include "llm/fill.h"

#include <string.h>

#include "llm/engine.h"
#include "llm/state.h"
#include "pool/fill.h"

static mz_plugin_fill_fn find_function(void)
{
    mz_llm_options options;
    mz_llm_options_default(&options);
    mz_error error = MZ_ERROR_INIT;
    ggml_backend_reg_t reg = NULL;
    mz_plugin_fill_fn function = NULL;
    if (mz_engine_load_plugin(&options, &reg, &error) == MZ_OK) {
        /* POSIX makes a void pointer hold a function; ISO C wants it copied, not cast. */
        void *address = ggml_backend_reg_get_proc_address(reg, MZ_PLUGIN_FILL_PROC);
        memcpy(&function, &address, sizeof function);
    }
    return function;
}

static bool decode(mz_llm *llm, int32_t count)
{
    struct llama_batch *batch = &llm->batch;
    for (int32_t i = 0; i < count; i++) {
        batch->token[i] = 0;
        batch->pos[i] = (llama_pos)llm->decoded + i;
        batch->n_seq_id[i] = 1;
        batch->seq_id[i][0] = 0;
        batch->logits[i] = false;
    }
    batch->n_tokens = count;
    if (llama_decode(llm->context, *batch) != 0) {
        return false;
    }
    llm->decoded += (uint32_t)count;
    return true;
}

mz_status mz_llm_fill(mz_llm *llm, size_t count)
{
    if (llm == NULL || llm->pool == NULL || llm->has_pending ||
        count > llama_n_ctx(llm->context) - llm->decoded) {
        return MZ_E_INVALID;
    }
    mz_plugin_fill_fn fill = find_function();
    if (fill == NULL) {
        return MZ_E_HOST;
    }
    bool is_done = true;
    fill(true);
    while (count > 0 && is_done) {
        size_t step = count < (size_t)llm->batch_tokens ? count : (size_t)llm->batch_tokens;
        is_done = decode(llm, (int32_t)step);
        count -= step;
    }
    fill(false);
    llm->has_logits = false;
    return is_done ? MZ_OK : MZ_E_ENGINE;
}

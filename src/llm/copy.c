/* SPDX-License-Identifier: MIT */
/*
 * Go back in a conversation: by tokens, or to a copy made before.
 *
 * Comparing codecs means to come to the same place many times with the very same KV. Computing it
 * again each time takes minutes where copying takes a fraction of a second. The engine's own format
 * of a sequence is used, so what is copied is what any host of llama.cpp would save.
 */
#include <stdlib.h>

#include "llm/state.h"

struct mz_llm_copy {
    uint32_t decoded;
    llama_token pending;
    bool has_pending, ended;
    size_t bytes;
    uint8_t data[]; /* [bytes] */
};

mz_status mz_llm_rewind(mz_llm *llm, size_t tokens)
{
    if (llm == NULL || tokens > llm->decoded) {
        return MZ_E_INVALID;
    }
    if (!llama_memory_seq_rm(llama_get_memory(llm->context), 0, (llama_pos)tokens, -1)) {
        return MZ_E_UNSUPPORTED;
    }
    llm->decoded = (uint32_t)tokens;
    llm->has_pending = false;
    llm->ended = false;
    llm->has_logits = false;
    return MZ_OK;
}

mz_status mz_llm_copy_make(mz_llm *llm, mz_llm_copy **copy)
{
    size_t bytes = llama_state_seq_get_size(llm->context, 0);
    mz_llm_copy *made = malloc(sizeof *made + bytes);
    if (made == NULL) {
        return MZ_E_NOMEM;
    }
    made->decoded = llm->decoded;
    made->pending = llm->pending;
    made->has_pending = llm->has_pending;
    made->ended = llm->ended;
    made->bytes = llama_state_seq_get_data(llm->context, made->data, bytes, 0);
    if (made->bytes == 0) {
        free(made);
        return MZ_E_ENGINE;
    }
    *copy = made;
    return MZ_OK;
}

mz_status mz_llm_copy_restore(mz_llm *llm, const mz_llm_copy *copy)
{
    mz_llm_reset(llm);
    if (llama_state_seq_set_data(llm->context, copy->data, copy->bytes, 0) == 0) {
        mz_llm_reset(llm);
        return MZ_E_ENGINE;
    }
    llm->decoded = copy->decoded;
    llm->pending = copy->pending;
    llm->has_pending = copy->has_pending;
    llm->ended = copy->ended;
    return MZ_OK;
}

void mz_llm_copy_free(mz_llm_copy *copy)
{
    free(copy);
}

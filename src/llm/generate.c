/* SPDX-License-Identifier: MIT */
/*
 * restore_generate: prefill, then greedy generation.
 *
 * Nothing here restores: the plug-in asks for what a step needs, in the order in which it needs
 * it, when llama.cpp hands it the graph. So the calls are those of any llama.cpp program, and an
 * evicted conversation takes the very steps of one that never was: same batches, same tokens.
 *
 * A step that fails leaves no token behind: its cells are taken out of the KV cache again.
 */
#include "base/clock.h"
#include "llm/state.h"

/* What the caller appends, with the pending token before it. */
typedef struct input {
    const int32_t *tokens;
    size_t count; /* of tokens, the pending one not counted */
} input;

static size_t input_count(const mz_llm *llm, const input *in)
{
    return in->count + (llm->has_pending ? 1 : 0);
}

/*
 * Fill the batch with `count` tokens from `first` on; only the very last one of all wants logits.
 */
static void fill_batch(mz_llm *llm, const input *in, size_t first, int32_t count, bool is_last)
{
    size_t before = llm->has_pending ? 1 : 0;
    struct llama_batch *batch = &llm->batch;
    for (int32_t i = 0; i < count; i++) {
        size_t at = first + (size_t)i;
        batch->token[i] = at < before ? llm->pending : in->tokens[at - before];
        batch->pos[i] = (llama_pos)llm->decoded + i;
        batch->n_seq_id[i] = 1;
        batch->seq_id[i][0] = 0;
        batch->logits[i] = is_last && i == count - 1;
    }
    batch->n_tokens = count;
}

static mz_status roll_back(mz_llm *llm)
{
    llama_memory_t memory = llama_get_memory(llm->context);
    if (llama_memory_seq_rm(memory, 0, (llama_pos)llm->decoded, -1)) {
        return MZ_E_ENGINE;
    }
    /* Recurrent state has no past to go back to. */
    mz_llm_reset(llm);
    return MZ_E_LOST;
}

static mz_status decode_batch(mz_llm *llm)
{
    if (llama_decode(llm->context, llm->batch) != 0) {
        llm->has_logits = false;
        return roll_back(llm);
    }
    llm->decoded += (uint32_t)llm->batch.n_tokens;
    llm->has_logits = llm->batch.logits[llm->batch.n_tokens - 1] != 0;
    return MZ_OK;
}

/* Time that computing has waited at the gate so far. */
static uint64_t stall_so_far(const mz_llm *llm)
{
    mz_pool_status now;
    return llm->pool != NULL && mz_status_get(llm->pool, &now) == MZ_OK ? now.stall_ns : 0;
}

static mz_status prefill(mz_llm *llm, const input *in, mz_llm_timing *timing)
{
    size_t total = input_count(llm, in);
    uint64_t stall_before = stall_so_far(llm);
    input rest = *in;
    while (total > 0) {
        int32_t count = total < (size_t)llm->batch_tokens ? (int32_t)total : llm->batch_tokens;
        bool had_pending = llm->has_pending;
        fill_batch(llm, &rest, 0, count, (size_t)count == total);
        mz_status status = decode_batch(llm);
        if (status != MZ_OK) {
            return status;
        }
        size_t taken = (size_t)count - (had_pending ? 1 : 0);
        llm->has_pending = false;
        if (taken > 0) {
            rest.tokens += taken;
            rest.count -= taken;
            llm->ended = false;
        }
        total -= (size_t)count;
        timing->input_tokens += (uint32_t)taken;
    }
    timing->stall_ns += stall_so_far(llm) - stall_before;
    return MZ_OK;
}

/* The first of the largest logits, as every greedy sampler of llama.cpp has it. */
static llama_token choose_token(const mz_llm *llm)
{
    const float *logits = llama_get_logits_ith(llm->context, -1);
    if (logits == NULL) {
        return LLAMA_TOKEN_NULL;
    }
    int32_t count = llama_vocab_n_tokens(llm->vocab);
    llama_token best = 0;
    for (llama_token i = 1; i < count; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return best;
}

static bool report_token(const mz_llm *llm, mz_on_token on_token, void *context)
{
    if (on_token == NULL) {
        return true;
    }
    char text[256];
    int32_t bytes = 0;
    if (!llm->ended) {
        bytes =
            llama_token_to_piece(llm->vocab, llm->pending, text, (int32_t)sizeof text, 0, false);
    }
    return on_token(context, llm->pending, text, bytes > 0 ? (size_t)bytes : 0);
}

static mz_status generate(mz_llm *llm, size_t max_new, mz_on_token on_token, void *context,
                          mz_llm_timing *timing, uint64_t started_ns)
{
    const input nothing = {NULL, 0};
    while (timing->output_tokens < max_new && llm->decoded < llama_n_ctx(llm->context)) {
        if (llm->has_pending) {
            fill_batch(llm, &nothing, 0, 1, true);
            mz_status status = decode_batch(llm);
            if (status != MZ_OK) {
                return status;
            }
            llm->has_pending = false;
            if (llm->decoded >= llama_n_ctx(llm->context)) {
                return MZ_OK;
            }
        }
        llama_token token = choose_token(llm);
        if (token == LLAMA_TOKEN_NULL) {
            return MZ_E_ENGINE;
        }
        llm->pending = token;
        llm->has_pending = true;
        llm->ended = llama_vocab_is_eog(llm->vocab, token);
        timing->output_tokens++;
        if (timing->output_tokens == 1) {
            timing->ttft_ns = mz_now_ns() - started_ns;
        }
        if (!report_token(llm, on_token, context) || llm->ended) {
            return MZ_OK;
        }
    }
    return MZ_OK;
}

static bool input_is_valid(const mz_llm *llm, const input *in)
{
    if (in->count > 0 && in->tokens == NULL) {
        return false;
    }
    size_t total = input_count(llm, in);
    if (total == 0 || total > llama_n_ctx(llm->context) - llm->decoded) {
        return false;
    }
    int32_t vocabulary = llama_vocab_n_tokens(llm->vocab);
    for (size_t i = 0; i < in->count; i++) {
        if (in->tokens[i] < 0 || in->tokens[i] >= vocabulary) {
            return false;
        }
    }
    return true;
}

mz_status mz_llm_restore_generate(mz_llm *llm, const int32_t *tokens, size_t count, size_t max_new,
                                  mz_on_token on_token, void *context, mz_llm_timing *timing)
{
    uint64_t started_ns = mz_now_ns();
    input in = {tokens, count};
    if (llm == NULL || !input_is_valid(llm, &in)) {
        return MZ_E_INVALID;
    }
    mz_llm_timing taken = {0};
    mz_status status = prefill(llm, &in, &taken);
    if (status == MZ_OK) {
        taken.ttft_ns = mz_now_ns() - started_ns;
        status = generate(llm, max_new, on_token, context, &taken, started_ns);
    }
    taken.total_ns = mz_now_ns() - started_ns;
    taken.context_tokens = (uint32_t)mz_llm_context_tokens(llm);
    if (timing != NULL && status == MZ_OK) {
        *timing = taken;
    }
    return status;
}

void mz_llm_reset(mz_llm *llm)
{
    /* Clearing the data gives elastic pages back; a stock buffer would only be touched by it. */
    llama_memory_clear(llama_get_memory(llm->context), llm->pool != NULL);
    llm->decoded = 0;
    llm->has_pending = false;
    llm->ended = false;
    llm->has_logits = false;
}

size_t mz_llm_context_tokens(const mz_llm *llm)
{
    return (size_t)llm->decoded + (llm->has_pending ? 1 : 0);
}

const float *mz_llm_logits(const mz_llm *llm, size_t *vocabulary)
{
    if (!llm->has_logits) {
        return NULL;
    }
    if (vocabulary != NULL) {
        *vocabulary = (size_t)llama_vocab_n_tokens(llm->vocab);
    }
    return llama_get_logits_ith(llm->context, -1);
}

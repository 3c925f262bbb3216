/* SPDX-License-Identifier: MIT */
/*
 * What stands behind an mz_llm, for the files of this folder only.
 *
 * Invariant: the KV cache holds exactly the first `decoded` tokens of the conversation. The token
 * that was generated last is part of the conversation but not decoded yet (`pending`): it is the
 * first input of the next call, so generating never computes logits that nobody asked for.
 */
#ifndef MZ_LLM_STATE_H
#define MZ_LLM_STATE_H

#include "llama.h"
#include "mzcache/llm.h"

struct mz_llm {
    struct llama_model *model;       /* owned */
    struct llama_context *context;   /* owned */
    const struct llama_vocab *vocab; /* the model's */
    mz_pool *pool;                   /* the plug-in's; NULL for a stock engine */
    struct llama_batch batch;        /* room for batch_tokens */
    int32_t batch_tokens;            /* most tokens of one step */
    uint32_t decoded;                /* tokens in the KV cache */
    llama_token pending;             /* generated, not decoded yet; valid if has_pending */
    bool has_pending;
    bool ended;      /* the conversation's last token ends a generation */
    bool has_logits; /* a step succeeded since the conversation began */
};

#endif

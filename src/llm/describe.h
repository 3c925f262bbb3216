/* SPDX-License-Identifier: MIT */
/*
 * What a model file says about its memory, read from its header without loading it.
 *
 * Enough to plan an eviction for a model and a context that do not exist yet: bytes of weights for
 * each layer, bytes of K and V for each token of a layer.
 */
#ifndef MZ_LLM_DESCRIBE_H
#define MZ_LLM_DESCRIBE_H

#include "mzcache/mzcache.h"

#define MZ_DESCRIBE_LAYERS 512

typedef struct mz_llm_description {
    char architecture[64];
    uint32_t layers;
    uint64_t layer_bytes[MZ_DESCRIBE_LAYERS]; /* weights of blk.N.*, [layers] */
    uint64_t output_bytes;                    /* output weights; the embeddings if they are tied */
    uint32_t k_elements[MZ_DESCRIBE_LAYERS]; /* of one token's K, [layers]; 0: no attention there */
    uint32_t v_elements[MZ_DESCRIBE_LAYERS]; /* of one token's V, [layers] */
    uint32_t sliding_window;                 /* tokens; 0: none. Which layers have it is not told */
    uint32_t trained_tokens;                 /* longest context it was trained for */
} mz_llm_description;

/*
 * message: receives one sentence on failure, at most message_bytes including its 0; may be NULL.
 * Errors: MZ_E_NOTFOUND, MZ_E_ENGINE (no GGUF file), MZ_E_UNSUPPORTED (no transformer, or more than
 * MZ_DESCRIBE_LAYERS layers).
 */
MZ_API mz_status mz_llm_describe(const char *model_path, mz_llm_description *description,
                                 char *message, size_t message_bytes);

#endif

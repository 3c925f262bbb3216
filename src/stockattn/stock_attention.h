/* SPDX-License-Identifier: MIT */
/*
 * Attention as stock llama.cpp computes it: a graph of nothing but GGML_OP_FLASH_ATTN_EXT, one node
 * for each layer, on the CPU backend of the installed engine.
 *
 * K and V lie as in llama.cpp's cache, [tokens][kv_heads][dim] f16, and Q and the mask as its graphs
 * hand them over. The memory is ggml's and is given out, so that others can compute on the very same
 * bytes.
 */
#ifndef MZ_STOCKATTN_STOCK_ATTENTION_H
#define MZ_STOCKATTN_STOCK_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mz_stock_shape {
    uint32_t q_heads, kv_heads, head_dim;
    uint32_t rows, tokens, layers;
    int threads;
} mz_stock_shape;

#define MZ_STOCK_LAYERS 32u

typedef struct mz_stock_attention {
    mz_stock_shape shape;
    void *context, *buffer, *backend, *graph; /* ggml's */
    float *q;                                 /* [rows][q_heads][head_dim], of all layers */
    uint16_t *mask;                           /* [rows][tokens], of all layers */
    uint16_t *k[MZ_STOCK_LAYERS], *v[MZ_STOCK_LAYERS]; /* [tokens][kv_heads][head_dim] */
    float *out[MZ_STOCK_LAYERS];                       /* [rows][q_heads][head_dim] */
} mz_stock_attention;

/*
 * layers <= MZ_STOCK_LAYERS. All values but the mask's are for the caller to fill in; that is causal
 * for rows that are the last ones. False: no memory, or an engine without a CPU backend.
 */
bool mz_stock_attention_make(mz_stock_attention *stock, const mz_stock_shape *shape);
void mz_stock_attention_free(mz_stock_attention *stock);

/* Compute all layers once; false if the engine failed. */
bool mz_stock_attention_compute(mz_stock_attention *stock);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Only the public headers of ggml are used, as a program that computes with ggml would.
 *
 * Measuring whole models instead would show attention only as a difference of two times that are
 * mostly matrix products.
 */
#include "stockattn/stock_attention.h"

#include <math.h>
#include <string.h>

#include "ggml-backend.h"
#include "ggml.h"

#define TENSORS_PER_LAYER 8u /* K, V, their views, the node, and some to spare */
#define F16_MINUS_INFINITY 0xfc00u

/* The same thread count setter that llama.cpp looks for. */
static void set_threads(ggml_backend_t backend, int threads)
{
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
    ggml_backend_set_n_threads_t set = (ggml_backend_set_n_threads_t)
        ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    if (set != NULL) {
        set(backend, threads);
    }
}

static struct ggml_tensor *cache(struct ggml_context *context, const mz_stock_shape *shape)
{
    return ggml_new_tensor_3d(context, GGML_TYPE_F16, shape->head_dim, shape->kv_heads,
                              shape->tokens);
}

/* [dim][heads][tokens] as attention wants it: heads behind tokens, nothing moved. */
static struct ggml_tensor *by_heads(struct ggml_context *context, struct ggml_tensor *tensor)
{
    return ggml_permute(context, tensor, 0, 2, 1, 3);
}

static void fill_mask(uint16_t *mask, const mz_stock_shape *shape)
{
    for (uint32_t row = 0; row < shape->rows; row++) {
        uint32_t last = shape->tokens - shape->rows + row;
        for (uint32_t token = 0; token < shape->tokens; token++) {
            mask[(uint64_t)row * shape->tokens + token] = token <= last ? 0 : F16_MINUS_INFINITY;
        }
    }
}

/* All tensors, without memory; what to fill in is kept in `inputs` until there is some. */
static void describe(mz_stock_attention *stock, struct ggml_tensor **q, struct ggml_tensor **mask,
                     struct ggml_tensor **k, struct ggml_tensor **v, struct ggml_tensor **out)
{
    const mz_stock_shape *shape = &stock->shape;
    struct ggml_context *context = stock->context;
    struct ggml_cgraph *graph = stock->graph;
    *q = ggml_new_tensor_3d(context, GGML_TYPE_F32, shape->head_dim, shape->q_heads, shape->rows);
    *mask = ggml_new_tensor_2d(context, GGML_TYPE_F16, shape->tokens, shape->rows);
    for (uint32_t i = 0; i < shape->layers; i++) {
        k[i] = cache(context, shape);
        v[i] = cache(context, shape);
        out[i] = ggml_flash_attn_ext(context, by_heads(context, *q), by_heads(context, k[i]),
                                     by_heads(context, v[i]), *mask,
                                     1.0f / sqrtf((float)shape->head_dim), 0.0f, 0.0f);
        ggml_build_forward_expand(graph, out[i]);
    }
}

bool mz_stock_attention_make(mz_stock_attention *stock, const mz_stock_shape *shape)
{
    size_t tensors = TENSORS_PER_LAYER * shape->layers + TENSORS_PER_LAYER;
    struct ggml_tensor *q, *mask, *k[MZ_STOCK_LAYERS], *v[MZ_STOCK_LAYERS], *out[MZ_STOCK_LAYERS];
    *stock = (mz_stock_attention){.shape = *shape};
    stock->context = ggml_init((struct ggml_init_params){
        .mem_size = tensors * ggml_tensor_overhead() +
                    ggml_graph_overhead_custom(tensors, false),
        .no_alloc = true});
    stock->backend = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    if (stock->context == NULL || stock->backend == NULL) {
        mz_stock_attention_free(stock);
        return false;
    }
    set_threads(stock->backend, shape->threads);
    stock->graph = ggml_new_graph_custom(stock->context, tensors, false);
    describe(stock, &q, &mask, k, v, out);
    stock->buffer = ggml_backend_alloc_ctx_tensors(stock->context, stock->backend);
    if (stock->buffer == NULL) {
        mz_stock_attention_free(stock);
        return false;
    }
    stock->q = q->data;
    stock->mask = mask->data;
    for (uint32_t i = 0; i < shape->layers; i++) {
        stock->k[i] = k[i]->data;
        stock->v[i] = v[i]->data;
        stock->out[i] = out[i]->data;
    }
    fill_mask(stock->mask, shape);
    return true;
}

void mz_stock_attention_free(mz_stock_attention *stock)
{
    ggml_backend_buffer_free(stock->buffer);
    if (stock->backend != NULL) {
        ggml_backend_free(stock->backend);
    }
    ggml_free(stock->context);
    memset(stock, 0, sizeof *stock);
}

bool mz_stock_attention_compute(mz_stock_attention *stock)
{
    return ggml_backend_graph_compute(stock->backend, stock->graph) == GGML_STATUS_SUCCESS;
}

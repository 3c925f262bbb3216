/* SPDX-License-Identifier: MIT */
/*
 * See repack.h. The CPU backend recognizes a repacked weight by the type of its buffer and finds
 * the kernel in `extra`. So one small buffer of that type is made, which lends its type and
 * functions to our copies of the tensors; their bytes lie in the arena.
 *
 * Tensors themselves are left alone: another context's scheduler may be reading them. What is
 * exchanged, while a graph is computed, are the graph's own pointers to them. Rejected: offering
 * the CPU's buffer type to the host as ours; its memory would not be elastic.
 */
#include "plugin/repack.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "plugin/buffer.h"
#include "plugin/graph.h"
#include "plugin/weights.h"

#define CPU_REPACK_NAME "CPU_REPACK"

/* Rows and columns of a sample: whole blocks of every type, whole groups of every kernel. */
#define SAMPLE_ROWS 16
#define SAMPLE_COLUMNS 256
#define SAMPLE_MAX_BYTES (SAMPLE_ROWS * SAMPLE_COLUMNS * 4)

typedef struct mz_repack_swap {
    struct ggml_tensor **source; /* the node's pointer */
    struct ggml_tensor *was;
    struct ggml_tensor *copy; /* owned; NULL if the repacked weight stands there */
} mz_repack_swap;

static ggml_backend_buffer_type_t find_buffer_type(mz_plugin *plugin)
{
    const mz_host *host = &plugin->host;
    ggml_backend_dev_t cpu = mz_plugin_cpu(plugin);
    if (cpu == NULL) {
        return NULL;
    }
    ggml_backend_dev_get_extra_bufts_t get_types =
        (ggml_backend_dev_get_extra_bufts_t)host->ggml_backend_reg_get_proc_address(
            host->ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts");
    ggml_backend_buffer_type_t *types = get_types != NULL ? get_types(cpu) : NULL;
    for (; types != NULL && *types != NULL; types++) {
        if (strcmp(host->ggml_backend_buft_name(*types), CPU_REPACK_NAME) == 0) {
            return *types;
        }
    }
    return NULL;
}

/* The buffer that lends its type; made at first use, kept as long as the process. */
static ggml_backend_buffer_t lending_buffer(mz_plugin *plugin)
{
    if (!plugin->repack_tried) {
        plugin->repack_tried = true;
        ggml_backend_buffer_type_t type = plugin->repack_wanted ? find_buffer_type(plugin) : NULL;
        if (type != NULL) {
            plugin->repack_buffer =
                plugin->host.ggml_backend_buft_alloc_buffer(type, MZ_PAGE_BYTES);
        }
    }
    return plugin->repack_buffer;
}

/* Matrices, and the matrices of all experts in one: what a model multiplies with. */
static bool is_multiplied(const mz_host *host, const struct ggml_tensor *tensor)
{
    int dimensions = host->ggml_n_dims(tensor);
    return host->ggml_is_quantized(tensor->type) && host->ggml_is_contiguous(tensor) &&
           (dimensions == 2 || (dimensions == 3 && strstr(tensor->name, "_exps") != NULL));
}

mz_repacked *mz_repack_describe(mz_plugin *plugin, const struct ggml_tensor *tensor,
                                const uint8_t *original)
{
    const mz_host *host = &plugin->host;
    ggml_backend_buffer_t buffer = is_multiplied(host, tensor) ? lending_buffer(plugin) : NULL;
    mz_repacked *weight = buffer != NULL ? calloc(1, sizeof *weight) : NULL;
    if (weight == NULL) {
        return NULL;
    }
    weight->tensor = *tensor;
    weight->tensor.buffer = buffer;
    weight->tensor.extra = NULL;
    weight->original = original;
    if (host->ggml_backend_buffer_init_tensor(buffer, &weight->tensor) != GGML_STATUS_SUCCESS ||
        weight->tensor.extra == NULL) {
        free(weight);
        return NULL;
    }
    return weight;
}

void mz_repack_convert(const mz_plugin *plugin, const mz_repacked *weight, const void *original,
                       void *target)
{
    struct ggml_tensor tensor = weight->tensor;
    tensor.data = target;
    plugin->host.ggml_backend_tensor_set(&tensor, original, 0, plugin->host.ggml_nbytes(&tensor));
}

uint64_t mz_repack_layout(const mz_plugin *plugin, const mz_repacked *weight)
{
    _Alignas(64) uint8_t original[SAMPLE_MAX_BYTES];
    _Alignas(64) uint8_t target[SAMPLE_MAX_BYTES];
    const mz_host *host = &plugin->host;
    mz_repacked sample = *weight;
    struct ggml_tensor *tensor = &sample.tensor;
    tensor->ne[0] = SAMPLE_COLUMNS;
    tensor->ne[1] = SAMPLE_ROWS;
    tensor->ne[2] = tensor->ne[3] = 1;
    tensor->nb[1] = host->ggml_row_size(tensor->type, SAMPLE_COLUMNS);
    tensor->nb[2] = tensor->nb[3] = tensor->nb[1] * SAMPLE_ROWS;
    uint64_t bytes = host->ggml_nbytes(tensor);
    if (bytes > sizeof original) {
        return 0; /* no quantized type takes 4 bytes per element */
    }
    for (size_t i = 0; i < sizeof original; i++) {
        original[i] = (uint8_t)(XXH64(&i, sizeof i, 0) >> 32);
    }
    mz_repack_convert(plugin, &sample, original, target);
    return XXH3_64bits(target, bytes);
}

const mz_repacked *mz_repack_of(const struct ggml_tensor *tensor)
{
    const struct ggml_tensor *root = tensor->view_src != NULL ? tensor->view_src : tensor;
    if (root->extra == NULL) {
        return NULL;
    }
    const mz_arena *arena = mz_buffer_arena(root);
    return arena != NULL && mz_weights_repacked(arena) ? root->extra : NULL;
}

const uint8_t *mz_repack_original(const mz_repacked *weight, const struct ggml_tensor *tensor)
{
    return weight->original +
           ((const uint8_t *)tensor->data - (const uint8_t *)weight->tensor.data);
}

/* Whether source `index` of a node is a whole weight that the CPU's kernels multiply with. */
static bool is_for_kernels(const mz_host *host, const struct ggml_tensor *node, int index)
{
    int dimensions = node->op == GGML_OP_MUL_MAT ? 2 : node->op == GGML_OP_MUL_MAT_ID ? 3 : 0;
    const struct ggml_tensor *source = node->src[index];
    return index == 0 && source->view_src == NULL && host->ggml_n_dims(source) == dimensions &&
           node->src[1] != NULL && node->src[1]->type == GGML_TYPE_F32;
}

static bool swap_in(mz_repack_swaps *swaps, const mz_host *host, struct ggml_tensor *node,
                    int index, const mz_repacked *weight)
{
    if (swaps->count == swaps->capacity) {
        size_t capacity = swaps->capacity == 0 ? 256 : swaps->capacity * 2;
        mz_repack_swap *grown = realloc(swaps->swaps, capacity * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        swaps->swaps = grown;
        swaps->capacity = capacity;
    }
    mz_repack_swap *swap = &swaps->swaps[swaps->count];
    *swap = (mz_repack_swap){.source = &node->src[index], .was = node->src[index]};
    struct ggml_tensor *stand_in = NULL;
    if (is_for_kernels(host, node, index)) {
        /* The backend takes sources without const, and only reads them. */
        stand_in = (struct ggml_tensor *)(uintptr_t)&weight->tensor;
    } else {
        swap->copy = malloc(sizeof *swap->copy);
        if (swap->copy == NULL) {
            return false;
        }
        *swap->copy = *swap->was;
        swap->copy->data = (void *)(uintptr_t)mz_repack_original(weight, swap->was);
        stand_in = swap->copy;
    }
    swaps->count++;
    node->src[index] = stand_in;
    return true;
}

bool mz_repack_enter(mz_repack_swaps *swaps, const mz_host *host, struct ggml_cgraph *graph)
{
    swaps->count = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        struct ggml_tensor *node = graph->nodes[i];
        for (int k = 0; k < GGML_MAX_SRC && !mz_graph_is_only_a_view(node); k++) {
            const mz_repacked *weight = node->src[k] != NULL ? mz_repack_of(node->src[k]) : NULL;
            if (weight != NULL && !swap_in(swaps, host, node, k, weight)) {
                mz_repack_leave(swaps);
                return false;
            }
        }
    }
    return true;
}

void mz_repack_leave(mz_repack_swaps *swaps)
{
    for (; swaps->count > 0; swaps->count--) {
        mz_repack_swap *swap = &swaps->swaps[swaps->count - 1];
        *swap->source = swap->was;
        free(swap->copy);
    }
}

void mz_repack_swaps_free(mz_repack_swaps *swaps)
{
    free(swaps->swaps);
    *swaps = (mz_repack_swaps){0};
}

/* SPDX-License-Identifier: MIT */
/*
 * The gate inside a graph.
 *
 * While everything is resident a graph is handed to the host's CPU backend whole, and only what it
 * writes is told to the pool. Otherwise the memory that its nodes use is listed in order of use and
 * asked for at once; then nodes are computed as far as their memory is there, in parts as long as
 * possible: a cut costs a barrier, so it is made only where inference would have to wait anyway.
 *
 * Writes: SET_ROWS names the rows that it writes, so just these are needed and become dirty. Any
 * other node whose result lies in a KV buffer (copies, K-shift) makes its whole extent dirty. The
 * pool is told right before the part that writes is computed, when the rest of the unit is in
 * place; never afterwards, because the step could fail in between and leave a dirty unit "clean".
 */
#include "plugin/graph.h"

#include <stdlib.h>
#include <string.h>

#include "plugin/buffer.h"
#include "plugin/fill.h"

/* Scattered rows beyond this many runs are taken as one range from the first to the last. */
#define MAX_RUNS 64u

/* Rows shorter than this are elements of a transposed tensor: scattered over all of it. */
#define MIN_ROW_BYTES 64u

void mz_graph_uses_free(mz_graph_uses *uses)
{
    free(uses->ranges);
    free(uses->nodes);
    free(uses->writes);
    mz_repack_swaps_free(&uses->swaps);
    *uses = (mz_graph_uses){0};
}

static bool uses_grow(mz_graph_uses *uses)
{
    size_t capacity = uses->capacity == 0 ? 1024 : uses->capacity * 2;
    mz_range *ranges = realloc(uses->ranges, capacity * sizeof *ranges);
    uses->ranges = ranges != NULL ? ranges : uses->ranges;
    int *nodes = realloc(uses->nodes, capacity * sizeof *nodes);
    uses->nodes = nodes != NULL ? nodes : uses->nodes;
    bool *writes = realloc(uses->writes, capacity * sizeof *writes);
    uses->writes = writes != NULL ? writes : uses->writes;
    if (ranges == NULL || nodes == NULL || writes == NULL) {
        return false;
    }
    uses->capacity = capacity;
    return true;
}

static bool uses_add(mz_graph_uses *uses, int node, const void *address, uint64_t bytes, bool write)
{
    if (bytes == 0) {
        return true;
    }
    if (uses->count > 0 && !write) {
        const mz_range *last = &uses->ranges[uses->count - 1];
        if (last->address == address && last->bytes >= bytes) {
            return true;
        }
    }
    if (uses->count == uses->capacity && !uses_grow(uses)) {
        return false;
    }
    uses->ranges[uses->count] = (mz_range){.address = address, .bytes = bytes};
    uses->nodes[uses->count] = node;
    uses->writes[uses->count] = write;
    uses->count++;
    return true;
}

/* Whether a tensor's bytes may be evicted: it lies in one of our buffers for weights or KV. */
static bool is_elastic(const struct ggml_tensor *tensor)
{
    const mz_arena *arena = mz_buffer_arena(tensor);
    return arena != NULL && arena->buffer->usage != GGML_BACKEND_BUFFER_USAGE_COMPUTE;
}

bool mz_graph_is_only_a_view(const struct ggml_tensor *node)
{
    return node->op == GGML_OP_NONE || node->op == GGML_OP_VIEW || node->op == GGML_OP_RESHAPE ||
           node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE;
}

/*
 * The row numbers of a SET_ROWS, if they can be read before the graph is computed: a plain list
 * that is an input, in memory that we may read. `*count` of them, int64 if `*wide`, else int32.
 */
static const void *readable_rows(const mz_host *host, const struct ggml_tensor *rows,
                                 int64_t *count, bool *wide)
{
    if (rows->op != GGML_OP_NONE || rows->view_src != NULL || rows->buffer == NULL ||
        rows->data == NULL || rows->ne[1] != 1 || rows->ne[2] != 1 || rows->ne[3] != 1) {
        return NULL;
    }
    if (!host->ggml_backend_buft_is_host(rows->buffer->type) && mz_buffer_arena(rows) == NULL) {
        return NULL;
    }
    if (rows->type != GGML_TYPE_I64 && rows->type != GGML_TYPE_I32) {
        return NULL;
    }
    *wide = rows->type == GGML_TYPE_I64;
    *count = rows->ne[0];
    return rows->data;
}

static int64_t row_at(const void *rows, int64_t index, bool wide)
{
    return wide ? ((const int64_t *)rows)[index] : ((const int32_t *)rows)[index];
}

static bool add_row_range(mz_graph_uses *uses, int index, const struct ggml_tensor *node,
                          int64_t first, int64_t last, uint64_t row_bytes)
{
    const uint8_t *base = node->data;
    uint64_t stride = node->nb[1];
    return uses_add(uses, index, base + (uint64_t)first * stride,
                    (uint64_t)(last - first) * stride + row_bytes, true);
}

/* What a SET_ROWS writes: runs of consecutive rows, or one range around all of them. */
static bool add_set_rows(const mz_host *host, mz_graph_uses *uses, int index,
                         const struct ggml_tensor *node)
{
    int64_t count = 0;
    bool wide = false;
    const void *rows = readable_rows(host, node->src[1], &count, &wide);
    if (rows == NULL || count == 0 || node->ne[2] != 1 || node->ne[3] != 1) {
        return uses_add(uses, index, node->data, host->ggml_nbytes(node), true);
    }
    uint64_t row_bytes = host->ggml_row_size(node->type, node->ne[0]);
    size_t before = uses->count;
    bool runs = row_bytes >= MIN_ROW_BYTES;
    int64_t first = row_at(rows, 0, wide);
    int64_t lowest = first, highest = first, last = first;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = row_at(rows, i, wide);
        if (row < 0 || row >= node->ne[1]) {
            return uses_add(uses, index, node->data, host->ggml_nbytes(node), true);
        }
        lowest = row < lowest ? row : lowest;
        highest = row > highest ? row : highest;
        if (runs && i > 0 && row != last + 1) {
            if (!add_row_range(uses, index, node, first, last, row_bytes)) {
                return false;
            }
            first = row;
            runs = uses->count - before < MAX_RUNS;
        }
        last = row;
    }
    if (!runs) {
        uses->count = before;
        first = lowest;
        last = highest;
    }
    return add_row_range(uses, index, node, first, last, row_bytes);
}

/* Add what node `index` uses: what it reads if `reads`, and what it writes. */
static bool add_node(const mz_host *host, mz_graph_uses *uses, int index,
                     const struct ggml_tensor *node, bool reads)
{
    if (mz_graph_is_only_a_view(node)) {
        return true;
    }
    bool is_set_rows = node->op == GGML_OP_SET_ROWS && node->src[1] != NULL;
    for (int i = 0; reads && i < GGML_MAX_SRC; i++) {
        const struct ggml_tensor *source = node->src[i];
        /* SET_ROWS has its own target as a further source, of which it reads nothing. */
        if (source == NULL || (is_set_rows && i > 1) || !is_elastic(source)) {
            continue;
        }
        if (!uses_add(uses, index, source->data, host->ggml_nbytes(source), false)) {
            return false;
        }
    }
    if (!is_elastic(node)) {
        return true;
    }
    return is_set_rows ? add_set_rows(host, uses, index, node)
                       : uses_add(uses, index, node->data, host->ggml_nbytes(node), true);
}

static bool list_uses(const mz_host *host, mz_graph_uses *uses, const struct ggml_cgraph *graph,
                      bool reads)
{
    uses->count = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        if (!add_node(host, uses, i, graph->nodes[i], reads)) {
            return false;
        }
    }
    return true;
}

/* A graph on its way: nodes before `done` are computed, uses before `told` are with the pool. */
typedef struct progress {
    mz_plugin *plugin;
    ggml_backend_t cpu;
    mz_graph_uses *uses;
    struct ggml_cgraph *graph;
    int done;
    size_t told;
} progress;

/* Compute the nodes up to `end`; all their memory is resident. */
static enum ggml_status compute_until(progress *work, int end)
{
    if (end <= work->done) {
        return GGML_STATUS_SUCCESS;
    }
    const mz_graph_uses *uses = work->uses;
    for (; work->told < uses->count && uses->nodes[work->told] < end; work->told++) {
        if (uses->writes[work->told]) {
            const mz_range *range = &uses->ranges[work->told];
            mz_pool_wrote(work->plugin->pool, range->address, range->bytes);
        }
    }
    const mz_host *host = &work->plugin->host;
    int first = work->done;
    work->done = end;
    uint64_t start_ns = mz_trace_start(work->plugin->trace);
    enum ggml_status status;
    if (first == 0 && end == work->graph->n_nodes) {
        status = host->ggml_backend_graph_compute(work->cpu, work->graph);
    } else {
        struct ggml_cgraph part = host->ggml_graph_view(work->graph, first, end);
        status = host->ggml_backend_graph_compute(work->cpu, &part);
    }
    mz_trace_add(work->plugin->trace, start_ns,
                 &(mz_trace_what){.name = "compute",
                                  .category = "graph",
                                  .keys = {"first_node", "nodes"},
                                  .values = {(uint64_t)first, (uint64_t)(end - first)}});
    return status;
}

/* Node before which to cut so that `node` may wait: the CPU backend fuses a norm with its scale. */
static int cut_before(const struct ggml_cgraph *graph, int node)
{
    bool fused = node > 0 && graph->nodes[node]->op == GGML_OP_MUL &&
                 graph->nodes[node - 1]->op == GGML_OP_RMS_NORM;
    return fused ? node - 1 : node;
}

static enum ggml_status compute_in_parts(progress *work)
{
    mz_pool *pool = work->plugin->pool;
    const mz_graph_uses *uses = work->uses;
    mz_pool_request(pool, uses->ranges, uses->count);
    for (size_t i = 0; i < uses->count; i++) {
        const mz_range *range = &uses->ranges[i];
        if (mz_pool_ready(pool, range->address, range->bytes)) {
            continue;
        }
        enum ggml_status status = compute_until(work, cut_before(work->graph, uses->nodes[i]));
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        mz_error error = MZ_ERROR_INIT;
        if (mz_pool_need(pool, range->address, range->bytes, &error) != MZ_OK) {
            mz_error_prefix(&error,
                            "%s can't be computed: ", work->graph->nodes[uses->nodes[i]]->name);
            mz_pool_report(pool, &error);
            return GGML_STATUS_FAILED;
        }
    }
    return compute_until(work, work->graph->n_nodes);
}

/* Only write K and V, with invented values. */
static enum ggml_status fill_graph(mz_plugin *plugin, mz_graph_uses *uses,
                                   const struct ggml_cgraph *graph)
{
    mz_error error = MZ_ERROR_INIT;
    if (!list_uses(&plugin->host, uses, graph, false)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    if (mz_fill_writes(plugin, uses, graph, &error) != MZ_OK) {
        mz_pool_report(plugin->pool, &error);
        return GGML_STATUS_FAILED;
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status mz_graph_compute(mz_plugin *plugin, ggml_backend_t cpu, mz_graph_uses *uses,
                                  struct ggml_cgraph *graph)
{
    mz_error error = MZ_ERROR_INIT;
    if (mz_buffer_seal_for(plugin, graph, &error) != MZ_OK) {
        mz_pool_report(plugin->pool, &error);
        return GGML_STATUS_FAILED;
    }
    progress work = {.plugin = plugin, .cpu = cpu, .uses = uses, .graph = graph};
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    mz_pool_step_begin(plugin->pool);
    bool filling = atomic_load_explicit(&plugin->filling, memory_order_relaxed);
    bool resident = !filling && mz_pool_all_resident(plugin->pool);
    if (filling) {
        status = fill_graph(plugin, uses, graph);
    } else if (list_uses(&plugin->host, uses, graph, !resident) &&
               mz_repack_enter(&uses->swaps, &plugin->host, graph)) {
        status = resident ? compute_until(&work, graph->n_nodes) : compute_in_parts(&work);
        mz_repack_leave(&uses->swaps);
    }
    mz_pool_step_end(plugin->pool);
    return status;
}

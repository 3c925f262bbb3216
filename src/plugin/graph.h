/* SPDX-License-Identifier: MIT */
/* Computing a graph whose weights and KV may be evicted. */
#ifndef MZ_PLUGIN_GRAPH_H
#define MZ_PLUGIN_GRAPH_H

#include "plugin/repack.h"

/* The memory that one graph uses, in order of use. Reused from graph to graph; zero it to begin. */
typedef struct mz_graph_uses {
    mz_range *ranges;
    int *nodes;   /* node that uses the range */
    bool *writes; /* the node writes it */
    size_t count, capacity;
    mz_repack_swaps swaps; /* of the graph being computed */
} mz_graph_uses;

void mz_graph_uses_free(mz_graph_uses *uses);

/* Whether a node computes nothing: it only looks at another tensor. */
bool mz_graph_is_only_a_view(const struct ggml_tensor *node);

/*
 * Compute `graph` on the host's CPU backend `cpu`, part by part where units are still to come.
 * Owner: `uses` belongs to the caller, one per thread that computes.
 * Returns the host's status; GGML_STATUS_FAILED (reported to the pool) if a unit can't be restored,
 * GGML_STATUS_ALLOC_FAILED without memory for the list of uses.
 */
enum ggml_status mz_graph_compute(mz_plugin *plugin, ggml_backend_t cpu, mz_graph_uses *uses,
                                  struct ggml_cgraph *graph);

#endif

/* SPDX-License-Identifier: MIT */
/* Filling a KV cache without computing it, for benchmarks; see pool/fill.h. */
#ifndef MZ_PLUGIN_FILL_H
#define MZ_PLUGIN_FILL_H

#include "plugin/graph.h"

/*
 * Write invented values wherever `uses` says that `graph` writes, and tell the pool. Inside a step.
 * Errors: MZ_E_UNSUPPORTED for K or V that is not f16; those of mz_pool_need.
 */
mz_status mz_fill_writes(mz_plugin *plugin, const mz_graph_uses *uses,
                         const struct ggml_cgraph *graph, mz_error *error);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * ggml buffers over arenas: how everybody but our own graphs reaches tensor bytes.
 *
 * Our buffers are reported as not host memory, so every access goes through the functions behind
 * these buffers, and each of them passes the pool's gate: nobody ever reads an evicted page.
 */
#ifndef MZ_PLUGIN_BUFFER_H
#define MZ_PLUGIN_BUFFER_H

#include "plugin/plugin.h"

/* Fill plugin->type for the host's API. The device must be filled already. */
void mz_buffer_type_init(mz_plugin *plugin);

/* The plug-in's one buffer type. */
ggml_backend_buffer_type_t mz_buffer_type(mz_plugin *plugin);

/* A buffer for a range of the host's memory, such as a mapped model file; NULL: out of memory. */
ggml_backend_buffer_t mz_buffer_from_host(mz_plugin *plugin, void *address, uint64_t bytes);

/* The arena that a tensor (or what it is a view of) lies in; NULL if the buffer is not ours. */
mz_arena *mz_buffer_arena(const struct ggml_tensor *tensor);

/*
 * Register everything that `graph` shows to be a unit; called before its step begins.
 * Threads: any; other graphs may be under way, but none that uses the same unsealed tensors.
 * Errors: what the pool says. The graph must not be computed then: a mapped tensor that is not
 *   registered is empty memory.
 */
mz_status mz_buffer_seal_for(mz_plugin *plugin, const struct ggml_cgraph *graph, mz_error *error);

#endif

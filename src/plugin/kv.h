/* SPDX-License-Identifier: MIT */
/* KV caches and recurrent state as units. */
#ifndef MZ_PLUGIN_KV_H
#define MZ_PLUGIN_KV_H

#include "plugin/plugin.h"

/* Tokens of a KV chunk. */
#define MZ_KV_CHUNK_TOKENS 256u

/* Whether the tensor's name says KV or recurrent state; if so fill the record. */
bool mz_kv_describe(const mz_host *host, const struct ggml_tensor *tensor, mz_record *record);

/*
 * Learn from a graph how K and V of this arena are written, and register the layers for which that
 * is known. plugin->lock is held, no step is open in this thread.
 */
mz_status mz_kv_seal(mz_arena *arena, const struct ggml_cgraph *graph, mz_error *error);

#endif

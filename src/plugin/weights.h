/* SPDX-License-Identifier: MIT */
/* Weights as units: layers of a mapped model file, or tensors that were set by the host. */
#ifndef MZ_PLUGIN_WEIGHTS_H
#define MZ_PLUGIN_WEIGHTS_H

#include "plugin/plugin.h"

/*
 * Plan where the tensors of the model file that is mapped at arena->base go, and reserve room for
 * them (arena->map, memory, memory_bytes). No page is committed and no tensor is read.
 * Errors: MZ_E_NOTFOUND (no file there, or the path holds another file by now), MZ_E_CORRUPT (not
 * GGUF), MZ_E_NOMEM; the arena is then as before.
 */
mz_status mz_weights_map(mz_arena *arena, mz_error *error);
void mz_weights_unmap(mz_arena *arena);

/*
 * Move a tensor from the host's mapping into the reservation. False if the file has no such tensor:
 * it then stays where it is. plugin->lock is held.
 */
bool mz_weights_redirect(mz_arena *arena, struct ggml_tensor *tensor);

/* Whether its units hold repacked weights (repack.h), where a tensor has any. */
bool mz_weights_repacked(const mz_arena *arena);

/*
 * Register what was redirected and is not registered yet, and give the host's own pages of it back.
 * plugin->lock is held. Errors: what the pool says; what could not be registered stays unsealed.
 */
mz_status mz_weights_seal_mapped(mz_arena *arena, mz_error *error);

/* Register the weights of a plain arena. plugin->lock is held. */
mz_status mz_weights_seal_plain(mz_arena *arena, mz_error *error);

/* Note a tensor of a plain arena, if its name or its buffer says weights. plugin->lock is held. */
bool mz_weights_describe(const mz_arena *arena, const struct ggml_tensor *tensor,
                         mz_record *record);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Repacked weights: rows of quantized weights interleaved as the CPU backend's fastest kernels want
 * them.
 *
 * Stock llama.cpp repacks such weights when it loads a model, into memory of its own. Here they
 * take the place of the file's bytes in the arena (they are as many), and come back from an image
 * of their own (image.h). A *repacked weight* belongs to a tensor of a mapped file, which points
 * to it by `extra`: `tensor` is a copy of that tensor that the CPU backend takes for one of its
 * own kind.
 *
 * The kernels multiply whole weights with f32 and do nothing else. Every other use, such as a view
 * or a read by the host, is served from the host's mapping, where the file's bytes still are.
 */
#ifndef MZ_PLUGIN_REPACK_H
#define MZ_PLUGIN_REPACK_H

#include "plugin/plugin.h"

typedef struct mz_repacked {
    struct ggml_tensor tensor; /* as the CPU backend wants it; its data are the arena's */
    const uint8_t *original;   /* the file's bytes, in the host's mapping */
} mz_repacked;

/*
 * What a tensor becomes when it is repacked; NULL if the host's CPU backend has no kernel for it.
 * The tensor has its place in the arena already. The caller frees the result. plugin->lock is held.
 */
mz_repacked *mz_repack_describe(mz_plugin *plugin, const struct ggml_tensor *tensor,
                                const uint8_t *original);

/* Repack `original` (all of the tensor's bytes) into `target`, of the same size. */
void mz_repack_convert(const mz_plugin *plugin, const mz_repacked *weight, const void *original,
                       void *target);

/* A number that differs for every order of bytes that mz_repack_convert makes of this weight. */
uint64_t mz_repack_layout(const mz_plugin *plugin, const mz_repacked *weight);

/* The repacked weight behind a tensor or a view of one; NULL while its bytes are the file's. */
const mz_repacked *mz_repack_of(const struct ggml_tensor *tensor);

/* The file's bytes of such a tensor, or of a view of it. */
const uint8_t *mz_repack_original(const mz_repacked *weight, const struct ggml_tensor *tensor);

/* Sources of a graph that are exchanged while it is computed; a stream of work keeps one. */
typedef struct mz_repack_swaps {
    struct mz_repack_swap *swaps; /* [count] */
    size_t count, capacity;
} mz_repack_swaps;

/*
 * Let the nodes use repacked weights, and the file's bytes where they can't. The graph must not be
 * looked at until mz_repack_leave puts it back. False: no memory, and nothing is exchanged.
 */
bool mz_repack_enter(mz_repack_swaps *swaps, const mz_host *host, struct ggml_cgraph *graph);
void mz_repack_leave(mz_repack_swaps *swaps);
void mz_repack_swaps_free(mz_repack_swaps *swaps);

#endif

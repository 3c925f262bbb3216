/* SPDX-License-Identifier: MIT */
/*
 * Shapes of published models: everything that decides how much is read and computed, no weights.
 */
#ifndef MZ_MKMODEL_SHAPE_H
#define MZ_MKMODEL_SHAPE_H

#include <stdint.h>

/* Where a layer has its norms. */
typedef enum mz_shape_norms {
    MZ_NORMS_BEFORE, /* before attention and before the FFN */
    MZ_NORMS_AFTER,  /* after them */
    MZ_NORMS_BOTH
} mz_shape_norms;

/* The output weights are the embeddings in all of them. */
typedef struct mz_shape {
    const char *name;
    const char *architecture;             /* as GGUF says it */
    uint32_t layers, width, ffn;          /* FFN: gate, up and down */
    uint32_t heads, kv_heads, head_width; /* K and V heads are equally wide */
    uint32_t vocabulary, context;         /* tokens */
    float rope_base, norm_epsilon;
    mz_shape_norms norms;
    uint32_t head_norms;             /* 1: K and Q are normed per head */
    uint32_t window;                 /* sliding window of every second layer; 0: none */
    float attention_cap, logits_cap; /* soft caps; 0: none */
} mz_shape;

/* NULL-named entry at the end. */
extern const mz_shape mz_shapes[];

/* NULL if there is none of that name. */
const mz_shape *mz_shape_find(const char *name);

#endif

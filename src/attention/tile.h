/* SPDX-License-Identifier: MIT */
/* Stored K or V as f32 tiles. */
#ifndef MZ_ATTENTION_TILE_H
#define MZ_ATTENTION_TILE_H

#include "attention/attention.h"
#include "kernels/attention.h"

/* A dimension with its padding. */
static inline size_t mz_tile_dim(uint32_t dim)
{
    return ((size_t)dim + MZ_ATTENTION_ALIGN - 1) / MZ_ATTENTION_ALIGN * MZ_ATTENTION_ALIGN;
}

/* Whether heads of this dimension can be taken from the piece. */
bool mz_tile_takes(const mz_attention_piece *piece, uint32_t dim, uint32_t kv_heads);

/*
 * Tokens [first, first + count) of a piece, one KV head, to tile [count][mz_tile_dim(dim)]; the
 * padding becomes zeros.
 */
void mz_tile_load(const mz_attention_kernels *kernels, const mz_attention_piece *piece,
                  uint32_t first, uint32_t count, uint32_t head, uint32_t dim, float *tile);

#endif

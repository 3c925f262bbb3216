/* SPDX-License-Identifier: MIT */
/*
 * Attention of a few query rows over a KV cache that lies in pieces (paper section 4.2).
 *
 * A *call* is one layer of one sequence stream: q rows against `tokens` cached tokens, whose K and V
 * are arrays of *pieces*, each of one stored type: f16 where it was always, or the payload of the
 * codec q8 where it is kept in the stack. So what was evicted to memory is used without a restore,
 * and since codes of q8 decode to f16 exactly, with the same result as after one.
 *
 *     s(r, t)   = scale * q(r) . k(t), or cap * tanh(that / cap)
 *     s(r, t)  += slope(head) * mask(r, t)                   (ALiBi; slope 1 without)
 *     out(r)    = sum over t of softmax(s(r, .), sink)(t) * v(t)
 *
 * as ggml's FLASH_ATTN_EXT defines it. Scores and sums are f32. A row that is masked wholly and has
 * no sink gives zeros.
 *
 * Work is split into tasks, (KV head, block of rows, range of tokens), which threads take from a
 * counter; whoever ends the last range of a block merges its parts. So no thread waits for another,
 * and both one row over a long context and many rows keep all of them busy.
 *
 * Threads: mz_attention_begin by one thread, then mz_attention_run by each of `threads`, at once;
 * the result is there when all have returned. Nothing is allocated.
 */
#ifndef MZ_ATTENTION_ATTENTION_H
#define MZ_ATTENTION_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the tokens of a piece are stored. */
typedef enum mz_attention_kind {
    MZ_ATTENTION_F16,
    MZ_ATTENTION_BF16,
    MZ_ATTENTION_F32,
    MZ_ATTENTION_Q8_0,    /* ggml's blocks: f16 scale, 32 i8 */
    MZ_ATTENTION_Q4_0,    /* ggml's blocks: f16 scale, 16 bytes of two values + 8 */
    MZ_ATTENTION_CODEC_Q8 /* what codec/q8.c writes behind its header */
} mz_attention_kind;

/* Consecutive tokens whose K (or V) is stored in one way at one place. */
typedef struct mz_attention_piece {
    mz_attention_kind kind;
    uint32_t tokens;
    const void *data;     /* its first token, KV head 0; CODEC_Q8: the payload */
    uint64_t row_stride;  /* bytes from token to token; not for CODEC_Q8 */
    uint64_t head_stride; /* bytes from KV head to KV head; not for CODEC_Q8 */
    /* CODEC_Q8 only: */
    uint32_t first_row; /* row of the payload that is the piece's first token */
    uint32_t rows;      /* of the payload */
    uint32_t row_bytes; /* of a row as f16, all KV heads */
} mz_attention_piece;

typedef struct mz_attention_call {
    uint32_t head_dim_k, head_dim_v;
    uint32_t q_heads, kv_heads; /* q_heads is a multiple of kv_heads */
    uint32_t rows, tokens;
    const float *q;        /* [q_heads][rows][head_dim_k], strides in bytes */
    uint64_t q_row_stride, q_head_stride;
    const uint16_t *mask;  /* f16, [heads][rows][tokens]; NULL: none */
    uint64_t mask_row_stride;
    uint64_t mask_head_stride; /* 0: one for all heads */
    const float *sinks;        /* [q_heads]; NULL: none */
    float scale, max_bias, logit_softcap;
    const mz_attention_piece *k, *v; /* [k_pieces], [v_pieces]; each covers all tokens in order */
    uint32_t k_pieces, v_pieces;
    float *out; /* [rows][q_heads][head_dim_v], strides in bytes */
    uint64_t out_row_stride, out_head_stride;
} mz_attention_call;

/* Largest head that is taken. */
#define MZ_ATTENTION_HEAD_MAX 1024u

/*
 * Whether a call can be computed: dimensions and kinds that are taken, pieces that cover the tokens.
 * Does not look at data.
 */
bool mz_attention_takes(const mz_attention_call *call);

/*
 * Bytes of a call's own state, which stays its own until all threads have returned, and of scratch,
 * which calls that are computed one after the other share (take the largest). Both are cache line
 * aligned. threads >= 1.
 */
size_t mz_attention_state_bytes(const mz_attention_call *call, int threads);
size_t mz_attention_scratch_bytes(const mz_attention_call *call, int threads);

/* Prepare `state` for one computation by at most `threads` threads. */
void mz_attention_begin(const mz_attention_call *call, int threads, void *state);

/* The part of thread number `thread`, 0 <= thread < threads of mz_attention_begin. */
void mz_attention_run(const mz_attention_call *call, void *state, void *scratch, int thread);

#endif

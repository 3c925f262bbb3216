/* SPDX-License-Identifier: MIT */
/*
 * Goal: attention gives what the installed engine's GGML_OP_FLASH_ATTN_EXT gives on the same memory,
 * with masks that a cache of several sequences has, and where a row sees nothing at all.
 * Method: one row, several and so many that the engine takes its other loop; masks at random, with
 * every third row hidden; each result against the engine's. Values are up to 1 in magnitude, and the
 * engine rounds q to f16 and may sum in f16, which has 11 bits: hence the limit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "attention/attention.h"
#include "kernels/f16.h"
#include "kernels/kernels.h"
#include "stockattn/stock_attention.h"

#define LIMIT 5e-3
#define HIDDEN 0xfc00u

static float uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) * 0x1p-23f - 1.0f;
}

static void fill(mz_stock_attention *stock)
{
    const mz_stock_shape *s = &stock->shape;
    uint64_t state = 7;
    for (size_t i = 0; i < (size_t)s->rows * s->q_heads * s->head_dim; i++) {
        stock->q[i] = 4 * uniform(&state);
    }
    for (size_t i = 0; i < (size_t)s->tokens * s->kv_heads * s->head_dim; i++) {
        stock->k[0][i] = mz_f16_from_f32(uniform(&state));
        stock->v[0][i] = mz_f16_from_f32(uniform(&state));
    }
    for (uint32_t row = 0; row < s->rows; row++) {
        for (uint32_t token = 0; token < s->tokens; token++) {
            bool hidden = row % 3 == 1 || uniform(&state) < 0;
            stock->mask[(size_t)row * s->tokens + token] =
                hidden ? HIDDEN : mz_f16_from_f32(uniform(&state));
        }
    }
}

/* Ours, by one thread, to `out`. */
static void attend(const mz_stock_attention *stock, float *out)
{
    const mz_stock_shape *s = &stock->shape;
    uint64_t head = (uint64_t)s->head_dim * 2;
    mz_attention_piece k = {.kind = MZ_ATTENTION_F16,
                            .tokens = s->tokens,
                            .data = stock->k[0],
                            .row_stride = s->kv_heads * head,
                            .head_stride = head};
    mz_attention_piece v = k;
    v.data = stock->v[0];
    mz_attention_call call = {.head_dim_k = s->head_dim,
                              .head_dim_v = s->head_dim,
                              .q_heads = s->q_heads,
                              .kv_heads = s->kv_heads,
                              .rows = s->rows,
                              .tokens = s->tokens,
                              .q = stock->q,
                              .q_row_stride = s->q_heads * head * 2,
                              .q_head_stride = head * 2,
                              .mask = stock->mask,
                              .mask_row_stride = (uint64_t)s->tokens * 2,
                              .scale = 1.0f / sqrtf((float)s->head_dim),
                              .k = &k,
                              .v = &v,
                              .k_pieces = 1,
                              .v_pieces = 1,
                              .out = out,
                              .out_row_stride = s->q_heads * head * 2,
                              .out_head_stride = head * 2};
    assert_true(mz_attention_takes(&call));
    void *state = aligned_alloc(64, mz_attention_state_bytes(&call, 1));
    void *scratch = aligned_alloc(64, mz_attention_scratch_bytes(&call, 1));
    assert_true(state != NULL && scratch != NULL);
    mz_attention_begin(&call, 1, state);
    mz_attention_run(&call, state, scratch, 0);
    free(state);
    free(scratch);
}

static void check(uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim, uint32_t rows,
                  uint32_t tokens)
{
    mz_stock_shape shape = {q_heads, kv_heads, head_dim, rows, tokens, 1, 1};
    mz_stock_attention stock;
    size_t row = (size_t)q_heads * head_dim;
    float *out = calloc(rows * row, sizeof *out);
    assert_non_null(out);
    assert_true(mz_stock_attention_make(&stock, &shape));
    fill(&stock);
    attend(&stock, out);
    assert_true(mz_stock_attention_compute(&stock));
    for (size_t i = 0; i < rows * row; i++) {
        assert_true(fabsf(out[i] - stock.out[0][i]) <= LIMIT);
        if (i / row % 3 == 1) {
            assert_true(out[i] == 0.0f && stock.out[0][i] == 0.0f);
        }
    }
    mz_stock_attention_free(&stock);
    free(out);
}

static void test_equals_stock(void **unused)
{
    (void)unused;
    static const uint32_t rows[] = {1, 2, 8, 63, 64, 200};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check(16, 8, 128, rows[i], 512);
        check(9, 3, 64, rows[i], 256);
        check(4, 1, 256, rows[i], 768);
        check(4, 4, 80, rows[i], 256);
        check(6, 2, 96, rows[i], 301);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_stock)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

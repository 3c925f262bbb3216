/* SPDX-License-Identifier: MIT */
/*
 * Goal: attention over pieces gives what its formula says, whatever the shape, the mask, the stored
 * type, the cut into pieces and the number of threads.
 * Method: random calls over all dimensions of that space; the right value is computed here in double
 * from the formula, by two passes over all tokens (not by tiles, not online), from the values that
 * the stored types stand for: f16 by the bits, q8 by decoding what the codec encoded.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention/attention.h"
#include "codec/codec.h"
#include "codec/header.h"
#include "kernels/f16.h"
#include "kernels/kernels.h"

#define PIECES 8
#define THREADS_MOST 4

typedef struct shape {
    uint32_t dim_k, dim_v, q_heads, kv_heads, rows, tokens;
    mz_attention_kind kind;
    int threads, pieces;
    enum { NO_MASK, CAUSAL, WINDOW, SEQUENCES, ALL_MASKED, PER_HEAD } mask;
    float max_bias, softcap;
    bool sinks;
} shape;

/* K or V: how it is stored, and what that stands for. */
typedef struct cache {
    mz_attention_piece pieces[PIECES];
    void *memory[PIECES];
    float *values; /* [tokens][kv_heads][dim] */
    uint32_t count;
} cache;

static uint64_t seed = 1;

static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

static void *make(size_t bytes)
{
    void *memory = calloc(1, bytes + 64);
    assert_non_null(memory);
    return memory;
}

static float half(uint16_t bits)
{
    return mz_f32_from_f16(bits);
}

/* One ggml block of 32 values; the values that it stands for replace them. */
static size_t put_block(mz_attention_kind kind, float *values, uint8_t *to)
{
    uint16_t scale = mz_f16_from_f32(0.01f + 0.01f * fabsf(uniform()));
    memcpy(to, &scale, 2);
    for (int i = 0; i < 32; i++) {
        int limit = kind == MZ_ATTENTION_Q8_0 ? 127 : 7;
        int q = (int)(uniform() * (float)limit);
        values[i] = (float)q * half(scale);
        if (kind == MZ_ATTENTION_Q8_0) {
            to[2 + i] = (uint8_t)(int8_t)q;
        } else {
            to[2 + i % 16] |= (uint8_t)((q + 8) << (i < 16 ? 0 : 4));
        }
    }
    return kind == MZ_ATTENTION_Q8_0 ? 34 : 18;
}

/* Store `count` values, which become what is stored; returns the bytes. */
static size_t put_values(mz_attention_kind kind, float *values, size_t count, uint8_t *to)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (kind == MZ_ATTENTION_Q8_0 || kind == MZ_ATTENTION_Q4_0) {
            at += i % 32 == 0 ? put_block(kind, values + i, to + at) : 0;
        } else if (kind == MZ_ATTENTION_F32) {
            memcpy(to + at, &values[i], 4);
            at += 4;
        } else {
            uint16_t bits = kind == MZ_ATTENTION_F16 ? mz_f16_from_f32(values[i])
                                                     : (uint16_t)(mz_bits_from_f32(values[i]) >> 16);
            memcpy(to + at, &bits, 2);
            at += 2;
            values[i] = kind == MZ_ATTENTION_F16 ? half(bits)
                                                 : mz_f32_from_bits((uint32_t)bits << 16);
        }
    }
    return at;
}

/* Rows as the codec writes them, with `before` rows in front that the piece leaves out. */
static mz_attention_piece put_codec(float *values, size_t row, uint32_t tokens, uint32_t before,
                                    void **memory)
{
    const mz_codec *codec = mz_codec_find("q8");
    mz_codec_shape codec_shape = {MZ_ELEM_F16, (uint32_t)row * 2, tokens + before};
    size_t count = row * (tokens + before);
    uint16_t *halves = make(count * 2);
    for (size_t i = 0; i < count; i++) {
        halves[i] = mz_f16_from_f32(i < before * row ? uniform() : values[i - before * row]);
    }
    *memory = make(codec->bound(&codec_shape));
    size_t bytes = 0;
    assert_int_equal(codec->encode(&codec_shape, halves, *memory, &bytes), MZ_OK);
    memset(halves, 0, count * 2);
    assert_int_equal(mz_codec_decode(&codec_shape, *memory, bytes, halves), MZ_OK);
    for (size_t i = 0; i < row * tokens; i++) {
        values[i] = half(halves[before * row + i]);
    }
    free(halves);
    return (mz_attention_piece){.kind = MZ_ATTENTION_CODEC_Q8,
                                .tokens = tokens,
                                .data = (const char *)*memory + sizeof(mz_codec_header),
                                .first_row = before,
                                .rows = tokens + before,
                                .row_bytes = (uint32_t)row * 2};
}

static cache cache_make(const shape *s, uint32_t dim)
{
    size_t row = (size_t)dim * s->kv_heads;
    cache c = {.values = make(s->tokens * row * sizeof(float)), .count = (uint32_t)s->pieces};
    uint32_t first = 0;
    for (int i = 0; i < s->pieces; i++) {
        uint32_t left = s->tokens - first;
        uint32_t tokens = i + 1 == s->pieces ? left : left * (uint32_t)(1 + (seed >> 40) % 3) / 5;
        float *values = c.values + first * row;
        for (size_t k = 0; k < tokens * row; k++) {
            values[k] = uniform() * 2;
        }
        /* What is in the stack and what is in place stand side by side in one cache. */
        bool encoded = s->kind == MZ_ATTENTION_CODEC_Q8 && i % 2 == 0;
        if (encoded && tokens > 0) {
            c.pieces[i] = put_codec(values, row, tokens, (uint32_t)i, &c.memory[i]);
        } else {
            mz_attention_kind kind = encoded || s->kind == MZ_ATTENTION_CODEC_Q8 ? MZ_ATTENTION_F16
                                                                                 : s->kind;
            c.memory[i] = make(tokens * row * 4);
            uint64_t bytes = 0;
            uint64_t head_bytes = 0;
            for (size_t k = 0; k < (size_t)tokens * s->kv_heads; k++) {
                head_bytes = put_values(kind, values + k * dim, dim, (uint8_t *)c.memory[i] + bytes);
                bytes += head_bytes;
            }
            c.pieces[i] = (mz_attention_piece){.kind = kind,
                                               .tokens = tokens,
                                               .data = c.memory[i],
                                               .row_stride = head_bytes * s->kv_heads,
                                               .head_stride = head_bytes};
        }
        first += tokens;
    }
    return c;
}

static void cache_free(cache *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        free(c->memory[i]);
    }
    free(c->values);
}

/* Whether a row may see a token. */
static bool sees(const shape *s, uint32_t head, uint32_t row, uint32_t token)
{
    uint32_t position = s->tokens >= s->rows ? s->tokens - s->rows + row : row;
    switch (s->mask) {
    case CAUSAL:
        return token <= position;
    case WINDOW:
        return token <= position && position - token < 70;
    case SEQUENCES:
        return token / 100 % 2 == row % 2;
    case ALL_MASKED:
        return row % 2 == 0 && token <= position;
    case PER_HEAD:
        return (token + head) % 3 != 0;
    default:
        return true;
    }
}

static uint16_t *mask_make(const shape *s, uint32_t heads)
{
    uint16_t *mask = make((size_t)heads * s->rows * s->tokens * 2);
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t r = 0; r < s->rows; r++) {
            for (uint32_t t = 0; t < s->tokens; t++) {
                uint16_t bias = mz_f16_from_f32(s->max_bias > 0 ? -(float)(int)(t % 61) : 0);
                mask[((size_t)h * s->rows + r) * s->tokens + t] = sees(s, h, r, t) ? bias : 0xfc00;
            }
        }
    }
    return mask;
}

/* ALiBi's slopes, by its paper: geometric from 2^(-max_bias / n), the rest between them. */
static double slope_by_hand(const shape *s, uint32_t head)
{
    double n = exp2(floor(log2(s->q_heads)));
    if (s->max_bias <= 0) {
        return 1;
    }
    return head < n ? pow(pow(2, -s->max_bias / n), head + 1)
                    : pow(pow(2, -s->max_bias / 2 / n), 2 * (head - n) + 1);
}

/* One row of one head in double. */
static void row_by_hand(const shape *s, const mz_attention_call *call, const cache *k, const cache *v,
                        uint32_t head, uint32_t row, double *out)
{
    const float *q = call->q + ((size_t)head * s->rows + row) * s->dim_k;
    uint32_t kv = head / (s->q_heads / s->kv_heads);
    double *scores = make(s->tokens * sizeof(double));
    double max = s->sinks ? call->sinks[head] : -INFINITY;
    for (uint32_t t = 0; t < s->tokens; t++) {
        double dot = 0;
        for (uint32_t d = 0; d < s->dim_k; d++) {
            dot += (double)q[d] * k->values[((size_t)t * s->kv_heads + kv) * s->dim_k + d];
        }
        dot *= call->scale;
        dot = s->softcap != 0 ? s->softcap * tanh(dot / s->softcap) : dot;
        if (call->mask != NULL) {
            double bias = s->max_bias > 0 ? -(double)(t % 61) : 0;
            dot = sees(s, head, row, t) ? dot + slope_by_hand(s, head) * bias : -INFINITY;
        }
        scores[t] = dot;
        max = dot > max ? dot : max;
    }
    double sum = s->sinks ? exp(call->sinks[head] - max) : 0;
    memset(out, 0, s->dim_v * sizeof *out);
    for (uint32_t t = 0; t < s->tokens && max > -INFINITY; t++) {
        double p = exp(scores[t] - max);
        sum += p;
        for (uint32_t d = 0; d < s->dim_v; d++) {
            out[d] += p * v->values[((size_t)t * s->kv_heads + kv) * s->dim_v + d];
        }
    }
    for (uint32_t d = 0; d < s->dim_v; d++) {
        out[d] = sum > 0 ? out[d] / sum : 0;
    }
    free(scores);
}

typedef struct hand {
    const mz_attention_call *call;
    const mz_kernels *kernels;
    void *state, *scratch;
    int thread;
} hand;

static void *hand_main(void *argument)
{
    hand *h = argument;
    mz_kernels_use(h->kernels);
    mz_attention_run(h->call, h->state, h->scratch, h->thread);
    mz_kernels_use(NULL);
    return NULL;
}

static void compute(const mz_attention_call *call, int threads, const mz_kernels *kernels)
{
    hand hands[THREADS_MOST];
    pthread_t ids[THREADS_MOST];
    size_t state_bytes = mz_attention_state_bytes(call, threads);
    void *state = NULL, *scratch = NULL;
    assert_int_equal(posix_memalign(&state, 64, state_bytes), 0);
    assert_int_equal(posix_memalign(&scratch, 64, mz_attention_scratch_bytes(call, threads)), 0);
    memset(scratch, 0xff, mz_attention_scratch_bytes(call, threads)); /* NaN, if it were used */
    mz_attention_begin(call, threads, state);
    for (int i = 0; i < threads; i++) {
        hands[i] = (hand){call, kernels, state, scratch, i};
        assert_int_equal(pthread_create(&ids[i], NULL, hand_main, &hands[i]), 0);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    free(state);
    free(scratch);
}

static void check(const shape *s, const mz_attention_call *call, const cache *k, const cache *v,
                  const char *kernels)
{
    double *want = make(s->dim_v * sizeof *want);
    for (uint32_t h = 0; h < s->q_heads; h++) {
        for (uint32_t r = 0; r < s->rows; r++) {
            row_by_hand(s, call, k, v, h, r, want);
            const float *got = call->out + ((size_t)r * s->q_heads + h) * s->dim_v;
            for (uint32_t d = 0; d < s->dim_v; d++) {
                if (!(fabs(got[d] - want[d]) <= 2e-5)) {
                    fail_msg("%s: kind %d mask %d heads %u/%u dims %u/%u: head %u row %u of %u, "
                             "%u tokens: %g instead of %g",
                             kernels, (int)s->kind, (int)s->mask, s->q_heads, s->kv_heads, s->dim_k,
                             s->dim_v, h, r, s->rows, s->tokens, (double)got[d], want[d]);
                }
            }
        }
    }
    free(want);
}

static void try_shape(const shape *s)
{
    cache k = cache_make(s, s->dim_k);
    cache v = cache_make(s, s->dim_v);
    size_t q_count = (size_t)s->q_heads * s->rows * s->dim_k;
    size_t out_count = (size_t)s->q_heads * s->rows * s->dim_v;
    float *q = make(q_count * sizeof *q);
    float *sinks = make(s->q_heads * sizeof *sinks);
    float *out = make(out_count * sizeof *out);
    uint32_t mask_heads = s->mask == PER_HEAD ? s->q_heads : 1;
    uint16_t *mask = s->mask != NO_MASK ? mask_make(s, mask_heads) : NULL;
    for (size_t i = 0; i < q_count; i++) {
        q[i] = uniform() * 2;
    }
    for (uint32_t i = 0; i < s->q_heads; i++) {
        sinks[i] = uniform();
    }
    mz_attention_call call = {
        .head_dim_k = s->dim_k,
        .head_dim_v = s->dim_v,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .rows = s->rows,
        .tokens = s->tokens,
        .q = q,
        .q_row_stride = s->dim_k * sizeof(float),
        .q_head_stride = (uint64_t)s->rows * s->dim_k * sizeof(float),
        .mask = mask,
        .mask_row_stride = s->tokens * 2u,
        .mask_head_stride = mask_heads > 1 ? (uint64_t)s->rows * s->tokens * 2 : 0,
        .sinks = s->sinks ? sinks : NULL,
        .scale = 1.0f / sqrtf((float)s->dim_k),
        .max_bias = s->max_bias,
        .logit_softcap = s->softcap,
        .k = k.pieces,
        .v = v.pieces,
        .k_pieces = k.count,
        .v_pieces = v.count,
        .out = out,
        .out_row_stride = (uint64_t)s->q_heads * s->dim_v * sizeof(float),
        .out_head_stride = s->dim_v * sizeof(float),
    };
    assert_true(mz_attention_takes(&call));
    for (size_t i = 0; mz_kernels_at(i) != NULL; i++) {
        memset(out, 0xff, out_count * sizeof *out);
        compute(&call, s->threads, mz_kernels_at(i));
        check(s, &call, &k, &v, mz_kernels_at(i)->name);
    }
    free(mask);
    free(out);
    free(sinks);
    free(q);
    cache_free(&k);
    cache_free(&v);
}

static const shape qwen = {128, 128, 4, 2, 8, 700, MZ_ATTENTION_F16, 2, 3, CAUSAL, 0, 0, false};

static void test_head_sizes(void **state)
{
    static const uint32_t dims[] = {64, 80, 96, 128, 256, 40, 1};
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        shape s = qwen;
        s.dim_k = dims[i];
        s.dim_v = i % 2 == 0 ? dims[i] : 64;
        try_shape(&s);
    }
}

static void test_rows_and_tokens(void **state)
{
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 7, 25, 63, 130, 512};
    static const uint32_t tokens[] = {0, 1, 63, 64, 65, 255, 513, 1500};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t k = 0; k < sizeof tokens / sizeof tokens[0]; k++) {
            if (rows[i] > 100 && tokens[k] > 600) {
                continue; /* for the reference's sake */
            }
            shape s = qwen;
            s.rows = rows[i];
            s.tokens = tokens[k];
            s.threads = 1 + (int)(i + k) % THREADS_MOST;
            s.dim_k = s.dim_v = 64;
            try_shape(&s);
        }
    }
}

static void test_kinds(void **state)
{
    static const uint32_t rows[] = {1, 6, 33};
    (void)state;
    for (int kind = MZ_ATTENTION_F16; kind <= MZ_ATTENTION_CODEC_Q8; kind++) {
        for (int i = 0; i < 3; i++) {
            shape s = qwen;
            s.kind = (mz_attention_kind)kind;
            s.rows = rows[i];
            s.pieces = 6;
            try_shape(&s);
        }
    }
}

/* Heads of the codec's rows that begin in the middle of a group. */
static void test_groups_across_heads(void **state)
{
    shape s = qwen;
    (void)state;
    s.kind = MZ_ATTENTION_CODEC_Q8;
    s.dim_k = s.dim_v = 80;
    try_shape(&s);
}

static void test_masks(void **state)
{
    (void)state;
    for (int mask = NO_MASK; mask <= PER_HEAD; mask++) {
        for (int i = 0; i < 4; i++) {
            shape s = qwen;
            s.mask = mask;
            s.rows = i % 2 == 0 ? 1 : 11;
            s.sinks = i >= 2;
            s.max_bias = mask != NO_MASK && i % 2 == 1 ? 8.0f : 0;
            s.softcap = i == 3 ? 5.0f : 0;
            s.q_heads = i == 1 ? 6 : 4; /* six is not a power of two */
            try_shape(&s);
        }
    }
}

static void test_groups(void **state)
{
    static const uint32_t heads[][2] = {{3, 3}, {9, 3}, {8, 1}, {1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        shape s = qwen;
        s.q_heads = heads[i][0];
        s.kv_heads = heads[i][1];
        try_shape(&s);
    }
}

static void test_refuses(void **state)
{
    mz_attention_piece piece = {.kind = MZ_ATTENTION_F16, .tokens = 10};
    mz_attention_call call = {.head_dim_k = 64,
                              .head_dim_v = 64,
                              .q_heads = 4,
                              .kv_heads = 2,
                              .rows = 1,
                              .tokens = 10,
                              .k = &piece,
                              .v = &piece,
                              .k_pieces = 1,
                              .v_pieces = 1};
    (void)state;
    assert_true(mz_attention_takes(&call));
    call.tokens = 11;
    assert_false(mz_attention_takes(&call)); /* pieces end before the tokens */
    call.tokens = 10;
    call.q_heads = 3;
    assert_false(mz_attention_takes(&call));
    call.q_heads = 4;
    call.head_dim_k = MZ_ATTENTION_HEAD_MAX + 1;
    assert_false(mz_attention_takes(&call));
    call.head_dim_k = 40;
    piece.kind = MZ_ATTENTION_Q8_0;
    assert_false(mz_attention_takes(&call)); /* a head is no whole number of blocks */
    call.head_dim_k = 64;
    piece = (mz_attention_piece){
        .kind = MZ_ATTENTION_CODEC_Q8, .tokens = 10, .rows = 10, .row_bytes = 256};
    assert_true(mz_attention_takes(&call));
    piece.first_row = 1;
    assert_false(mz_attention_takes(&call)); /* reaches behind the payload */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_sizes),          cmocka_unit_test(test_rows_and_tokens),
        cmocka_unit_test(test_kinds),               cmocka_unit_test(test_masks),
        cmocka_unit_test(test_groups_across_heads), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

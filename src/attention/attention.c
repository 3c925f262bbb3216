/* SPDX-License-Identifier: MIT */
/*
 * Tasks, and the online softmax over tiles; the contract is in attention.h.
 *
 * All query rows that share a KV head (rows of the batch times heads of the group) are cut into
 * blocks of BLOCK_ROWS. A task is one block over one range of tokens: it goes over the range tile by
 * tile, converts K and V of the tile to f32, and keeps for each row the largest score m, the sum l of
 * e^(s - m) and the sum o of e^(s - m) v (Milakov and Gimelshein 2018). Two such states of one row are
 * merged by bringing both to the larger m. Ranges are cut only as long as there are fewer blocks than
 * threads can share evenly.
 *
 * A tile of which the mask leaves no row anything is passed over before it is read: with sliding
 * windows and several sequences in one cache that is most of it.
 */
#include "attention/attention.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "attention/tile.h"
#include "kernels/kernels.h"

#define TILE MZ_ATTENTION_TILE
#define BLOCK_ROWS 48u       /* q, scores, sums and both tiles fit a second-level cache of 256 KB */
#define TASKS_PER_THREAD 3u  /* so that a thread that is held up does not hold up all */
#define RANGE_LEAST 256u     /* tokens that are worth a task of their own */
#define LINE 64u
#define MASKED 0xfc00u /* -inf */

/* Rows i = row * group + g of a KV head: a block's rows are neighbours, so windows skip alike. */
typedef struct grid {
    uint32_t group, head_rows, blocks, lanes, ranges, range_tokens, tasks;
    size_t dim_k, dim_v; /* padded */
} grid;

typedef struct state {
    grid grid;
    int threads;
    atomic_uint next;      /* task */
    atomic_uint pending[]; /* [lanes] ranges that are not done */
} state;

/* Of one task: [BLOCK_ROWS] each. */
typedef struct part {
    float *max, *sum, *out;
} part;

/* What a thread works in. */
typedef struct workspace {
    float *q, *tile, *columns, *scores;
    part part; /* used if there is one range */
} workspace;

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static uint32_t ceil_div(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

static grid grid_of(const mz_attention_call *call, int threads)
{
    grid g = {.group = call->q_heads / call->kv_heads,
              .dim_k = mz_tile_dim(call->head_dim_k),
              .dim_v = mz_tile_dim(call->head_dim_v)};
    g.head_rows = g.group * call->rows;
    g.blocks = ceil_div(g.head_rows, BLOCK_ROWS);
    g.lanes = g.blocks * call->kv_heads;
    uint32_t wanted = threads == 1 ? 1 : TASKS_PER_THREAD * (uint32_t)threads;
    uint32_t most = call->tokens > RANGE_LEAST ? ceil_div(call->tokens, RANGE_LEAST) : 1;
    g.ranges = g.lanes == 0 ? 1 : ceil_div(wanted, g.lanes);
    g.ranges = g.ranges < most ? g.ranges : most;
    g.range_tokens = ceil_div(ceil_div(call->tokens, g.ranges), TILE) * TILE;
    g.ranges = call->tokens == 0 ? 1 : ceil_div(call->tokens, g.range_tokens);
    g.tasks = g.lanes * g.ranges;
    return g;
}

static bool covers(const mz_attention_piece *pieces, uint32_t count, uint32_t tokens, uint32_t dim,
                   uint32_t kv_heads)
{
    uint64_t covered = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!mz_tile_takes(&pieces[i], dim, kv_heads)) {
            return false;
        }
        covered += pieces[i].tokens;
    }
    return covered == tokens;
}

bool mz_attention_takes(const mz_attention_call *call)
{
    return call->head_dim_k > 0 && call->head_dim_k <= MZ_ATTENTION_HEAD_MAX &&
           call->head_dim_v > 0 && call->head_dim_v <= MZ_ATTENTION_HEAD_MAX &&
           call->kv_heads > 0 && call->q_heads > 0 && call->q_heads % call->kv_heads == 0 &&
           covers(call->k, call->k_pieces, call->tokens, call->head_dim_k, call->kv_heads) &&
           covers(call->v, call->v_pieces, call->tokens, call->head_dim_v, call->kv_heads);
}

/* --- memory --- */

static size_t part_bytes(const grid *g)
{
    return lines(2 * BLOCK_ROWS * sizeof(float)) + lines(BLOCK_ROWS * g->dim_v * sizeof(float));
}

static size_t room_bytes(const grid *g)
{
    size_t dim = g->dim_k > g->dim_v ? g->dim_k : g->dim_v;
    return lines(BLOCK_ROWS * g->dim_k * sizeof(float)) + lines(TILE * dim * sizeof(float)) +
           lines(TILE * g->dim_k * sizeof(float)) + lines(BLOCK_ROWS * TILE * sizeof(float)) +
           part_bytes(g);
}

size_t mz_attention_state_bytes(const mz_attention_call *call, int threads)
{
    grid g = grid_of(call, threads);
    return lines(sizeof(state) + g.lanes * sizeof(atomic_uint));
}

size_t mz_attention_scratch_bytes(const mz_attention_call *call, int threads)
{
    grid g = grid_of(call, threads);
    size_t parts = g.ranges > 1 ? (size_t)g.tasks * part_bytes(&g) : 0;
    return (size_t)threads * room_bytes(&g) + parts;
}

static part part_at(char *memory)
{
    part p = {.max = (float *)(void *)memory};
    p.sum = p.max + BLOCK_ROWS;
    p.out = (float *)(void *)(memory + lines(2 * BLOCK_ROWS * sizeof(float)));
    return p;
}

static workspace workspace_at(const grid *g, char *memory)
{
    size_t dim = g->dim_k > g->dim_v ? g->dim_k : g->dim_v;
    workspace r = {.q = (float *)(void *)memory};
    memory += lines(BLOCK_ROWS * g->dim_k * sizeof(float));
    r.tile = (float *)(void *)memory;
    memory += lines(TILE * dim * sizeof(float));
    r.columns = (float *)(void *)memory;
    memory += lines(TILE * g->dim_k * sizeof(float));
    r.scores = (float *)(void *)memory;
    memory += lines(BLOCK_ROWS * TILE * sizeof(float));
    r.part = part_at(memory);
    return r;
}

static part task_part(const state *s, char *scratch, uint32_t task)
{
    const grid *g = &s->grid;
    return part_at(scratch + (size_t)s->threads * room_bytes(g) + task * part_bytes(g));
}

/* --- one task --- */

/* A block of rows of one KV head. */
typedef struct block {
    const mz_attention_call *call;
    const grid *grid;
    const mz_attention_kernels *kernels;
    uint32_t kv_head, first, rows; /* rows [first, first + rows) of the head's */
} block;

static uint32_t row_of(const block *b, uint32_t i)
{
    return (b->first + i) / b->grid->group;
}

static uint32_t head_of(const block *b, uint32_t i)
{
    return b->kv_head * b->grid->group + (b->first + i) % b->grid->group;
}

static const uint16_t *mask_of(const block *b, uint32_t i)
{
    const mz_attention_call *call = b->call;
    return (const uint16_t *)(const void *)((const char *)(const void *)call->mask +
                                            row_of(b, i) * call->mask_row_stride +
                                            head_of(b, i) * call->mask_head_stride);
}

/* Slope of a head (Press et al. 2022): powers of two, halved steps in between beyond 2^n heads. */
static float slope_of(const mz_attention_call *call, uint32_t head)
{
    if (call->max_bias <= 0) {
        return 1.0f;
    }
    uint32_t power = 1;
    while (power * 2 <= call->q_heads) {
        power *= 2;
    }
    if (head < power) {
        return powf(2.0f, -call->max_bias / (float)power * (float)(head + 1));
    }
    return powf(2.0f, -call->max_bias / 2 / (float)power * (float)(2 * (head - power) + 1));
}

/* q of the block, times the scale unless a soft-cap comes in between, padded with zeros. */
static void load_q(const block *b, float *q)
{
    const mz_attention_call *call = b->call;
    float scale = call->logit_softcap != 0 ? call->scale / call->logit_softcap : call->scale;
    for (uint32_t i = 0; i < b->rows; i++, q += b->grid->dim_k) {
        const float *row =
            (const float *)(const void *)((const char *)(const void *)call->q +
                                          row_of(b, i) * call->q_row_stride +
                                          head_of(b, i) * call->q_head_stride);
        for (uint32_t k = 0; k < call->head_dim_k; k++) {
            q[k] = row[k] * scale;
        }
        memset(q + call->head_dim_k, 0, (b->grid->dim_k - call->head_dim_k) * sizeof *q);
    }
}

/* Whether the mask leaves any row of the block any of the tokens. */
static bool is_needed(const block *b, uint32_t token, uint32_t count)
{
    if (b->call->mask == NULL) {
        return true;
    }
    bool per_head = b->call->mask_head_stride != 0;
    for (uint32_t i = 0; i < b->rows; i++) {
        if (i > 0 && !per_head && row_of(b, i) == row_of(b, i - 1)) {
            continue;
        }
        const uint16_t *mask = mask_of(b, i) + token;
        for (uint32_t t = 0; t < count; t++) {
            if (mask[t] != MASKED) {
                return true;
            }
        }
    }
    return false;
}

/* Soft-cap and mask; tokens behind `count` get -inf. */
static void finish_scores(const block *b, uint32_t token, uint32_t count, float *scores)
{
    const mz_attention_call *call = b->call;
    for (uint32_t i = 0; i < b->rows; i++, scores += TILE) {
        for (uint32_t t = 0; call->logit_softcap != 0 && t < count; t++) {
            scores[t] = call->logit_softcap * tanhf(scores[t]);
        }
        for (uint32_t t = count; t < TILE; t++) {
            scores[t] = -INFINITY;
        }
        if (call->mask == NULL) {
            continue;
        }
        const uint16_t *mask = mask_of(b, i) + token;
        float slope = slope_of(call, head_of(b, i));
        if (count == TILE) {
            b->kernels->add_mask(scores, mask, slope);
        } else {
            uint16_t padded[TILE] = {0};
            memcpy(padded, mask, count * sizeof *mask);
            b->kernels->add_mask(scores, padded, slope);
        }
    }
}

typedef struct cursor {
    const mz_attention_piece *piece;
    uint32_t first; /* token of the call that the piece begins with */
} cursor;

static void cursor_reach(cursor *c, uint32_t token)
{
    while (token - c->first >= c->piece->tokens) {
        c->first += c->piece->tokens;
        c->piece++;
    }
}

static uint32_t cursor_left(const cursor *c, uint32_t token)
{
    return c->piece->tokens - (token - c->first);
}

static void do_tile(const block *b, const workspace *room, const cursor *k, const cursor *v,
                    uint32_t token, uint32_t count, part p)
{
    const grid *g = b->grid;
    mz_tile_load(b->kernels, k->piece, token - k->first, count, b->kv_head, b->call->head_dim_k,
                 room->tile);
    memset(room->tile + count * g->dim_k, 0, (TILE - count) * g->dim_k * sizeof(float));
    if (b->rows <= MZ_ATTENTION_FEW) {
        b->kernels->scores_few(room->q, b->rows, g->dim_k, room->tile, room->scores);
    } else {
        b->kernels->transpose(room->tile, g->dim_k, room->columns);
        b->kernels->scores(room->q, b->rows, g->dim_k, room->columns, room->scores);
    }
    finish_scores(b, token, count, room->scores);
    for (uint32_t i = 0; i < b->rows; i++) {
        float factor = b->kernels->softmax(room->scores + i * TILE, &p.max[i], &p.sum[i]);
        if (factor != 1.0f) {
            b->kernels->scale(p.out + i * g->dim_v, g->dim_v, factor);
        }
    }
    mz_tile_load(b->kernels, v->piece, token - v->first, count, b->kv_head, b->call->head_dim_v,
                 room->tile);
    b->kernels->accumulate(room->scores, b->rows, count, room->tile, g->dim_v, p.out);
}

static void do_range(const block *b, const workspace *room, uint32_t token, uint32_t end, part p)
{
    cursor k = {b->call->k, 0};
    cursor v = {b->call->v, 0};
    for (uint32_t i = 0; i < b->rows; i++) {
        p.max[i] = -INFINITY;
        p.sum[i] = 0;
    }
    memset(p.out, 0, b->rows * b->grid->dim_v * sizeof(float));
    load_q(b, room->q);
    while (token < end) {
        cursor_reach(&k, token);
        cursor_reach(&v, token);
        uint32_t count = end - token < TILE ? end - token : TILE;
        count = cursor_left(&k, token) < count ? cursor_left(&k, token) : count;
        count = cursor_left(&v, token) < count ? cursor_left(&v, token) : count;
        if (is_needed(b, token, count)) {
            do_tile(b, room, &k, &v, token, count, p);
        }
        token += count;
    }
}

/* --- results --- */

/* Add the part `from` of the same rows to `to`. */
static void merge(const block *b, part to, part from)
{
    size_t dim = b->grid->dim_v;
    for (uint32_t i = 0; i < b->rows; i++) {
        if (from.max[i] == -INFINITY) {
            continue;
        }
        float max = to.max[i] > from.max[i] ? to.max[i] : from.max[i];
        float old = to.max[i] == -INFINITY ? 0 : expf(to.max[i] - max);
        float new = expf(from.max[i] - max);
        for (size_t d = 0; d < dim; d++) {
            to.out[i * dim + d] = to.out[i * dim + d] * old + from.out[i * dim + d] * new;
        }
        to.sum[i] = to.sum[i] * old + from.sum[i] * new;
        to.max[i] = max;
    }
}

static void write_out(const block *b, part p)
{
    const mz_attention_call *call = b->call;
    for (uint32_t i = 0; i < b->rows; i++) {
        float factor = 1.0f;
        float sum = p.sum[i];
        if (call->sinks != NULL) {
            float sink = call->sinks[head_of(b, i)];
            float max = sink > p.max[i] ? sink : p.max[i];
            factor = p.max[i] == -INFINITY ? 0 : expf(p.max[i] - max);
            sum = sum * factor + expf(sink - max);
        }
        factor = sum == 0 ? 0 : factor / sum;
        float *out = (float *)(void *)((char *)(void *)call->out + row_of(b, i) * call->out_row_stride +
                                       head_of(b, i) * call->out_head_stride);
        const float *from = p.out + i * b->grid->dim_v;
        for (uint32_t d = 0; d < call->head_dim_v; d++) {
            out[d] = from[d] * factor;
        }
    }
}

static void do_task(const mz_attention_call *call, state *s, char *scratch, const workspace *room,
                    uint32_t task)
{
    const grid *g = &s->grid;
    uint32_t lane = task % g->lanes;
    uint32_t range = task / g->lanes;
    block b = {.call = call,
               .grid = g,
               .kernels = mz_kernels_get()->attention,
               .kv_head = lane / g->blocks,
               .first = lane % g->blocks * BLOCK_ROWS};
    b.rows = g->head_rows - b.first < BLOCK_ROWS ? g->head_rows - b.first : BLOCK_ROWS;
    uint32_t token = range * g->range_tokens;
    uint32_t end = call->tokens - token < g->range_tokens ? call->tokens : token + g->range_tokens;
    part p = g->ranges > 1 ? task_part(s, scratch, task) : room->part;
    do_range(&b, room, token, end, p);
    /* The last one sees what the others wrote: their release, its acquire. */
    if (atomic_fetch_sub_explicit(&s->pending[lane], 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (g->ranges > 1) {
        p = task_part(s, scratch, lane);
        for (uint32_t i = 1; i < g->ranges; i++) {
            merge(&b, p, task_part(s, scratch, i * g->lanes + lane));
        }
    }
    write_out(&b, p);
}

void mz_attention_begin(const mz_attention_call *call, int threads, void *memory)
{
    assert(threads >= 1);
    state *s = memory;
    s->grid = grid_of(call, threads);
    s->threads = threads;
    atomic_init(&s->next, 0);
    for (uint32_t i = 0; i < s->grid.lanes; i++) {
        atomic_init(&s->pending[i], s->grid.ranges);
    }
}

void mz_attention_run(const mz_attention_call *call, void *memory, void *scratch, int thread)
{
    state *s = memory;
    assert(thread >= 0 && thread < s->threads);
    workspace room = workspace_at(&s->grid, (char *)scratch + (size_t)thread * room_bytes(&s->grid));
    uint32_t task;
    while ((task = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed)) < s->grid.tasks) {
        do_task(call, s, scratch, &room, task);
    }
}

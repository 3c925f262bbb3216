/* SPDX-License-Identifier: MIT */
/*
 * Suite attention: attention alone, on KV as it is stored, against the engine's own on f16.
 *
 * Both compute the same layers of the same K, V and mask in the same memory, in turns, by as many
 * threads; the figure of a layer is the median over the rounds. There are as many layers as it takes
 * to exceed the caches, as in a model, where a layer's KV is cold when its turn comes. Each round
 * also reads the same bytes, and multiplies and adds in registers, with the same threads: what
 * memory and processor give at best.
 *
 * Our threads meet at a barrier after each layer, as the engine's do after each node; both spin.
 */
#include "attention/attention.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "bench/child.h"
#include "bench/report.h"
#include "bench/suites.h"
#include "codec/codec.h"
#include "kernels/f16.h"
#include "kernels/kernels.h"
#include "os/process.h"
#include "stockattn/stock_attention.h"

#define MAX_THREADS 64
#define CHUNK_TOKENS 256u
#define KV_BYTES (192ull << 20) /* of all layers, about; larger than the caches of most processors */
#define FUSE_STEPS 2000000u     /* some milliseconds */
#define ALIGN 64u

static const mz_report_column columns[] = {
    {"shape", "shape"},         {"kv", "KV"},           {"rows", "rows"},
    {"context_tokens", "ctx"},  {"ms", "ms"},           {"stock_ms", "stock ms"},
    {"speedup", "speed-up"},    {"read_share", "read"}, {"fma_share", "FMA"},
    {"difference", "differs"},  {NULL, NULL}};

typedef struct model_shape {
    const char *name;
    uint32_t q_heads, kv_heads, head_dim;
} model_shape;

static const model_shape shapes[] = {{"Qwen3-0.6B", 16, 8, 128},
                                     {"SmolLM2-135M", 9, 3, 64},
                                     {"EXAONE-4.0-1.2B", 32, 8, 64}};
#define SHAPES (sizeof shapes / sizeof shapes[0])
static const uint32_t contexts[] = {1024, 4096, 8192, 16384, 32768};
static const uint32_t row_counts[] = {1, 8, 512};
static const char *const kinds[] = {"f16", "q8"};
enum { KIND_F16, KIND_Q8, KINDS }; /* places in kinds[] */

typedef struct attention_input {
    const mz_bench_options *options;
    const model_shape *model;
    uint32_t rows, tokens;
} attention_input;

/* Seconds of a layer, and the rates of the machine; medians. */
typedef struct figures {
    double stock_s, own_s[KINDS], bytes[KINDS];
    double read_bytes_per_s, flops_per_s; /* of all threads together */
    double difference[KINDS];             /* largest, from stock's result */
} figures;

typedef struct crew crew;
struct crew {
    void (*work)(crew *self, int thread);
    int threads;
    atomic_int arrived;
    atomic_uint turn;
    /* What to work on. */
    const mz_stock_attention *stock;
    mz_attention_call calls[MZ_STOCK_LAYERS];
    uint8_t *states, *scratch; /* states: [layers][state_bytes] */
    size_t state_bytes;
    atomic_uint_fast64_t sink; /* so that nothing is optimized away */
};

typedef struct hand {
    crew *crew;
    int thread;
} hand;

static void meet(crew *c)
{
    unsigned turn = atomic_load_explicit(&c->turn, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&c->arrived, 1, memory_order_acq_rel) + 1 == c->threads) {
        atomic_store_explicit(&c->arrived, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&c->turn, 1, memory_order_release);
        return;
    }
    while (atomic_load_explicit(&c->turn, memory_order_acquire) == turn) {
        sched_yield();
    }
}

static void *hand_main(void *argument)
{
    hand *self = argument;
    meet(self->crew);
    self->crew->work(self->crew, self->thread);
    meet(self->crew);
    return NULL;
}

/* Do work by all threads; seconds from when all are there until all have done. */
static double timed(crew *c, void (*work)(crew *self, int thread))
{
    pthread_t threads[MAX_THREADS];
    hand hands[MAX_THREADS];
    c->work = work;
    atomic_store(&c->arrived, 0);
    for (int i = 1; i < c->threads; i++) {
        hands[i] = (hand){c, i};
        if (pthread_create(&threads[i], NULL, hand_main, &hands[i]) != 0) {
            fprintf(stderr, "mzcache bench: a thread can't be started\n");
            exit(1); /* a process of its own, and the others wait at the barrier */
        }
    }
    meet(c);
    uint64_t begun = mz_now_ns();
    work(c, 0);
    meet(c);
    uint64_t ended = mz_now_ns();
    for (int i = 1; i < c->threads; i++) {
        pthread_join(threads[i], NULL);
    }
    return (double)(ended - begun) / 1e9;
}

/* --- what is timed --- */

static void attend(crew *c, int thread)
{
    for (uint32_t layer = 0; layer < c->stock->shape.layers; layer++) {
        mz_attention_run(&c->calls[layer], c->states + layer * c->state_bytes, c->scratch, thread);
        meet(c);
    }
}

/* Sum a share of all K and V. */
static void read_all(crew *c, int thread)
{
    const mz_stock_shape *shape = &c->stock->shape;
    size_t words = (size_t)shape->tokens * shape->kv_heads * shape->head_dim * 2 / 8;
    size_t begin = words / (size_t)c->threads * (size_t)thread;
    size_t end = words / (size_t)c->threads * (size_t)(thread + 1);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 2 * shape->layers; i++) {
        const uint16_t *data = i % 2 == 0 ? c->stock->k[i / 2] : c->stock->v[i / 2];
        const uint64_t *from = (const uint64_t *)(const void *)data;
        for (size_t at = begin; at < end; at++) {
            sum += from[at];
        }
    }
    atomic_fetch_add(&c->sink, sum);
}

static void fuse(crew *c, int thread)
{
    (void)thread;
    atomic_fetch_add(&c->sink, (uint64_t)mz_kernels_get()->attention->fuse(FUSE_STEPS));
}

/* --- data --- */

/* Values as K and V have them: bell-shaped, of magnitude about 1. */
static float invent(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(*state >> 40) * 0x1p-24f - 0.5f;
    }
    return sum * 1.7f;
}

static void invent_all(mz_stock_attention *stock)
{
    const mz_stock_shape *shape = &stock->shape;
    size_t elements = (size_t)shape->tokens * shape->kv_heads * shape->head_dim;
    uint64_t state = 1;
    for (size_t i = 0; i < (size_t)shape->rows * shape->q_heads * shape->head_dim; i++) {
        stock->q[i] = 1.5f * invent(&state);
    }
    for (size_t i = 0; i < elements; i++) {
        stock->k[0][i] = mz_f16_from_f32(invent(&state));
        stock->v[0][i] = mz_f16_from_f32(invent(&state));
    }
    for (uint32_t layer = 1; layer < shape->layers; layer++) {
        memcpy(stock->k[layer], stock->k[0], elements * 2);
        memcpy(stock->v[layer], stock->v[0], elements * 2);
    }
}

/* K or V of all layers as pieces of one kind. */
typedef struct pieces {
    mz_attention_piece *list; /* [2 * layers][per_side]: K, V of the first layer, and so on */
    uint32_t per_side;
    uint8_t *encoded; /* NULL for f16 */
    double bytes;     /* of a layer, K and V */
} pieces;

static bool encode_chunk(const mz_codec *codec, const mz_codec_shape *chunk, const uint16_t *from,
                         uint8_t *room, mz_attention_piece *piece, double *bytes)
{
    size_t written;
    const uint8_t *payload;
    if (codec->encode(chunk, from, room, &written) != MZ_OK ||
        mz_codec_view(chunk, room, written, &payload) != codec) {
        return false;
    }
    *piece = (mz_attention_piece){.kind = MZ_ATTENTION_CODEC_Q8,
                                  .tokens = chunk->rows,
                                  .data = payload,
                                  .rows = chunk->rows,
                                  .row_bytes = chunk->row_bytes};
    *bytes += (double)written;
    return true;
}

static bool make_encoded(const mz_stock_attention *stock, pieces *made)
{
    const mz_stock_shape *shape = &stock->shape;
    const mz_codec *codec = mz_codec_find("q8");
    mz_codec_shape chunk = {.elem = MZ_ELEM_F16,
                            .row_bytes = shape->kv_heads * shape->head_dim * 2,
                            .rows = CHUNK_TOKENS};
    size_t room = (codec->bound(&chunk) + ALIGN - 1) / ALIGN * ALIGN;
    size_t elements = (size_t)CHUNK_TOKENS * shape->kv_heads * shape->head_dim;
    double bytes = 0;
    made->per_side = shape->tokens / CHUNK_TOKENS;
    size_t count = (size_t)2 * shape->layers * made->per_side;
    made->list = calloc(count, sizeof *made->list);
    made->encoded = aligned_alloc(ALIGN, count * room);
    bool good = made->list != NULL && made->encoded != NULL;
    for (size_t i = 0; good && i < count; i++) {
        size_t side = i / made->per_side, number = i % made->per_side;
        const uint16_t *data = side % 2 == 0 ? stock->k[side / 2] : stock->v[side / 2];
        good = encode_chunk(codec, &chunk, data + number * elements, made->encoded + i * room,
                            &made->list[i], &bytes);
    }
    made->bytes = bytes / shape->layers;
    return good;
}

static bool make_plain(const mz_stock_attention *stock, pieces *made)
{
    const mz_stock_shape *shape = &stock->shape;
    made->per_side = 1;
    made->list = calloc(2 * shape->layers, sizeof *made->list);
    for (uint32_t i = 0; made->list != NULL && i < 2 * shape->layers; i++) {
        made->list[i] = (mz_attention_piece){
            .kind = MZ_ATTENTION_F16,
            .tokens = shape->tokens,
            .data = i % 2 == 0 ? stock->k[i / 2] : stock->v[i / 2],
            .row_stride = (uint64_t)shape->kv_heads * shape->head_dim * 2,
            .head_stride = (uint64_t)shape->head_dim * 2};
    }
    made->bytes = 4.0 * shape->tokens * shape->kv_heads * shape->head_dim;
    return made->list != NULL;
}

/* --- one run --- */

static mz_attention_call call_of(const mz_stock_attention *stock, const pieces *made,
                                 uint32_t layer, float *out)
{
    const mz_stock_shape *shape = &stock->shape;
    uint64_t head = (uint64_t)shape->head_dim * sizeof(float), row = shape->q_heads * head;
    return (mz_attention_call){.head_dim_k = shape->head_dim,
                               .head_dim_v = shape->head_dim,
                               .q_heads = shape->q_heads,
                               .kv_heads = shape->kv_heads,
                               .rows = shape->rows,
                               .tokens = shape->tokens,
                               .q = stock->q,
                               .q_row_stride = row,
                               .q_head_stride = head,
                               .mask = stock->mask,
                               .mask_row_stride = (uint64_t)shape->tokens * 2,
                               .scale = 1.0f / sqrtf((float)shape->head_dim),
                               .k = made->list + 2 * layer * made->per_side,
                               .v = made->list + (2 * layer + 1) * made->per_side,
                               .k_pieces = made->per_side,
                               .v_pieces = made->per_side,
                               .out = out,
                               .out_row_stride = row,
                               .out_head_stride = head};
}

/* One round of ours on pieces of one kind; seconds of a layer. */
static double own_round(crew *c, const pieces *made, float *out)
{
    const uint32_t layers = c->stock->shape.layers;
    for (uint32_t layer = 0; layer < layers; layer++) {
        c->calls[layer] = call_of(c->stock, made, layer, out);
        mz_attention_begin(&c->calls[layer], c->threads, c->states + layer * c->state_bytes);
    }
    return timed(c, attend) / layers;
}

static double stock_round(mz_stock_attention *stock)
{
    uint64_t begun = mz_now_ns();
    bool good = mz_stock_attention_compute(stock);
    double seconds = (double)(mz_now_ns() - begun) / 1e9 / stock->shape.layers;
    return good ? seconds : NAN;
}

static double largest_difference(const float *a, const float *b, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    }
    return most;
}

static void measure_rounds(crew *c, mz_stock_attention *stock, const pieces *made, float *out,
                           uint32_t repeats, figures *f)
{
    const mz_stock_shape *shape = &stock->shape;
    double stock_s[MZ_BENCH_REPEATS], own_s[KINDS][MZ_BENCH_REPEATS], read[MZ_BENCH_REPEATS],
        flops[MZ_BENCH_REPEATS];
    size_t results = (size_t)shape->rows * shape->q_heads * shape->head_dim;
    double all_bytes = made[KIND_F16].bytes * shape->layers;
    double fused = (double)FUSE_STEPS * (double)mz_kernels_get()->attention->fuse_flops;
    /* Round 0 warms up and is compared; it does not count. */
    for (uint32_t round = 0; round <= repeats; round++) {
        uint32_t at = round > 0 ? round - 1 : 0;
        stock_s[at] = stock_round(stock);
        for (int kind = 0; kind < KINDS; kind++) {
            own_s[kind][at] = own_round(c, &made[kind], out);
            f->difference[kind] = largest_difference(out, stock->out[0], results);
        }
        read[at] = all_bytes / timed(c, read_all);
        flops[at] = fused * c->threads / timed(c, fuse);
    }
    f->stock_s = mz_report_median(stock_s, repeats);
    for (int kind = 0; kind < KINDS; kind++) {
        f->own_s[kind] = mz_report_median(own_s[kind], repeats);
        f->bytes[kind] = made[kind].bytes;
    }
    f->read_bytes_per_s = mz_report_median(read, repeats);
    f->flops_per_s = mz_report_median(flops, repeats);
}

static bool make_rooms(crew *c, const pieces *made, float **out)
{
    const mz_stock_shape *shape = &c->stock->shape;
    mz_attention_call call = call_of(c->stock, made, 0, NULL);
    c->state_bytes = mz_attention_state_bytes(&call, c->threads);
    c->states = aligned_alloc(ALIGN, c->state_bytes * shape->layers);
    c->scratch = aligned_alloc(ALIGN, mz_attention_scratch_bytes(&call, c->threads));
    *out = calloc((size_t)shape->rows * shape->q_heads * shape->head_dim, sizeof **out);
    return c->states != NULL && c->scratch != NULL && *out != NULL;
}

static bool measure(const void *input, void *result, char *message, size_t message_bytes)
{
    const attention_input *in = input;
    double bytes = 4.0 * in->tokens * in->model->kv_heads * in->model->head_dim;
    double layers = fmin(fmax(1, floor((double)KV_BYTES / bytes)), MZ_STOCK_LAYERS);
    int wanted = in->options->llm.threads > 0 ? in->options->llm.threads : mz_machine_cores();
    mz_stock_shape shape = {.q_heads = in->model->q_heads,
                            .kv_heads = in->model->kv_heads,
                            .head_dim = in->model->head_dim,
                            .rows = in->rows,
                            .tokens = in->tokens,
                            .layers = in->rows > 64 ? 1 : (uint32_t)layers,
                            .threads = wanted < MAX_THREADS ? wanted : MAX_THREADS};
    static crew c; /* large; a process of its own */
    mz_stock_attention stock;
    pieces made[KINDS] = {{0}};
    float *out = NULL;
    if (!mz_stock_attention_make(&stock, &shape)) {
        snprintf(message, message_bytes, "the engine's attention can't be set up");
        return false;
    }
    c.threads = shape.threads;
    c.stock = &stock;
    invent_all(&stock);
    bool good = make_plain(&stock, &made[KIND_F16]) && make_encoded(&stock, &made[KIND_Q8]) &&
                make_rooms(&c, &made[KIND_F16], &out);
    if (good) {
        measure_rounds(&c, &stock, made, out, in->options->repeats, result);
    } else {
        snprintf(message, message_bytes, "no memory for attention over %u tokens", in->tokens);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        free(made[kind].list);
        free(made[kind].encoded);
    }
    free(c.states);
    free(c.scratch);
    free(out);
    mz_stock_attention_free(&stock);
    return good;
}

/* --- lines --- */

/* Products and sums that the mask leaves, Q x K and P x V. */
static double needed_flops(const attention_input *in)
{
    double seen = (double)in->rows * in->tokens - (double)in->rows * (in->rows - 1) / 2;
    return 4.0 * seen * in->model->q_heads * in->model->head_dim;
}

static void report(const attention_input *in, const figures *f)
{
    for (int kind = 0; kind < KINDS; kind++) {
        double s = f->own_s[kind];
        mz_report_line(
            in->options, columns,
            json_pack("{s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "suite",
                      "attention", "shape", in->model->name, "kv", kinds[kind], "rows",
                      (json_int_t)in->rows, "context_tokens", (json_int_t)in->tokens, "ms", s * 1e3,
                      "stock_ms", f->stock_s * 1e3, "speedup", f->stock_s / s, "read_share",
                      f->bytes[kind] / s / f->read_bytes_per_s, "fma_share",
                      needed_flops(in) / s / f->flops_per_s, "difference", f->difference[kind],
                      "read_gbps", f->read_bytes_per_s / 1e9, "fma_gflops", f->flops_per_s / 1e9));
    }
}

static bool report_context(const mz_bench_options *options, const model_shape *model,
                           uint32_t tokens)
{
    for (size_t i = 0; i < sizeof row_counts / sizeof row_counts[0]; i++) {
        attention_input in = {options, model, row_counts[i], tokens};
        figures f;
        if (!mz_bench_child(measure, &in, &f, sizeof f)) {
            return false;
        }
        report(&in, &f);
    }
    return true;
}

bool mz_bench_attention(const mz_bench_options *options)
{
    const uint32_t least = row_counts[sizeof row_counts / sizeof row_counts[0] - 1];
    if (options->tokens > 0 && (options->tokens % CHUNK_TOKENS != 0 || options->tokens < least)) {
        fprintf(stderr, "mzcache bench: attention takes contexts of whole chunks of %u tokens, %u "
                        "at least\n", CHUNK_TOKENS, least);
        return false;
    }
    mz_report_titles(options, columns);
    for (size_t i = 0; i < SHAPES; i++) {
        for (size_t k = 0; k < sizeof contexts / sizeof contexts[0]; k++) {
            uint32_t tokens = options->tokens > 0 ? options->tokens : contexts[k];
            if (!report_context(options, &shapes[i], tokens)) {
                return false;
            }
            if (options->tokens > 0) {
                break;
            }
        }
    }
    return true;
}

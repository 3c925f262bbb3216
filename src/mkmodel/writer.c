/* SPDX-License-Identifier: MIT */
/*
 * A GGUF file, tensor by tensor.
 *
 * The header needs all tensors' shapes but none of their bytes, so it is made first and the bytes
 * follow in blocks of whole rows: memory does not grow with the model. A weight is drawn from 4096
 * evenly spaced values by 12 bits of a hash of (seed, tensor, number of the weight): nothing is
 * carried from one block to the next, and a block costs little more than writing it. The values'
 * deviation is 1/sqrt(row), so that a product keeps the size of what goes in and nothing overflows
 * in f16, in whatever depth.
 */
#include "mkmodel/writer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf.h"

#define LEVELS 4096u        /* different values of a weight */
#define WEIGHTS_PER_HASH 5u /* 12 bits each of 64 */
#define BLOCK_WEIGHTS (1u << 20)
#define PATH_ROOM 4096

typedef struct writer {
    const mz_writer_options *options;
    struct ggml_context *tensors;
    struct gguf_context *header;
    FILE *file;
    uint64_t done_bytes, all_bytes;
    float *plain;   /* [BLOCK_WEIGHTS] */
    void *encoded;  /* room for BLOCK_WEIGHTS of any type */
    float *levels;  /* [LEVELS] */
    uint16_t *half; /* [LEVELS] the same as f16 */
} writer;

static void set_number(writer *w, const char *name, uint32_t value)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", w->options->shape.architecture, name);
    gguf_set_val_u32(w->header, key, value);
}

static void set_real(writer *w, const char *name, float value)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", w->options->shape.architecture, name);
    gguf_set_val_f32(w->header, key, value);
}

static void describe_model(writer *w)
{
    const mz_shape *s = &w->options->shape;
    char name[128];
    snprintf(name, sizeof name, "%s with random weights", s->name);
    gguf_set_val_str(w->header, "general.architecture", s->architecture);
    gguf_set_val_str(w->header, "general.name", name);
    gguf_set_val_str(w->header, "tokenizer.ggml.model", "none");
    set_number(w, "vocab_size", s->vocabulary);
    set_number(w, "context_length", s->context);
    set_number(w, "embedding_length", s->width);
    set_number(w, "feed_forward_length", s->ffn);
    set_number(w, "block_count", s->layers);
    set_number(w, "attention.head_count", s->heads);
    set_number(w, "attention.head_count_kv", s->kv_heads);
    set_number(w, "attention.key_length", s->head_width);
    set_number(w, "attention.value_length", s->head_width);
    set_number(w, "rope.dimension_count", s->head_width);
    set_real(w, "rope.freq_base", s->rope_base);
    set_real(w, "attention.layer_norm_rms_epsilon", s->norm_epsilon);
    if (s->window > 0) {
        set_number(w, "attention.sliding_window", s->window);
    }
    if (s->attention_cap > 0) {
        set_real(w, "attn_logit_softcapping", s->attention_cap);
        set_real(w, "final_logit_softcapping", s->logits_cap);
    }
}

static void add(writer *w, const char *name, enum ggml_type type, int64_t row, int64_t rows)
{
    struct ggml_tensor *tensor = rows == 0 ? ggml_new_tensor_1d(w->tensors, type, row) /* a norm */
                                           : ggml_new_tensor_2d(w->tensors, type, row, rows);
    char full[GGML_MAX_NAME + 8];
    snprintf(full, sizeof full, "%s.weight", name);
    ggml_set_name(tensor, full);
    gguf_add_tensor(w->header, tensor);
    w->all_bytes += ggml_nbytes(tensor);
}

static void add_in_layer(writer *w, uint32_t layer, const char *name, int64_t row, int64_t rows)
{
    char full[GGML_MAX_NAME];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    add(w, full, rows == 0 ? GGML_TYPE_F32 : w->options->type, row, rows);
}

static void add_layer(writer *w, uint32_t layer)
{
    const mz_shape *s = &w->options->shape;
    const int64_t width = s->width, ffn = s->ffn;
    const int64_t q = (int64_t)s->heads * s->head_width;
    const int64_t kv = (int64_t)s->kv_heads * s->head_width;
    if (s->norms != MZ_NORMS_AFTER) {
        add_in_layer(w, layer, "attn_norm", width, 0);
        add_in_layer(w, layer, "ffn_norm", width, 0);
    }
    if (s->norms != MZ_NORMS_BEFORE) {
        add_in_layer(w, layer, "post_attention_norm", width, 0);
        add_in_layer(w, layer, "post_ffw_norm", width, 0);
    }
    if (s->head_norms) {
        add_in_layer(w, layer, "attn_q_norm", s->head_width, 0);
        add_in_layer(w, layer, "attn_k_norm", s->head_width, 0);
    }
    add_in_layer(w, layer, "attn_q", width, q);
    add_in_layer(w, layer, "attn_k", width, kv);
    add_in_layer(w, layer, "attn_v", width, kv);
    add_in_layer(w, layer, "attn_output", q, width);
    add_in_layer(w, layer, "ffn_gate", width, ffn);
    add_in_layer(w, layer, "ffn_up", width, ffn);
    add_in_layer(w, layer, "ffn_down", ffn, width);
}

static mz_status make_header(writer *w, mz_error *error)
{
    const mz_shape *s = &w->options->shape;
    struct ggml_init_params room = {
        .mem_size = (16ull * s->layers + 4) * ggml_tensor_overhead(),
        .no_alloc = true,
    };
    w->tensors = ggml_init(room);
    w->header = gguf_init_empty();
    w->plain = malloc(BLOCK_WEIGHTS * sizeof *w->plain);
    w->encoded = malloc(BLOCK_WEIGHTS * sizeof *w->plain);
    w->levels = malloc(LEVELS * sizeof *w->levels);
    w->half = malloc(LEVELS * sizeof *w->half);
    if (w->tensors == NULL || w->header == NULL || w->plain == NULL || w->encoded == NULL ||
        w->levels == NULL || w->half == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory to make a model");
    }
    describe_model(w);
    add(w, "token_embd", w->options->type, s->width, s->vocabulary);
    for (uint32_t layer = 0; layer < s->layers; layer++) {
        add_layer(w, layer);
    }
    add(w, "output_norm", GGML_TYPE_F32, s->width, 0);
    return MZ_OK;
}

static mz_status put(writer *w, const void *data, size_t bytes, mz_error *error)
{
    if (bytes > 0 && fwrite(data, bytes, 1, w->file) != 1) {
        return mz_error_set(error, mz_status_from_errno(errno), errno,
                            "the model can't be written");
    }
    return MZ_OK;
}

/* A mixing step of splitmix64: any two numbers that differ give unrelated results. */
static uint64_t hash(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Evenly spaced values around 0 with a deviation of 1/sqrt(row): their ends are at sqrt(3/row). */
static void set_levels(writer *w, int64_t row)
{
    double end = sqrt(3.0 / (double)row);
    for (uint32_t i = 0; i < LEVELS; i++) {
        w->levels[i] = (float)(end * ((2.0 * i + 1) / LEVELS - 1));
        w->half[i] = ggml_fp32_to_fp16(w->levels[i]);
    }
}

#define FILL(target, table)                                                                        \
    for (size_t i = 0; i < count; number++) {                                                      \
        uint64_t bits = hash(number ^ seed);                                                       \
        for (unsigned k = 0; k < WEIGHTS_PER_HASH && i < count; k++, i++) {                        \
            (target)[i] = (table)[bits % LEVELS];                                                  \
            bits /= LEVELS;                                                                        \
        }                                                                                          \
    }

/* `rows` rows from `first` on, encoded; returns the bytes. Blocks begin at a hash of their own. */
static size_t make_rows(writer *w, enum ggml_type type, uint64_t seed, int64_t first, int64_t rows,
                        int64_t row)
{
    size_t count = (size_t)(rows * row);
    uint64_t number = (uint64_t)(first * row);
    if (type == GGML_TYPE_F16) {
        uint16_t *target = w->encoded;
        FILL(target, w->half)
        return count * sizeof *target;
    }
    FILL(w->plain, w->levels)
    return ggml_quantize_chunk(type, w->plain, w->encoded, 0, rows, row, NULL);
}

static mz_status put_matrix(writer *w, const struct ggml_tensor *tensor, uint64_t seed,
                            mz_error *error)
{
    int64_t row = tensor->ne[0];
    int64_t block = BLOCK_WEIGHTS / row;
    set_levels(w, row);
    for (int64_t first = 0; first < tensor->ne[1]; first += block) {
        int64_t left = tensor->ne[1] - first;
        size_t bytes = make_rows(w, tensor->type, seed, first, left < block ? left : block, row);
        mz_status status = put(w, w->encoded, bytes, error);
        if (status != MZ_OK) {
            return status;
        }
        w->done_bytes += bytes;
        if (w->options->progress != NULL) {
            w->options->progress(w->options->context, w->done_bytes, w->all_bytes);
        }
    }
    return MZ_OK;
}

/* Norms scale by one. */
static mz_status put_norm(writer *w, const struct ggml_tensor *tensor, mz_error *error)
{
    for (int64_t i = 0; i < tensor->ne[0]; i++) {
        w->plain[i] = 1;
    }
    w->done_bytes += ggml_nbytes(tensor);
    return put(w, w->plain, ggml_nbytes(tensor), error);
}

static mz_status put_all(writer *w, mz_error *error)
{
    static const char zeros[64];
    size_t bytes = gguf_get_meta_size(w->header);
    size_t alignment = gguf_get_alignment(w->header);
    void *meta = malloc(bytes);
    if (meta == NULL || alignment > sizeof zeros) {
        free(meta);
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for the header");
    }
    gguf_get_meta_data(w->header, meta);
    mz_status status = put(w, meta, bytes, error);
    free(meta);
    uint64_t number = 0;
    for (struct ggml_tensor *tensor = ggml_get_first_tensor(w->tensors);
         tensor != NULL && status == MZ_OK; tensor = ggml_get_next_tensor(w->tensors, tensor)) {
        uint64_t seed = hash(w->options->seed + hash(number++));
        status = tensor->type == w->options->type ? put_matrix(w, tensor, seed, error)
                                                  : put_norm(w, tensor, error);
        size_t padding = (alignment - ggml_nbytes(tensor) % alignment) % alignment;
        if (status == MZ_OK) {
            status = put(w, zeros, padding, error);
        }
    }
    return status;
}

static mz_status put_file(writer *w, const char *path, uint64_t *bytes, mz_error *error)
{
    char partial[PATH_ROOM];
    int length = snprintf(partial, sizeof partial, "%s.partial", path);
    if (length < 0 || (size_t)length >= sizeof partial) {
        return mz_error_set(error, MZ_E_INVALID, 0, "the file's name is too long");
    }
    w->file = fopen(partial, "wb");
    if (w->file == NULL) {
        return mz_error_set(error, mz_status_from_errno(errno), errno, "can't make %s", partial);
    }
    mz_status status = put_all(w, error);
    *bytes = (uint64_t)ftello(w->file);
    /* What the buffer still holds may be what does not fit. */
    if (fclose(w->file) != 0 && status == MZ_OK) {
        status =
            mz_error_set(error, mz_status_from_errno(errno), errno, "the model can't be written");
    }
    if (status == MZ_OK && rename(partial, path) != 0) {
        status = mz_error_set(error, mz_status_from_errno(errno), errno, "can't make %s", path);
    }
    if (status != MZ_OK) {
        unlink(partial);
    }
    return status;
}

mz_status mz_writer_run(const mz_writer_options *options, const char *path, uint64_t *bytes,
                        mz_error *error)
{
    writer w = {.options = options};
    mz_status status = make_header(&w, error);
    if (status == MZ_OK) {
        status = put_file(&w, path, bytes, error);
    }
    free(w.half);
    free(w.levels);
    free(w.encoded);
    free(w.plain);
    gguf_free(w.header);
    ggml_free(w.tensors);
    return status;
}

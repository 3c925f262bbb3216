/* SPDX-License-Identifier: MIT */
/* The header of a GGUF file, read by the engine's own gguf API; see describe.h. */
#include "llm/describe.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf.h"

typedef struct reader {
    const struct gguf_context *gguf;
    const char *architecture;
} reader;

static mz_status fail(mz_status status, char *message, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static mz_status fail(mz_status status, char *message, size_t bytes, const char *format, ...)
{
    if (message != NULL && bytes > 0) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(message, bytes, format, arguments);
        va_end(arguments);
    }
    return status;
}

static int64_t find_key(const reader *r, const char *name)
{
    char key[160];
    snprintf(key, sizeof key, "%s.%s", r->architecture, name);
    return gguf_find_key(r->gguf, key);
}

/* A number, or the layer's entry of an array of numbers; `otherwise` if the key is missing. */
static uint32_t number(const reader *r, const char *name, uint32_t layer, uint32_t otherwise)
{
    int64_t key = find_key(r, name);
    if (key < 0) {
        return otherwise;
    }
    switch (gguf_get_kv_type(r->gguf, key)) {
    case GGUF_TYPE_UINT32:
        return gguf_get_val_u32(r->gguf, key);
    case GGUF_TYPE_INT32:
        return (uint32_t)gguf_get_val_i32(r->gguf, key);
    case GGUF_TYPE_ARRAY: {
        enum gguf_type type = gguf_get_arr_type(r->gguf, key);
        bool is_number = type == GGUF_TYPE_UINT32 || type == GGUF_TYPE_INT32;
        if (!is_number || layer >= gguf_get_arr_n(r->gguf, key)) {
            return otherwise;
        }
        return ((const uint32_t *)gguf_get_arr_data(r->gguf, key))[layer];
    }
    default:
        return otherwise;
    }
}

/* Layer of "blk.N.x"; -1 for tensors without a layer. */
static long layer_of(const char *name)
{
    if (strncmp(name, "blk.", 4) != 0) {
        return -1;
    }
    char *end = NULL;
    long layer = strtol(name + 4, &end, 10);
    return *end == '.' && layer >= 0 ? layer : -1;
}

static void sum_weights(const struct gguf_context *gguf, mz_llm_description *d)
{
    uint64_t embeddings = 0;
    uint64_t output = 0;
    int64_t count = gguf_get_n_tensors(gguf);
    for (int64_t i = 0; i < count; i++) {
        const char *name = gguf_get_tensor_name(gguf, i);
        uint64_t bytes = gguf_get_tensor_size(gguf, i);
        long layer = layer_of(name);
        if (layer >= 0 && (uint32_t)layer < d->layers) {
            d->layer_bytes[layer] += bytes;
        } else if (strcmp(name, "token_embd.weight") == 0) {
            embeddings = bytes;
        } else if (layer < 0) {
            output += strcmp(name, "output.weight") == 0 ? bytes : 0;
        }
    }
    d->output_bytes = output > 0 ? output : embeddings;
}

static void read_attention(const reader *r, mz_llm_description *d)
{
    for (uint32_t layer = 0; layer < d->layers; layer++) {
        uint32_t heads = number(r, "attention.head_count", layer, 0);
        uint32_t kv_heads = number(r, "attention.head_count_kv", layer, heads);
        uint32_t width = number(r, "embedding_length", layer, 0);
        uint32_t head = heads > 0 ? width / heads : 0;
        d->k_elements[layer] = kv_heads * number(r, "attention.key_length", layer, head);
        d->v_elements[layer] = kv_heads * number(r, "attention.value_length", layer, head);
    }
    d->sliding_window = number(r, "attention.sliding_window", 0, 0);
    d->trained_tokens = number(r, "context_length", 0, 0);
}

mz_status mz_llm_describe(const char *model_path, mz_llm_description *description, char *message,
                          size_t message_bytes)
{
    if (access(model_path, R_OK) != 0) {
        return fail(MZ_E_NOTFOUND, message, message_bytes, "%s cannot be read; check the path",
                    model_path);
    }
    struct gguf_init_params params = {.no_alloc = true, .ctx = NULL};
    struct gguf_context *gguf = gguf_init_from_file(model_path, params);
    if (gguf == NULL) {
        return fail(MZ_E_ENGINE, message, message_bytes, "%s is no GGUF file, or is damaged",
                    model_path);
    }
    mz_status status = MZ_OK;
    memset(description, 0, sizeof *description);
    int64_t key = gguf_find_key(gguf, "general.architecture");
    if (key >= 0 && gguf_get_kv_type(gguf, key) == GGUF_TYPE_STRING) {
        snprintf(description->architecture, sizeof description->architecture, "%s",
                 gguf_get_val_str(gguf, key));
    }
    reader r = {gguf, description->architecture};
    description->layers = number(&r, "block_count", 0, 0);
    if (description->layers == 0 || description->layers > MZ_DESCRIBE_LAYERS) {
        status = fail(MZ_E_UNSUPPORTED, message, message_bytes, "%s says nothing of its layers",
                      model_path);
    } else {
        sum_weights(gguf, description);
        read_attention(&r, description);
    }
    gguf_free(gguf);
    return status;
}

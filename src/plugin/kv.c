/* SPDX-License-Identifier: MIT */
/*
 * KV caches and recurrent state as units.
 *
 * llama.cpp names them cache_k_l<n>, cache_v_l<n> (with a tag before the k or v in some caches) and
 * cache_r_l<n>, cache_s_l<n>. K is [row, tokens, streams] with a token's row contiguous, so 256
 * tokens of one layer are one range of K and, without a transposed V, one of V: a chunk. Whether V
 * is transposed is not in its shape. It shows when a graph writes it: SET_ROWS then has rows of one
 * element. So a layer is registered when a graph has shown how each of its tensors is written, or,
 * if a graph uses it without ever writing it so, at the second such graph as plain byte ranges.
 *
 * Boundaries of chunks are rounded down to pages, which gives every page to exactly one unit for
 * any row size; rows are known to codecs (elem) only where chunks are whole pages and whole rows.
 * No model is refused: what has no row structure is cut into byte ranges.
 */
#include "plugin/kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/buffer.h"

/* Largest piece of memory without row structure that is evicted as one. */
#define OPAQUE_BYTES (1u << 20)

/* Parse cache_[tag]<letter>_l<layer>; 0 if the name is no such. */
static char parse_name(const char *name, uint32_t *layer)
{
    const char *end = strrchr(name, '_');
    char rest = '\0';
    unsigned number = 0;
    if (strncmp(name, "cache_", 6) != 0 || end == NULL || end - name < 7) {
        return '\0';
    }
    if (sscanf(end, "_l%u%c", &number, &rest) != 1) {
        return '\0';
    }
    *layer = number;
    return end[-1];
}

bool mz_kv_describe(const mz_host *host, const struct ggml_tensor *tensor, mz_record *record)
{
    uint32_t layer = 0;
    char letter = parse_name(tensor->name, &layer);
    if (letter == '\0') {
        return false;
    }
    *record = (mz_record){.kind = MZ_RECORD_STATE, .layer = layer, .type = tensor->type};
    if ((letter == 'k' || letter == 'v') && tensor->ne[3] == 1 &&
        host->ggml_is_contiguous(tensor)) {
        record->kind = letter == 'k' ? MZ_RECORD_K : MZ_RECORD_V;
        record->row_bytes = tensor->nb[1];
        record->rows = (uint64_t)tensor->ne[1];
        record->streams = (uint64_t)tensor->ne[2];
    }
    return true;
}

static mz_elem elem_of(const mz_record *record)
{
    bool whole_pages = record->row_bytes * MZ_KV_CHUNK_TOKENS % MZ_PAGE_BYTES == 0 &&
                       record->row_bytes * record->rows % MZ_PAGE_BYTES == 0;
    if (!whole_pages || record->row_bytes > UINT32_MAX) {
        return MZ_ELEM_OPAQUE;
    }
    switch (record->type) {
    case GGML_TYPE_F16:
        return MZ_ELEM_F16;
    case GGML_TYPE_BF16:
        return MZ_ELEM_BF16;
    case GGML_TYPE_F32:
        return MZ_ELEM_F32;
    default:
        return MZ_ELEM_OPAQUE;
    }
}

static uint64_t chunks_of(const mz_record *record)
{
    return (record->rows + MZ_KV_CHUNK_TOKENS - 1) / MZ_KV_CHUNK_TOKENS;
}

/* Offset in the tensor at which chunk `chunk` of stream `stream` begins; page aligned. */
static uint64_t boundary(const mz_record *record, uint64_t stream, uint64_t chunk)
{
    uint64_t rows = chunk * MZ_KV_CHUNK_TOKENS;
    rows = rows > record->rows ? record->rows : rows;
    uint64_t offset = (stream * record->rows + rows) * record->row_bytes;
    return offset >= record->bytes ? mz_page_ceil(record->bytes) : mz_page_floor(offset);
}

/* Add the span of one chunk to a unit; a chunk of less than a page may have none. */
static void add_chunk(mz_unit_desc *desc, const mz_record *record, uint64_t stream, uint64_t chunk)
{
    uint64_t first = boundary(record, stream, chunk);
    uint64_t end = boundary(record, stream, chunk + 1);
    if (end > first) {
        mz_elem elem = elem_of(record);
        desc->spans[desc->span_count++] = (mz_span){
            .address = record->address + first,
            .bytes = end - first,
            .source = -1,
            .elem = elem,
            .row_bytes = elem == MZ_ELEM_OPAQUE ? 0 : (uint32_t)record->row_bytes,
        };
    }
}

/* Units of whole tokens: of one tensor, or of K and V together (`second` not NULL). */
static mz_status add_rows(mz_pool *pool, const mz_record *first, const mz_record *second,
                          uint32_t *number, mz_error *error)
{
    for (uint64_t stream = 0; stream < first->streams; stream++) {
        for (uint64_t chunk = 0; chunk < chunks_of(first); chunk++, (*number)++) {
            mz_unit_desc desc = {.tag = MZ_TAG_KV_CACHE, .layer = first->layer, .chunk = *number};
            add_chunk(&desc, first, stream, chunk);
            if (second != NULL) {
                add_chunk(&desc, second, stream, chunk);
            }
            if (desc.span_count > 0) {
                mz_status status = mz_pool_add_unit(pool, &desc, error);
                if (status != MZ_OK) {
                    return status;
                }
            }
        }
    }
    return MZ_OK;
}

static mz_status add_opaque(mz_pool *pool, const mz_record *record, uint32_t *number,
                            mz_error *error)
{
    uint64_t bytes = mz_page_ceil(record->bytes);
    for (uint64_t at = 0; at < bytes; at += OPAQUE_BYTES, (*number)++) {
        mz_unit_desc desc = {
            .tag = MZ_TAG_KV_CACHE, .layer = record->layer, .chunk = *number, .span_count = 1};
        uint64_t left = bytes - at;
        desc.spans[0] = (mz_span){.address = record->address + at,
                                  .bytes = left < OPAQUE_BYTES ? left : OPAQUE_BYTES,
                                  .source = -1};
        mz_status status = mz_pool_add_unit(pool, &desc, error);
        if (status != MZ_OK) {
            return status;
        }
    }
    return MZ_OK;
}

/* Inside a step. */
static void seal_record(mz_arena *arena, mz_record *record)
{
    if (record->written_bytes > 0) {
        mz_pool_wrote(arena->plugin->pool, record->address, record->written_bytes);
    }
    record->sealed = true;
    arena->unsealed_count--;
}

/* The other half (K for V, V for K) of a layer in the same arena, if not sealed; NULL if none. */
static mz_record *partner_of(mz_arena *arena, const mz_record *record)
{
    mz_record_kind wanted = record->kind == MZ_RECORD_K ? MZ_RECORD_V : MZ_RECORD_K;
    for (size_t i = 0; record->kind != MZ_RECORD_STATE && i < arena->record_count; i++) {
        mz_record *other = &arena->records[i];
        if (other->kind == wanted && other->layer == record->layer && !other->sealed) {
            return other;
        }
    }
    return NULL;
}

static bool pairs_with(const mz_record *a, const mz_record *b)
{
    return a->by_rows && b->by_rows && a->rows == b->rows && a->streams == b->streams;
}

/* Register a record, and its partner with it. */
static mz_status seal_layer(mz_arena *arena, mz_record *record, mz_record *partner, mz_error *error)
{
    mz_pool *pool = arena->plugin->pool;
    uint32_t number = 0;
    mz_status status = MZ_OK;
    /* One step around registering and telling what was written before: until then the unit is
     * empty to the pool, and an eviction in between would take it so. */
    mz_pool_step_begin(pool);
    if (partner != NULL && pairs_with(record, partner)) {
        bool k_first = record->kind == MZ_RECORD_K;
        status =
            add_rows(pool, k_first ? record : partner, k_first ? partner : record, &number, error);
    } else {
        mz_record *both[2] = {record, partner};
        for (int i = 0; i < 2 && status == MZ_OK; i++) {
            if (both[i] != NULL) {
                status = both[i]->by_rows ? add_rows(pool, both[i], NULL, &number, error)
                                          : add_opaque(pool, both[i], &number, error);
            }
        }
    }
    if (status == MZ_OK) {
        seal_record(arena, record);
        if (partner != NULL) {
            seal_record(arena, partner);
        }
    } else {
        /* Forgotten within the step, before an eviction could take it for empty; the next graph
         * tries again. */
        mz_pool_remove_range(pool, record->address, mz_page_ceil(record->bytes));
        if (partner != NULL) {
            mz_pool_remove_range(pool, partner->address, mz_page_ceil(partner->bytes));
        }
    }
    mz_pool_step_end(pool);
    return status;
}

static mz_record *find_record(mz_arena *arena, const struct ggml_tensor *tensor)
{
    const struct ggml_tensor *root = tensor->view_src != NULL ? tensor->view_src : tensor;
    if (mz_buffer_arena(root) != arena) {
        return NULL;
    }
    for (size_t i = 0; i < arena->record_count; i++) {
        if (arena->records[i].address == root->data && arena->records[i].kind != MZ_RECORD_WEIGHT) {
            return &arena->records[i];
        }
    }
    return NULL;
}

#define USED 1u
#define WRITTEN 2u

static bool computes(const struct ggml_tensor *node)
{
    return node->op != GGML_OP_NONE && node->op != GGML_OP_VIEW && node->op != GGML_OP_RESHAPE &&
           node->op != GGML_OP_PERMUTE && node->op != GGML_OP_TRANSPOSE;
}

/* Note what a graph tells about the records: who is used, and who is written by whole rows. */
static void learn_from_graph(mz_arena *arena, const struct ggml_cgraph *graph, uint8_t *used)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        mz_record *record = find_record(arena, node);
        if (record != NULL && !record->sealed) {
            used[record - arena->records] |= computes(node) ? USED | WRITTEN : USED;
            if (node->op == GGML_OP_SET_ROWS) {
                record->seen = true;
                record->by_rows = node->nb[1] == record->row_bytes && node->ne[0] > 1;
            }
        }
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            record = node->src[j] != NULL ? find_record(arena, node->src[j]) : NULL;
            if (record != NULL) {
                used[record - arena->records] |= USED;
            }
        }
    }
}

/*
 * A host that computes node by node (one with an eval callback) shows K and V in different graphs.
 * What is written before both are known can't be told to the pool by rows: it counts as whole.
 */
static void note_unsealed_writes(mz_arena *arena, const uint8_t *used)
{
    for (size_t i = 0; i < arena->record_count; i++) {
        mz_record *record = &arena->records[i];
        if (!record->sealed && (used[i] & WRITTEN) != 0) {
            record->written_bytes = record->bytes;
        }
    }
}

static bool has_unsealed_kv(const mz_arena *arena)
{
    for (size_t i = 0; i < arena->record_count; i++) {
        if (!arena->records[i].sealed && arena->records[i].kind != MZ_RECORD_WEIGHT) {
            return true;
        }
    }
    return false;
}

mz_status mz_kv_seal(mz_arena *arena, const struct ggml_cgraph *graph, mz_error *error)
{
    if (!has_unsealed_kv(arena)) {
        return MZ_OK;
    }
    mz_pool_pass_gate(arena->plugin->pool, NULL); /* weights that came without a file */
    uint8_t *used = calloc(arena->record_count, 1);
    if (used == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory to register a KV cache");
    }
    learn_from_graph(arena, graph, used);
    mz_status status = MZ_OK;
    for (size_t i = 0; i < arena->record_count && status == MZ_OK; i++) {
        mz_record *record = &arena->records[i];
        if (used[i] == 0 || record->sealed || record->kind == MZ_RECORD_WEIGHT) {
            continue;
        }
        mz_record *partner = partner_of(arena, record);
        bool known =
            record->kind == MZ_RECORD_STATE || (record->seen && (partner == NULL || partner->seen));
        if (known || record->touched++ > 0) {
            status = seal_layer(arena, record, partner, error);
        }
    }
    note_unsealed_writes(arena, used);
    free(used);
    return status;
}

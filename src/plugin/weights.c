/* SPDX-License-Identifier: MIT */
/*
 * Weights as units.
 *
 * Mapped files. The host maps the model file and hands us the range. Its mapping is not where our
 * weights live: a tied embedding is read there by the host's own CPU backend while our copy is
 * evicted, and pages of a file are shared by neighbouring layers. Instead each layer gets a region
 * of its own in a reservation, starting at a 2 MB boundary (so huge pages work), and tensors are
 * moved there when the host initializes them. Inside a region a file's bytes keep their order, and
 * an address is congruent to its file offset modulo the page: the pool reads whole pages of the
 * file straight into place. Loading reads nothing; the first use of a layer does.
 *
 * Plain arenas (tensors set by the host, as with --no-mmap): tensors stand where they are, page
 * aligned; the tensors of a layer become units without a source.
 *
 * Order: layer n = "blk.n.*". The output matrix (and the embedding it may be tied to) is used last
 * and comes behind all layers; small tensors without a layer (rope_freqs) are used by the first.
 */
#include "plugin/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/direct_io.h"
#include "os/process.h"
#include "plugin/image.h"
#include "plugin/weight_map.h"

/* Runs of a file closer than this become one span: reading the gap is cheaper than another read. */
#define MERGE_GAP_BYTES (64u << 10)

/*
 * Output weights are cut into units of this size: with a large vocabulary they outweigh many layers
 * (170 MB in a model of 240 MB), and an eviction of a few megabytes should not take all of that.
 */
#define TAIL_UNIT_BYTES (16u << 20)

/* Layer number that stands for "behind all layers" until their count is known. */
#define LAYER_TAIL UINT32_MAX

/* Layer of a weight by its name. `*is_block` tells whether it belongs to a numbered layer. */
static uint32_t layer_of_name(const char *name, bool *is_block)
{
    unsigned layer = 0;
    *is_block = sscanf(name, "blk.%u.", &layer) == 1 && layer < LAYER_TAIL;
    if (*is_block) {
        return layer;
    }
    bool is_last = strncmp(name, "output", 6) == 0 || strncmp(name, "token_embd", 10) == 0;
    return is_last ? LAYER_TAIL : 0;
}

static int compare_entries(const void *a, const void *b)
{
    const mz_map_entry *x = a;
    const mz_map_entry *y = b;
    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    return x->file_offset < y->file_offset ? -1 : x->file_offset > y->file_offset;
}

/* Take the file's table of tensors, as far as they lie in [first, first + bytes) of the file. */
static mz_status read_table(mz_weight_map *map, const mz_host *host,
                            const struct gguf_context *gguf, uint64_t bytes, mz_error *error)
{
    int64_t count = host->gguf_get_n_tensors(gguf);
    uint64_t data = host->gguf_get_data_offset(gguf);
    map->data_offset = data;
    uint32_t layers = 0;
    map->entries = calloc(count > 0 ? (size_t)count : 1, sizeof *map->entries);
    if (map->entries == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for the table of %lld tensors",
                            (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        mz_map_entry *entry = &map->entries[map->count];
        bool is_block = false;
        entry->file_offset = data + host->gguf_get_tensor_offset(gguf, i);
        entry->bytes = host->gguf_get_tensor_size(gguf, i);
        entry->layer = layer_of_name(host->gguf_get_tensor_name(gguf, i), &is_block);
        /* Tensors without a layer, used first, have a region of their own before layer 0's. */
        entry->group = is_block ? entry->layer + 1 : entry->layer;
        if (is_block && entry->layer >= layers) {
            layers = entry->layer + 1;
        }
        if (entry->file_offset >= map->file_offset && entry->bytes > 0 &&
            entry->file_offset + entry->bytes <= map->file_offset + bytes) {
            map->count++;
        }
    }
    for (size_t i = 0; i < map->count; i++) {
        if (map->entries[i].layer == LAYER_TAIL) {
            map->entries[i].layer = layers;
        }
    }
    qsort(map->entries, map->count, sizeof *map->entries, compare_entries);
    return MZ_OK;
}

static uint64_t huge_ceil(uint64_t value)
{
    return (value + MZ_HUGE_BYTES - 1) & ~(uint64_t)(MZ_HUGE_BYTES - 1);
}

/*
 * Give each entry its place, as an offset in the reservation; returns the reservation's size.
 * Entries that are close in the file keep their distance; others start at the next page.
 */
static uint64_t place_entries(mz_weight_map *map, uint8_t *memory)
{
    uint64_t end = 0;      /* of what is placed, in the reservation */
    uint64_t file_end = 0; /* of the last entry, in the file */
    for (size_t i = 0; i < map->count; i++) {
        mz_map_entry *entry = &map->entries[i];
        bool same_region = i > 0 && entry[-1].group == entry->group;
        uint64_t place = 0;
        if (same_region && entry->file_offset >= file_end &&
            entry->file_offset - file_end < MERGE_GAP_BYTES) {
            place = end + (entry->file_offset - file_end);
        } else {
            place = same_region ? mz_page_ceil(end) : huge_ceil(end);
            place += entry->file_offset % MZ_PAGE_BYTES;
        }
        end = place + entry->bytes;
        file_end = entry->file_offset + entry->bytes;
        entry->address = memory + place;
    }
    return mz_page_ceil(end);
}

/*
 * Whether the path still names the file that the host mapped: a model may have been replaced by
 * rename since. Compared by content, because device numbers in /proc/self/maps and stat differ on
 * some file systems.
 */
static mz_status check_same_file(const mz_arena *arena, const char *path, uint64_t file_offset,
                                 mz_error *error)
{
    mz_file file;
    uint8_t page[MZ_PAGE_BYTES];
    mz_status status = mz_file_open(&file, arena->plugin->os, path, error);
    if (status != MZ_OK) {
        return status;
    }
    uint64_t take = arena->bytes < sizeof page ? arena->bytes : sizeof page;
    uint64_t last = arena->bytes - take;
    status = mz_file_read_buffered(&file, page, take, file_offset, error);
    if (status == MZ_OK && memcmp(page, arena->base, take) == 0) {
        status = mz_file_read_buffered(&file, page, take, file_offset + last, error);
    } else if (status == MZ_OK) {
        status =
            mz_error_set(error, MZ_E_NOTFOUND, 0, "%s is another file than the one mapped", path);
    }
    if (status == MZ_OK && memcmp(page, arena->base + last, take) != 0) {
        status =
            mz_error_set(error, MZ_E_NOTFOUND, 0, "%s is another file than the one mapped", path);
    }
    mz_file_close(&file);
    return status;
}

/* Plan a map for the file at map->path and reserve its memory. */
static mz_status build_map(mz_arena *arena, mz_weight_map *map, mz_error *error)
{
    const char *path = map->path;
    const mz_host *host = &arena->plugin->host;
    mz_status status = check_same_file(arena, path, map->file_offset, error);
    if (status != MZ_OK) {
        return status;
    }
    struct gguf_context *gguf =
        host->gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true, .ctx = NULL});
    if (gguf == NULL) {
        return mz_error_set(error, MZ_E_CORRUPT, 0, "%s can't be read as GGUF", path);
    }
    status = read_table(map, host, gguf, arena->bytes, error);
    host->gguf_free(gguf);
    if (status != MZ_OK) {
        return status;
    }
    if (map->count == 0) {
        return mz_error_set(error, MZ_E_NOTFOUND, 0, "no tensor of %s lies in the mapped range",
                            path);
    }
    status = mz_pool_add_source(arena->plugin->pool, path, &map->source, error);
    if (status != MZ_OK) {
        return status;
    }
    mz_pool_pass_gate(arena->plugin->pool, path);
    void *memory = NULL;
    uint64_t bytes = place_entries(map, NULL);
    status = mz_memory_reserve(arena->plugin->os, bytes, MZ_HUGE_BYTES, &memory, error);
    if (status == MZ_OK) {
        arena->memory = memory;
        arena->memory_bytes = bytes;
        place_entries(map, memory);
    }
    return status;
}

mz_status mz_weights_map(mz_arena *arena, mz_error *error)
{
    mz_mapping mapping;
    mz_status status = mz_process_find_mapping(arena->base, &mapping, error);
    if (status != MZ_OK) {
        return status;
    }
    mz_weight_map *map = calloc(1, sizeof *map);
    if (map == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a map of weights");
    }
    map->file_offset = mapping.file_offset + ((uint64_t)(uintptr_t)arena->base - mapping.start);
    arena->map = map;
    snprintf(map->path, sizeof map->path, "%s", mapping.path);
    status = build_map(arena, map, error);
    if (status != MZ_OK) {
        mz_weights_unmap(arena);
    }
    return status;
}

void mz_weights_unmap(mz_arena *arena)
{
    if (arena->map != NULL) {
        for (size_t i = 0; i < arena->map->count; i++) {
            free(arena->map->entries[i].repacked);
        }
        free(arena->map->entries);
        free(arena->map);
        arena->map = NULL;
    }
}

/* The entry that holds [file_offset, file_offset + bytes); entries are few, and load is rare. */
static mz_map_entry *find_entry(mz_weight_map *map, uint64_t file_offset, uint64_t bytes)
{
    for (size_t i = 0; i < map->count; i++) {
        mz_map_entry *entry = &map->entries[i];
        if (file_offset >= entry->file_offset &&
            file_offset + bytes <= entry->file_offset + entry->bytes) {
            return entry;
        }
    }
    return NULL;
}

bool mz_weights_redirect(mz_arena *arena, struct ggml_tensor *tensor)
{
    mz_weight_map *map = arena->map;
    const uint8_t *address = tensor->data;
    if (address < arena->base || address >= arena->base + arena->bytes) {
        return false;
    }
    uint64_t file_offset = map->file_offset + (uint64_t)(address - arena->base);
    uint64_t bytes = arena->plugin->host.ggml_nbytes(tensor);
    mz_map_entry *entry = find_entry(map, file_offset, bytes);
    if (entry == NULL) {
        return false;
    }
    bool is_whole = file_offset == entry->file_offset && entry->bytes == bytes;
    if (!is_whole && entry->repacked != NULL) {
        return false; /* a part of the file's bytes is wanted, and they won't be in place */
    }
    tensor->data = entry->address + (file_offset - entry->file_offset);
    if (!entry->used) {
        entry->used = true;
        map->dirty = true;
        entry->repacked = is_whole ? mz_repack_describe(arena->plugin, tensor, address) : NULL;
    }
    tensor->extra = is_whole ? entry->repacked : NULL;
    return true;
}

bool mz_weights_repacked(const mz_arena *arena)
{
    return arena->map != NULL && atomic_load_explicit(&arena->map->repacked, memory_order_acquire);
}

size_t mz_weight_map_region_end(const mz_weight_map *map, size_t first)
{
    size_t end = first + 1;
    while (end < map->count && map->entries[end].group == map->entries[first].group) {
        end++;
    }
    return end;
}

bool mz_weight_map_has_repacked(const mz_weight_map *map, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        if (map->entries[i].repacked != NULL) {
            return true;
        }
    }
    return false;
}

/* Unit under construction: flushed when it is full or the layer ends. */
typedef struct unit_builder {
    mz_pool *pool;
    mz_unit_desc desc;
    bool is_tail; /* desc is about output weights */
} unit_builder;

/* Register each piece of the spans as a unit; pieces are numbered in order of address. */
static mz_status add_pieces(unit_builder *builder, mz_error *error)
{
    mz_unit_desc piece = builder->desc;
    mz_status status = MZ_OK;
    piece.span_count = 1;
    for (uint32_t i = 0; i < builder->desc.span_count; i++) {
        const mz_span *span = &builder->desc.spans[i];
        for (uint64_t at = 0; at < span->bytes && status == MZ_OK; at += TAIL_UNIT_BYTES) {
            uint64_t left = span->bytes - at;
            piece.spans[0] = *span;
            piece.spans[0].address += at;
            piece.spans[0].file_offset += at;
            piece.spans[0].bytes = left < TAIL_UNIT_BYTES ? left : TAIL_UNIT_BYTES;
            status = mz_pool_add_unit(builder->pool, &piece, error);
            piece.chunk++;
        }
    }
    builder->desc.chunk = piece.chunk;
    return status;
}

static mz_status builder_flush(unit_builder *builder, mz_error *error)
{
    mz_status status = MZ_OK;
    if (builder->desc.span_count > 0) {
        status = builder->is_tail ? add_pieces(builder, error)
                                  : mz_pool_add_unit(builder->pool, &builder->desc, error);
        builder->desc.span_count = 0;
    }
    return status;
}

/* Add a page-aligned range of a layer; joined to the last span if the pages in between are few. */
static mz_status builder_add(unit_builder *builder, uint32_t layer, const mz_span *span,
                             uint64_t gap, mz_error *error)
{
    mz_unit_desc *desc = &builder->desc;
    if (desc->span_count > 0 && desc->layer == layer) {
        mz_span *last = &desc->spans[desc->span_count - 1];
        uint8_t *last_end = last->address + last->bytes;
        bool joins = span->address <= last_end ? span->address >= last->address
                                               : (uint64_t)(span->address - last_end) < gap;
        bool same_run = span->source < 0 || span->file_offset - last->file_offset ==
                                                (uint64_t)(span->address - last->address);
        if (joins && same_run) {
            uint8_t *end = span->address + span->bytes;
            last->bytes = (uint64_t)((end > last_end ? end : last_end) - last->address);
            return MZ_OK;
        }
    }
    if (desc->span_count == MZ_UNIT_SPANS || (desc->span_count > 0 && desc->layer != layer)) {
        mz_status status = builder_flush(builder, error);
        if (status != MZ_OK) {
            return status;
        }
    }
    desc->layer = layer;
    desc->spans[desc->span_count++] = *span;
    return MZ_OK;
}

/*
 * Give back the pages of the file that the host's mapping holds: they would count twice. The
 * mapping stays valid and reads the same from the page cache. The host may have unmapped parts of
 * it meanwhile, and what lies there now is not ours to touch: so each part is looked up again.
 */
static void drop_host_pages(const mz_arena *arena)
{
    const uint8_t *at = arena->base;
    const uint8_t *end = arena->base + arena->bytes;
    mz_mapping mapping;
    mz_error ignored = MZ_ERROR_INIT;
    while (at < end && mz_process_find_mapping(at, &mapping, &ignored) == MZ_OK) {
        uint64_t offset = mapping.file_offset + ((uint64_t)(uintptr_t)at - mapping.start);
        if (offset != arena->map->file_offset + (uint64_t)(at - arena->base)) {
            return;
        }
        uint64_t left = (uint64_t)(end - at);
        uint64_t here = mapping.end - (uint64_t)(uintptr_t)at;
        uint64_t bytes = here < left ? here : left;
        uint64_t first = mz_page_floor((uint64_t)(uintptr_t)at);
        uint64_t last = mz_page_floor((uint64_t)(uintptr_t)at + bytes);
        if (last > first) {
            (void)mz_memory_drop(arena->plugin->os, (void *)(uintptr_t)first, last - first,
                                 &ignored); /* refused for locked pages, which stay */
        }
        at += bytes;
    }
}

/* Register the used entries of a region [first, end) as units. image: source of the bytes, or -1
 * for the model file itself. */
static mz_status seal_region(unit_builder *builder, const mz_arena *arena, size_t first, size_t end,
                             int32_t image, mz_error *error)
{
    const mz_weight_map *map = arena->map;
    mz_status status = MZ_OK;
    for (size_t i = first; i < end && status == MZ_OK; i++) {
        const mz_map_entry *entry = &map->entries[i];
        if (!entry->used) {
            continue;
        }
        uint64_t before = entry->file_offset % MZ_PAGE_BYTES;
        mz_span span = {.address = entry->address - before,
                        .bytes = mz_page_ceil(before + entry->bytes),
                        .source = map->source,
                        .file_offset = entry->file_offset - before};
        if (image >= 0) {
            span.source = image;
            span.file_offset = MZ_IMAGE_DATA_OFFSET + (uint64_t)(span.address - arena->memory);
        }
        status = builder_add(builder, entry->layer, &span, MERGE_GAP_BYTES, error);
        builder->is_tail = entry->group == LAYER_TAIL;
    }
    return status == MZ_OK ? builder_flush(builder, error) : status;
}

/* The image of repacked weights, or -1: there are none, or (said in the log) it can't be had. */
static int32_t open_image(mz_arena *arena)
{
    mz_error error = MZ_ERROR_INIT;
    int32_t image = -1;
    if (mz_weight_map_has_repacked(arena->map, 0, arena->map->count) &&
        mz_image_open(arena, &image, &error) != MZ_OK) {
        mz_log(&arena->plugin->log, MZ_LOG_WARN,
               "quantized weights are computed without repacking, which is slower: %s", error.text);
        image = -1;
    }
    atomic_store_explicit(&arena->map->repacked, image >= 0, memory_order_release);
    return image;
}

mz_status mz_weights_seal_mapped(mz_arena *arena, mz_error *error)
{
    mz_weight_map *map = arena->map;
    if (!map->dirty) {
        return MZ_OK;
    }
    /* A tensor may arrive after a seal (a loader that looks at others first): all is stored, so
     * forgetting the units and dropping their pages loses nothing. */
    mz_pool_remove_range(arena->plugin->pool, arena->memory, arena->memory_bytes);
    mz_status status = mz_memory_drop(arena->plugin->os, arena->memory, arena->memory_bytes, error);
    int32_t image = status == MZ_OK ? open_image(arena) : -1;
    unit_builder builder = {.pool = arena->plugin->pool,
                            .desc = {.tag = MZ_TAG_WEIGHTS, .stored = true}};
    for (size_t first = 0; first < map->count && status == MZ_OK;) {
        size_t end = mz_weight_map_region_end(map, first);
        bool has_repacked = mz_weight_map_has_repacked(map, first, end);
        status = seal_region(&builder, arena, first, end, has_repacked ? image : -1, error);
        first = end;
    }
    if (status == MZ_OK) {
        map->dirty = false;
        drop_host_pages(arena);
    }
    return status;
}

bool mz_weights_describe(const mz_arena *arena, const struct ggml_tensor *tensor, mz_record *record)
{
    (void)arena;
    bool is_block = false;
    *record = (mz_record){.kind = MZ_RECORD_WEIGHT};
    record->layer = layer_of_name(tensor->name, &is_block);
    record->seen = is_block; /* other names mean weights only in a buffer that is marked so */
    return tensor->name[0] != '\0';
}

static int compare_records(const void *a, const void *b)
{
    const mz_record *x = *(const mz_record *const *)a;
    const mz_record *y = *(const mz_record *const *)b;
    if (x->layer != y->layer) {
        return x->layer < y->layer ? -1 : 1;
    }
    return x->address < y->address ? -1 : x->address > y->address;
}

/* Collect the weights that can be registered now, ordered by layer and address. */
static mz_record **collect_weights(mz_arena *arena, size_t *count)
{
    bool all = arena->buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
    mz_record **list = malloc((arena->record_count + 1) * sizeof *list);
    *count = 0;
    for (size_t i = 0; list != NULL && i < arena->record_count; i++) {
        mz_record *record = &arena->records[i];
        if (record->kind == MZ_RECORD_WEIGHT && !record->sealed && (all || record->seen)) {
            list[(*count)++] = record;
        }
    }
    if (*count > 0) {
        qsort(list, *count, sizeof(mz_record *), compare_records);
    }
    return list;
}

mz_status mz_weights_seal_plain(mz_arena *arena, mz_error *error)
{
    size_t count = 0;
    mz_record **list = collect_weights(arena, &count);
    if (list == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory to register weights");
    }
    mz_pool *pool = arena->plugin->pool;
    mz_status status = MZ_OK;
    unit_builder builder = {.pool = pool, .desc = {.tag = MZ_TAG_WEIGHTS}};
    uint32_t layers = 0;
    /* One step around both: a unit is empty to the pool until it is told what was written, and an
     * eviction in between would take it so. */
    mz_pool_step_begin(pool);
    for (size_t i = 0; i < count && status == MZ_OK; i++) {
        layers = list[i]->layer != LAYER_TAIL ? list[i]->layer + 1 : layers;
        mz_span span = {
            .address = list[i]->address, .bytes = mz_page_ceil(list[i]->bytes), .source = -1};
        uint32_t layer = list[i]->layer != LAYER_TAIL ? list[i]->layer : layers;
        status = builder_add(&builder, layer, &span, 1, error);
        builder.is_tail = list[i]->layer == LAYER_TAIL;
    }
    if (status == MZ_OK) {
        status = builder_flush(&builder, error);
    }
    for (size_t i = 0; i < count && status == MZ_OK; i++) {
        mz_pool_wrote(pool, list[i]->address, mz_page_ceil(list[i]->bytes));
        list[i]->sealed = true;
        arena->unsealed_count--;
    }
    /* What was registered in vain is forgotten within the step, before an eviction could take it for
     * empty; the next graph tries again from the start. */
    for (size_t i = 0; i < count && status != MZ_OK; i++) {
        mz_pool_remove_range(pool, list[i]->address, mz_page_ceil(list[i]->bytes));
    }
    mz_pool_step_end(pool);
    free(list);
    return status;
}

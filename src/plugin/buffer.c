/* SPDX-License-Identifier: MIT */
/*
 * ggml buffers over arenas.
 *
 * A plain arena is an address reservation without pages; the host's allocator places tensors in it
 * at page-aligned addresses (our alignment is a page, so that no page is shared by two tensors). A
 * mapped arena shows the host its own mapping as base, which is where it computes addresses, while
 * the tensors are moved to a reservation of ours (weights.c). Tensors that become units are noted
 * when the host initializes them, and registered later, see plugin.h.
 *
 * Every access opens a step, passes the gate for its range and says what it wrote. The host's
 * functions return nothing, so a read that fails fills its target with 0xFF: NaN for floats, which
 * nobody takes for a result. Rejected: reporting host memory and guarding pages; every stray access
 * would then be a signal inside somebody else's process.
 */
#include "plugin/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "plugin/kv.h"
#include "plugin/repack.h"
#include "plugin/weights.h"

#define BUFFER_TYPE_NAME "MZ"

static mz_arena *arena_of(ggml_backend_buffer_t buffer)
{
    return buffer->context;
}

static void arena_link(mz_arena *arena)
{
    mz_plugin *plugin = arena->plugin;
    pthread_mutex_lock(&plugin->lock);
    arena->next = plugin->arenas;
    plugin->arenas = arena;
    pthread_mutex_unlock(&plugin->lock);
}

static void arena_unlink(mz_arena *arena)
{
    mz_plugin *plugin = arena->plugin;
    pthread_mutex_lock(&plugin->lock);
    for (mz_arena **at = &plugin->arenas; *at != NULL; at = &(*at)->next) {
        if (*at == arena) {
            *at = arena->next;
            break;
        }
    }
    pthread_mutex_unlock(&plugin->lock);
}

/* Frees an arena and all it holds; it must be in no list. */
static void arena_destroy(mz_arena *arena)
{
    if (arena->memory != NULL) {
        mz_pool_remove_range(arena->plugin->pool, arena->memory, arena->memory_bytes);
    }
    mz_weights_unmap(arena);
    if (arena->memory != NULL) {
        mz_memory_release(arena->plugin->os, arena->memory, arena->memory_bytes);
    }
    free(arena->records);
    free(arena);
}

static void buffer_free(ggml_backend_buffer_t buffer)
{
    mz_arena *arena = arena_of(buffer);
    arena_unlink(arena);
    arena_destroy(arena);
}

static void *buffer_get_base(ggml_backend_buffer_t buffer)
{
    return arena_of(buffer)->base;
}

static bool record_append(mz_arena *arena, const mz_record *record)
{
    if (arena->record_count == arena->record_capacity) {
        size_t capacity = arena->record_capacity == 0 ? 64 : arena->record_capacity * 2;
        mz_record *records = realloc(arena->records, capacity * sizeof *records);
        if (records == NULL) {
            return false;
        }
        arena->records = records;
        arena->record_capacity = capacity;
    }
    arena->records[arena->record_count++] = *record;
    arena->unsealed_count++;
    return true;
}

/* Whether a plain arena's tensor starts a page of its own: only then may it be a unit. */
static bool is_page_aligned(const struct ggml_tensor *tensor)
{
    return ((uintptr_t)tensor->data & (MZ_PAGE_BYTES - 1)) == 0;
}

static enum ggml_status buffer_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor)
{
    mz_arena *arena = arena_of(buffer);
    mz_plugin *plugin = arena->plugin;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (tensor->view_src != NULL || arena->kind == MZ_ARENA_FOREIGN) {
        return status;
    }
    if (buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE) {
        /* Called for every tensor of every graph: no lock, no list. */
        if (!arena->huge_wanted) {
            arena->huge_wanted = true;
            mz_memory_want_huge(plugin->os, arena->memory, arena->memory_bytes);
        }
        return status;
    }
    pthread_mutex_lock(&plugin->lock);
    mz_record record = {0};
    if (arena->kind == MZ_ARENA_MAPPED) {
        if (!mz_weights_redirect(arena, tensor)) {
            mz_log(&plugin->log, MZ_LOG_WARN,
                   "tensor %s is not in the model file's table; it stays in memory", tensor->name);
        }
    } else if (is_page_aligned(tensor) && (mz_kv_describe(&plugin->host, tensor, &record) ||
                                           mz_weights_describe(arena, tensor, &record))) {
        record.address = tensor->data;
        record.bytes = plugin->host.ggml_nbytes(tensor);
        if (record.bytes > 0 && !record_append(arena, &record)) {
            status = GGML_STATUS_ALLOC_FAILED;
        }
    }
    pthread_mutex_unlock(&plugin->lock);
    return status;
}

/* What was set before a record was sealed has to be told to the pool afterwards. */
static void note_early_write(mz_arena *arena, const uint8_t *address, uint64_t bytes)
{
    pthread_mutex_lock(&arena->plugin->lock);
    if (arena->unsealed_count > 0) {
        for (size_t i = 0; i < arena->record_count; i++) {
            mz_record *record = &arena->records[i];
            if (!record->sealed && address >= record->address &&
                address < record->address + record->bytes) {
                uint64_t end = (uint64_t)(address - record->address) + bytes;
                record->written_bytes = end > record->written_bytes ? end : record->written_bytes;
            }
        }
    }
    pthread_mutex_unlock(&arena->plugin->lock);
}

/* A mapped arena's tensors are empty until they are registered: do it before the first access. */
static mz_status seal_before_access(mz_arena *arena, mz_error *error)
{
    if (arena->kind != MZ_ARENA_MAPPED) {
        return MZ_OK;
    }
    pthread_mutex_lock(&arena->plugin->lock);
    mz_status status = mz_weights_seal_mapped(arena, error);
    pthread_mutex_unlock(&arena->plugin->lock);
    return status;
}

/* Begin a step in which the range is resident. False: reported, and no step is open. */
static bool access_begin(mz_arena *arena, const void *address, uint64_t bytes, const char *what,
                         const char *name)
{
    mz_error error = MZ_ERROR_INIT;
    if (seal_before_access(arena, &error) == MZ_OK) {
        mz_pool_step_begin(arena->plugin->pool);
        if (mz_pool_need(arena->plugin->pool, address, bytes, &error) == MZ_OK) {
            return true;
        }
        mz_pool_step_end(arena->plugin->pool);
    }
    mz_error_prefix(&error, "%s of tensor %s failed: ", what, name);
    mz_pool_report(arena->plugin->pool, &error);
    return false;
}

/* A repacked weight stands for a file that is only read: no host writes there. */
static bool may_write(mz_arena *arena, const struct ggml_tensor *tensor)
{
    mz_error error = MZ_ERROR_INIT;
    if (mz_repack_of(tensor) == NULL) {
        return true;
    }
    mz_error_set(&error, MZ_E_UNSUPPORTED, 0,
                 "tensor %s was not changed: it is repacked; set MZCACHE_REPACK=off", tensor->name);
    mz_pool_report(arena->plugin->pool, &error);
    return false;
}

static void access_end(mz_arena *arena, const uint8_t *written, uint64_t bytes)
{
    if (written != NULL) {
        mz_pool_wrote(arena->plugin->pool, written, bytes);
    }
    mz_pool_step_end(arena->plugin->pool);
    if (written != NULL) {
        note_early_write(arena, written, bytes);
    }
}

static void buffer_memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor,
                                 uint8_t value, size_t offset, size_t bytes)
{
    mz_arena *arena = arena_of(buffer);
    uint8_t *target = (uint8_t *)tensor->data + offset;
    if (may_write(arena, tensor) && access_begin(arena, target, bytes, "memset", tensor->name)) {
        memset(target, value, bytes);
        access_end(arena, target, bytes);
    }
}

static void buffer_set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor,
                              const void *data, size_t offset, size_t bytes)
{
    mz_arena *arena = arena_of(buffer);
    uint8_t *target = (uint8_t *)tensor->data + offset;
    if (may_write(arena, tensor) && access_begin(arena, target, bytes, "write", tensor->name)) {
        memcpy(target, data, bytes);
        access_end(arena, target, bytes);
    }
}

static void buffer_get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor,
                              void *data, size_t offset, size_t bytes)
{
    mz_arena *arena = arena_of(buffer);
    const uint8_t *source = (const uint8_t *)tensor->data + offset;
    const mz_repacked *repacked = mz_repack_of(tensor);
    if (repacked != NULL) {
        memcpy(data, mz_repack_original(repacked, tensor) + offset, bytes);
    } else if (access_begin(arena, source, bytes, "read", tensor->name)) {
        memcpy(data, source, bytes);
        access_end(arena, NULL, 0);
    } else {
        memset(data, 0xFF, bytes);
    }
}

static bool buffer_cpy_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *source,
                              struct ggml_tensor *target)
{
    mz_arena *arena = arena_of(buffer);
    const mz_host *host = &arena->plugin->host;
    mz_arena *from = mz_buffer_arena(source);
    uint64_t bytes = host->ggml_nbytes(source);
    if (from == NULL || mz_repack_of(source) != NULL || mz_repack_of(target) != NULL ||
        source->type != target->type || bytes != host->ggml_nbytes(target) ||
        !host->ggml_is_contiguous(source) || !host->ggml_is_contiguous(target)) {
        return false;
    }
    mz_error error = MZ_ERROR_INIT;
    if (seal_before_access(from, &error) != MZ_OK ||
        !access_begin(arena, target->data, bytes, "copy", target->name)) {
        return false;
    }
    /* Refusing leaves the error to the host's own copy, whose read then fails visibly. */
    if (mz_pool_need(arena->plugin->pool, source->data, bytes, &error) != MZ_OK) {
        mz_pool_step_end(arena->plugin->pool);
        return false;
    }
    memmove(target->data, source->data, bytes);
    access_end(arena, target->data, bytes);
    return true;
}

static void forget_early_writes(mz_arena *arena)
{
    pthread_mutex_lock(&arena->plugin->lock);
    for (size_t i = 0; i < arena->record_count; i++) {
        arena->records[i].written_bytes = 0;
    }
    pthread_mutex_unlock(&arena->plugin->lock);
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    mz_arena *arena = arena_of(buffer);
    mz_pool *pool = arena->plugin->pool;
    mz_error error = MZ_ERROR_INIT;
    if (arena->kind != MZ_ARENA_PLAIN) {
        return; /* a file's weights; the host never asks for this */
    }
    if (value == 0) {
        forget_early_writes(arena);
        mz_pool_step_begin(pool);
        if (mz_pool_clear(pool, arena->memory, arena->memory_bytes, &error) != MZ_OK) {
            mz_pool_report(pool, &error);
        }
        mz_pool_step_end(pool);
    } else if (access_begin(arena, arena->memory, arena->memory_bytes, "clear", "(buffer)")) {
        memset(arena->memory, value, arena->bytes);
        access_end(arena, arena->memory, arena->memory_bytes);
    }
}

static ggml_backend_buffer_t buffer_create(mz_arena *arena)
{
    static const struct ggml_backend_buffer_i iface = {
        .free_buffer = buffer_free,
        .get_base = buffer_get_base,
        .init_tensor = buffer_init_tensor,
        .memset_tensor = buffer_memset_tensor,
        .set_tensor = buffer_set_tensor,
        .get_tensor = buffer_get_tensor,
        .cpy_tensor = buffer_cpy_tensor,
        .clear = buffer_clear,
    };
    mz_plugin *plugin = arena->plugin;
    arena->buffer =
        plugin->host.ggml_backend_buffer_init(mz_buffer_type(plugin), iface, arena, arena->bytes);
    arena_link(arena);
    return arena->buffer;
}

mz_arena *mz_buffer_arena(const struct ggml_tensor *tensor)
{
    const struct ggml_tensor *root = tensor->view_src != NULL ? tensor->view_src : tensor;
    ggml_backend_buffer_t buffer = root->buffer;
    if (buffer == NULL || buffer->iface.get_base != buffer_get_base) {
        return NULL;
    }
    return arena_of(buffer);
}

static ggml_backend_buffer_t alloc_plain(mz_plugin *plugin, size_t bytes)
{
    mz_error error = MZ_ERROR_INIT;
    mz_arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL) {
        return NULL;
    }
    void *memory = NULL;
    arena->plugin = plugin;
    arena->kind = MZ_ARENA_PLAIN;
    arena->bytes = bytes;
    arena->memory_bytes = mz_page_ceil(bytes == 0 ? 1 : bytes);
    if (mz_memory_reserve(plugin->os, arena->memory_bytes, MZ_HUGE_BYTES, &memory, &error) !=
        MZ_OK) {
        mz_pool_report(plugin->pool, &error);
        free(arena);
        return NULL;
    }
    arena->memory = memory;
    arena->base = memory;
    return buffer_create(arena);
}

ggml_backend_buffer_t mz_buffer_from_host(mz_plugin *plugin, void *address, uint64_t bytes)
{
    mz_error error = MZ_ERROR_INIT;
    mz_arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL) {
        return NULL;
    }
    arena->plugin = plugin;
    arena->kind = MZ_ARENA_MAPPED;
    arena->base = address;
    arena->bytes = bytes;
    if (mz_weights_map(arena, &error) != MZ_OK) {
        /* The host gives up on NULL, and sends no data for mapped tensors: serve it in place. */
        mz_error_prefix(&error, "these weights stay in memory: ");
        mz_pool_report(plugin->pool, &error);
        arena->kind = MZ_ARENA_FOREIGN;
    }
    return buffer_create(arena);
}

mz_status mz_buffer_seal_for(mz_plugin *plugin, const struct ggml_cgraph *graph, mz_error *error)
{
    mz_status status = MZ_OK;
    pthread_mutex_lock(&plugin->lock);
    for (mz_arena *arena = plugin->arenas; arena != NULL && status == MZ_OK; arena = arena->next) {
        if (arena->kind == MZ_ARENA_MAPPED) {
            status = mz_weights_seal_mapped(arena, error);
        } else if (arena->unsealed_count > 0) {
            status = mz_weights_seal_plain(arena, error);
            if (status == MZ_OK) {
                status = mz_kv_seal(arena, graph, error);
            }
        }
    }
    pthread_mutex_unlock(&plugin->lock);
    return status;
}

static const char *type_get_name(ggml_backend_buffer_type_t type)
{
    (void)type;
    return BUFFER_TYPE_NAME;
}

/* The two layouts keep `context` at different places, so each API has its own entry point. */
static ggml_backend_buffer_t type_alloc_v2(ggml_backend_buffer_type_t type, size_t bytes)
{
    return alloc_plain(((const mz_abi2_buffer_type *)(const void *)type)->context, bytes);
}

static ggml_backend_buffer_t type_alloc_v3(ggml_backend_buffer_type_t type, size_t bytes)
{
    return alloc_plain(((const mz_abi3_buffer_type *)(const void *)type)->context, bytes);
}

/* A page: two tensors never share one. Costs 2 KB per tensor on average. */
static size_t type_get_alignment(ggml_backend_buffer_type_t type)
{
    (void)type;
    return MZ_PAGE_BYTES;
}

static bool type_is_host(ggml_backend_buffer_type_t type)
{
    (void)type;
    return false;
}

void mz_buffer_type_init(mz_plugin *plugin)
{
    if (plugin->host.api == MZ_GGML_API_2) {
        plugin->type.v2 = (mz_abi2_buffer_type){
            .get_name = type_get_name,
            .alloc_buffer = type_alloc_v2,
            .get_alignment = type_get_alignment,
            .is_host = type_is_host,
            .device = &plugin->device,
            .context = plugin,
        };
    } else {
        plugin->type.v3 = (mz_abi3_buffer_type){
            .get_name = type_get_name,
            .alloc_buffer = type_alloc_v3,
            .get_alignment = type_get_alignment,
            .is_host = type_is_host,
            .device = &plugin->device,
            .context = plugin,
        };
    }
}

ggml_backend_buffer_type_t mz_buffer_type(mz_plugin *plugin)
{
    /* The host knows the structure by a name of its own; it is the one that fits its API. */
    return (ggml_backend_buffer_type_t)(void *)&plugin->type;
}

/* SPDX-License-Identifier: MIT */
/* See fixture.h. */
#include "pool/fixture.h"

#include <cmocka.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/memory.h"
#include "pool/internal.h"

static unsigned long long toy_random(toy_model *toy)
{
    toy->seed = toy->seed * 6364136223846793005ull + 1442695040888963407ull;
    return toy->seed >> 24;
}

/* Bits of an f16 of moderate size: never NaN or infinity. */
static uint16_t toy_half(toy_model *toy)
{
    unsigned long long bits = toy_random(toy);
    return (uint16_t)((bits & 0x83ffu) | ((10u + (bits >> 20) % 8u) << 10));
}

static void *toy_reserve(toy_model *toy, uint64_t bytes)
{
    mz_error error = MZ_ERROR_INIT;
    void *address = NULL;
    assert_int_equal(mz_memory_reserve(&toy->fault.os, bytes, MZ_HUGE_BYTES, &address, &error),
                     MZ_OK);
    return address;
}

uint8_t *toy_chunk(toy_model *toy, uint32_t layer, uint32_t chunk, uint32_t which)
{
    return toy->kv + ((layer * TOY_CHUNKS + chunk) * 2u + which) * TOY_CHUNK_BYTES;
}

static void toy_make_file(toy_model *toy)
{
    uint64_t bytes = (uint64_t)TOY_LAYERS * TOY_WEIGHT_BYTES;
    uint8_t *data = malloc(bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)toy_random(toy);
    }
    for (uint32_t layer = 0; layer < TOY_LAYERS; layer++) {
        memcpy(toy->weights_shadow + (uint64_t)layer * TOY_WEIGHT_STRIDE,
               data + (uint64_t)layer * TOY_WEIGHT_BYTES, TOY_WEIGHT_BYTES);
    }
    int fd = open(toy->file, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    close(fd);
    free(data);
}

static void toy_add_units(toy_model *toy)
{
    mz_error error = MZ_ERROR_INIT;
    int32_t source = -1;
    assert_int_equal(mz_pool_add_source(toy->pool, toy->file, &source, &error), MZ_OK);
    for (uint32_t layer = 0; layer < TOY_LAYERS; layer++) {
        mz_unit_desc weights = {
            .tag = MZ_TAG_WEIGHTS, .layer = layer, .span_count = 1, .stored = true};
        weights.spans[0] = (mz_span){toy->weights + (uint64_t)layer * TOY_WEIGHT_STRIDE,
                                     TOY_WEIGHT_BYTES,
                                     source,
                                     (uint64_t)layer * TOY_WEIGHT_BYTES,
                                     MZ_ELEM_OPAQUE,
                                     0};
        assert_int_equal(mz_pool_add_unit(toy->pool, &weights, &error), MZ_OK);
        for (uint32_t chunk = 0; chunk < TOY_CHUNKS; chunk++) {
            mz_unit_desc kv = {
                .tag = MZ_TAG_KV_CACHE, .layer = layer, .chunk = chunk, .span_count = 2};
            for (uint32_t which = 0; which < 2; which++) {
                kv.spans[which] = (mz_span){toy_chunk(toy, layer, chunk, which),
                                            TOY_CHUNK_BYTES,
                                            -1,
                                            0,
                                            MZ_ELEM_F16,
                                            TOY_ROW_BYTES};
            }
            assert_int_equal(mz_pool_add_unit(toy->pool, &kv, &error), MZ_OK);
        }
    }
    mz_unit_desc opaque = {.tag = MZ_TAG_KV_CACHE, .layer = 1, .chunk = 100, .span_count = 1};
    opaque.spans[0] = (mz_span){toy->opaque, TOY_OPAQUE_BYTES, -1, 0, MZ_ELEM_OPAQUE, 0};
    assert_int_equal(mz_pool_add_unit(toy->pool, &opaque, &error), MZ_OK);
}

mz_restore_io toy_io = MZ_IO_AUTO;
int toy_ring_errno = 0;

__attribute__((constructor)) static void choose_io(void)
{
    const char *text = getenv("MZ_TEST_IO");
    toy_io = text != NULL && strcmp(text, "threads") == 0 ? MZ_IO_THREADS : MZ_IO_AUTO;
}

static void toy_open_all(toy_model *toy, const mz_pool_options *wanted)
{
    memset(toy, 0, sizeof *toy);
    toy->seed = 42;
    mz_fault_os_init(&toy->fault);
    strcpy(toy->directory, "/tmp/mz-pool-test-XXXXXX");
    assert_non_null(mkdtemp(toy->directory));
    snprintf(toy->file, sizeof toy->file, "%s/weights", toy->directory);
    uint64_t weight_bytes = (uint64_t)TOY_LAYERS * TOY_WEIGHT_STRIDE;
    toy->weights = toy_reserve(toy, weight_bytes);
    toy->kv = toy_reserve(toy, TOY_KV_BYTES);
    toy->opaque = toy_reserve(toy, TOY_OPAQUE_BYTES);
    toy->weights_shadow = calloc(1, weight_bytes);
    toy->kv_shadow = calloc(1, TOY_KV_BYTES);
    toy->opaque_shadow = calloc(1, TOY_OPAQUE_BYTES);
    toy_make_file(toy);
    mz_pool_options options = *wanted;
    options.os = &toy->fault.os;
    options.store_dir = toy->directory;
    options.restore_depth = toy_io == MZ_IO_THREADS ? 3 : 2 * MZ_RING_DEPTH;
    options.restore_io = toy_io;
    if (toy_ring_errno != 0) {
        mz_fault_os_fail(&toy->fault, MZ_FAULT_RING_OPEN, 1, MZ_FAULT_FOREVER, toy_ring_errno);
    }
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_pool_create(&options, &toy->pool, &error), MZ_OK);
    mz_fault_os_clear(&toy->fault);
    toy_add_units(toy);
}

void toy_open(toy_model *toy, const char *codec, bool guard)
{
    toy_open_all(toy, &(mz_pool_options){.codec = codec, .guard = guard});
}

void toy_open_profiled(toy_model *toy, const char *codec, const char *command)
{
    toy_open_all(
        toy, &(mz_pool_options){.codec = codec, .auto_profile = true, .profile_command = command});
}

void toy_close(toy_model *toy)
{
    mz_fault_os_clear(&toy->fault);
    mz_pool_destroy(toy->pool);
    mz_memory_release(&toy->fault.os, toy->weights, (uint64_t)TOY_LAYERS * TOY_WEIGHT_STRIDE);
    mz_memory_release(&toy->fault.os, toy->kv, TOY_KV_BYTES);
    mz_memory_release(&toy->fault.os, toy->opaque, TOY_OPAQUE_BYTES);
    free(toy->weights_shadow);
    free(toy->kv_shadow);
    free(toy->opaque_shadow);
    unlink(toy->file);
    rmdir(toy->directory);
}

static void toy_write(toy_model *toy, uint8_t *target, uint8_t *shadow, uint64_t bytes)
{
    mz_error error = MZ_ERROR_INIT;
    mz_pool_step_begin(toy->pool);
    assert_int_equal(mz_pool_need(toy->pool, target, bytes, &error), MZ_OK);
    mz_pool_wrote(toy->pool, target, bytes);
    for (uint64_t i = 0; i + 1 < bytes; i += 2) {
        uint16_t value = toy_half(toy);
        memcpy(shadow + i, &value, 2);
    }
    memcpy(target, shadow, bytes);
    mz_pool_step_end(toy->pool);
}

void toy_write_chunk(toy_model *toy, uint32_t layer, uint32_t chunk, uint32_t rows)
{
    for (uint32_t which = 0; which < 2; which++) {
        uint8_t *target = toy_chunk(toy, layer, chunk, which);
        toy_write(toy, target, toy->kv_shadow + (target - toy->kv), (uint64_t)rows * TOY_ROW_BYTES);
    }
}

void toy_write_kv(toy_model *toy, uint32_t rows)
{
    for (uint32_t layer = 0; layer < TOY_LAYERS; layer++) {
        for (uint32_t chunk = 0; chunk < TOY_CHUNKS; chunk++) {
            toy_write_chunk(toy, layer, chunk, rows);
        }
    }
    for (uint64_t page = 0; page < TOY_OPAQUE_BYTES; page += 9u * MZ_PAGE_BYTES) {
        toy_write(toy, toy->opaque + page + 100, toy->opaque_shadow + page + 100, 64);
    }
}

void toy_dirty_kv(toy_model *toy, uint32_t rows)
{
    mz_error error = MZ_ERROR_INIT;
    mz_pool_step_begin(toy->pool);
    assert_int_equal(mz_pool_need(toy->pool, toy->kv, TOY_KV_BYTES, &error), MZ_OK);
    for (uint32_t i = 0; i < TOY_LAYERS * TOY_CHUNKS * 2u; i++) {
        mz_pool_wrote(toy->pool, toy->kv + (uint64_t)i * TOY_CHUNK_BYTES,
                      (uint64_t)rows * TOY_ROW_BYTES);
    }
    mz_pool_step_end(toy->pool);
}

mz_status toy_restore(toy_model *toy, mz_error *error)
{
    mz_range ranges[3] = {{toy->weights, (uint64_t)TOY_LAYERS * TOY_WEIGHT_STRIDE},
                          {toy->kv, TOY_KV_BYTES},
                          {toy->opaque, TOY_OPAQUE_BYTES}};
    mz_status status = MZ_OK;
    mz_pool_step_begin(toy->pool);
    mz_pool_request(toy->pool, ranges, 3);
    for (int i = 0; i < 3 && status == MZ_OK; i++) {
        status = mz_pool_need(toy->pool, ranges[i].address, ranges[i].bytes, error);
    }
    mz_pool_step_end(toy->pool);
    return status;
}

static bool weights_are_right(const toy_model *toy)
{
    for (uint32_t layer = 0; layer < TOY_LAYERS; layer++) {
        uint64_t at = (uint64_t)layer * TOY_WEIGHT_STRIDE;
        if (memcmp(toy->weights + at, toy->weights_shadow + at, TOY_WEIGHT_BYTES) != 0) {
            return false;
        }
    }
    return true;
}

bool toy_is_right(toy_model *toy)
{
    mz_error error = MZ_ERROR_INIT;
    if (toy_restore(toy, &error) != MZ_OK) {
        print_message("restore: %s\n", error.text);
        return false;
    }
    mz_pool_step_begin(toy->pool);
    bool right = weights_are_right(toy) && memcmp(toy->kv, toy->kv_shadow, TOY_KV_BYTES) == 0 &&
                 memcmp(toy->opaque, toy->opaque_shadow, TOY_OPAQUE_BYTES) == 0;
    mz_pool_step_end(toy->pool);
    return right;
}

void toy_accept(toy_model *toy)
{
    memcpy(toy->kv_shadow, toy->kv, TOY_KV_BYTES);
}

bool toy_check(toy_model *toy)
{
    mz_pool_status status;
    mz_status_get(toy->pool, &status);
    uint32_t away = atomic_load(&toy->pool->restore.away);
    uint64_t not_here = status.weights.total_units + status.kv_cache.total_units -
                        status.weights.resident_units - status.kv_cache.resident_units;
    return mz_stack_check(toy->pool->stack) && mz_store_check(toy->pool->store) && away == not_here;
}

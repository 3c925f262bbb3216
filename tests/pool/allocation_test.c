/* SPDX-License-Identifier: MIT */
/*
 * Goal: evict and restore allocate nothing in proportion to what they move.
 * Method: the linker sends malloc, calloc, realloc and mmap of this program through counters. A
 * pool of few units and one of 64 times as many are evicted wholly and restored; the second
 * may not allocate more often. With a codec the stack takes segments of 4 MB, one mapping each, and
 * these alone may differ.
 */
#include "os/memory.h"
#include "pool/fixture.h"

#include <cmocka.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FEW 4u
#define MANY 256u
#define WEIGHT_BYTES (64u * 1024u)
#define SEGMENT_BYTES (4u << 20)

typedef struct counts {
    atomic_uint heap, maps;
} counts;

static counts counted;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t bytes)
{
    atomic_fetch_add(&counted.heap, 1);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&counted.heap, 1);
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&counted.heap, 1);
    return __real_realloc(old, bytes);
}

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    atomic_fetch_add(&counted.maps, 1);
    return __real_mmap(address, bytes, protection, flags, fd, offset);
}

/* A pool of `units` weight units from a file and as many KV chunks, all written. */
typedef struct sized_pool {
    mz_pool *pool;
    char directory[64], file[96];
    uint8_t *weights, *kv;
    uint64_t weight_bytes, kv_bytes;
} sized_pool;

static uint8_t *reserve(uint64_t bytes)
{
    mz_error error = MZ_ERROR_INIT;
    void *memory = NULL;
    assert_int_equal(mz_memory_reserve(mz_os_linux(), bytes, MZ_PAGE_BYTES, &memory, &error),
                     MZ_OK);
    return memory;
}

static void sized_open(sized_pool *sized, const char *codec, uint32_t units)
{
    mz_error error = MZ_ERROR_INIT;
    *sized = (sized_pool){.weight_bytes = (uint64_t)units * WEIGHT_BYTES,
                          .kv_bytes = (uint64_t)units * TOY_CHUNK_BYTES};
    strcpy(sized->directory, "/tmp/mz-pool-test-XXXXXX");
    assert_non_null(mkdtemp(sized->directory));
    snprintf(sized->file, sizeof sized->file, "%s/weights", sized->directory);
    int fd = open(sized->file, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)sized->weight_bytes), 0);
    close(fd);
    mz_pool_options options = {.codec = codec, .store_dir = sized->directory, .restore_depth = 2};
    assert_int_equal(mz_pool_create(&options, &sized->pool, &error), MZ_OK);
    sized->weights = reserve(sized->weight_bytes);
    sized->kv = reserve(sized->kv_bytes);
    int32_t source = -1;
    assert_int_equal(mz_pool_add_source(sized->pool, sized->file, &source, &error), MZ_OK);
    for (uint32_t i = 0; i < units; i++) {
        uint64_t offset = (uint64_t)i * WEIGHT_BYTES;
        mz_unit_desc weights = {.tag = MZ_TAG_WEIGHTS, .layer = i, .span_count = 1, .stored = true};
        weights.spans[0] =
            (mz_span){sized->weights + offset, WEIGHT_BYTES, source, offset, MZ_ELEM_OPAQUE, 0};
        mz_unit_desc kv = {.tag = MZ_TAG_KV_CACHE, .layer = i, .span_count = 1};
        kv.spans[0] = (mz_span){sized->kv + (uint64_t)i * TOY_CHUNK_BYTES,
                                TOY_CHUNK_BYTES,
                                -1,
                                0,
                                MZ_ELEM_F16,
                                TOY_ROW_BYTES};
        assert_int_equal(mz_pool_add_unit(sized->pool, &weights, &error), MZ_OK);
        assert_int_equal(mz_pool_add_unit(sized->pool, &kv, &error), MZ_OK);
    }
}

static void sized_close(sized_pool *sized)
{
    mz_pool_destroy(sized->pool);
    mz_memory_release(mz_os_linux(), sized->weights, sized->weight_bytes);
    mz_memory_release(mz_os_linux(), sized->kv, sized->kv_bytes);
    unlink(sized->file);
    rmdir(sized->directory);
}

static void restore_all(sized_pool *sized)
{
    mz_error error = MZ_ERROR_INIT;
    mz_pool_step_begin(sized->pool);
    assert_int_equal(mz_pool_need(sized->pool, sized->weights, sized->weight_bytes, &error), MZ_OK);
    assert_int_equal(mz_pool_need(sized->pool, sized->kv, sized->kv_bytes, &error), MZ_OK);
    mz_pool_wrote(sized->pool, sized->kv, sized->kv_bytes);
    memset(sized->kv, 0x31, sized->kv_bytes);
    mz_pool_step_end(sized->pool);
}

/* Allocations of one whole cycle; the first cycle may also set up what stays. */
static void count_cycle(const char *codec, uint32_t units, unsigned *heap, unsigned *maps)
{
    sized_pool sized;
    mz_pool_status status;
    atomic_store(&counted.heap, 0);
    sized_open(&sized, codec, units);
    restore_all(&sized);
    assert_true(atomic_exchange(&counted.heap, 0) > units); /* the counters see the library */
    assert_true(atomic_exchange(&counted.maps, 0) > 0);
    mz_status evicted = mz_evict(sized.pool, UINT64_MAX, NULL);
    mz_status_get(sized.pool, &status);
    restore_all(&sized);
    *heap = atomic_load(&counted.heap);
    *maps = atomic_load(&counted.maps);
    assert_int_equal(evicted, MZ_E_PARTIAL);
    assert_int_equal(status.weights.resident_units + status.kv_cache.resident_units, 0);
    assert_int_equal(status.weights.total_units, units);
    sized_close(&sized);
}

static void raw_allocates_the_same_for_any_number_of_units(void **state)
{
    (void)state;
    unsigned heap[2], maps[2];
    count_cycle("raw", FEW, &heap[0], &maps[0]);
    count_cycle("raw", MANY, &heap[1], &maps[1]);
    print_message("raw: heap %u and %u, maps %u and %u\n", heap[0], heap[1], maps[0], maps[1]);
    assert_true(heap[1] <= heap[0]);
    assert_true(maps[1] <= maps[0]);
}

static void q8_allocates_segments_only(void **state)
{
    (void)state;
    unsigned heap[2], maps[2];
    count_cycle("q8", FEW, &heap[0], &maps[0]);
    count_cycle("q8", MANY, &heap[1], &maps[1]);
    print_message("q8: heap %u and %u, maps %u and %u\n", heap[0], heap[1], maps[0], maps[1]);
    /* Encoded KV is smaller than KV; a segment may take several maps, but no unit takes any. */
    unsigned segments = MANY * TOY_CHUNK_BYTES / SEGMENT_BYTES + 1;
    assert_true(heap[1] <= heap[0] + segments);
    assert_true(maps[1] > maps[0]); /* so much is encoded that the stack had to grow */
    assert_true(maps[1] <= maps[0] + 2 * segments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_allocates_the_same_for_any_number_of_units),
        cmocka_unit_test(q8_allocates_segments_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

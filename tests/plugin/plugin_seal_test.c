/* SPDX-License-Identifier: MIT */
/*
 * Goal: weights of which only a part could be registered are registered by the next try, once each.
 * Method: an arena made by hand and a real pool; the linker puts a function between them that lets
 * the n-th registration fail. Counts and bytes are those of the records.
 */
#include "plugin/weights.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORDS 4u
#define BYTES (64u << 10) /* of each */

static unsigned until_failure; /* registrations; 0: none fails */

mz_status __real_mz_pool_add_unit(mz_pool *pool, const mz_unit_desc *desc, mz_error *error);
mz_status __wrap_mz_pool_add_unit(mz_pool *pool, const mz_unit_desc *desc, mz_error *error);

mz_status __wrap_mz_pool_add_unit(mz_pool *pool, const mz_unit_desc *desc, mz_error *error)
{
    if (until_failure > 0 && --until_failure == 0) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory, says the test");
    }
    return __real_mz_pool_add_unit(pool, desc, error);
}

static mz_tag_status weights_of(mz_pool *pool)
{
    mz_pool_status status;
    assert_int_equal(mz_status_get(pool, &status), MZ_OK);
    return status.weights;
}

static void a_seal_that_failed_half_way_leaves_nothing(void **state)
{
    (void)state;
    char directory[] = "/tmp/mz-seal-test-XXXXXX";
    assert_non_null(mkdtemp(directory));
    for (unsigned fails = 1; fails <= RECORDS; fails++) {
        mz_error error = MZ_ERROR_INIT;
        mz_pool_options options = {.codec = "raw", .store_dir = directory};
        mz_plugin plugin = {.os = mz_os_linux()};
        assert_int_equal(mz_pool_create(&options, &plugin.pool, &error), MZ_OK);
        void *memory = NULL;
        assert_int_equal(
            mz_memory_reserve(plugin.os, RECORDS * BYTES, MZ_HUGE_BYTES, &memory, &error), MZ_OK);
        memset(memory, 7, RECORDS * BYTES);
        mz_record records[RECORDS] = {{.kind = MZ_RECORD_WEIGHT}};
        for (unsigned i = 0; i < RECORDS; i++) { /* a layer, so a unit, each */
            records[i] = (mz_record){.kind = MZ_RECORD_WEIGHT,
                                     .layer = i,
                                     .address = (uint8_t *)memory + (size_t)i * BYTES,
                                     .bytes = BYTES,
                                     .seen = true};
        }
        struct ggml_backend_buffer buffer = {.usage = GGML_BACKEND_BUFFER_USAGE_WEIGHTS};
        mz_arena arena = {.plugin = &plugin,
                          .buffer = &buffer,
                          .memory = memory,
                          .records = records,
                          .record_count = RECORDS,
                          .unsealed_count = RECORDS};
        until_failure = fails;
        assert_int_equal(mz_weights_seal_plain(&arena, &error), MZ_E_NOMEM);
        assert_int_equal(weights_of(plugin.pool).total_units, 0);
        assert_int_equal(arena.unsealed_count, RECORDS);
        assert_int_equal(mz_weights_seal_plain(&arena, &error), MZ_OK);
        assert_int_equal(weights_of(plugin.pool).total_units, RECORDS);
        assert_int_equal(weights_of(plugin.pool).resident_bytes, RECORDS * BYTES);
        assert_int_equal(arena.unsealed_count, 0);
        /* And what is in them comes back from an eviction. */
        uint64_t freed = 0;
        assert_int_equal(mz_evict(plugin.pool, RECORDS * BYTES, &freed), MZ_OK);
        assert_int_equal(mz_pool_need(plugin.pool, memory, RECORDS * BYTES, &error), MZ_OK);
        for (size_t i = 0; i < RECORDS * BYTES; i++) {
            assert_int_equal(((const uint8_t *)memory)[i], 7);
        }
        mz_pool_destroy(plugin.pool);
        mz_memory_release(plugin.os, memory, RECORDS * BYTES);
    }
    rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seal_that_failed_half_way_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

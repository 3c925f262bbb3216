/* SPDX-License-Identifier: MIT */
/*
 * Goal: KV of a type that a lossy codec does not take is neither refused nor quantized a second
 * time: evicted and restored, it is what stock llama.cpp computes, bit for bit.
 * Method: the codec is q8. A text is prefilled by stock llama.cpp and on our device with the same
 * type of KV; ours is evicted and restored twice. What the host then saves of each, and every token
 * and logit of what both generate from there, has to be equal. bf16 and f32 give memory back while
 * they stay in it, by the exact codec; quantized KV goes to flash as it is. With f16, which q8 does
 * take, the same comparison has to fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"

#define CONTEXT 264 /* a chunk and a bit */
#define CYCLES 2
#define GENERATED 8

static mz_pool *pool;

static mz_pool_status status_of_pool(void)
{
    mz_pool_status status;
    assert_int_equal(mz_status_get(pool, &status), MZ_OK);
    return status;
}

/*
 * An eighth of the KV leaves: some of it by way of the stack if a codec takes it, which frees more
 * memory than it takes there. Then all leaves, and comes back.
 */
static void cycle(bool into_stack)
{
    mz_pool_status before = status_of_pool();
    uint64_t wanted = before.kv_cache.resident_bytes / 8, freed = 0;
    assert_int_equal(mz_evict_tagged(pool, wanted, MZ_TAG_KV_CACHE, &freed), MZ_OK);
    mz_pool_status after = status_of_pool();
    assert_true(freed >= wanted);
    if (into_stack) {
        uint64_t left = before.kv_cache.resident_bytes - after.kv_cache.resident_bytes -
                        after.kv_cache.stored_bytes;
        assert_true(after.kv_cache.compressed_units > 0);
        assert_true(after.kv_cache.compressed_bytes < left);
        print_message("  %.1f %% of it in the stack\n",
                      100.0 * (double)after.kv_cache.compressed_bytes / (double)left);
    } else {
        assert_int_equal(after.kv_cache.compressed_units, 0);
        assert_int_equal(after.stack_bytes, 0);
        assert_true(after.kv_cache.stored_units > 0);
    }
    engine_evict_all(pool);
    assert_int_equal(status_of_pool().kv_cache.lost_units, 0);
    assert_int_equal(mz_prefetch(pool), MZ_OK);
    assert_int_equal(mz_prefetch_wait(pool), MZ_OK);
}

static bool is_quantized(enum ggml_type type)
{
    return type == GGML_TYPE_Q8_0 || type == GGML_TYPE_Q4_0;
}

/* The KV of the text as the host saves it; the caller frees it. What follows goes to `trace`. */
static uint8_t *saved(enum ggml_type type, bool device, size_t *bytes, engine_trace *trace)
{
    static engine_session session;
    static llama_token tokens[CONTEXT];
    const engine_setting how = {.model = ENGINE_SMOL,
                                .device = device,
                                .context_tokens = 512,
                                .step_tokens = 128,
                                .sequences = 1,
                                .flash_attention = true,
                                .kv_type = &type};
    engine_open(&session, &how, pool);
    engine_text(&session, 0, tokens, CONTEXT);
    engine_prefill(&session, 0, tokens, CONTEXT);
    for (int i = 0; device && i < CYCLES; i++) {
        cycle(!is_quantized(type));
    }
    uint8_t *state = engine_save(&session, bytes);
    engine_generate(&session, 1, GENERATED);
    *trace = session.trace;
    engine_close(&session);
    return state;
}

static bool is_as_stock(enum ggml_type type)
{
    static engine_trace right_trace, our_trace;
    size_t right_bytes, our_bytes;
    uint8_t *right = saved(type, false, &right_bytes, &right_trace);
    uint8_t *ours = saved(type, true, &our_bytes, &our_trace);
    assert_int_equal(right_bytes, our_bytes);
    bool same = memcmp(right, ours, right_bytes) == 0;
    if (same) {
        engine_assert_same(&our_trace, &right_trace);
    }
    free(right);
    free(ours);
    return same;
}

static void test_other_types_stay_exact(void **state)
{
    (void)state;
    const enum ggml_type types[] = {GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_BF16, GGML_TYPE_F32};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        print_message("KV of type %s\n", ggml_type_name(types[i]));
        assert_true(is_as_stock(types[i]));
    }
}

static void test_f16_is_encoded(void **state)
{
    (void)state;
    assert_false(is_as_stock(GGML_TYPE_F16));
}

static int load(void **state)
{
    (void)state;
    pool = engine_load_plugin("q8");
    return pool == NULL;
}

int main(void)
{
    if (!engine_has_models()) {
        return ENGINE_SKIP;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_types_stay_exact),
        cmocka_unit_test(test_f16_is_encoded),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}

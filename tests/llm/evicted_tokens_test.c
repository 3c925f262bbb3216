/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever is evicted between two tokens, an exact conversation goes on with the right ones.
 * Method: generate token by token on the mzCache device, evict before each, and compare with stock
 * llama.cpp that never evicts; for each size, with and without flash attention, with a q8_0 KV
 * cache and with weights that were read instead of mapped. What is resident afterwards is checked
 * too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "reference.h"

#define FIRST_ANSWER 6u
#define SECOND_ANSWER 12u
#define ANSWERS (FIRST_ANSWER + SECOND_ANSWER)

/* The share of all elastic memory in percent to evict; 0: a single byte. */
static void evict_share(mz_llm *llm, unsigned percent)
{
    mz_pool_status before, after;
    uint64_t freed = 0;
    assert_int_equal(mz_status_get(mz_llm_pool(llm), &before), MZ_OK);
    uint64_t resident = before.weights.resident_bytes + before.kv_cache.resident_bytes;
    uint64_t bytes = percent == 0 ? 1 : resident * percent / 100;
    mz_status status = mz_evict(mz_llm_pool(llm), bytes, &freed);
    assert_int_equal(status, MZ_OK);
    assert_true(freed >= bytes);
    assert_int_equal(mz_status_get(mz_llm_pool(llm), &after), MZ_OK);
    uint64_t left = after.weights.resident_bytes + after.kv_cache.resident_bytes;
    assert_true(left <= resident - bytes);
    if (percent == 100) {
        assert_int_equal(left, 0);
    }
}

static void generate_one(mz_llm *llm, const int32_t *tokens, size_t count, reference_taken *t)
{
    mz_llm_timing timing;
    assert_int_equal(mz_llm_restore_generate(llm, tokens, count, 1, reference_take, t, &timing),
                     MZ_OK);
    assert_int_equal(timing.output_tokens, 1);
}

static void say(mz_llm *llm, const char *text, bool is_first, size_t answer, unsigned percent,
                reference_taken *t)
{
    int32_t tokens[1024];
    long count = mz_llm_tokenize(llm, text, is_first, tokens, 1024);
    assert_in_range(count, 1, 1024);
    generate_one(llm, tokens, (size_t)count, t);
    for (size_t i = 1; i < answer; i++) {
        evict_share(llm, percent);
        generate_one(llm, NULL, 0, t);
    }
}

static const reference_turn turns[2] = {{NULL, FIRST_ANSWER}, {" Then the lamp", SECOND_ANSWER}};

static mz_llm_options device_options(void)
{
    mz_llm_options options;
    mz_llm_options_default(&options);
    options.model_path = reference_model();
    options.store_dir = reference_store();
    options.context_tokens = REFERENCE_CONTEXT;
    options.batch_tokens = REFERENCE_BATCH;
    options.threads = 2;
    return options;
}

static void check_setting(const mz_llm_options *options)
{
    static const unsigned shares[] = {0, 25, 50, 75, 100};
    reference_turn said[2] = {turns[0], turns[1]};
    said[0].text = reference_long_text();
    int32_t right[ANSWERS];
    reference_run(options, said, 2, right, NULL);

    mz_llm *llm = NULL;
    char message[256] = "";
    mz_status status = mz_llm_open(options, &llm, message, sizeof message);
    if (status != MZ_OK) {
        fail_msg("%s: %s", mz_status_name(status), message);
    }
    assert_non_null(mz_llm_pool(llm));
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        reference_taken t = {{0}, 0, 0};
        mz_llm_reset(llm);
        say(llm, said[0].text, true, FIRST_ANSWER, shares[i], &t);
        evict_share(llm, shares[i]);
        say(llm, said[1].text, false, SECOND_ANSWER, shares[i], &t);
        assert_int_equal(t.count, ANSWERS);
        assert_memory_equal(t.tokens, right, sizeof right);
    }
    mz_llm_close(llm);
}

static void test_flash_attention_on(void **state)
{
    (void)state;
    mz_llm_options options = device_options();
    options.flash_attention = 1;
    check_setting(&options);
}

static void test_flash_attention_off(void **state)
{
    (void)state;
    mz_llm_options options = device_options();
    options.flash_attention = 0;
    check_setting(&options);
}

static void test_quantized_kv(void **state)
{
    (void)state;
    mz_llm_options options = device_options();
    options.flash_attention = 1; /* llama.cpp quantizes V only with it */
    options.kv_type = "q8_0";
    check_setting(&options);
}

static void test_no_mmap(void **state)
{
    (void)state;
    mz_llm_options options = device_options();
    options.flash_attention = 1;
    options.no_mmap = true;
    check_setting(&options);
}

/* Weights only, then KV only, then a prefetch that is waited for. */
static void test_tags_and_prefetch(void **state)
{
    (void)state;
    mz_llm_options options = device_options();
    options.flash_attention = 1;
    reference_turn said[1] = {{reference_long_text(), 4}};
    int32_t right[4];
    reference_run(&options, said, 1, right, NULL);
    mz_llm *llm = NULL;
    assert_int_equal(mz_llm_open(&options, &llm, NULL, 0), MZ_OK);
    mz_pool *pool = mz_llm_pool(llm);
    mz_pool_status status;
    uint64_t freed = 0;
    reference_taken t = {{0}, 0, 0};
    say(llm, said[0].text, true, 1, 0, &t);

    assert_int_equal(mz_status_get(pool, &status), MZ_OK);
    uint64_t weights = status.weights.resident_bytes, kv = status.kv_cache.resident_bytes;
    assert_int_equal(mz_evict_tagged(pool, weights, MZ_TAG_WEIGHTS, &freed), MZ_OK);
    assert_int_equal(mz_status_get(pool, &status), MZ_OK);
    assert_int_equal(status.weights.resident_bytes, 0);
    assert_int_equal(status.kv_cache.resident_bytes, kv);
    generate_one(llm, NULL, 0, &t);

    assert_int_equal(mz_status_get(pool, &status), MZ_OK);
    kv = status.kv_cache.resident_bytes;
    assert_int_equal(mz_evict_tagged(pool, kv, MZ_TAG_KV_CACHE, &freed), MZ_OK);
    assert_int_equal(mz_status_get(pool, &status), MZ_OK);
    assert_int_equal(status.kv_cache.resident_bytes, 0);
    assert_int_equal(status.weights.resident_bytes, weights);
    generate_one(llm, NULL, 0, &t);

    evict_share(llm, 100);
    assert_int_equal(mz_prefetch(pool), MZ_OK);
    assert_int_equal(mz_prefetch_wait(pool), MZ_OK);
    assert_int_equal(mz_status_get(pool, &status), MZ_OK);
    assert_int_equal(status.weights.resident_bytes, weights);
    generate_one(llm, NULL, 0, &t);
    assert_memory_equal(t.tokens, right, sizeof right);
    mz_llm_close(llm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flash_attention_on), cmocka_unit_test(test_flash_attention_off),
        cmocka_unit_test(test_quantized_kv),       cmocka_unit_test(test_no_mmap),
        cmocka_unit_test(test_tags_and_prefetch),
    };
    if (reference_model() == NULL) {
        return REFERENCE_SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * Goal: with a store that can't be written, nothing is lost: what can be dropped is, the rest
 * stays, the reason is told, and the conversation goes on with the right tokens.
 * Method: the store's folder lies below a plain file, which fails for every user, root included.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "reference.h"

static void test_store_cannot_be_written(void **state)
{
    (void)state;
    char plain[512], below[600];
    snprintf(plain, sizeof plain, "%s/plain_file", reference_store());
    snprintf(below, sizeof below, "%s/store", plain);
    FILE *file = fopen(plain, "w");
    assert_non_null(file);
    fclose(file);

    mz_llm_options options;
    mz_llm_options_default(&options);
    options.model_path = reference_model();
    options.context_tokens = REFERENCE_CONTEXT;
    options.batch_tokens = REFERENCE_BATCH;
    options.threads = 2;
    options.store_dir = below;
    reference_turn turn = {reference_long_text(), 8};
    int32_t right[8];
    reference_run(&options, &turn, 1, right, NULL);

    mz_llm *llm = NULL;
    assert_int_equal(mz_llm_open(&options, &llm, NULL, 0), MZ_OK);
    int32_t tokens[1024];
    long count = mz_llm_tokenize(llm, turn.text, true, tokens, 1024);
    reference_taken t = {{0}, 0, 0};
    assert_int_equal(
        mz_llm_restore_generate(llm, tokens, (size_t)count, 4, reference_take, &t, NULL), MZ_OK);

    mz_pool_status before, after;
    uint64_t freed = 0;
    assert_int_equal(mz_status_get(mz_llm_pool(llm), &before), MZ_OK);
    uint64_t all = before.weights.resident_bytes + before.kv_cache.resident_bytes;
    assert_int_equal(mz_evict(mz_llm_pool(llm), all, &freed), MZ_E_PARTIAL);
    assert_int_equal(mz_status_get(mz_llm_pool(llm), &after), MZ_OK);
    assert_int_equal(after.weights.resident_bytes, 0);
    assert_int_equal(after.kv_cache.resident_bytes, before.kv_cache.resident_bytes);
    assert_int_equal(after.kv_cache.lost_units, 0);
    assert_string_not_equal(after.last_error, "");

    assert_int_equal(mz_llm_restore_generate(llm, NULL, 0, 4, reference_take, &t, NULL), MZ_OK);
    assert_memory_equal(t.tokens, right, sizeof right);
    mz_llm_close(llm);
    unlink(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_store_cannot_be_written)};
    if (reference_model() == NULL) {
        return REFERENCE_SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

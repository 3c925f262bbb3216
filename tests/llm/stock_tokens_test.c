/* SPDX-License-Identifier: MIT */
/*
 * Goal: without the device, mz_llm is llama.cpp: same tokens, same logits, truthful counts.
 * Method: compare with a loop over llama.cpp's own calls (reference.c); counts by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

static mz_llm *open_stock(mz_llm_options *options)
{
    mz_llm *llm = NULL;
    char message[256] = "";
    mz_llm_options_default(options);
    options->model_path = reference_model();
    options->context_tokens = REFERENCE_CONTEXT;
    options->batch_tokens = REFERENCE_BATCH;
    options->threads = 2;
    options->stock = true;
    assert_int_equal(mz_llm_open(options, &llm, message, sizeof message), MZ_OK);
    assert_null(mz_llm_pool(llm));
    return llm;
}

static void say(mz_llm *llm, const char *text, bool is_first, size_t answer, reference_taken *t,
                mz_llm_timing *timing)
{
    int32_t tokens[1024];
    long count = mz_llm_tokenize(llm, text, is_first, tokens, 1024);
    assert_in_range(count, 1, 1024);
    size_t before = mz_llm_context_tokens(llm);
    assert_int_equal(
        mz_llm_restore_generate(llm, tokens, (size_t)count, answer, reference_take, t, timing),
        MZ_OK);
    assert_int_equal(timing->input_tokens, count);
    assert_int_equal(mz_llm_context_tokens(llm), before + (size_t)count + timing->output_tokens);
    assert_int_equal(timing->context_tokens, mz_llm_context_tokens(llm));
}

static void test_tokens_and_logits(void **state)
{
    (void)state;
    const reference_turn turns[2] = {{reference_long_text(), 16}, {" Then the lamp", 16}};
    mz_llm_options options;
    mz_llm *llm = open_stock(&options);
    reference_taken t = {{0}, 0, 0};
    mz_llm_timing timing;
    say(llm, turns[0].text, true, turns[0].answer, &t, &timing);
    say(llm, turns[1].text, false, turns[1].answer, &t, &timing);

    size_t vocabulary = 0;
    const float *logits = mz_llm_logits(llm, &vocabulary);
    assert_non_null(logits);
    assert_int_equal(vocabulary, 49152); /* SmolLM2's model card */
    float *right_logits = malloc(vocabulary * sizeof *right_logits);
    int32_t right[32];
    reference_run(&options, turns, 2, right, right_logits);
    assert_int_equal(t.count, 32);
    assert_memory_equal(t.tokens, right, sizeof right);
    assert_int_equal(memcmp(logits, right_logits, vocabulary * sizeof *right_logits), 0);
    free(right_logits);
    mz_llm_close(llm);
}

static void test_reset_forgets(void **state)
{
    (void)state;
    mz_llm_options options;
    mz_llm *llm = open_stock(&options);
    reference_taken first = {{0}, 0, 0}, again = {{0}, 0, 0};
    mz_llm_timing timing;
    say(llm, "The sea was calm and", true, 8, &first, &timing);
    mz_llm_reset(llm);
    assert_int_equal(mz_llm_context_tokens(llm), 0);
    assert_null(mz_llm_logits(llm, NULL));
    say(llm, "The sea was calm and", true, 8, &again, &timing);
    assert_memory_equal(first.tokens, again.tokens, 8 * sizeof(int32_t));
    mz_llm_close(llm);
}

static void test_caller_stops(void **state)
{
    (void)state;
    mz_llm_options options;
    mz_llm *llm = open_stock(&options);
    reference_taken t = {{0}, 0, 3};
    mz_llm_timing timing;
    say(llm, "The sea was calm and", true, 8, &t, &timing);
    assert_int_equal(timing.output_tokens, 3);
    /* Going on without new input continues the same text. */
    reference_taken whole = {{0}, 0, 0};
    t.stop_after = 0;
    assert_int_equal(mz_llm_restore_generate(llm, NULL, 0, 5, reference_take, &t, &timing), MZ_OK);
    mz_llm_reset(llm);
    say(llm, "The sea was calm and", true, 8, &whole, &timing);
    assert_int_equal(t.count, 8);
    assert_memory_equal(t.tokens, whole.tokens, 8 * sizeof(int32_t));
    mz_llm_close(llm);
}

static void test_wrong_input_changes_nothing(void **state)
{
    (void)state;
    mz_llm_options options;
    mz_llm *llm = open_stock(&options);
    int32_t tokens[REFERENCE_CONTEXT + 1] = {0};
    assert_int_equal(mz_llm_restore_generate(llm, NULL, 0, 1, NULL, NULL, NULL), MZ_E_INVALID);
    assert_int_equal(
        mz_llm_restore_generate(llm, tokens, REFERENCE_CONTEXT + 1, 1, NULL, NULL, NULL),
        MZ_E_INVALID);
    tokens[0] = 49152; /* one past the vocabulary */
    assert_int_equal(mz_llm_restore_generate(llm, tokens, 1, 1, NULL, NULL, NULL), MZ_E_INVALID);
    tokens[0] = -1;
    assert_int_equal(mz_llm_restore_generate(llm, tokens, 1, 1, NULL, NULL, NULL), MZ_E_INVALID);
    assert_int_equal(mz_llm_context_tokens(llm), 0);
    mz_llm_close(llm);
}

static void test_context_fills_up(void **state)
{
    (void)state;
    mz_llm_options options;
    mz_llm *llm = open_stock(&options);
    int32_t tokens[REFERENCE_CONTEXT];
    for (size_t i = 0; i < REFERENCE_CONTEXT; i++) {
        tokens[i] = 1000 + (int32_t)(i % 7);
    }
    mz_llm_timing timing;
    reference_taken t = {{0}, 0, 0};
    assert_int_equal(mz_llm_restore_generate(llm, tokens, REFERENCE_CONTEXT - 3, 64, reference_take,
                                             &t, &timing),
                     MZ_OK);
    assert_true(timing.output_tokens <= 3);
    assert_true(mz_llm_context_tokens(llm) <= REFERENCE_CONTEXT);
    assert_int_equal(mz_llm_restore_generate(llm, tokens, 4, 1, NULL, NULL, NULL), MZ_E_INVALID);
    mz_llm_close(llm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_and_logits),
        cmocka_unit_test(test_reset_forgets),
        cmocka_unit_test(test_caller_stops),
        cmocka_unit_test(test_wrong_input_changes_nothing),
        cmocka_unit_test(test_context_fills_up),
    };
    if (reference_model() == NULL) {
        return REFERENCE_SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

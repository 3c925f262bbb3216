/* SPDX-License-Identifier: MIT */
/*
 * Goal: messages are wrapped as the model was trained to read them, first and later ones.
 * Method: SmolLM2 uses ChatML; the expected texts are written by hand from ChatML's description.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "reference.h"

#define END_TOKEN 2 /* <|im_end|> in SmolLM2's vocabulary */

static bool ignore(void *context, int32_t token, const char *text, size_t text_bytes)
{
    int32_t *last = context;
    (void)text;
    if (token == END_TOKEN) {
        assert_int_equal(text_bytes, 0);
    }
    *last = token;
    return true;
}

static void expect(const mz_llm *llm, const char *text, const char *right)
{
    char out[256] = "x";
    assert_int_equal(mz_llm_chat_format(llm, "user", text, NULL, 0), strlen(right));
    assert_int_equal(mz_llm_chat_format(llm, "user", text, out, sizeof out), strlen(right));
    assert_string_equal(out, right);
}

static void generate(mz_llm *llm, const char *text, size_t max_new, int32_t *last)
{
    int32_t tokens[128];
    long count = mz_llm_tokenize(llm, text, false, tokens, 128);
    assert_in_range(count, 1, 128);
    assert_int_equal(
        mz_llm_restore_generate(llm, tokens, (size_t)count, max_new, ignore, last, NULL), MZ_OK);
}

static void test_turns(void **state)
{
    (void)state;
    static const char first[] =
        "<|im_start|>user\nSay only: yes<|im_end|>\n<|im_start|>assistant\n";
    mz_llm_options options;
    mz_llm *llm = NULL;
    mz_llm_options_default(&options);
    options.model_path = reference_model();
    options.context_tokens = 1024;
    options.stock = true;
    assert_int_equal(mz_llm_open(&options, &llm, NULL, 0), MZ_OK);
    expect(llm, "Say only: yes", first);

    /* An answer that was cut off needs its end. */
    int32_t last = 0;
    generate(llm, first, 1, &last);
    assert_int_not_equal(last, END_TOKEN);
    expect(llm, "Why?", "<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n");

    /* One that the model ended itself has it already. */
    mz_llm_reset(llm);
    generate(llm, first, 400, &last);
    assert_int_equal(last, END_TOKEN);
    expect(llm, "Why?", "\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n");
    mz_llm_close(llm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_turns)};
    if (reference_model() == NULL) {
        return REFERENCE_SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

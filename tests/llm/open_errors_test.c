/* SPDX-License-Identifier: MIT */
/*
 * Goal: what can't be opened is refused with the right code and a reason that a person can use.
 * Method: files that are missing, cut off or something else, written by the test.
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

static mz_llm_options stock_options(const char *path)
{
    mz_llm_options options;
    mz_llm_options_default(&options);
    options.model_path = path;
    options.context_tokens = 512;
    options.stock = true;
    return options;
}

static void expect(const mz_llm_options *options, mz_status status, const char *reason)
{
    mz_llm *llm = NULL;
    char message[512] = "";
    assert_int_equal(mz_llm_open(options, &llm, message, sizeof message), status);
    assert_null(llm);
    if (strstr(message, reason) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", message, reason);
    }
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

static void test_missing_model(void **state)
{
    (void)state;
    mz_llm_options options = stock_options("/nowhere/model.gguf");
    expect(&options, MZ_E_NOTFOUND, "/nowhere/model.gguf");
    options.model_path = NULL;
    expect(&options, MZ_E_INVALID, "no model");
}

static void test_cut_off_model(void **state)
{
    (void)state;
    char path[512];
    static char head[4u << 20];
    snprintf(path, sizeof path, "%s/cut_off.gguf", reference_store());
    FILE *whole = fopen(reference_model(), "rb");
    assert_non_null(whole);
    assert_int_equal(fread(head, 1, sizeof head, whole), sizeof head);
    fclose(whole);
    write_file(path, head, sizeof head);
    mz_llm_options options = stock_options(path);
    /* llama.cpp's own words. */
    expect(&options, MZ_E_ENGINE, "not within the file bounds");
    unlink(path);
}

static void test_other_file(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/other.gguf", reference_store());
    write_file(path, "hello, I am a text", 18);
    mz_llm_options options = stock_options(path);
    expect(&options, MZ_E_ENGINE, "magic");
    write_file(path, "", 0);
    expect(&options, MZ_E_ENGINE, path);
    unlink(path);
}

static void test_wrong_options(void **state)
{
    (void)state;
    mz_llm_options options = stock_options(reference_model());
    options.kv_type = "f17";
    expect(&options, MZ_E_INVALID, "f17");
    options = stock_options(reference_model());
    options.stock = false;
    options.plugin_path = "/nowhere/libggml-mzcache.so";
    expect(&options, MZ_E_NOTFOUND, "/nowhere/libggml-mzcache.so");
    mz_llm *llm = NULL;
    assert_int_equal(mz_llm_open(NULL, &llm, NULL, 0), MZ_E_INVALID);
    assert_int_equal(mz_llm_open(&options, NULL, NULL, 0), MZ_E_INVALID);
}

/* A library that is no plug-in at all: refused, and the engine goes on. */
static void test_other_library(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/other.so", reference_store());
    write_file(path, "no library", 10);
    mz_llm_options options = stock_options(reference_model());
    options.stock = false;
    options.plugin_path = path;
    expect(&options, MZ_E_HOST, "other.so");
    unlink(path);
    mz_llm *llm = NULL;
    options = stock_options(reference_model());
    assert_int_equal(mz_llm_open(&options, &llm, NULL, 0), MZ_OK);
    mz_llm_close(llm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_model), cmocka_unit_test(test_cut_off_model),
        cmocka_unit_test(test_other_file),    cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_other_library),
    };
    if (reference_model() == NULL) {
        return REFERENCE_SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * Goal: a codec that needs a gate is used only with models that passed it, and q8 otherwise; the
 * codec can change while chunks of the former one are kept.
 * Method: a pool in miniature whose "model" is its weight file; records are saved as
 * `mzcache eval --gate` does. What the pool uses is what its status says.
 */
#include "pool/fixture.h"
#include "profile/gate.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static toy_model toy;

static const char *codec_in_use(void)
{
    static mz_pool_status status;
    assert_int_equal(mz_status_get(toy.pool, &status), MZ_OK);
    return status.codec;
}

/* The gate's records go where the toy's files do, which toy_close removes. */
static void open_with(const char *codec)
{
    toy_open(&toy, codec, false);
    assert_int_equal(setenv("XDG_CACHE_HOME", toy.directory, 1), 0);
}

static void close_toy(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s/mzcache", toy.directory);
    assert_int_equal(system(command), 0);
    toy_close(&toy);
}

static void measured(double kl)
{
    mz_error error = MZ_ERROR_INIT;
    const mz_gate_record record = {kl, 1024, 128};
    assert_int_equal(mz_gate_save(toy.file, mz_codec_find("q4"), &record, &error), MZ_OK);
}

static void test_without_a_measurement_q8_is_used(void **state)
{
    (void)state;
    open_with("q4");
    assert_string_equal(codec_in_use(), "q4");
    mz_pool_pass_gate(toy.pool, toy.file);
    assert_string_equal(codec_in_use(), "q8");
    close_toy();
}

static void test_what_was_measured_decides(void **state)
{
    (void)state;
    for (int passes = 0; passes < 2; passes++) {
        open_with("q4");
        measured(passes ? 0.002 : 0.2);
        mz_pool_pass_gate(toy.pool, toy.file);
        mz_pool_pass_gate(toy.pool, NULL); /* a file was named: nothing is unknown */
        assert_string_equal(codec_in_use(), passes ? "q4" : "q8");
        mz_pool_pass_gate(toy.pool, "/nonexistent/model.gguf");
        assert_string_equal(codec_in_use(), "q8"); /* it can't be looked up */
        close_toy();
    }
}

static void test_a_model_without_a_file_does_not_pass(void **state)
{
    (void)state;
    open_with("q4");
    measured(0.002);
    mz_pool_pass_gate(toy.pool, NULL);
    assert_string_equal(codec_in_use(), "q8");
    close_toy();
}

static void test_other_codecs_pass(void **state)
{
    (void)state;
    static const char *const codecs[] = {"raw", "q8", "lossless"};
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        open_with(codecs[i]);
        mz_pool_pass_gate(toy.pool, NULL);
        mz_pool_pass_gate(toy.pool, toy.file);
        assert_string_equal(codec_in_use(), codecs[i]);
        close_toy();
    }
}

static void test_the_codec_changes_under_what_is_kept(void **state)
{
    (void)state;
    mz_error error = MZ_ERROR_INIT;
    open_with("lossless");
    toy_write_kv(&toy, 256);
    assert_true(toy_is_right(&toy));
    assert_int_equal(mz_evict_tagged(toy.pool, TOY_CHUNK_BYTES, MZ_TAG_KV_CACHE, NULL), MZ_OK);
    assert_int_equal(mz_pool_set_codec(toy.pool, "frobnicate", &error), MZ_E_INVALID);
    assert_string_equal(codec_in_use(), "lossless");
    assert_int_equal(mz_pool_set_codec(toy.pool, "raw", &error), MZ_OK);
    assert_string_equal(codec_in_use(), "raw");
    (void)mz_evict(toy.pool, UINT64_MAX, NULL);
    assert_true(toy_check(&toy));
    assert_true(toy_is_right(&toy));
    mz_pool_step_begin(toy.pool);
    assert_int_equal(mz_pool_set_codec(toy.pool, "q8", &error), MZ_E_BUSY);
    mz_pool_step_end(toy.pool);
    assert_string_equal(codec_in_use(), "raw");
    close_toy();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_measurement_q8_is_used),
        cmocka_unit_test(test_what_was_measured_decides),
        cmocka_unit_test(test_a_model_without_a_file_does_not_pass),
        cmocka_unit_test(test_other_codecs_pass),
        cmocka_unit_test(test_the_codec_changes_under_what_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * Goal: a codec passes the gate with the model that it was measured with, under any name, and with
 * no other; whatever is wrong with a record, the codec does not pass.
 * Method: files of the test's own as models, records saved and then damaged, cut and forged by hand.
 */
#include "profile/gate.h"

#include <cmocka.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_BYTES 3000001u /* more pages than are looked at, the last one partial */

static char directory[64];
static mz_codec strict = {.name = "strict", .id = 77, .needs_gate = true};

static const char *path_of(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

/* A file of bytes that `seed` decides; `changed`: where one is another, -1: nowhere. */
static void make_model(const char *name, unsigned seed, size_t bytes, long changed)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        fputc((int)(seed >> 24) ^ ((long)i == changed ? 1 : 0), file);
    }
    assert_int_equal(fclose(file), 0);
}

static mz_status save(const char *name, double kl)
{
    mz_error error = MZ_ERROR_INIT;
    const mz_gate_record record = {kl, 1024, 128};
    return mz_gate_save(path_of(name), &strict, &record, &error);
}

static bool passes(const char *name)
{
    mz_error error = MZ_ERROR_INIT;
    bool passed = true;
    assert_int_equal(mz_gate_passed(path_of(name), &strict, &passed, NULL, &error), MZ_OK);
    return passed;
}

static void test_the_model_counts_and_not_its_name(void **state)
{
    (void)state;
    make_model("a", 1, MODEL_BYTES, -1);
    assert_false(passes("a"));
    assert_int_equal(save("a", 0.0099), MZ_OK);
    assert_true(passes("a"));
    make_model("copy", 1, MODEL_BYTES, -1);
    assert_true(passes("copy"));
    make_model("other", 2, MODEL_BYTES, -1);
    assert_false(passes("other"));
    make_model("first", 1, MODEL_BYTES, 0);
    assert_false(passes("first"));
    make_model("last", 1, MODEL_BYTES, MODEL_BYTES - 1);
    assert_false(passes("last"));
    make_model("longer", 1, MODEL_BYTES + 1, -1);
    assert_false(passes("longer"));
    make_model("a", 2, MODEL_BYTES, -1); /* another model in place of it */
    assert_false(passes("a"));
}

static void test_what_was_measured_decides(void **state)
{
    (void)state;
    mz_error error = MZ_ERROR_INIT;
    mz_gate_record record = {0, 0, 0};
    bool passed = true;
    make_model("b", 3, 5000, -1);
    assert_int_equal(save("b", 0.0101), MZ_OK);
    assert_int_equal(mz_gate_passed(path_of("b"), &strict, &passed, &record, &error), MZ_OK);
    assert_false(passed);
    assert_true(record.mean_kl == 0.0101);
    assert_int_equal(record.context_tokens, 1024);
    assert_int_equal(record.scored_tokens, 128);
    assert_int_equal(save("b", 0.001), MZ_OK);
    assert_true(passes("b"));
    strict.id = 78; /* its format changed */
    assert_false(passes("b"));
    strict.id = 77;
    assert_true(passes("b"));
}

static const char *record_file(void)
{
    static char path[256];
    glob_t found;
    assert_int_equal(glob(path_of("mzcache/gate-strict-*.json"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
    globfree(&found);
    return path;
}

static void test_a_damaged_record_lets_nothing_through(void **state)
{
    (void)state;
    char text[512];
    make_model("c", 4, 100, -1);
    assert_int_equal(save("c", 0.001), MZ_OK);
    FILE *file = fopen(record_file(), "rb");
    size_t bytes = fread(text, 1, sizeof text, file);
    fclose(file);
    assert_true(bytes > 50 && bytes < sizeof text);
    for (size_t cut = 0; cut + 2 < bytes; cut++) { /* without the last brace and a line's end */
        file = fopen(record_file(), "wb");
        assert_int_equal(fwrite(text, 1, cut, file), cut);
        fclose(file);
        assert_false(passes("c"));
    }
    file = fopen(record_file(), "wb");
    fputs("{\"codec_id\": 77, \"mean_kl\": \"small\", \"context_tokens\": 1, \"scored_tokens\": 1}",
          file);
    fclose(file);
    assert_false(passes("c"));
}

static void test_failures_are_said(void **state)
{
    (void)state;
    mz_error error = MZ_ERROR_INIT;
    bool passed = true;
    assert_int_equal(mz_gate_passed(path_of("none"), &strict, &passed, NULL, &error),
                     MZ_E_NOTFOUND);
    assert_int_equal(save("none", 0), MZ_E_NOTFOUND);
    make_model("empty", 0, 0, -1);
    assert_int_equal(mz_gate_passed(path_of("empty"), &strict, &passed, NULL, &error),
                     MZ_E_CORRUPT);
    make_model("d", 5, 100, -1);
    char kept[128];
    snprintf(kept, sizeof kept, "%s", getenv("XDG_CACHE_HOME"));
    setenv("XDG_CACHE_HOME", path_of("d"), 1); /* a file: no directory can be made in it */
    assert_int_equal(save("d", 0), MZ_E_IO);
    setenv("XDG_CACHE_HOME", kept, 1);
}

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/mz-gate-test-XXXXXX");
    return mkdtemp(directory) == NULL || setenv("XDG_CACHE_HOME", directory, 1) != 0;
}

/* Every test begins with no record. */
static int remove_records(void **state)
{
    (void)state;
    glob_t found;
    if (glob(path_of("mzcache/*"), 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            unlink(found.gl_pathv[i]);
        }
        globfree(&found);
    }
    return 0;
}

static int remove_directory(void **state)
{
    glob_t found;
    remove_records(state);
    rmdir(path_of("mzcache"));
    if (glob(path_of("*"), 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            unlink(found.gl_pathv[i]);
        }
        globfree(&found);
    }
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_model_counts_and_not_its_name, remove_records),
        cmocka_unit_test_setup(test_what_was_measured_decides, remove_records),
        cmocka_unit_test_setup(test_a_damaged_record_lets_nothing_through, remove_records),
        cmocka_unit_test_setup(test_failures_are_said, remove_records),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

/* SPDX-License-Identifier: MIT */
/*
 * Goal: mzcache-mkmodel writes models of the shapes that it names, which stock llama.cpp runs.
 * Method: small variants of each shape (one or two layers, 256 tokens) are loaded by libllama; what
 * they have, scaled to the full number of layers and tokens, must be the parameters of the
 * published model. Logits must be finite. Same seed, same bytes; a file that can't be written
 * leaves nothing.
 */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "llama.h"

#define VOCABULARY 256

typedef struct published {
    const char *shape;
    uint64_t layers, width, vocabulary;
    uint64_t parameters; /* as its publisher counts them, embeddings once */
} published;

static const published models[] = {
    {"qwen3-0.6b", 28, 1024, 151936, 596049920},
    {"qwen3-1.7b", 28, 2048, 151936, 1720574976},
    {"exaone-4.0-1.2b", 30, 2048, 102400, 1279391488},
    {"llama-3.2-1b", 16, 2048, 128256, 1235814400},
    {"gemma-2-2b", 26, 2304, 256000, 2614341888},
};
#define MODEL_COUNT (sizeof models / sizeof models[0])

static void path_of(const char *name, char *path, size_t capacity)
{
    snprintf(path, capacity, MZ_TEST_STORE "/mkmodel-%s.gguf", name);
}

/* Exit code of the command; `most_bytes` > 0 limits how large a file it may write. */
static int make(const char *shape, const char *path, const char *const *options, long most_bytes)
{
    pid_t child = fork();
    if (child == 0) {
        const char *argv[16] = {MZ_TEST_MKMODEL, shape, path};
        for (int i = 0; options[i] != NULL; i++) {
            argv[3 + i] = options[i];
        }
        if (most_bytes > 0) {
            struct rlimit limit = {(rlim_t)most_bytes, (rlim_t)most_bytes};
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &limit);
        }
        freopen("/dev/null", "w", stdout);
        freopen("/dev/null", "w", stderr);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(126);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void say_nothing(enum ggml_log_level level, const char *text, void *context)
{
    (void)level;
    (void)text;
    (void)context;
}

static struct llama_model *load(const char *path)
{
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    return llama_model_load_from_file(path, params);
}

static void check_logits(struct llama_model *model)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 256;
    struct llama_context *context = llama_init_from_model(model, params);
    assert_non_null(context);
    llama_token tokens[16];
    for (int i = 0; i < 16; i++) {
        tokens[i] = i * 7 % VOCABULARY;
    }
    assert_int_equal(llama_decode(context, llama_batch_get_one(tokens, 16)), 0);
    const float *logits = llama_get_logits_ith(context, -1);
    assert_non_null(logits);
    float lowest = logits[0], highest = logits[0];
    for (int i = 0; i < VOCABULARY; i++) {
        assert_true(isfinite(logits[i]));
        lowest = logits[i] < lowest ? logits[i] : lowest;
        highest = logits[i] > highest ? logits[i] : highest;
    }
    /* They say something, without being drowned. */
    assert_true(highest - lowest > 0.1f && highest - lowest < 1000.0f);
    llama_free(context);
}

static uint64_t make_and_count(const published *m, const char *layers, const char *type)
{
    char path[512];
    path_of(m->shape, path, sizeof path);
    const char *options[] = {"--layers", layers, "--vocab", "256", "--type", type, NULL};
    assert_int_equal(make(m->shape, path, options, 0), 0);
    struct llama_model *model = load(path);
    assert_non_null(model);
    assert_int_equal(llama_vocab_n_tokens(llama_model_get_vocab(model)), VOCABULARY);
    uint64_t parameters = llama_model_n_params(model);
    check_logits(model);
    llama_model_free(model);
    unlink(path);
    return parameters;
}

static void test_shapes_are_the_published_ones(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        const published *m = &models[i];
        uint64_t one = make_and_count(m, "1", "f16");
        uint64_t two = make_and_count(m, "2", "f16");
        uint64_t all =
            one + (m->layers - 1) * (two - one) + (m->vocabulary - VOCABULARY) * m->width;
        assert_int_equal(all, m->parameters);
    }
}

static void test_quantized_types(void **state)
{
    (void)state;
    uint64_t plain = make_and_count(&models[0], "1", "f16");
    assert_int_equal(make_and_count(&models[0], "1", "q8_0"), plain);
    assert_int_equal(make_and_count(&models[0], "1", "q4_0"), plain);
}

static char *read_all(const char *path, long *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *bytes = ftell(file);
    rewind(file);
    char *data = malloc((size_t)*bytes);
    assert_int_equal(fread(data, (size_t)*bytes, 1, file), 1);
    fclose(file);
    return data;
}

static void test_seed_decides_the_bytes(void **state)
{
    (void)state;
    const char *const seeds[] = {"5", "5", "6"};
    char *data[3];
    long bytes[3];
    for (int i = 0; i < 3; i++) {
        char path[512];
        path_of("seed", path, sizeof path);
        const char *options[] = {"--layers", "1", "--vocab", "256", "--seed", seeds[i], NULL};
        assert_int_equal(make("qwen3-0.6b", path, options, 0), 0);
        data[i] = read_all(path, &bytes[i]);
        unlink(path);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(data[0], data[1], (size_t)bytes[0]);
    assert_int_equal(bytes[0], bytes[2]);
    assert_true(memcmp(data[0], data[2], (size_t)bytes[0]) != 0);
    for (int i = 0; i < 3; i++) {
        free(data[i]);
    }
}

static void test_failure_leaves_no_file(void **state)
{
    (void)state;
    char path[512], partial[600];
    path_of("cut", path, sizeof path);
    snprintf(partial, sizeof partial, "%s.partial", path);
    const char *options[] = {"--layers", "1", "--vocab", "256", NULL};
    assert_int_equal(make("qwen3-0.6b", path, options, 1 << 20), 1);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(partial, F_OK), -1);
    assert_int_equal(make("qwen3-0.6b", "/nowhere/model.gguf", options, 0), 1);
}

static void test_wrong_use(void **state)
{
    (void)state;
    char path[512];
    path_of("wrong", path, sizeof path);
    const char *none[] = {NULL};
    const char *bad_type[] = {"--type", "f17", NULL};
    const char *bad_layers[] = {"--layers", "0", NULL};
    assert_int_equal(make("gpt-7", path, none, 0), 2);
    assert_int_equal(make("qwen3-0.6b", path, bad_type, 0), 2);
    assert_int_equal(make("qwen3-0.6b", path, bad_layers, 0), 2);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_are_the_published_ones),
        cmocka_unit_test(test_quantized_types),
        cmocka_unit_test(test_seed_decides_the_bytes),
        cmocka_unit_test(test_failure_leaves_no_file),
        cmocka_unit_test(test_wrong_use),
    };
    llama_log_set(say_nothing, NULL);
    llama_backend_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

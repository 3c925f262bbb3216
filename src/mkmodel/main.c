/* SPDX-License-Identifier: MIT */
/*
 * mzcache-mkmodel: a model file of a real shape with random weights.
 *
 * Speed depends on shapes and types, not on what the weights say; so a benchmark needs no download.
 * Such a model has no tokenizer: it is fed with token ids.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "mkmodel/writer.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_WRONG_USE = 2 };

typedef struct settings {
    const mz_shape *shape;
    enum ggml_type type;
    const char *path;
    uint64_t seed, layers, vocabulary; /* layers, vocabulary 0: the shape's */
    bool wants_help;
} settings;

static void print_help(FILE *out)
{
    fprintf(out,
            "Usage: mzcache-mkmodel SHAPE FILE [OPTIONS]\n\n"
            "Write a GGUF model with the exact shape of a published one and random weights, to\n"
            "measure speed with. It has no tokenizer.\n\n"
            "      --type TYPE   f16 (default), q8_0, q4_0; norms are f32\n"
            "      --seed N      the same seed gives the same bytes (1)\n"
            "      --layers N    fewer layers (the shape's)\n"
            "      --vocab N     fewer tokens (the shape's)\n"
            "  -h, --help\n\n"
            "Shapes:\n");
    for (const mz_shape *s = mz_shapes; s->name != NULL; s++) {
        fprintf(out, "  %-16s %u layers, %u wide, FFN %u, %u heads, %u KV heads of %u, %u tokens\n",
                s->name, s->layers, s->width, s->ffn, s->heads, s->kv_heads, s->head_width,
                s->vocabulary);
    }
    fprintf(out, "\nExit codes: 0 done, 1 failed, 2 wrong use.\n");
}

static bool wrong_use(const char *what, const char *value)
{
    fprintf(stderr, "mzcache-mkmodel: %s \"%s\"; see mzcache-mkmodel --help\n", what, value);
    return false;
}

static bool take_number(const char *text, uint64_t most, uint64_t *number)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value == 0 || value > most) {
        return wrong_use("not a number in range:", text);
    }
    *number = value;
    return true;
}

static bool take_type(const char *text, enum ggml_type *type)
{
    const enum ggml_type known[] = {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(text, ggml_type_name(known[i])) == 0) {
            *type = known[i];
            return true;
        }
    }
    return wrong_use("there is no type", text);
}

static bool parse(int argc, char **argv, settings *s)
{
    static const struct option table[] = {
        {"help", no_argument, NULL, 'h'},        {"type", required_argument, NULL, 't'},
        {"seed", required_argument, NULL, 's'},  {"layers", required_argument, NULL, 'l'},
        {"vocab", required_argument, NULL, 'v'}, {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "h", table, NULL)) != -1) {
        bool is_right = option == 't'   ? take_type(optarg, &s->type)
                        : option == 's' ? take_number(optarg, UINT64_MAX, &s->seed)
                        : option == 'l' ? take_number(optarg, 512, &s->layers)
                        : option == 'v' ? take_number(optarg, 1u << 24, &s->vocabulary)
                                        : option == 'h';
        if (!is_right) {
            return false;
        }
        s->wants_help = s->wants_help || option == 'h';
    }
    if (s->wants_help) {
        return true;
    }
    if (argc - optind != 2) {
        return wrong_use("a SHAPE and a FILE are needed, not", argc > optind ? argv[optind] : "");
    }
    s->shape = mz_shape_find(argv[optind]);
    s->path = argv[optind + 1];
    return s->shape != NULL || wrong_use("there is no shape", argv[optind]);
}

static void show_progress(void *context, uint64_t done, uint64_t all)
{
    unsigned *shown = context;
    unsigned percent = (unsigned)(done * 100 / all);
    if (percent != *shown && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[Kwriting: %u %%%s", percent, percent == 100 ? "\r\033[K" : "");
        *shown = percent;
    }
}

int main(int argc, char **argv)
{
    settings s = {.type = GGML_TYPE_F16, .seed = 1};
    if (!parse(argc, argv, &s)) {
        return EXIT_WRONG_USE;
    }
    if (s.wants_help) {
        print_help(stdout);
        return EXIT_DONE;
    }
    unsigned shown = 0;
    mz_writer_options options = {.shape = *s.shape,
                                 .type = s.type,
                                 .seed = s.seed,
                                 .progress = show_progress,
                                 .context = &shown};
    options.shape.layers = s.layers > 0 ? (uint32_t)s.layers : s.shape->layers;
    options.shape.vocabulary = s.vocabulary > 0 ? (uint32_t)s.vocabulary : s.shape->vocabulary;
    mz_error error = MZ_ERROR_INIT;
    uint64_t bytes = 0;
    if (mz_writer_run(&options, s.path, &bytes, &error) != MZ_OK) {
        fprintf(stderr, "mzcache-mkmodel: %s\n", error.text);
        return EXIT_FAILED;
    }
    char size[32];
    printf("%s: %s, %u layers, %s, %s\n", s.path, s.shape->name, options.shape.layers,
           ggml_type_name(s.type), mz_size_format(bytes, size, sizeof size));
    return EXIT_DONE;
}

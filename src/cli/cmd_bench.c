/* SPDX-License-Identifier: MIT */
/* mzcache bench: the options of src/bench, which measures. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/cli.h"
#include "cli/options.h"

#define COMMAND "bench"
#define DEFAULT_REPEATS 5
#define DEFAULT_SEEDS 3

enum { OPTION_REPEATS = MZ_CLI_OWN, OPTION_SEEDS, OPTION_EVAL };

static void print_help(void)
{
    fputs("Usage: mzcache bench SUITE [-m FILE ...] [OPTIONS]\n\n"
          "Measure this machine. Every run is a process of its own; medians are printed, with the\n"
          "machine and the settings. Use the machine for nothing else meanwhile.\n\n"
          "Suites:\n",
          stdout);
    for (const mz_bench_suite *suite = mz_bench_suites; suite->name != NULL; suite++) {
        printf("  %-9s %s\n", suite->name, suite->summary);
    }
    fputs(
        "\n"
        "      --repeats N          runs of each kind (5)\n"
        "      --seeds N            of the suite order: random orders to average (3)\n"
        "  -c, --ctx TOKENS         tokens in the context (the suite's own); filled with invented\n"
        "                           values where a suite does not measure "
        "prefill\n"
        "  -f, --file FILE          codec, codecs: the text whose KV is encoded (-: standard\n"
        "                           input); codec without -m invents KV\n"
        "      --eval FILE          codecs: lines of mzcache eval --json, for F1\n"
        MZ_CLI_FILE_HELP MZ_CLI_ENGINE_HELP MZ_CLI_COMPARE_HELP
        "      --trace FILE         write what happened when, for a trace viewer: what t.json is\n"
        "                           given for goes to t-MODEL.json, or where rows of a suite have\n"
        "                           runs of their own to t-MODEL-ROW.json, that of the last run\n"
        "\nAll suites but attention, codec and storage need -m; several (at most 8) are measured one\n"
        "after the other. storage reads that file, or one of 512 MiB that it makes in the store\n"
        "directory.\n"
        "Exit codes: 0 done, 1 failed, 2 wrong use.\n",
        stdout);
}

typedef struct settings {
    mz_cli_model model;
    mz_bench_options bench;
    const mz_bench_suite *suite;
    const char *file;
} settings;

static const mz_bench_suite *find_suite(const char *name)
{
    for (const mz_bench_suite *suite = mz_bench_suites; suite->name != NULL; suite++) {
        if (strcmp(suite->name, name) == 0) {
            return suite;
        }
    }
    return NULL;
}

static bool take(int option, settings *s)
{
    long number = 0;
    if (option == OPTION_REPEATS) {
        if (!mz_cli_parse_number(COMMAND, "--repeats", optarg, 1, &number)) {
            return false;
        }
        s->bench.repeats = number < MZ_BENCH_REPEATS ? (uint32_t)number : MZ_BENCH_REPEATS;
        return true;
    }
    if (option == OPTION_SEEDS) {
        bool is_right = mz_cli_parse_number(COMMAND, "--seeds", optarg, 1, &number);
        s->bench.seeds = (uint32_t)number;
        return is_right;
    }
    if (option == 'f') {
        s->file = optarg;
        return true;
    }
    if (option == OPTION_EVAL) {
        s->bench.eval = optarg;
        return true;
    }
    if (option == 'm') {
        if (s->bench.model_count == MZ_BENCH_MODELS) {
            mz_cli_wrong_use(COMMAND, "more than %d models", MZ_BENCH_MODELS);
            return false;
        }
        s->bench.models[s->bench.model_count++] = optarg;
        return true;
    }
    return mz_cli_take_model_option(COMMAND, option, optarg, &s->model);
}

static int parse(int argc, char **argv, settings *s)
{
    static const struct option table[] = {MZ_CLI_MODEL_LONG,
                                          {"file", required_argument, NULL, 'f'},
                                          {"eval", required_argument, NULL, OPTION_EVAL},
                                          {"repeats", required_argument, NULL, OPTION_REPEATS},
                                          {"seeds", required_argument, NULL, OPTION_SEEDS},
                                          {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, MZ_CLI_MODEL_SHORT "f:", table, NULL)) != -1) {
        if (!take(option, s)) {
            return MZ_CLI_USAGE;
        }
    }
    if (s->model.wants_help) {
        return MZ_CLI_OK;
    }
    if (argc - optind != 1 || (s->suite = find_suite(argv[optind])) == NULL) {
        return mz_cli_wrong_use(COMMAND, "one suite is needed, not \"%s\"",
                                optind < argc ? argv[argc - 1] : "");
    }
    if (s->bench.model_count == 0 && s->suite->needs_model) {
        return mz_cli_wrong_use(COMMAND, "no model given (-m)");
    }
    if (s->model.llm.stock) {
        return mz_cli_wrong_use(COMMAND, "--stock is measured where it is compared with");
    }
    return MZ_CLI_OK;
}

int mz_cli_bench(int argc, char **argv)
{
    settings s;
    memset(&s, 0, sizeof s);
    mz_cli_model_default(&s.model);
    s.bench.repeats = DEFAULT_REPEATS;
    s.bench.seeds = DEFAULT_SEEDS;
    int code = parse(argc, argv, &s);
    if (code != MZ_CLI_OK || s.model.wants_help) {
        if (code == MZ_CLI_OK) {
            print_help();
        }
        return code;
    }
    s.bench.tokens = s.model.llm.context_tokens;
    s.bench.llm = s.model.llm;
    s.bench.json = s.model.json;
    char *text = s.file != NULL ? mz_cli_read_text(COMMAND, s.file) : NULL;
    if (s.file != NULL && text == NULL) {
        return MZ_CLI_FAILED;
    }
    s.bench.text = text;
    bool is_done = mz_bench_run(s.suite, &s.bench);
    free(text);
    return is_done ? MZ_CLI_OK : MZ_CLI_FAILED;
}

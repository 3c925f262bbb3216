/* SPDX-License-Identifier: MIT */
/*
 * Benchmarks: figures with the machine, the settings and, where there is one, the physical bound.
 *
 * Each run is a process of its own, so that one leaves nothing behind for the next: no warm heap,
 * no page cache, no second model. What is compared alternates, and medians are printed. Nothing
 * passes or fails on a time. docs/bench.md explains every suite.
 */
#ifndef MZ_BENCH_BENCH_H
#define MZ_BENCH_BENCH_H

#include "mzcache/llm.h"

#define MZ_BENCH_MODELS 8

typedef struct mz_bench_options {
    mz_llm_options llm; /* model_path is not used, context_tokens is room, trace: see scenario.h */
    const char *models[MZ_BENCH_MODELS]; /* GGUF files */
    size_t model_count;
    uint32_t tokens;  /* in the context before anything is evicted; 0: the suite's own */
    uint32_t repeats; /* of each run, 1..MZ_BENCH_REPEATS */
    uint32_t seeds;   /* random orders that the suite order averages, at least 1 */
    const char *text; /* whose KV codecs are measured with; NULL: invented KV */
    const char *eval; /* what `mzcache eval --json` printed, for its column; NULL: none */
    bool json;
} mz_bench_options;

#define MZ_BENCH_REPEATS 64

typedef struct mz_bench_suite {
    const char *name;
    const char *summary;
    bool needs_model; /* else a model is used if there is one */
    /* Runs it, printing as it goes; false, having said why on stderr, if a run failed. */
    bool (*run)(const mz_bench_options *options);
} mz_bench_suite;

/* NULL-named entry at the end. */
extern const mz_bench_suite mz_bench_suites[];

/* One suite, after a line about the machine and the settings. */
bool mz_bench_run(const mz_bench_suite *suite, const mz_bench_options *options);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A user comes back: a long context, a share of everything evicted, eight new tokens.
 */
#ifndef MZ_BENCH_SCENARIO_H
#define MZ_BENCH_SCENARIO_H

#include "bench/bench.h"

#define MZ_SCENARIO_SHARES 8
#define MZ_SCENARIO_QUESTION 8 /* tokens that the user adds */

typedef struct mz_scenario {
    const mz_bench_options *options;
    const char *model;
    const char *row;   /* names its trace; NULL: all rows are one run */
    const char *codec; /* NULL: the options', and so the next three */
    const char *order, *overlap, *paths;
    unsigned percents[MZ_SCENARIO_SHARES]; /* shares to evict, one after the other */
    size_t percent_count;
    uint32_t tokens, repeats;
} mz_scenario;

/* Medians over the repeats for one share. */
typedef struct mz_scenario_point {
    double ttft_ms;    /* from the call to the first token */
    double stall_ms;   /* of that, waited at the gate */
    double restore_ms; /* from the first unit asked for to the last one in place */
    double evict_ms;
    double freed_bytes;
    double read_bytes;    /* by the restore, from flash */
    double decoded_bytes; /* by the restore, output */
} mz_scenario_point;

typedef struct mz_scenario_result {
    mz_scenario_point points[MZ_SCENARIO_SHARES];
    double resident_ms;        /* TTFT with nothing evicted, median */
    double read_bytes_per_s;   /* sequential direct reads, of medians the best */
    double decode_bytes_per_s; /* best decoding of the codec on all threads; 0 for raw */
    uint64_t resident_bytes;   /* weights and KV with everything in place */
} mz_scenario_result;

/* Everything in one process of its own. False, having said why. */
bool mz_scenario_run(const mz_scenario *scenario, mz_scenario_result *result);

/* In a process that measures: no socket, and no profiling in the background. */
void mz_scenario_calm(void);

/*
 * In a process that measures: have it leave a trace at its exit, if options->llm.trace wants one,
 * in the file of that name with the names of the model and of the row (may be NULL) before its
 * extension.
 */
void mz_scenario_trace(const mz_bench_options *options, const char *model, const char *row);

/* Options to open a model with, and room for `tokens`. */
mz_llm_options mz_scenario_options(const mz_bench_options *options, const char *model,
                                   uint32_t tokens);

/* Forget the file's pages in the page cache, so that nothing is read from there. */
void mz_scenario_drop_cache(const char *path);

/* Append MZ_SCENARIO_QUESTION tokens, generate one. */
mz_status mz_scenario_ask(mz_llm *llm, mz_llm_timing *timing);

/* Append `count` tokens, computed, and generate one. */
mz_status mz_scenario_prefill(mz_llm *llm, uint32_t count, mz_llm_timing *timing);

#endif

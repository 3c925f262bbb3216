/* SPDX-License-Identifier: MIT */
/*
 * Suites about the time to the first token after an eviction: ttft, bound, and the ablations.
 *
 * bound_ms is what no restore can beat on this machine: all bytes must be read at the best rate
 * that direct reads reach, all encoded bytes decoded, and the prefill computed; done side by side,
 * the slowest of the three is left. It is a bound of ideal machines: the three share cores and
 * memory.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "bench/child.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/suites.h"

#define DEFAULT_TOKENS 2048u

static mz_scenario scenario_of(const mz_bench_options *options, const char *model)
{
    return (mz_scenario){
        .options = options,
        .model = model,
        .percents = {25, 50, 75, 100},
        .percent_count = 4,
        .tokens = options->tokens > 0 ? options->tokens : DEFAULT_TOKENS,
        .repeats = options->repeats,
    };
}

/* --- ttft --- */

/* Start as after the end of a process: nothing cached, the conversation computed again. */
static bool start_cold(const void *input, void *result, char *message, size_t message_bytes)
{
    const mz_scenario *scenario = input;
    mz_llm_options options =
        mz_scenario_options(scenario->options, scenario->model, scenario->tokens + 64);
    options.stock = true;
    mz_scenario_drop_cache(scenario->model);
    uint64_t begun_ns = mz_now_ns();
    mz_llm *llm = NULL;
    if (mz_llm_open(&options, &llm, message, message_bytes) != MZ_OK) {
        return false;
    }
    mz_llm_timing timing;
    mz_status status = mz_scenario_prefill(llm, scenario->tokens + MZ_SCENARIO_QUESTION, &timing);
    *(double *)result = (double)(mz_now_ns() - begun_ns) / 1e6;
    mz_llm_close(llm);
    if (status != MZ_OK) {
        snprintf(message, message_bytes, "a cold start failed: %s", mz_status_text(status));
    }
    return status == MZ_OK;
}

static const mz_report_column ttft_columns[] = {
    {"model", "model"},       {"context_tokens", "context"},  {"evicted_percent", "evicted %"},
    {"ttft_ms", "TTFT ms"},   {"resident_ms", "resident ms"}, {"cold_ms", "cold ms"},
    {"evict_ms", "evict ms"}, {"freed_mib", "freed MiB"},     {NULL, NULL}};

static bool ttft_of_model(const mz_bench_options *options, const char *model)
{
    mz_scenario scenario = scenario_of(options, model);
    mz_scenario_result result;
    double cold_ms = 0;
    if (!mz_scenario_run(&scenario, &result) ||
        !mz_bench_child(start_cold, &scenario, &cold_ms, sizeof cold_ms)) {
        return false;
    }
    for (size_t i = 0; i < scenario.percent_count; i++) {
        const mz_scenario_point *p = &result.points[i];
        mz_report_line(options, ttft_columns,
                       json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "suite", "ttft",
                                 "model", mz_report_name(model), "context_tokens",
                                 (json_int_t)scenario.tokens, "evicted_percent",
                                 (json_int_t)scenario.percents[i], "ttft_ms", p->ttft_ms,
                                 "resident_ms", result.resident_ms, "cold_ms", cold_ms, "evict_ms",
                                 p->evict_ms, "freed_mib", p->freed_bytes / (1 << 20)));
    }
    return true;
}

bool mz_bench_ttft(const mz_bench_options *options)
{
    bool is_done = true;
    mz_report_titles(options, ttft_columns);
    for (size_t i = 0; i < options->model_count && is_done; i++) {
        is_done = ttft_of_model(options, options->models[i]);
    }
    return is_done;
}

/* --- bound --- */

static const mz_report_column bound_columns[] = {
    {"model", "model"},       {"context_tokens", "context"}, {"evicted_percent", "evicted %"},
    {"ttft_ms", "TTFT ms"},   {"bound_ms", "bound ms"},      {"ratio", "ratio"},
    {"bound_by", "bound by"}, {"stall_ms", "stall ms"},      {"restore_ms", "restore ms"},
    {"read_mib", "read MiB"}, {"read_gbps", "best GB/s"},    {NULL, NULL}};

typedef struct bound {
    double ms;
    const char *by;
} bound;

static bound bound_of(const mz_scenario_result *result, const mz_scenario_point *point)
{
    bound b = {result->resident_ms, "prefill"};
    double read_ms = point->read_bytes * 1e3 / result->read_bytes_per_s;
    double decode_ms = result->decode_bytes_per_s > 0
                           ? point->decoded_bytes * 1e3 / result->decode_bytes_per_s
                           : 0;
    b = read_ms > b.ms ? (bound){read_ms, "flash"} : b;
    return decode_ms > b.ms ? (bound){decode_ms, "decode"} : b;
}

static bool bound_of_model(const mz_bench_options *options, const char *model)
{
    mz_scenario scenario = scenario_of(options, model);
    mz_scenario_result result;
    if (!mz_scenario_run(&scenario, &result)) {
        return false;
    }
    for (size_t i = 0; i < scenario.percent_count; i++) {
        const mz_scenario_point *p = &result.points[i];
        bound b = bound_of(&result, p);
        mz_report_line(
            options, bound_columns,
            json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
                      "suite", "bound", "model", mz_report_name(model), "context_tokens",
                      (json_int_t)scenario.tokens, "evicted_percent",
                      (json_int_t)scenario.percents[i], "ttft_ms", p->ttft_ms, "bound_ms", b.ms,
                      "ratio", p->ttft_ms / b.ms, "bound_by", b.by, "resident_ms",
                      result.resident_ms, "stall_ms", p->stall_ms, "restore_ms", p->restore_ms,
                      "read_mib", p->read_bytes / (1 << 20), "read_gbps",
                      result.read_bytes_per_s / 1e9, "decoded_mib", p->decoded_bytes / (1 << 20),
                      "decode_gbps", result.decode_bytes_per_s / 1e9));
    }
    return true;
}

bool mz_bench_bound(const mz_bench_options *options)
{
    bool is_done = true;
    mz_report_titles(options, bound_columns);
    for (size_t i = 0; i < options->model_count && is_done; i++) {
        is_done = bound_of_model(options, options->models[i]);
    }
    return is_done;
}

/* --- ablations --- */

/* One way to restore; see mz_scenario for what NULL means. */
typedef struct variant {
    const char *name;
    const char *codec, *order, *overlap, *paths;
    bool seeded; /* the order wants a seed: average several */
} variant;

static const mz_report_column ablation_columns[] = {{"variant", "variant"},
                                                    {"context_tokens", "context"},
                                                    {"evicted_percent", "evicted %"},
                                                    {"ttft_ms", "TTFT ms"},
                                                    {"resident_ms", "resident ms"},
                                                    {"stall_ms", "stall ms"},
                                                    {"restore_ms", "restore ms"},
                                                    {"read_mib", "read MiB"},
                                                    {"decoded_mib", "decoded MiB"},
                                                    {"model", "model"},
                                                    {NULL, NULL}};

/* Add a result, divided by `count`, to a mean. */
static void add_to_mean(mz_scenario_result *mean, const mz_scenario_result *one, uint32_t count)
{
    const double *from = &one->points[0].ttft_ms;
    double *to = &mean->points[0].ttft_ms;
    for (size_t i = 0; i < sizeof one->points / (sizeof(double)); i++) {
        to[i] += from[i] / count;
    }
    mean->resident_ms += one->resident_ms / count;
}

/* The mean of the variant's runs, one for each seed. */
static bool run_variant(const mz_bench_options *options, const char *model, const variant *v,
                        mz_scenario_result *mean)
{
    mz_scenario scenario = scenario_of(options, model);
    mz_scenario_result result;
    char order[32];
    uint32_t runs = v->seeded ? options->seeds : 1;
    memset(mean, 0, sizeof *mean);
    scenario.row = v->name;
    scenario.codec = v->codec;
    scenario.order = v->seeded ? order : v->order;
    scenario.overlap = v->overlap;
    scenario.paths = v->paths;
    for (uint32_t seed = 1; seed <= runs; seed++) {
        snprintf(order, sizeof order, "random-out:%u", seed);
        if (!mz_scenario_run(&scenario, &result)) {
            return false;
        }
        add_to_mean(mean, &result, runs);
    }
    return true;
}

static bool variant_of_model(const mz_bench_options *options, const char *suite, const char *model,
                             const variant *v)
{
    mz_scenario scenario = scenario_of(options, model);
    mz_scenario_result result;
    if (!run_variant(options, model, v, &result)) {
        return false;
    }
    for (size_t i = 0; i < scenario.percent_count; i++) {
        const mz_scenario_point *p = &result.points[i];
        mz_report_line(options, ablation_columns,
                       json_pack("{s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "suite",
                                 suite, "variant", v->name, "model", mz_report_name(model),
                                 "context_tokens", (json_int_t)scenario.tokens, "evicted_percent",
                                 (json_int_t)scenario.percents[i], "ttft_ms", p->ttft_ms,
                                 "resident_ms", result.resident_ms, "stall_ms", p->stall_ms,
                                 "restore_ms", p->restore_ms, "read_mib", p->read_bytes / (1 << 20),
                                 "decoded_mib", p->decoded_bytes / (1 << 20)));
    }
    return true;
}

static bool ablation(const mz_bench_options *options, const char *suite, const variant *variants,
                     size_t count)
{
    bool is_done = true;
    mz_report_titles(options, ablation_columns);
    for (size_t i = 0; i < options->model_count && is_done; i++) {
        for (size_t k = 0; k < count && is_done; k++) {
            is_done = variant_of_model(options, suite, options->models[i], &variants[k]);
        }
    }
    return is_done;
}

bool mz_bench_overlap(const mz_bench_options *options)
{
    static const variant variants[] = {
        {.name = "none", .overlap = "none"},
        {.name = "alloc-reload", .overlap = "alloc-reload"},
        {.name = "reload-prefill", .overlap = "reload-prefill"},
        {.name = "all", .overlap = "all"},
    };
    return ablation(options, "overlap", variants, 4);
}

bool mz_bench_order(const mz_bench_options *options)
{
    static const variant variants[] = {
        {.name = "forward-out", .order = "forward-out"},
        {.name = "random-out", .seeded = true},
        {.name = "backward-out", .order = "backward-out"},
    };
    return ablation(options, "order", variants, 3);
}

bool mz_bench_hybrid(const mz_bench_options *options)
{
    static const variant variants[] = {
        {.name = "flash only", .codec = "raw", .paths = "parallel"},
        {.name = "q8 one path after the other", .codec = "q8", .paths = "sequential"},
        {.name = "q8 both paths at once", .codec = "q8", .paths = "parallel"},
    };
    return ablation(options, "hybrid", variants, 3);
}

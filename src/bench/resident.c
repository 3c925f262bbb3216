/* SPDX-License-Identifier: MIT */
/*
 * Suite resident: what the plug-in costs while nothing is evicted.
 *
 * The bare engine and the plug-in take turns, each run in a process of its own, and which one
 * begins changes from turn to turn.
 */
#include <stdio.h>

#include "bench/child.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/suites.h"

#define DEFAULT_TOKENS 256u
#define DECODED 32u

typedef struct speed_input {
    const mz_bench_options *options;
    const char *model;
    uint32_t tokens;
    bool stock;
} speed_input;

typedef struct speed {
    double prefill, decode; /* tokens per second */
} speed;

static bool measure(const void *input, void *result, char *message, size_t message_bytes)
{
    const speed_input *in = input;
    speed *s = result;
    mz_llm *llm = NULL;
    mz_llm_options options = mz_scenario_options(in->options, in->model, in->tokens + DECODED + 64);
    options.stock = in->stock;
    mz_scenario_calm();
    mz_scenario_trace(in->options, in->model, NULL);
    options.batch_tokens = in->tokens;
    if (mz_llm_open(&options, &llm, message, message_bytes) != MZ_OK) {
        return false;
    }
    mz_llm_timing timing = {0};
    mz_status status = mz_scenario_prefill(llm, in->tokens, &timing); /* reads the weights */
    mz_llm_reset(llm);
    status = status == MZ_OK ? mz_scenario_prefill(llm, in->tokens, &timing) : status;
    s->prefill = in->tokens * 1e9 / (double)(timing.ttft_ns + 1);
    uint64_t ns = 0;
    uint32_t tokens = 0;
    while (status == MZ_OK && tokens < DECODED) {
        /* One call would do if random text never ended. */
        status = mz_llm_restore_generate(llm, NULL, 0, DECODED - tokens, NULL, NULL, &timing);
        ns += timing.total_ns;
        tokens += timing.output_tokens;
    }
    s->decode = tokens * 1e9 / (double)(ns + 1);
    if (status != MZ_OK) {
        snprintf(message, message_bytes, "%s: %s", in->model, mz_status_text(status));
    }
    mz_llm_close(llm);
    return status == MZ_OK;
}

static const mz_report_column columns[] = {{"model", "model"},
                                           {"stock_prefill_tps", "stock pp/s"},
                                           {"prefill_tps", "mzc pp/s"},
                                           {"prefill_ratio", "ratio"},
                                           {"stock_decode_tps", "stock tg/s"},
                                           {"decode_tps", "mzc tg/s"},
                                           {"decode_ratio", "ratio"},
                                           {NULL, NULL}};

static bool compare(const mz_bench_options *options, const char *model)
{
    double prefill[2][MZ_BENCH_REPEATS], decode[2][MZ_BENCH_REPEATS];
    speed_input in = {options, model, options->tokens > 0 ? options->tokens : DEFAULT_TOKENS,
                      false};
    for (uint32_t i = 0; i < options->repeats; i++) {
        for (uint32_t turn = 0; turn < 2; turn++) {
            uint32_t system = (i + turn) % 2;
            speed s = {0};
            in.stock = system == 0;
            if (!mz_bench_child(measure, &in, &s, sizeof s)) {
                return false;
            }
            prefill[system][i] = s.prefill;
            decode[system][i] = s.decode;
        }
    }
    double pp[2], tg[2];
    for (int system = 0; system < 2; system++) {
        pp[system] = mz_report_median(prefill[system], options->repeats);
        tg[system] = mz_report_median(decode[system], options->repeats);
    }
    mz_report_line(options, columns,
                   json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "suite",
                             "resident", "model", mz_report_name(model), "prefill_tokens",
                             (json_int_t)in.tokens, "decode_tokens", (json_int_t)DECODED,
                             "stock_prefill_tps", pp[0], "prefill_tps", pp[1], "prefill_ratio",
                             pp[1] / pp[0], "stock_decode_tps", tg[0], "decode_tps", tg[1],
                             "decode_ratio", tg[1] / tg[0]));
    return true;
}

bool mz_bench_resident(const mz_bench_options *options)
{
    bool is_done = true;
    mz_report_titles(options, columns);
    for (size_t i = 0; i < options->model_count && is_done; i++) {
        is_done = compare(options, options->models[i]);
    }
    return is_done;
}

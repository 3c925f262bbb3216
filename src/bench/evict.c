/* SPDX-License-Identifier: MIT */
/*
 * Suite evict: how fast memory is given back.
 *
 * Dropping clean weights; KV to flash as it is (raw); KV by the codec q8, which goes to the stack
 * and, where the policy wants it, to flash. KV is filled anew before each eviction: what was
 * restored and not written since is clean, and would be dropped without any work. The encoder alone
 * is measured on one core beside it.
 */
#include <stdio.h>

#include "bench/child.h"
#include "bench/rate.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/suites.h"
#include "llm/fill.h"

#define DEFAULT_TOKENS 4096u

typedef struct evict_input {
    const mz_bench_options *options;
    const char *model, *what, *codec;
    unsigned tags;
    uint32_t tokens;
} evict_input;

typedef struct evict_result {
    double ms[MZ_BENCH_REPEATS];
    uint64_t freed_bytes, moved_bytes, written_bytes; /* of the last one */
} evict_result;

static bool evict_once(const evict_input *in, mz_llm *llm, evict_result *r, uint32_t repeat)
{
    mz_pool *pool = mz_llm_pool(llm);
    mz_pool_status before, after;
    mz_llm_timing timing;
    uint64_t freed = 0;
    mz_llm_reset(llm);
    if (mz_llm_fill(llm, in->tokens) != MZ_OK || mz_scenario_ask(llm, &timing) != MZ_OK) {
        return false;
    }
    mz_status_get(pool, &before);
    const mz_tag_status *tag = in->tags == MZ_TAG_WEIGHTS ? &before.weights : &before.kv_cache;
    uint64_t moved = tag->resident_bytes;
    mz_status status = mz_evict_tagged(pool, moved, in->tags, &freed);
    mz_status_get(pool, &after);
    r->ms[repeat] = (double)after.last_evict_ns / 1e6;
    r->freed_bytes = freed;
    r->moved_bytes = moved;
    r->written_bytes = after.written_bytes - before.written_bytes;
    return status == MZ_OK || status == MZ_E_PARTIAL;
}

static bool measure(const void *input, void *result, char *message, size_t message_bytes)
{
    const evict_input *in = input;
    mz_llm *llm = NULL;
    mz_llm_options options = mz_scenario_options(in->options, in->model, in->tokens + 64);
    options.codec = in->codec;
    mz_scenario_calm();
    mz_scenario_trace(in->options, in->model, in->what);
    if (mz_llm_open(&options, &llm, message, message_bytes) != MZ_OK) {
        return false;
    }
    bool is_done = true;
    for (uint32_t i = 0; i < in->options->repeats && is_done; i++) {
        is_done = evict_once(in, llm, result, i);
    }
    if (!is_done) {
        mz_pool_status status;
        mz_status_get(mz_llm_pool(llm), &status);
        snprintf(message, message_bytes, "%s: %s", in->model, status.last_error);
    }
    mz_llm_close(llm);
    return is_done;
}

static const mz_report_column columns[] = {{"what", "what"},
                                           {"context_tokens", "context"},
                                           {"mib", "MiB"},
                                           {"freed_mib", "freed MiB"},
                                           {"written_mib", "written MiB"},
                                           {"ms", "ms"},
                                           {"gbps", "GB/s"},
                                           {NULL, NULL}};

static bool evict_of(const mz_bench_options *options, const char *model, const char *what,
                     const char *codec, unsigned tags)
{
    evict_input in = {options, model, what,
                      codec,   tags,  options->tokens > 0 ? options->tokens : DEFAULT_TOKENS};
    static evict_result r;
    if (!mz_bench_child(measure, &in, &r, sizeof r)) {
        return false;
    }
    double ms = mz_report_median(r.ms, options->repeats);
    mz_report_line(options, columns,
                   json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "suite", "evict",
                             "model", mz_report_name(model), "what", what, "context_tokens",
                             (json_int_t)in.tokens, "mib", (double)r.moved_bytes / (1 << 20),
                             "freed_mib", (double)r.freed_bytes / (1 << 20), "written_mib",
                             (double)r.written_bytes / (1 << 20), "ms", ms, "gbps",
                             (double)r.moved_bytes / ms / 1e6));
    return true;
}

typedef struct encoder_rates {
    double encode, decode; /* bytes of f16 per second */
} encoder_rates;

static bool measure_encoder(const void *input, void *result, char *message, size_t message_bytes)
{
    encoder_rates *rates = result;
    mz_error error = MZ_ERROR_INIT;
    mz_status status = mz_rate_codec(input, 1, &rates->encode, &rates->decode, &error);
    snprintf(message, message_bytes, "%s", error.text);
    return status == MZ_OK;
}

static bool encoder(const mz_bench_options *options)
{
    encoder_rates rates = {0};
    if (!mz_bench_child(measure_encoder, "q8", &rates, sizeof rates)) {
        return false;
    }
    mz_report_line(options, columns,
                   json_pack("{s:s, s:s, s:f, s:f}", "suite", "evict", "what",
                             "q8 encoder, one core", "gbps", rates.encode / 1e9, "decode_gbps",
                             rates.decode / 1e9));
    return true;
}

bool mz_bench_evict(const mz_bench_options *options)
{
    bool is_done = true;
    mz_report_titles(options, columns);
    for (size_t i = 0; i < options->model_count && is_done; i++) {
        const char *model = options->models[i];
        is_done =
            evict_of(options, model, "clean weights dropped", "raw", MZ_TAG_WEIGHTS) &&
            evict_of(options, model, "KV by raw, to flash", "raw", MZ_TAG_KV_CACHE) &&
            evict_of(options, model, "KV by q8, in memory and to flash", "q8", MZ_TAG_KV_CACHE);
    }
    return is_done && encoder(options);
}

/* SPDX-License-Identifier: MIT */
/*
 * Suite codec: every codec by every variant of the kernels, on one thread and on all, against
 * memcpy of the same bytes. lz4 and zstd are codecs among the others.
 *
 * Codecs are taken from their list, so those from outside are there by themselves. What does not
 * use the kernels shows the same figures for all variants.
 */
#include <stdio.h>
#include <string.h>

#include "bench/child.h"
#include "bench/report.h"
#include "bench/suites.h"
#include "bench/timing.h"
#include "os/process.h"

/* Of K and V of a layer: 64 MB of f16, more than the caches of the processors seen. */
#define INVENTED_TOKENS 16384u
#define COMPUTED_TOKENS 2048u

static const mz_report_column columns[] = {
    {"codec", "codec"}, {"variant", "variant"},          {"threads", "threads"},
    {"op", "op"},       {"gbps", "GB/s"},                {"memcpy_gbps", "memcpy GB/s"},
    {"share", "share"}, {"saved_percent", "saved %"},    {"kv", "KV"},
    {NULL, NULL}};

typedef struct codec_input {
    const mz_bench_options *options;
    const char *model; /* NULL: KV is invented */
} codec_input;

static void report_op(const codec_input *in, const mz_codec *codec, const char *variant,
                      uint32_t threads, const char *op, double rate, double copy, double kept)
{
    mz_report_line(in->options, columns,
                   json_pack("{s:s, s:s, s:s, s:I, s:s, s:f, s:f, s:f, s:f, s:s}", "suite", "codec",
                             "codec", codec->name, "variant", variant, "threads",
                             (json_int_t)threads, "op", op, "gbps", rate / 1e9, "memcpy_gbps",
                             copy / 1e9, "share", rate / copy, "saved_percent", 100 * (1 - kept),
                             "kv", in->model != NULL ? mz_report_name(in->model) : "invented"));
}

static mz_status report_codec(const codec_input *in, mz_timing_room *room, const mz_codec *codec,
                              mz_error *error)
{
    const uint32_t cores = (uint32_t)mz_machine_cores();
    mz_status status = MZ_OK;
    for (size_t k = 0; mz_kernels_at(k) != NULL && status == MZ_OK; k++) {
        const mz_kernels *kernels = mz_kernels_at(k);
        for (uint32_t threads = 1; threads <= cores && status == MZ_OK;
             threads = threads < cores ? cores : cores + 1) {
            mz_codec_timing t;
            status = mz_timing_codec(room, codec, kernels, threads, in->options->repeats, &t, error);
            if (status == MZ_OK) {
                report_op(in, codec, kernels->name, threads, "encode", t.encode, t.encode_memcpy,
                          t.kept);
                report_op(in, codec, kernels->name, threads, "decode", t.decode, t.decode_memcpy,
                          t.kept);
            }
        }
    }
    return status;
}

static bool measure(const void *input, void *unused, char *message, size_t message_bytes)
{
    const codec_input *in = input;
    const mz_bench_options *options = in->options;
    mz_error error = MZ_ERROR_INIT;
    mz_kv_sample sample;
    mz_timing_room *room = NULL;
    (void)unused;
    uint32_t usual = in->model != NULL ? COMPUTED_TOKENS : INVENTED_TOKENS;
    uint32_t tokens = options->tokens > 0 ? options->tokens : usual;
    mz_status status = in->model != NULL
                           ? mz_kv_sample_compute(options, in->model, tokens, &sample, &error)
                           : mz_kv_sample_invent(tokens, &sample, &error);
    status = status == MZ_OK ? mz_timing_room_make(&sample, &room, &error) : status;
    for (size_t i = 0; mz_codec_at(i) != NULL && status == MZ_OK; i++) {
        if (mz_timing_takes(mz_codec_at(i), &sample)) {
            status = report_codec(in, room, mz_codec_at(i), &error);
        }
    }
    mz_timing_room_free(room);
    mz_kv_sample_free(&sample);
    snprintf(message, message_bytes, "%s", error.text);
    return status == MZ_OK;
}

bool mz_bench_codec(const mz_bench_options *options)
{
    char nothing;
    bool is_done = true;
    codec_input in = {options, NULL};
    if (options->model_count > 0 && options->text == NULL) {
        fprintf(stderr, "mzcache bench: KV of a model is computed from a text; name one (-f)\n");
        return false;
    }
    mz_report_titles(options, columns);
    if (options->model_count == 0) {
        return mz_bench_child(measure, &in, &nothing, sizeof nothing);
    }
    for (size_t i = 0; i < options->model_count && is_done; i++) {
        in.model = options->models[i];
        is_done = mz_bench_child(measure, &in, &nothing, sizeof nothing);
    }
    return is_done;
}

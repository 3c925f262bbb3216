/* SPDX-License-Identifier: MIT */
/*
 * Suite codecs: what each codec saves on real KV (Table 2 for lz4 and zstd) and what that costs
 * (Figure 14): the time to the first token with half of the memory left and with none, and the
 * speed of encoding and decoding on one core.
 *
 * Savings and speed are those of KV that the model computed from the text. The time to the first
 * token is measured as in all other suites, on a context that is filled and not computed. lz4 and
 * zstd are there to compare savings with, and are not offered for use: they have no such time. Nor
 * is F1 measured here: --eval brings in what `mzcache eval --json` printed for a codec.
 */
#include <stdio.h>
#include <string.h>

#include "bench/child.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/suites.h"
#include "bench/timing.h"

#define DEFAULT_TOKENS 2048u
#define CODECS_MOST 32u

static const mz_report_column columns[] = {
    {"model", "model"},           {"codec", "codec"},           {"saved_percent", "saved %"},
    {"ttft_half_ms", "TTFT 50%"}, {"ttft_none_ms", "TTFT 0%"},  {"resident_ms", "resident ms"},
    {"encode_gbps", "enc GB/s"},  {"decode_gbps", "dec GB/s"},  {"f1", "F1"},
    {"kv_mib", "KV MiB"},         {NULL, NULL}};

typedef struct savings_input {
    const mz_bench_options *options;
    const char *model;
    uint32_t tokens;
} savings_input;

/* Of each codec in the order of the list; taken: it takes all KV of this model. */
typedef struct savings {
    struct {
        bool taken;
        mz_codec_timing timing;
    } codecs[CODECS_MOST];
    double kv_bytes;
} savings;

static bool measure(const void *input, void *result, char *message, size_t message_bytes)
{
    const savings_input *in = input;
    savings *made = result;
    mz_error error = MZ_ERROR_INIT;
    mz_kv_sample sample;
    mz_timing_room *room = NULL;
    mz_status status = mz_kv_sample_compute(in->options, in->model, in->tokens, &sample, &error);
    status = status == MZ_OK ? mz_timing_room_make(&sample, &room, &error) : status;
    for (size_t i = 0; i < CODECS_MOST && mz_codec_at(i) != NULL && status == MZ_OK; i++) {
        made->codecs[i].taken = mz_timing_takes(mz_codec_at(i), &sample);
        if (made->codecs[i].taken) {
            status = mz_timing_codec(room, mz_codec_at(i), mz_kernels_get(), 1,
                                     in->options->repeats, &made->codecs[i].timing, &error);
        }
    }
    made->kv_bytes = (double)sample.bytes;
    mz_timing_room_free(room);
    mz_kv_sample_free(&sample);
    snprintf(message, message_bytes, "%s", error.text);
    return status == MZ_OK;
}

/* --- F1 of another command --- */

/* The last line of the file about this codec, and this model if the line names one; else null. */
static json_t *find_f1(const mz_bench_options *options, const char *model, const char *codec)
{
    json_t *found = json_null();
    FILE *file = options->eval != NULL ? fopen(options->eval, "r") : NULL;
    json_t *line;
    while (file != NULL &&
           (line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        const char *of_codec = json_string_value(json_object_get(line, "codec"));
        const char *of_model = json_string_value(json_object_get(line, "model"));
        json_t *f1 = json_object_get(line, "f1");
        if (json_is_number(f1) && of_codec != NULL && strcmp(of_codec, codec) == 0 &&
            (of_model == NULL || strcmp(mz_report_name(of_model), mz_report_name(model)) == 0)) {
            json_decref(found);
            found = json_real(json_number_value(f1));
        }
        json_decref(line);
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

/* --- lines --- */

/* For use, not only to compare with: what --codec offers. */
static bool is_offered(const char *codec)
{
    return strcmp(codec, "lz4") != 0 && strcmp(codec, "zstd") != 0 && strcmp(codec, "sparse") != 0;
}

static void set(json_t *line, const char *key, double value)
{
    json_object_set_new(line, key, json_real(value));
}

/* A codec by its name; codec NULL: "raw", which saves nothing. */
static bool report_codec(const savings_input *in, const mz_codec *codec, const savings *s,
                         const mz_codec_timing *timing)
{
    const char *name = codec != NULL ? codec->name : "raw";
    json_t *line =
        json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:o}", "suite", "codecs", "model",
                  mz_report_name(in->model), "codec", name, "context_tokens",
                  (json_int_t)in->tokens, "kv_mib", s->kv_bytes / (1 << 20), "saved_percent",
                  timing != NULL ? 100 * (1 - timing->kept) : 0.0, "f1",
                  find_f1(in->options, in->model, name));
    if (timing != NULL) {
        set(line, "encode_gbps", timing->encode / 1e9);
        set(line, "decode_gbps", timing->decode / 1e9);
    }
    if (is_offered(name)) {
        mz_scenario scenario = {.options = in->options,
                                .model = in->model,
                                .codec = name,
                                .percents = {50, 100},
                                .percent_count = 2,
                                .tokens = in->tokens,
                                .repeats = in->options->repeats};
        mz_scenario_result result;
        if (!mz_scenario_run(&scenario, &result)) {
            json_decref(line);
            return false;
        }
        set(line, "ttft_half_ms", result.points[0].ttft_ms);
        set(line, "ttft_none_ms", result.points[1].ttft_ms);
        set(line, "resident_ms", result.resident_ms);
    }
    mz_report_line(in->options, columns, line);
    return true;
}

static bool report_model(const mz_bench_options *options, const char *model)
{
    static savings s;
    savings_input in = {options, model, options->tokens > 0 ? options->tokens : DEFAULT_TOKENS};
    if (!mz_bench_child(measure, &in, &s, sizeof s) || !report_codec(&in, NULL, &s, NULL)) {
        return false;
    }
    for (size_t i = 0; i < CODECS_MOST && mz_codec_at(i) != NULL; i++) {
        if (s.codecs[i].taken && !report_codec(&in, mz_codec_at(i), &s, &s.codecs[i].timing)) {
            return false;
        }
    }
    return true;
}

bool mz_bench_codecs(const mz_bench_options *options)
{
    bool is_done = true;
    if (options->text == NULL) {
        fprintf(stderr, "mzcache bench: what codecs save is measured with a text; name one (-f)\n");
        return false;
    }
    mz_report_titles(options, columns);
    for (size_t i = 0; i < options->model_count && is_done; i++) {
        is_done = report_model(options, options->models[i]);
    }
    return is_done;
}

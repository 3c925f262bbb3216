/* SPDX-License-Identifier: MIT */
/*
 * Resident and evicted alternate in one process, so that both see the same state of the machine.
 * Between an eviction and the question a tenant holds the memory (tenant.h). Rates take turns with
 * them too, and of each way to read the median counts: a disk that is shared gives half as much again
 * at one moment as at the next, and a bound from its best moment would be no bound of the others.
 */
#include "bench/scenario.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/child.h"
#include "bench/rate.h"
#include "bench/report.h"
#include "bench/tenant.h"
#include "llm/fill.h"
#include "os/direct_io.h"
#include "pool/pool.h"
#include "os/process.h"

#define TRACE_PATH_BYTES 4096

/* Ways to read of which the best one counts. */
#define READS 4
static const mz_rate_request reads[READS] = {
    {1u << 20, 8}, {1u << 20, 16}, {2u << 20, 8}, {2u << 20, 16}};

typedef struct stage {
    const mz_scenario *scenario;
    mz_llm *llm;
    mz_pool *pool;
    mz_tenant tenant;
    mz_scenario_result *result;
    double resident[MZ_BENCH_REPEATS];
    double read[READS][MZ_BENCH_REPEATS]; /* bytes per second */
    double decode[MZ_BENCH_REPEATS];
    mz_scenario_point points[MZ_SCENARIO_SHARES][MZ_BENCH_REPEATS];
    char *message;
    size_t message_bytes;
} stage;

void mz_scenario_calm(void)
{
    setenv("MZCACHE_CONTROL", "off", 1);
    setenv("MZCACHE_PROFILE", "off", 1);
    setenv("MZCACHE_PRESSURE", "off", 1);
}

/* Append a name to a file's, after a '-'; what might mean something to a shell becomes one too. */
static size_t append_name(char *path, size_t capacity, size_t length, const char *name)
{
    bool is_gap = true;
    for (; *name != '\0' && length + 2 < capacity; name++) {
        bool is_plain = isalnum((unsigned char)*name) || *name == '.' || *name == '_';
        if (is_plain && is_gap) {
            path[length++] = '-';
        }
        if (is_plain) {
            path[length++] = *name;
        }
        is_gap = !is_plain;
    }
    path[length] = '\0';
    return length;
}

void mz_scenario_trace(const mz_bench_options *options, const char *model, const char *row)
{
    const char *wanted = options->llm.trace;
    char path[TRACE_PATH_BYTES], name[256];
    if (wanted == NULL || strlen(wanted) >= sizeof path / 2) {
        return;
    }
    snprintf(name, sizeof name, "%s", mz_report_name(model));
    char *extension = strrchr(name, '.');
    if (extension != NULL) {
        *extension = '\0';
    }
    const char *dot = strrchr(mz_report_name(wanted), '.');
    size_t length = dot != NULL ? (size_t)(dot - wanted) : strlen(wanted);
    memcpy(path, wanted, length);
    length = append_name(path, sizeof path, length, name);
    length = append_name(path, sizeof path, length, row != NULL ? row : "");
    snprintf(path + length, sizeof path - length, "%s", dot != NULL ? dot : "");
    setenv("MZCACHE_TRACE", path, 1);
}

mz_llm_options mz_scenario_options(const mz_bench_options *options, const char *model,
                                   uint32_t tokens)
{
    mz_llm_options llm = options->llm;
    llm.model_path = model;
    llm.trace = NULL;
    llm.context_tokens = (tokens + 255) / 256 * 256;
    return llm;
}

void mz_scenario_drop_cache(const char *path)
{
    mz_file file;
    mz_error error = MZ_ERROR_INIT;
    if (mz_file_open(&file, mz_os_linux(), path, &error) == MZ_OK) {
        mz_file_drop_cache(&file, 0, file.bytes);
        mz_file_close(&file);
    }
}

mz_status mz_scenario_prefill(mz_llm *llm, uint32_t count, mz_llm_timing *timing)
{
    int32_t *tokens = malloc(count * sizeof *tokens);
    if (tokens == NULL) {
        return MZ_E_NOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] =
            (int32_t)(100 + i * 7 % 128); /* which ones does not matter; small models have few */
    }
    mz_status status = mz_llm_restore_generate(llm, tokens, count, 1, NULL, NULL, timing);
    free(tokens);
    return status;
}

mz_status mz_scenario_ask(mz_llm *llm, mz_llm_timing *timing)
{
    return mz_scenario_prefill(llm, MZ_SCENARIO_QUESTION, timing);
}

static bool fail(stage *s, const char *what, mz_status status)
{
    mz_pool_status pool = {0};
    if (s->pool != NULL) {
        mz_status_get(s->pool, &pool);
    }
    snprintf(s->message, s->message_bytes, "%s: %s: %s %s", s->scenario->model, what,
             mz_status_text(status), pool.last_error);
    return false;
}

static bool measure_rates(stage *s, uint32_t repeat)
{
    const mz_scenario *scenario = s->scenario;
    const char *codec = scenario->codec != NULL ? scenario->codec : scenario->options->llm.codec;
    double encode = 0;
    mz_error error = MZ_ERROR_INIT;
    mz_status status = MZ_OK;
    for (int i = 0; i < READS && status == MZ_OK; i++) {
        status = mz_rate_read(scenario->model, reads[i], &s->read[i][repeat], &error);
    }
    if (status == MZ_OK && codec != NULL && strcmp(codec, "raw") != 0) {
        status = mz_rate_codec(codec, (uint32_t)mz_machine_cores(), &encode, &s->decode[repeat],
                               &error);
    }
    if (status != MZ_OK) {
        snprintf(s->message, s->message_bytes, "%s", error.text);
        return false;
    }
    return true;
}

static bool open_model(stage *s)
{
    const mz_scenario *scenario = s->scenario;
    mz_scenario_calm();
    mz_scenario_trace(scenario->options, scenario->model, scenario->row);
    uint32_t rounds = scenario->repeats * (uint32_t)(scenario->percent_count + 1) + 1;
    uint32_t room = scenario->tokens + rounds * (MZ_SCENARIO_QUESTION + 1);
    mz_llm_options options = mz_scenario_options(scenario->options, scenario->model, room);
    options.codec = scenario->codec != NULL ? scenario->codec : options.codec;
    options.order = scenario->order != NULL ? scenario->order : options.order;
    options.overlap = scenario->overlap != NULL ? scenario->overlap : options.overlap;
    options.paths = scenario->paths != NULL ? scenario->paths : options.paths;
    mz_status status = mz_llm_open(&options, &s->llm, s->message, s->message_bytes);
    if (status != MZ_OK) {
        return false;
    }
    s->pool = mz_llm_pool(s->llm);
    mz_error error = MZ_ERROR_INIT;
    if (s->pool != NULL && options.codec != NULL) {
        /* What is measured is what was named, gate or not. */
        status = mz_pool_set_codec(s->pool, options.codec, &error);
        if (status != MZ_OK) {
            return fail(s, error.text, status);
        }
    }
    status = mz_llm_fill(s->llm, scenario->tokens);
    mz_llm_timing timing;
    status = status == MZ_OK ? mz_scenario_ask(s->llm, &timing) : status;
    return status == MZ_OK || fail(s, "filling the context", status);
}

static bool ask_resident(stage *s, uint32_t repeat)
{
    mz_llm_timing timing;
    mz_status status = mz_scenario_ask(s->llm, &timing);
    s->resident[repeat] = (double)timing.ttft_ns / 1e6;
    return status == MZ_OK || fail(s, "asking", status);
}

static bool ask_evicted(stage *s, size_t share, uint32_t repeat)
{
    mz_pool_status before, after;
    mz_llm_timing timing;
    uint64_t freed = 0;
    mz_status_get(s->pool, &before);
    uint64_t all = before.weights.resident_bytes + before.kv_cache.resident_bytes;
    s->result->resident_bytes = all;
    mz_status status = mz_evict(s->pool, all * s->scenario->percents[share] / 100, &freed);
    if (status != MZ_OK && status != MZ_E_PARTIAL) {
        return fail(s, "evicting", status);
    }
    if (!mz_tenant_hold(&s->tenant, freed)) {
        return fail(s, "the tenant", MZ_E_NOMEM);
    }
    mz_scenario_drop_cache(s->scenario->model);
    mz_status_get(s->pool, &before);
    if (!mz_tenant_hold(&s->tenant, 0)) {
        return fail(s, "the tenant", MZ_E_NOMEM);
    }
    status = mz_scenario_ask(s->llm, &timing);
    status = status == MZ_OK ? mz_prefetch(s->pool) : status;
    status = status == MZ_OK ? mz_prefetch_wait(s->pool) : status;
    if (status != MZ_OK) {
        return fail(s, "asking after an eviction", status);
    }
    mz_status_get(s->pool, &after);
    s->points[share][repeat] = (mz_scenario_point){
        .ttft_ms = (double)timing.ttft_ns / 1e6,
        .stall_ms = (double)timing.stall_ns / 1e6,
        .restore_ms = (double)after.last_restore_ns / 1e6,
        .evict_ms = (double)before.last_evict_ns / 1e6,
        .freed_bytes = (double)freed,
        .read_bytes = (double)(after.read_bytes - before.read_bytes),
        .decoded_bytes = (double)(after.decoded_bytes - before.decoded_bytes),
    };
    return true;
}

/* Each member of a point on its own. */
static mz_scenario_point median_point(const mz_scenario_point *points, uint32_t count)
{
    enum { MEMBERS = sizeof(mz_scenario_point) / sizeof(double) };
    double medians[MEMBERS], values[MZ_BENCH_REPEATS];
    for (size_t member = 0; member < MEMBERS; member++) {
        for (uint32_t i = 0; i < count; i++) {
            memcpy(&values[i], (const char *)&points[i] + member * sizeof(double), sizeof(double));
        }
        medians[member] = mz_report_median(values, count);
    }
    mz_scenario_point point;
    memcpy(&point, medians, sizeof point);
    return point;
}

static void take_medians(stage *s)
{
    mz_scenario_result *result = s->result;
    uint32_t count = s->scenario->repeats;
    result->resident_ms = mz_report_median(s->resident, count);
    result->decode_bytes_per_s = mz_report_median(s->decode, count);
    for (int i = 0; i < READS; i++) {
        double rate = mz_report_median(s->read[i], count);
        result->read_bytes_per_s = rate > result->read_bytes_per_s ? rate : result->read_bytes_per_s;
    }
    for (size_t share = 0; share < s->scenario->percent_count; share++) {
        result->points[share] = median_point(s->points[share], count);
    }
}

static bool play(stage *s)
{
    const mz_scenario *scenario = s->scenario;
    if (!mz_tenant_start(&s->tenant)) {
        return fail(s, "the tenant", MZ_E_NOMEM);
    }
    if (!open_model(s)) {
        return false;
    }
    for (uint32_t repeat = 0; repeat < scenario->repeats; repeat++) {
        if (!measure_rates(s, repeat) || !ask_resident(s, repeat)) {
            return false;
        }
        for (size_t share = 0; share < scenario->percent_count; share++) {
            if (!ask_evicted(s, share, repeat)) {
                return false;
            }
        }
    }
    take_medians(s);
    return true;
}

static bool play_in_child(const void *input, void *result, char *message, size_t message_bytes)
{
    stage *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return false;
    }
    s->scenario = input;
    s->result = result;
    s->message = message;
    s->message_bytes = message_bytes;
    bool is_done = play(s);
    mz_tenant_stop(&s->tenant);
    mz_llm_close(s->llm);
    free(s);
    return is_done;
}

bool mz_scenario_run(const mz_scenario *scenario, mz_scenario_result *result)
{
    return mz_bench_child(play_in_child, scenario, result, sizeof *result);
}

/* SPDX-License-Identifier: MIT */
/*
 * mzcache plan: what an eviction would take, and how long a restore would then last.
 *
 * Asks the very policy that pools ask, with units made from the model's header and a context that
 * is full; nothing is loaded. Rates come from the machine's profile, or from defaults, which it
 * says.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/probe.h"
#include "codec/codec.h"
#include "llm/describe.h"
#include "profile/record.h"

#define COMMAND "plan"
#define CHUNK_TOKENS 256u
#define PICTURE_COLUMNS 96u

static const char help[] =
    "Usage: mzcache plan -m FILE --evict SIZE [OPTIONS]\n\n"
    "Show which units an eviction would take, by which path, and how long each path would need to\n"
    "bring them back. Nothing is loaded or evicted.\n\n"
    "  -m, --model FILE   GGUF file (required)\n"
    "  -c, --ctx TOKENS   tokens in the KV cache (4096)\n"
    "      --evict SIZE   how much to evict: 512M, 40% (of weights and KV)\n"
    "      --codec NAME   q8 (default), q4, cachegen, lossless: hybrid swap;\n"
    "                     raw: all KV to flash\n"
    "      --order NAME   backward (default), forward, random\n"
    "      --store DIR    directory of the store, whose profile counts (~/.cache/mzcache)\n"
    "      --json         one JSON line for each step, then the sums\n\n"
    "In the picture a row is a layer: its weights, then its KV chunks.\n"
    "  #  stays    w  weights dropped    c  compressed in memory    f  on flash    x  compressed, "
    "on flash\n\n"
    "Exit codes: 0 done, 1 failed, 2 wrong use, 3 less can be evicted than asked for.\n";

typedef struct settings {
    const char *model, *codec, *store;
    mz_size evict;
    bool has_evict, json, wants_help;
    long tokens;
    mz_order order;
} settings;

/* Units of a model with a full context, and what a plan does to them. */
typedef struct scene {
    mz_llm_description model;
    mz_policy_unit *units; /* [count], in order of need */
    char *letters;         /* [count], for the picture */
    size_t count;
    uint32_t chunks; /* of a layer */
    uint64_t total_bytes;
    mz_plan_step *steps; /* [step_count] */
    size_t step_count;
    uint64_t planned_bytes;
    mz_profile profile;
    bool profiled;
} scene;

static bool parse_order(const char *text, mz_order *order)
{
    static const char *const names[] = {"backward", "forward", "random"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *order = (mz_order)i;
            return true;
        }
    }
    fprintf(stderr, "mzcache " COMMAND ": there is no order \"%s\"\n", text);
    return false;
}

static bool take(int option, const char *value, settings *s)
{
    switch (option) {
    case 'h':
        s->wants_help = true;
        return true;
    case 'm':
        s->model = value;
        return true;
    case 'c':
        return mz_cli_parse_number(COMMAND, "--ctx", value, 1, &s->tokens);
    case 'e':
        s->has_evict = true;
        return mz_cli_parse_size(COMMAND, "--evict", value, &s->evict);
    case 'k':
        s->codec = value;
        return true;
    case 'o':
        return parse_order(value, &s->order);
    case 's':
        s->store = value;
        return true;
    case 'j':
        s->json = true;
        return true;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, settings *s)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'},
                                            {"model", required_argument, NULL, 'm'},
                                            {"ctx", required_argument, NULL, 'c'},
                                            {"evict", required_argument, NULL, 'e'},
                                            {"codec", required_argument, NULL, 'k'},
                                            {"order", required_argument, NULL, 'o'},
                                            {"store", required_argument, NULL, 's'},
                                            {"json", no_argument, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, "hm:c:", options, NULL)) != -1) {
        if (!take(option, optarg, s)) {
            return false;
        }
    }
    if (s->wants_help) {
        return true;
    }
    bool is_raw = strcmp(s->codec, "raw") == 0;
    if (optind < argc || s->model == NULL || !s->has_evict || s->tokens > 100000000 ||
        (!is_raw && mz_codec_find(s->codec) == NULL)) {
        fprintf(stderr,
                "mzcache " COMMAND ": -m FILE and --evict SIZE are needed, and a codec that "
                "exists\n");
        return false;
    }
    return true;
}

static void add_unit(scene *c, mz_tag tag, uint32_t layer, uint32_t chunk, uint64_t bytes,
                     uint64_t encoded)
{
    c->units[c->count++] = (mz_policy_unit){
        tag, layer, chunk, bytes, encoded, MZ_WHERE_RESIDENT, tag == MZ_TAG_WEIGHTS};
    c->total_bytes += bytes;
}

/* Bytes that `rows` tokens of one layer take encoded, K and V. */
static uint64_t encoded_bytes(const mz_codec *codec, const mz_llm_description *m, uint32_t layer,
                              uint32_t rows)
{
    mz_codec_shape k = {MZ_ELEM_F16, m->k_elements[layer] * 2u, rows};
    mz_codec_shape v = {MZ_ELEM_F16, m->v_elements[layer] * 2u, rows};
    if (codec == NULL || !codec->takes(&k) || !codec->takes(&v)) {
        return 0;
    }
    return mz_codec_expected(codec, &k) + mz_codec_expected(codec, &v);
}

static bool build(scene *c, const settings *s)
{
    uint32_t tokens = (uint32_t)s->tokens;
    c->chunks = (tokens + CHUNK_TOKENS - 1) / CHUNK_TOKENS;
    size_t capacity = (size_t)(c->model.layers + 1) * (c->chunks + 1);
    c->units = calloc(capacity, sizeof *c->units);
    c->letters = malloc(capacity);
    c->steps = calloc(2 * capacity, sizeof *c->steps);
    if (c->units == NULL || c->letters == NULL || c->steps == NULL) {
        return false;
    }
    const mz_codec *codec = strcmp(s->codec, "raw") == 0 ? NULL : mz_codec_find(s->codec);
    for (uint32_t layer = 0; layer < c->model.layers; layer++) {
        add_unit(c, MZ_TAG_WEIGHTS, layer, 0, c->model.layer_bytes[layer], 0);
        for (uint32_t chunk = 0; chunk < c->chunks; chunk++) {
            uint32_t rest = tokens - chunk * CHUNK_TOKENS;
            uint32_t rows = rest < CHUNK_TOKENS ? rest : CHUNK_TOKENS;
            uint64_t row = 2ull * (c->model.k_elements[layer] + c->model.v_elements[layer]);
            add_unit(c, MZ_TAG_KV_CACHE, layer, chunk, row * rows,
                     encoded_bytes(codec, &c->model, layer, rows));
        }
    }
    add_unit(c, MZ_TAG_WEIGHTS, c->model.layers, 0, c->model.output_bytes, 0);
    memset(c->letters, '#', c->count);
    return true;
}

static void take_profile(scene *c, const settings *s)
{
    char found[512];
    mz_error error = MZ_ERROR_INIT;
    mz_profile_record record;
    const char *directory = s->store;
    if (directory == NULL) {
        mz_probe_default_store(found, sizeof found);
        directory = found;
    }
    c->profiled = mz_profile_find(directory, &record, &error) == MZ_OK;
    c->profile = mz_profile_rates(c->profiled ? &record : NULL, s->codec);
}

/* Do to the units what a step says. */
static void apply(scene *c, const mz_plan_step *step)
{
    mz_policy_unit *unit = &c->units[step->unit];
    switch (step->path) {
    case MZ_PATH_STACK:
        unit->where = MZ_WHERE_COMPRESSED;
        c->letters[step->unit] = 'c';
        break;
    case MZ_PATH_SPILL:
        unit->where = MZ_WHERE_SPILLED;
        c->letters[step->unit] = 'x';
        break;
    default:
        unit->where = MZ_WHERE_STORED;
        c->letters[step->unit] = unit->tag == MZ_TAG_WEIGHTS ? 'w' : 'f';
        break;
    }
}

static void print_picture(const scene *c)
{
    size_t at = 0;
    uint32_t shown = c->chunks < PICTURE_COLUMNS ? c->chunks : PICTURE_COLUMNS;
    printf("\nlayer  weights  KV chunks of %u tokens%s\n", CHUNK_TOKENS,
           shown < c->chunks ? " (the last ones do not fit here)" : "");
    for (uint32_t layer = 0; layer < c->model.layers; layer++) {
        printf("%5u     %c     %.*s\n", layer, c->letters[at], (int)shown, c->letters + at + 1);
        at += c->chunks + 1;
    }
    printf("output    %c\n", c->letters[at]);
}

typedef struct sum {
    const char *name;
    uint64_t units, bytes;
} sum;

static void print_report(const scene *c, uint64_t asked, const mz_policy_survey *after)
{
    static const char *const names[] = {"dropped", "compressed in memory", "written to flash",
                                        "compressed, on flash"};
    sum sums[4] = {{0}};
    char a[32], b[32], t[32];
    for (size_t i = 0; i < c->step_count; i++) {
        sums[c->steps[i].path].units++;
        sums[c->steps[i].path].bytes += c->steps[i].frees;
    }
    printf("%s: %u layers, weights and KV %s; %s asked for, %s planned\n", c->model.architecture,
           c->model.layers, mz_size_format(c->total_bytes, t, sizeof t),
           mz_size_format(asked, a, sizeof a), mz_size_format(c->planned_bytes, b, sizeof b));
    print_picture(c);
    printf("\n%-22s %8s %12s\n", "path", "units", "frees");
    for (int i = 0; i < 4; i++) {
        if (sums[i].units > 0) {
            printf("%-22s %8llu %12s\n", names[i], (unsigned long long)sums[i].units,
                   mz_size_format(sums[i].bytes, a, sizeof a));
        }
    }
    printf("\nA restore would read for %.1f ms and decode for %.1f ms, side by side"
           " (%.2f and %.2f GB/s%s).\n",
           (double)after->read_ns / 1e6, (double)after->decode_ns / 1e6,
           c->profile.read_bytes_per_s / 1e9, c->profile.decode_bytes_per_s / 1e9,
           c->profiled ? ", measured" : ", assumed: run mzcache profile");
}

static void print_lines(const scene *c, uint64_t asked, const mz_policy_survey *after)
{
    static const char *const paths[] = {"drop", "stack", "store", "spill"};
    for (size_t i = 0; i < c->step_count; i++) {
        const mz_plan_step *step = &c->steps[i];
        const mz_policy_unit *unit = &c->units[step->unit];
        mz_cli_print_json(json_pack(
            "{s:I, s:s, s:I, s:I, s:s, s:s, s:I}", "step", (json_int_t)i, "tag",
            unit->tag == MZ_TAG_WEIGHTS ? "weights" : "kv_cache", "layer", (json_int_t)unit->layer,
            "chunk", (json_int_t)unit->chunk, "path", paths[step->path], "stage",
            mz_policy_stage_name(step->stage), "frees_bytes", (json_int_t)step->frees));
    }
    mz_cli_print_json(json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:b}", "architecture",
                                c->model.architecture, "layers", (json_int_t)c->model.layers,
                                "total_bytes", (json_int_t)c->total_bytes, "asked_bytes",
                                (json_int_t)asked, "planned_bytes", (json_int_t)c->planned_bytes,
                                "read_ms", (double)after->read_ns / 1e6, "decode_ms",
                                (double)after->decode_ns / 1e6, "profiled", c->profiled));
}

static int plan(scene *c, const settings *s)
{
    uint64_t asked = mz_size_of(s->evict, c->total_bytes);
    mz_policy_options options = {MZ_TAG_ALL, s->order, 1, strcmp(s->codec, "raw") != 0, true};
    c->step_count = mz_policy_plan(&c->profile, c->units, c->count, &options, asked, c->steps,
                                   2 * c->count, &c->planned_bytes);
    for (size_t i = 0; i < c->step_count; i++) {
        apply(c, &c->steps[i]);
    }
    mz_policy_survey after;
    mz_policy_survey_units(&c->profile, c->units, c->count, &options, &after);
    if (s->json) {
        print_lines(c, asked, &after);
    } else {
        print_report(c, asked, &after);
    }
    return c->planned_bytes < asked ? MZ_CLI_PARTIAL : MZ_CLI_OK;
}

int mz_cli_plan(int argc, char **argv)
{
    settings s = {.codec = "q8", .tokens = 4096};
    if (!parse(argc, argv, &s)) {
        fputs(help, stderr);
        return MZ_CLI_USAGE;
    }
    if (s.wants_help) {
        fputs(help, stdout);
        return MZ_CLI_OK;
    }
    scene *c = calloc(1, sizeof *c);
    char message[256] = "out of memory";
    int code = MZ_CLI_FAILED;
    if (c != NULL && mz_llm_describe(s.model, &c->model, message, sizeof message) == MZ_OK &&
        build(c, &s)) {
        take_profile(c, &s);
        code = plan(c, &s);
    } else {
        fprintf(stderr, "mzcache " COMMAND ": %s\n", message);
    }
    if (c != NULL) {
        free(c->units);
        free(c->letters);
        free(c->steps);
        free(c);
    }
    return code;
}

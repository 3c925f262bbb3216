/* SPDX-License-Identifier: MIT */
/*
 * mzcache doctor: what this machine offers, in plain words.
 *
 * A plug-in that a host silently does not load, or a disk that silently refuses direct I/O, costs
 * people hours; here each is tried and named. A finding is one of three: it is fine (OK), something
 * is missing that mzCache does without (--), or nothing works until it is put right (!!).
 */
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/probe.h"
#include "kernels/kernels.h"
#include "os/process.h"
#include "pressure/source.h"
#include "profile/record.h"

#define COMMAND "doctor"

static const char help[] =
    "Usage: mzcache doctor [--store DIR] [--plugin FILE] [--json]\n\n"
    "Check what this machine and its llama.cpp offer. Each line is OK, -- (missing, but mzCache\n"
    "does without) or !! (must be put right).\n\n"
    "Exit codes: 0 mzCache can be used here, 1 it can't, 2 wrong use.\n";

typedef enum finding { FINDING_OK, FINDING_MISSING, FINDING_BAD } finding;

typedef struct doctor {
    bool json;
    unsigned bad; /* findings that must be put right */
} doctor;

static void report(doctor *d, finding state, const char *topic, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void report(doctor *d, finding state, const char *topic, const char *format, ...)
{
    static const char *const marks[] = {"OK", "--", "!!"};
    static const char *const words[] = {"ok", "missing", "bad"};
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    d->bad += state == FINDING_BAD ? 1 : 0;
    if (d->json) {
        mz_cli_print_json(
            json_pack("{s:s, s:s, s:s}", "check", topic, "state", words[state], "text", text));
    } else {
        printf("%s  %-14s %s\n", marks[state], topic, text);
    }
}

static void check_machine(doctor *d)
{
    char name[256], line[128], whole[32], free_text[32];
    mz_error error = MZ_ERROR_INIT;
    uint64_t total = 0, available = 0;
    mz_machine_cpu_name(name, sizeof name);
    report(d, FINDING_OK, "processor", "%s, %d cores for this process", name, mz_machine_cores());
    report(d, FINDING_OK, "kernels", "%s", mz_kernels_get()->name);
    mz_probe_kernel(name, sizeof name);
    report(d, FINDING_OK, "system", "%s", name);
    if (mz_machine_memory(&total, &available, &error) == MZ_OK) {
        report(d, FINDING_OK, "memory", "%s, of which %s are available",
               mz_size_format(total, whole, sizeof whole),
               mz_size_format(available, free_text, sizeof free_text));
    } else {
        report(d, FINDING_MISSING, "memory", "%s", error.text);
    }
    if (!mz_probe_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line)) {
        report(d, FINDING_MISSING, "huge pages", "this kernel has none: restores are slower");
    } else if (strstr(line, "[never]") != NULL) {
        report(d, FINDING_MISSING, "huge pages",
               "switched off: restores are slower; echo madvise > "
               "/sys/kernel/mm/transparent_hugepage/enabled");
    } else {
        report(d, FINDING_OK, "huge pages", "%s", line);
    }
    if (mz_probe_populate()) {
        report(d, FINDING_OK, "populate", "memory is committed ahead by one call");
    } else {
        report(d, FINDING_MISSING, "populate", "Linux before 5.14: memory is touched page by page");
    }
}

static void check_store(doctor *d, const char *directory)
{
    char free_text[32];
    mz_probe_store store;
    mz_probe_store_dir(directory, &store);
    mz_size_format(store.free_bytes, free_text, sizeof free_text);
    if (!store.usable) {
        report(d, FINDING_BAD, "store", "%s can't be used: %s; name another by --store", directory,
               store.reason);
    } else if (!store.direct) {
        report(d, FINDING_MISSING, "store",
               "%s, %s free, refuses direct I/O: restores go through the page cache", directory,
               free_text);
    } else {
        report(d, FINDING_OK, "store", "%s, %s free, direct I/O works", directory, free_text);
    }
}

/* "3 days", "1 hour", "12 minutes": the largest unit of which there is one. */
static void format_age(uint64_t seconds, char *text, size_t capacity)
{
    static const struct {
        uint64_t seconds;
        const char *name;
    } units[] = {{86400, "day"}, {3600, "hour"}, {60, "minute"}, {1, "second"}};
    size_t i = 0;
    while (i < 3 && seconds < units[i].seconds) {
        i++;
    }
    unsigned long long count = seconds / units[i].seconds;
    snprintf(text, capacity, "%llu %s%s", count, units[i].name, count == 1 ? "" : "s");
}

static void check_profile(doctor *d, const char *directory)
{
    mz_profile_record record;
    mz_error error = MZ_ERROR_INIT;
    if (mz_profile_find(directory, &record, &error) != MZ_OK) {
        report(d, FINDING_MISSING, "profile",
               "%s; until then, or until the first eviction has it made, rates are assumed",
               error.text);
        return;
    }
    char age[32];
    const uint64_t now = (uint64_t)time(NULL);
    format_age(now > record.measured_s ? now - record.measured_s : 0, age, sizeof age);
    report(d, FINDING_OK, "profile", "measured %s ago%s", age,
           record.quick ? ", in two seconds; mzcache profile does it in full" : "");
}

static void check_kernel_services(doctor *d)
{
    if (mz_probe_io_uring()) {
        report(d, FINDING_OK, "io_uring", "allowed");
    } else {
        report(d, FINDING_MISSING, "io_uring", "not allowed here; ordinary reads are used");
    }
    switch (mz_probe_memory_cgroup()) {
    case MZ_PROBE_CGROUP_V2:
        report(d, FINDING_OK, "cgroup", "memory controller of version 2");
        break;
    case MZ_PROBE_CGROUP_V1:
        report(d, FINDING_OK, "cgroup", "memory controller of version 1");
        break;
    default:
        report(d, FINDING_MISSING, "cgroup", "no memory controller governs this process");
        break;
    }
}

/* By what a process started here would notice that others need memory: each name once. */
static void check_pressure(doctor *d)
{
    const mz_pressure_config config = {.os = mz_os_linux(),
                                       .root = "",
                                       .watch = getenv("MEMORY_PRESSURE_WATCH"),
                                       .write = getenv("MEMORY_PRESSURE_WRITE")};
    mz_pressure_sources sources;
    mz_pressure_sources_open(&sources, &config);
    for (size_t i = 0; i < sources.count; i++) {
        const mz_pressure_source *source = &sources.list[i];
        bool is_first = i == 0 || strcmp(source->name, sources.list[i - 1].name) != 0;
        if (source->fd < 0) {
            report(d, FINDING_MISSING, "pressure", "%s: %s", source->name, source->why.text);
        } else if (is_first) {
            report(d, FINDING_OK, "pressure", "%s: watched", source->name);
        }
    }
    mz_pressure_sources_close(&sources, &config);
}

static void check_engine(doctor *d, const char *plugin_path)
{
    mz_llm_engine engine;
    mz_llm_engine_probe(plugin_path, &engine);
    report(d, FINDING_OK, "engine", "llama.cpp with ggml %s", engine.version);
    if (engine.plugin_loaded) {
        report(d, FINDING_OK, "plug-in", "%s loads into it", engine.plugin_path);
    } else {
        report(d, FINDING_BAD, "plug-in", "%s; build it or name it by --plugin", engine.message);
    }
}

/* Models are only looked for where people put them; none is no fault. */
static void check_models(doctor *d)
{
    static const char *const patterns[] = {"models/*.gguf", "*.gguf", "~/models/*.gguf",
                                           "~/.cache/llama.cpp/*.gguf"};
    glob_t found = {0};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        glob(patterns[i], GLOB_TILDE | (i > 0 ? GLOB_APPEND : 0), NULL, &found);
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        report(d, FINDING_OK, "model", "%s", found.gl_pathv[i]);
    }
    if (found.gl_pathc == 0) {
        report(d, FINDING_MISSING, "model", "no GGUF file here, in ./models or in ~/models");
    }
    globfree(&found);
}

int mz_cli_doctor(int argc, char **argv)
{
    static const struct option table[] = {{"help", no_argument, NULL, 'h'},
                                          {"store", required_argument, NULL, MZ_CLI_STORE},
                                          {"plugin", required_argument, NULL, MZ_CLI_PLUGIN},
                                          {"json", no_argument, NULL, MZ_CLI_JSON},
                                          {NULL, 0, NULL, 0}};
    mz_cli_model options;
    doctor d = {false, 0};
    mz_cli_model_default(&options);
    int option;
    while ((option = getopt_long(argc, argv, "h", table, NULL)) != -1) {
        if (!mz_cli_take_model_option(COMMAND, option, optarg, &options)) {
            return MZ_CLI_USAGE;
        }
    }
    if (options.wants_help) {
        fputs(help, stdout);
        return MZ_CLI_OK;
    }
    if (optind < argc) {
        return mz_cli_wrong_use(COMMAND, "\"%s\" is too much", argv[optind]);
    }
    d.json = options.json;
    check_machine(&d);
    char found[512];
    const char *store = options.llm.store_dir;
    if (store == NULL) {
        mz_probe_default_store(found, sizeof found);
        store = found;
    }
    check_store(&d, store);
    check_profile(&d, store);
    check_kernel_services(&d);
    check_pressure(&d);
    check_engine(&d, options.llm.plugin_path);
    check_models(&d);
    if (!d.json) {
        printf("\n%s\n", d.bad == 0
                             ? "mzCache can be used here."
                             : "mzCache can't be used here until the !! lines are put right.");
    }
    return d.bad == 0 ? MZ_CLI_OK : MZ_CLI_FAILED;
}

/* SPDX-License-Identifier: MIT */
/*
 * status, evict and prefetch of the mzcache command; see remote.h.
 *
 * Arguments are checked here as far as that needs no process, so that a slip is a usage error
 * (exit code 2) and never reaches a model. With --json the answers are printed as they came:
 * status always as a list, one element per process, so that its shape does not depend on how many
 * run.
 */
#include "cli/remote.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "cli/cli.h"
#include "control/client.h"

#define STATUS_LIMIT_S 5L /* /status answers from memory; longer means that the process hangs */

typedef struct remote_options {
    int pid;          /* 0: not given */
    const char *tags; /* NULL: not given */
    bool wait;
    bool json;
    bool help;
} remote_options;

static const char status_help[] = "usage: mzcache status [--pid N] [--json]\n"
                                  "Show how the elastic memory of running processes stands.\n"
                                  "  --pid N   only this process\n"
                                  "  --json    print a JSON list, one element per process\n";

static const char evict_help[] =
    "usage: mzcache evict SIZE [--pid N] [--tags weights,kv_cache] [--json]\n"
    "Make a process give back SIZE of memory: 512M, 1.5G, 40% of what is resident, or bytes.\n"
    "  --pid N      this process; needed when several run\n"
    "  --tags LIST  only weights, or only kv_cache\n"
    "  --json       print the answer as JSON\n"
    "Exit code 3: less was freed than asked for.\n";

static const char prefetch_help[] =
    "usage: mzcache prefetch [--pid N] [--wait] [--json]\n"
    "Make a process restore what was evicted, before it is needed.\n"
    "  --pid N   this process; needed when several run\n"
    "  --wait    return when everything is restored\n"
    "  --json    print the answer as JSON\n";

static int usage_error(const char *help, const char *what)
{
    fprintf(stderr, "mzcache: %s\n%s", what, help);
    return MZ_CLI_USAGE;
}

static bool parse_pid(const char *text, int *pid)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != 0 || value <= 0 || value > INT_MAX) {
        return false;
    }
    *pid = (int)value;
    return true;
}

static bool tags_are_known(const char *tags)
{
    return strcmp(tags, "weights") == 0 || strcmp(tags, "kv_cache") == 0 ||
           strcmp(tags, "weights,kv_cache") == 0 || strcmp(tags, "kv_cache,weights") == 0;
}

/*
 * Read the options whose letters are in `allowed` (p, t, w, j) and expect `operands` more
 * arguments, which stand from optind on afterwards. Returns MZ_CLI_OK, or MZ_CLI_USAGE after having
 * said why.
 */
static int parse_options(int argc, char **argv, const char *allowed, int operands, const char *help,
                         remote_options *options)
{
    static const struct option names[] = {
        {"pid", required_argument, NULL, 'p'}, {"tags", required_argument, NULL, 't'},
        {"wait", no_argument, NULL, 'w'},      {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},      {NULL, 0, NULL, 0},
    };
    *options = (remote_options){.pid = 0};
    optind = 0; /* getopt starts afresh */
    opterr = 0;
    int letter;
    while ((letter = getopt_long(argc, argv, ":h", names, NULL)) != -1) {
        if (letter == 'h') {
            options->help = true;
            return MZ_CLI_OK;
        }
        if (letter == ':') {
            return usage_error(help, "an option lacks its value");
        }
        if (letter == '?' || strchr(allowed, letter) == NULL) {
            return usage_error(help, "unknown option");
        }
        if (letter == 'p' && !parse_pid(optarg, &options->pid)) {
            return usage_error(help, "--pid needs the number of a process");
        }
        if (letter == 't' && !tags_are_known(optarg)) {
            return usage_error(help, "--tags takes weights, kv_cache or weights,kv_cache");
        }
        options->tags = letter == 't' ? optarg : options->tags;
        options->wait = letter == 'w' ? true : options->wait;
        options->json = letter == 'j' ? true : options->json;
    }
    if (argc - optind != operands) {
        return usage_error(help, argc - optind < operands ? "an argument is missing"
                                                          : "there is an argument too many");
    }
    return MZ_CLI_OK;
}

/* List the live processes, or the one with that pid. Returns an exit code after having said why. */
static int list_processes(int pid, mz_control_socket **processes, size_t *count)
{
    mz_error error = MZ_ERROR_INIT;
    mz_control_socket *all = NULL;
    size_t found = 0;
    if (mz_control_list(NULL, &all, &found, &error) != MZ_OK) {
        fprintf(stderr, "mzcache: %s\n", error.text);
        return MZ_CLI_FAILED;
    }
    if (pid != 0) {
        size_t kept = 0;
        for (size_t i = 0; i < found; i++) {
            if (all[i].pid == pid) {
                all[kept++] = all[i];
            }
        }
        found = kept;
    }
    if (found == 0) {
        free(all);
        if (pid != 0) {
            fprintf(stderr, "mzcache: process %d has no control socket of yours\n", pid);
        } else {
            fprintf(stderr, "mzcache: no process with elastic memory is running\n");
        }
        return MZ_CLI_FAILED;
    }
    *processes = all;
    *count = found;
    return MZ_CLI_OK;
}

/* Find the one process that a command is for. */
static int find_process(int pid, mz_control_socket *process)
{
    mz_control_socket *processes;
    size_t count;
    int code = list_processes(pid, &processes, &count);
    if (code != MZ_CLI_OK) {
        return code;
    }
    if (count > 1) {
        fprintf(stderr, "mzcache: several processes run; choose one by --pid:");
        for (size_t i = 0; i < count; i++) {
            fprintf(stderr, " %d", processes[i].pid);
        }
        fprintf(stderr, "\n");
        code = MZ_CLI_USAGE;
    } else {
        *process = processes[0];
    }
    free(processes);
    return code;
}

/* Send a request and read the JSON object of its answer; NULL after having said why. */
static json_t *ask(const mz_control_socket *process, const char *method, const char *target,
                   const char *body, long limit_s, long *http_status)
{
    mz_error error = MZ_ERROR_INIT;
    mz_control_reply reply;
    if (mz_control_request(process->path, method, target, body, limit_s, &reply, &error) != MZ_OK) {
        fprintf(stderr, "mzcache: process %d: %s\n", process->pid, error.text);
        return NULL;
    }
    json_error_t where;
    json_t *object = json_loadb(reply.body, reply.bytes, 0, &where);
    *http_status = reply.http_status;
    mz_control_reply_free(&reply);
    if (!json_is_object(object)) {
        json_decref(object);
        fprintf(stderr, "mzcache: process %d: the answer is no JSON object\n", process->pid);
        return NULL;
    }
    return object;
}

static uint64_t number_of(const json_t *object, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(object, name));
    return value > 0 ? (uint64_t)value : 0;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

static double milliseconds_of(const json_t *object, const char *name)
{
    return (double)number_of(object, name) / 1e6;
}

static void print_json(const json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2));
    printf("\n");
}

/* Say why a process refused. Returns MZ_CLI_FAILED. */
static int print_refusal(const mz_control_socket *process, const json_t *answer)
{
    fprintf(stderr, "mzcache: process %d: %s\n", process->pid, text_of(answer, "error"));
    return MZ_CLI_FAILED;
}

static void print_tag_row(const json_t *status, const char *tag)
{
    static const char *const columns[] = {"total_bytes", "resident_bytes", "clean_bytes",
                                          "compressed_bytes", "stored_bytes"};
    const json_t *object = json_object_get(status, tag);
    printf("  %-9s", tag);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        char text[32];
        printf(" %11s", mz_size_format(number_of(object, columns[i]), text, sizeof text));
    }
    printf("\n");
    uint64_t lost = number_of(object, "lost_units");
    if (lost > 0) {
        printf("  %-9s %" PRIu64 " units lost, to be recomputed\n", "", lost);
    }
}

/* What plans reckon with, and where that comes from. */
static void print_rates(const json_t *status)
{
    const double read = (double)number_of(status, "plan_read_bytes_per_s") / 1e9;
    const double decode = (double)number_of(status, "plan_decode_bytes_per_s") / 1e9;
    const char *note = text_of(status, "rates_note");
    printf("  plans reckon with: read %.2f GB/s", read);
    if (decode > 0) {
        printf(", decode %.2f GB/s", decode);
    }
    printf(" (%s%s%s)\n", text_of(status, "rates"), note[0] != 0 ? ": " : "", note);
}

/* Why memory was given back by itself, or that it is not. */
static void print_pressure(const json_t *status)
{
    const json_t *pressure = json_object_get(status, "pressure");
    char freed[32];
    if (!json_is_true(json_object_get(pressure, "watching"))) {
        printf("  pressure: not watched\n");
        return;
    }
    printf("  pressure: %s; watched: %s\n", text_of(pressure, "level"),
           text_of(pressure, "sources")[0] != 0 ? text_of(pressure, "sources") : "nothing here");
    if (text_of(pressure, "reason")[0] != 0) {
        printf("  by itself: %" PRIu64 " evictions freed %s; the last %.0f s ago, %.1f ms after "
               "its signal:\n    %s\n",
               number_of(pressure, "evictions"),
               mz_size_format(number_of(pressure, "freed_bytes"), freed, sizeof freed),
               (double)number_of(pressure, "ago_ns") / 1e9,
               milliseconds_of(pressure, "last_reaction_ns"), text_of(pressure, "reason"));
    }
}

static void print_status(const json_t *status)
{
    char first[32];
    char second[32];
    printf("process %" PRIu64 "  mzcache %s  codec %s  up %" PRIu64 " s%s\n",
           number_of(status, "pid"), text_of(status, "version"), text_of(status, "codec"),
           number_of(status, "uptime_s"),
           json_is_true(json_object_get(status, "restoring")) ? "  restoring" : "");
    printf("  %-9s %11s %11s %11s %11s %11s\n", "", "total", "resident", "clean", "compressed",
           "stored");
    print_tag_row(status, "weights");
    print_tag_row(status, "kv_cache");
    printf("  stack %s, store %s",
           mz_size_format(number_of(status, "stack_bytes"), first, sizeof first),
           mz_size_format(number_of(status, "store_bytes"), second, sizeof second));
    if (text_of(status, "store_dir")[0] != 0) {
        printf(" in %s", text_of(status, "store_dir"));
    }
    printf("\n  flash: written %s, read %s\n",
           mz_size_format(number_of(status, "written_bytes"), first, sizeof first),
           mz_size_format(number_of(status, "read_bytes"), second, sizeof second));
    printf("  last eviction: %s of %s in %.1f ms (%" PRIu64 " so far)\n",
           mz_size_format(number_of(status, "last_freed_bytes"), first, sizeof first),
           mz_size_format(number_of(status, "last_evict_bytes"), second, sizeof second),
           milliseconds_of(status, "last_evict_ns"), number_of(status, "evictions"));
    printf("  last restore: %.1f ms, of which inference waited %.1f ms\n",
           milliseconds_of(status, "last_restore_ns"), milliseconds_of(status, "last_stall_ns"));
    print_rates(status);
    print_pressure(status);
    if (text_of(status, "last_error")[0] != 0) {
        printf("  last error: %s\n", text_of(status, "last_error"));
    }
}

/* Ask one process and print it, or put it into `list` when that is not NULL. */
static int report_process(const mz_control_socket *process, json_t *list)
{
    long http_status;
    json_t *status = ask(process, "GET", "/status", NULL, STATUS_LIMIT_S, &http_status);
    if (status == NULL) {
        return MZ_CLI_FAILED;
    }
    int code = MZ_CLI_OK;
    if (http_status != 200) {
        code = print_refusal(process, status);
    } else if (list != NULL) {
        json_array_append(list, status);
    } else {
        print_status(status);
    }
    json_decref(status);
    return code;
}

int mz_cli_status(int argc, char **argv)
{
    remote_options options;
    int code = parse_options(argc, argv, "pj", 0, status_help, &options);
    if (code != MZ_CLI_OK || options.help) {
        fputs(options.help ? status_help : "", stdout);
        return code;
    }
    mz_control_socket *processes;
    size_t count;
    code = list_processes(options.pid, &processes, &count);
    if (code != MZ_CLI_OK) {
        return code;
    }
    json_t *list = options.json ? json_array() : NULL;
    for (size_t i = 0; i < count; i++) {
        if (report_process(&processes[i], list) != MZ_CLI_OK) {
            code = MZ_CLI_FAILED;
        }
    }
    if (list != NULL) {
        print_json(list);
    }
    json_decref(list);
    free(processes);
    return code;
}

/* Print what an eviction did. Returns the exit code. */
static int report_evict(const mz_control_socket *process, const json_t *answer, bool json)
{
    bool partial = strcmp(text_of(answer, "status"), "partial") == 0;
    if (json) {
        print_json(answer);
    } else {
        char freed[32];
        char asked[32];
        printf("process %d: freed %s of %s in %.1f ms\n", process->pid,
               mz_size_format(number_of(answer, "freed_bytes"), freed, sizeof freed),
               mz_size_format(number_of(answer, "asked_bytes"), asked, sizeof asked),
               milliseconds_of(answer, "evict_ns"));
        if (partial) {
            fprintf(stderr, "mzcache: %s\n", text_of(answer, "error"));
        }
    }
    return partial ? MZ_CLI_PARTIAL : MZ_CLI_OK;
}

/* The body of an eviction, from malloc. NULL: out of memory. */
static char *evict_body(const char *size, const char *tags)
{
    bool weights = tags == NULL || strstr(tags, "weights") != NULL;
    bool kv_cache = tags == NULL || strstr(tags, "kv_cache") != NULL;
    json_t *list = json_array();
    if (weights) {
        json_array_append_new(list, json_string("weights"));
    }
    if (kv_cache) {
        json_array_append_new(list, json_string("kv_cache"));
    }
    json_t *object = json_pack("{s:s, s:o}", "bytes", size, "tags", list);
    char *body = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return body;
}

int mz_cli_evict(int argc, char **argv)
{
    remote_options options;
    int code = parse_options(argc, argv, "ptj", 1, evict_help, &options);
    if (code != MZ_CLI_OK || options.help) {
        fputs(options.help ? evict_help : "", stdout);
        return code;
    }
    const char *text = argv[optind];
    mz_size size;
    if (!mz_size_parse(text, &size) || (size.is_percent ? !(size.percent > 0) : size.bytes == 0)) {
        return usage_error(evict_help, "SIZE is something like 512M, 1.5G or 40%, above 0");
    }
    mz_control_socket process;
    code = find_process(options.pid, &process);
    if (code != MZ_CLI_OK) {
        return code;
    }
    char *body = evict_body(text, options.tags);
    if (body == NULL) {
        fprintf(stderr, "mzcache: out of memory\n");
        return MZ_CLI_FAILED;
    }
    long http_status;
    json_t *answer = ask(&process, "POST", "/evict", body, 0, &http_status);
    free(body);
    if (answer == NULL) {
        return MZ_CLI_FAILED;
    }
    code = http_status == 200 ? report_evict(&process, answer, options.json)
                              : print_refusal(&process, answer);
    json_decref(answer);
    return code;
}

int mz_cli_prefetch(int argc, char **argv)
{
    remote_options options;
    int code = parse_options(argc, argv, "pwj", 0, prefetch_help, &options);
    if (code != MZ_CLI_OK || options.help) {
        fputs(options.help ? prefetch_help : "", stdout);
        return code;
    }
    mz_control_socket process;
    code = find_process(options.pid, &process);
    if (code != MZ_CLI_OK) {
        return code;
    }
    const char *body = options.wait ? "{\"wait\":true}" : "{\"wait\":false}";
    long http_status;
    json_t *answer = ask(&process, "POST", "/prefetch", body, 0, &http_status);
    if (answer == NULL) {
        return MZ_CLI_FAILED;
    }
    if (http_status != 200) {
        code = print_refusal(&process, answer);
    } else if (options.json) {
        print_json(answer);
    } else if (options.wait) {
        printf("process %d: restored in %.1f ms\n", process.pid,
               milliseconds_of(answer, "prefetch_ns"));
    } else {
        printf("process %d: restoring\n", process.pid);
    }
    json_decref(answer);
    return code;
}

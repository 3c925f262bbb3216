/* SPDX-License-Identifier: MIT */
/*
 * mzcache exec: start any program that uses llama.cpp, with mzCache in it.
 *
 * ggml loads the backend that GGML_BACKEND_PATH names when it is told to load backends. llama-bench
 * and libraries with backends of their own to load do that always; llama-server and its kin, once
 * the CPU backend is linked in, only for an option that could name a device. Naming ours (--device
 * MZ0) would be such an option, but then a host that can't load the plug-in ends with "invalid
 * device". So exec sets one that names nothing: an override that matches no tensor.
 *
 * The plug-in takes its own options from MZCACHE_*. This process becomes the host: its signals,
 * exit code and terminal are those of the host. Whatever the plug-in does, the host starts.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "mzcache/llm.h"

#define COMMAND "exec"

static const char help[] =
    "Usage: mzcache exec [OPTIONS] -- HOST [ARGUMENTS]\n\n"
    "Start HOST (llama-server, llama-cli, a Python program ...) with the mzCache plug-in. Tell "
    "the\n"
    "host to offload all layers (-ngl 99, n_gpu_layers=-1, gpuLayers: \"max\"): they go to the\n"
    "elastic device, which computes on the CPU.\n\n"
    "      --codec NAME         raw: exact, to flash (default); q8: 8 bit, kept in memory;\n"
    "                           q4: 4 bit, cachegen: about 4 bit, entropy coded, both to\n"
    "                           be tried with your model first; lossless: exact, kept in\n"
    "                           memory, saves little\n"
    "      --store DIR          where the store lies (~/.cache/mzcache)\n"
    "      --restore-depth N    reads under way in a restore (chosen by the library)\n"
    "      --log LEVEL          error, warn (default), info, debug\n"
    "      --guard              a stray access to evicted memory faults, to find bugs\n"
    "      --plugin FILE        libggml-mzcache.so (the one beside this "
    "command)\n" MZ_CLI_PRESSURE_HELP MZ_CLI_SWITCHES_HELP
    "\nExit codes: the host's; 1 no plug-in, 2 wrong use, 127 no such host.\n";

enum { OPTION_LOG = MZ_CLI_OWN, OPTION_GUARD };

typedef struct exec_options {
    mz_cli_model model; /* of it, what the host's plug-in takes */
    const char *log;
    bool guard;
} exec_options;

static bool take_option(int option, const char *value, exec_options *options)
{
    static const char *const levels[] = {"error", "warn", "info", "debug", NULL};
    int index = 0;
    switch (option) {
    case OPTION_LOG:
        options->log = value;
        return mz_cli_take_choice(COMMAND, "--log", value, levels, &index);
    case OPTION_GUARD:
        options->guard = true;
        return true;
    default:
        return mz_cli_take_model_option(COMMAND, option, value, &options->model);
    }
}

static bool parse_options(int argc, char **argv, exec_options *options)
{
    static const struct option table[] = {
        {"help", no_argument, NULL, 'h'},
        {"codec", required_argument, NULL, MZ_CLI_CODEC},
        {"store", required_argument, NULL, MZ_CLI_STORE},
        {"restore-depth", required_argument, NULL, MZ_CLI_RESTORE_DEPTH},
        {"log", required_argument, NULL, OPTION_LOG},
        {"guard", no_argument, NULL, OPTION_GUARD},
        {"plugin", required_argument, NULL, MZ_CLI_PLUGIN},
        MZ_CLI_PRESSURE_LONG,
        MZ_CLI_SWITCHES_LONG,
        {NULL, 0, NULL, 0}};
    memset(options, 0, sizeof *options);
    mz_cli_model_default(&options->model);
    int option;
    /* "+": options behind the host's name are the host's. */
    while ((option = getopt_long(argc, argv, "+h", table, NULL)) != -1) {
        if (!take_option(option, optarg, options)) {
            return false;
        }
    }
    return true;
}

static void set_if(const char *name, const char *value)
{
    if (value != NULL) {
        setenv(name, value, 1);
    }
}

/* A host may change its directory before it loads, so the path must be absolute. */
static bool set_plugin(const char *plugin)
{
    char found[PATH_MAX], absolute[PATH_MAX];
    if (plugin != NULL) {
        snprintf(found, sizeof found, "%s", plugin);
    } else {
        mz_llm_plugin_path(found, sizeof found);
    }
    if (realpath(found, absolute) == NULL) {
        fprintf(stderr, "mzcache exec: no plug-in at %s: %s\n", found, strerror(errno));
        return false;
    }
    setenv("GGML_BACKEND_PATH", absolute, 1);
    /* No tensor's name is empty, and every host has the buffer type "CPU". One that the user set
     * makes the host load backends just as well. */
    setenv("LLAMA_ARG_OVERRIDE_TENSOR", "^$=CPU", 0);
    return true;
}

static void set_options(const exec_options *options)
{
    const mz_llm_options *llm = &options->model.llm;
    char depth[16];
    snprintf(depth, sizeof depth, "%d", llm->restore_depth);
    set_if("MZCACHE_CODEC", llm->codec);
    set_if("MZCACHE_STORE", llm->store_dir);
    set_if("MZCACHE_RESTORE_DEPTH", llm->restore_depth > 0 ? depth : NULL);
    set_if("MZCACHE_LOG", options->log);
    set_if("MZCACHE_ORDER", llm->order);
    set_if("MZCACHE_OVERLAP", llm->overlap);
    set_if("MZCACHE_PATHS", llm->paths);
    set_if("MZCACHE_TRACE", llm->trace);
    set_if("MZCACHE_PRESSURE", llm->pressure);
    set_if("MZCACHE_KEEP", llm->keep);
    set_if("MZCACHE_MAX", llm->max);
    set_if("MZCACHE_EVICT_STEP", llm->evict_step);
    set_if("MZCACHE_IDLE_EVICT", llm->idle_evict);
    set_if("MZCACHE_GUARD", options->guard ? "1" : NULL);
}

int mz_cli_exec(int argc, char **argv)
{
    exec_options options;
    if (!parse_options(argc, argv, &options)) {
        return MZ_CLI_USAGE;
    }
    if (options.model.wants_help) {
        fputs(help, stdout);
        return MZ_CLI_OK;
    }
    if (optind >= argc) {
        return mz_cli_wrong_use(COMMAND, "no host given");
    }
    if (!set_plugin(options.model.llm.plugin_path)) {
        return MZ_CLI_FAILED;
    }
    set_options(&options);
    execvp(argv[optind], argv + optind);
    int reason = errno;
    fprintf(stderr, "mzcache exec: can't start %s: %s\n", argv[optind], strerror(reason));
    return reason == ENOENT ? MZ_CLI_NO_HOST : MZ_CLI_FAILED;
}

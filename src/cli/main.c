/* SPDX-License-Identifier: MIT */
/*
 * The command `mzcache`: a table of commands, each in a file of its own, each with its own page of
 * help. What a command answers goes to stdout, what it tells about itself to stderr, so that output
 * can be piped.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/remote.h"
#include "codec/outside.h"
#include "mzcache/mzcache.h"

typedef struct command {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *summary;
} command;

static const command commands[] = {
    {"run", mz_cli_run, "load a model, answer a prompt, evict in between if asked to"},
    {"chat", mz_cli_chat, "talk to a model; /evict and /status while you do"},
    {"demo", mz_cli_demo, "show a long conversation evicted, restored and gone on with"},
    {"exec", mz_cli_exec, "start another program's llama.cpp with mzCache in it"},
    {"status", mz_cli_status, "show the memory of running processes"},
    {"evict", mz_cli_evict, "make a running process give memory back"},
    {"prefetch", mz_cli_prefetch, "make a running process restore before it is asked"},
    {"plan", mz_cli_plan, "show what an eviction would take and how it would come back"},
    {"eval", mz_cli_eval, "measure what a codec costs a model in accuracy"},
    {"profile", mz_cli_profile, "measure this machine, so that evictions are balanced for it"},
    {"bench", mz_cli_bench, "measure speed: resident, eviction, first token, physical bound"},
    {"plot", mz_cli_plot, "draw what bench measured, as the paper does"},
    {"doctor", mz_cli_doctor, "check what this machine offers"},
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static const command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static void print_help(FILE *out)
{
    fprintf(out,
            "Usage: mzcache COMMAND [OPTIONS]\n"
            "       mzcache help COMMAND\n\n"
            "Elastic memory for local LLMs: give memory back at once, go on as if nothing was.\n\n"
            "Commands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    }
    fprintf(out,
            "\nSizes are written as 512M, 1.5G, 40%% or plain bytes.\n\n"
            "Exit codes: 0 done, 1 failed, 2 wrong use, 3 partly done (less freed than asked),\n"
            "            127 exec found no such program.\n");
}

static int run_command(const char *name, int argc, char **argv)
{
    const command *found = find_command(name);
    if (found == NULL) {
        fprintf(stderr, "mzcache: there is no command \"%s\"; see mzcache --help\n", name);
        return MZ_CLI_USAGE;
    }
    return found->main(argc, argv);
}

static int show_help(int argc, char **argv)
{
    char ask[] = "--help";
    if (argc < 3) {
        print_help(stdout);
        return MZ_CLI_OK;
    }
    char *page[] = {argv[2], ask, NULL};
    return run_command(argv[2], 2, page);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return MZ_CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        return show_help(argc, argv);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("mzcache %s\n", mz_version());
        return MZ_CLI_OK;
    }
    mz_error error = MZ_ERROR_INIT;
    if (mz_outside_load(&error) != MZ_OK) {
        fprintf(stderr, "mzcache: %s\n", error.text); /* most commands work without it */
    }
    return run_command(argv[1], argc - 1, argv + 1);
}

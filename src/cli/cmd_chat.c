/* SPDX-License-Identifier: MIT */
/*
 * mzcache chat: talk to a model, and take its memory away while you do.
 *
 * Messages are wrapped into the model's own chat template; a model without one gets the bare text.
 * Lines that begin with a slash are commands. The prompt shows on a terminal only, so that a
 * conversation can also be piped in.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/session.h"

#define COMMAND "chat"

static const char help[] =
    "Usage: mzcache chat -m FILE [OPTIONS]\n\n"
    "Talk to a model. While it waits for you its memory can be given back; your next message\n"
    "restores what it needs.\n\n"
    "  -n, --predict N          most tokens of an answer (512)\n" MZ_CLI_MODEL_HELP
    "\nIn the conversation:\n"
    "  /evict SIZE   give memory back (512M, 40%, 100%: all)\n"
    "  /prefetch     restore everything now\n"
    "  /status       what is where\n"
    "  /reset        forget the conversation\n"
    "  /help, /quit\n\n"
    "Exit codes: 0 done, 1 failed, 2 wrong use.\n";

static const char commands_help[] = "/evict SIZE  /prefetch  /status  /reset  /quit\n";

typedef struct chat {
    mz_cli_session session;
    long predict;
} chat;

static void print_tag(const char *name, const mz_tag_status *tag)
{
    char resident[32], compressed[32], stored[32];
    printf("  %-8s %10s resident, %10s compressed, %10s on flash (%llu units)\n", name,
           mz_size_format(tag->resident_bytes, resident, sizeof resident),
           mz_size_format(tag->compressed_bytes, compressed, sizeof compressed),
           mz_size_format(tag->stored_bytes, stored, sizeof stored),
           (unsigned long long)tag->total_units);
}

static void show_status(chat *talk)
{
    mz_pool *pool = mz_llm_pool(talk->session.llm);
    mz_pool_status status;
    char pss[32];
    printf("  context  %10zu tokens; the process takes %s\n",
           mz_llm_context_tokens(talk->session.llm),
           mz_size_format(mz_cli_pss_bytes(), pss, sizeof pss));
    if (pool == NULL || mz_status_get(pool, &status) != MZ_OK) {
        return;
    }
    print_tag("weights", &status.weights);
    print_tag("KV cache", &status.kv_cache);
    if (status.last_error[0] != '\0') {
        printf("  last failure: %s\n", status.last_error);
    }
}

static void evict(chat *talk, const char *argument)
{
    mz_size size;
    if (!mz_size_parse(argument, &size)) {
        printf("  /evict wants a size such as 512M or 40%%\n");
        return;
    }
    mz_cli_eviction eviction;
    mz_cli_session_evict(&talk->session, size, &eviction);
    printf("  ");
    mz_cli_eviction_print(&eviction, stdout);
}

static void prefetch(chat *talk)
{
    mz_pool *pool = mz_llm_pool(talk->session.llm);
    mz_status status = mz_prefetch(pool);
    if (status == MZ_OK) {
        status = mz_prefetch_wait(pool);
    }
    printf("  %s\n", status == MZ_OK ? "everything is restored" : mz_status_text(status));
}

/* Returns false when the conversation is over. */
static bool obey(chat *talk, const char *line)
{
    bool needs_pool = strncmp(line, "/evict", 6) == 0 || strcmp(line, "/prefetch") == 0;
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0) {
        return false;
    }
    if (needs_pool && mz_llm_pool(talk->session.llm) == NULL) {
        printf("  the stock engine can't do that\n");
    } else if (strncmp(line, "/evict", 6) == 0) {
        const char *argument = line + 6;
        evict(talk, argument + strspn(argument, " "));
    } else if (strcmp(line, "/prefetch") == 0) {
        prefetch(talk);
    } else if (strcmp(line, "/status") == 0) {
        show_status(talk);
    } else if (strcmp(line, "/reset") == 0) {
        mz_llm_reset(talk->session.llm);
    } else {
        fputs(commands_help, stdout);
    }
    fflush(stdout); /* a program may read it through a pipe and wait for it */
    return true;
}

static int say(chat *talk, const char *text)
{
    mz_cli_session *session = &talk->session;
    size_t count = 0;
    int32_t *tokens = mz_cli_session_message(session, text, &count);
    int code = MZ_CLI_FAILED;
    if (tokens != NULL) {
        mz_cli_answer answer;
        code = mz_cli_session_ask(session, tokens, count, (size_t)talk->predict, &answer);
        printf("\n");
        if (code == MZ_CLI_OK && session->progress.enabled) {
            fprintf(stderr, "  [first token after %.0f ms]\n", mz_cli_ms(answer.timing.ttft_ns));
        }
        mz_cli_answer_release(&answer);
    }
    free(tokens);
    return code;
}

static int converse(chat *talk)
{
    char *line = NULL;
    size_t capacity = 0;
    bool is_terminal = isatty(STDIN_FILENO) == 1;
    bool goes_on = true;
    int code = MZ_CLI_OK;
    if (is_terminal) {
        fputs(commands_help, stdout);
    }
    while (goes_on && code == MZ_CLI_OK) {
        if (is_terminal) {
            printf("> ");
            fflush(stdout);
        }
        ssize_t bytes = getline(&line, &capacity, stdin);
        if (bytes < 0) {
            break;
        }
        while (bytes > 0 && isspace((unsigned char)line[bytes - 1])) {
            line[--bytes] = '\0';
        }
        if (line[0] == '/') {
            goes_on = obey(talk, line);
        } else if (bytes > 0) {
            code = say(talk, line);
        }
    }
    free(line);
    return code;
}

int mz_cli_chat(int argc, char **argv)
{
    static const struct option table[] = {
        MZ_CLI_MODEL_LONG, {"predict", required_argument, NULL, 'n'}, {NULL, 0, NULL, 0}};
    mz_cli_model model;
    chat talk;
    mz_cli_model_default(&model);
    talk.predict = 512;
    int option;
    while ((option = getopt_long(argc, argv, MZ_CLI_MODEL_SHORT "n:", table, NULL)) != -1) {
        bool is_right = option == 'n' ? mz_cli_parse_number(COMMAND, "-n", optarg, 1, &talk.predict)
                                      : mz_cli_take_model_option(COMMAND, option, optarg, &model);
        if (!is_right) {
            return MZ_CLI_USAGE;
        }
    }
    if (model.wants_help) {
        fputs(help, stdout);
        return MZ_CLI_OK;
    }
    if (optind < argc) {
        return mz_cli_wrong_use(COMMAND, "\"%s\" is too much", argv[optind]);
    }
    if (model.llm.model_path == NULL) {
        return mz_cli_wrong_use(COMMAND, "no model given (-m)");
    }
    if (model.json) {
        return mz_cli_wrong_use(COMMAND, "a conversation has no --json; use mzcache run");
    }
    int code = mz_cli_session_open(&talk.session, COMMAND, &model);
    if (code == MZ_CLI_OK) {
        code = converse(&talk);
        mz_cli_session_close(&talk.session);
    }
    return code;
}

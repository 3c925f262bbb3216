/* SPDX-License-Identifier: MIT */
/*
 * mzcache run: answer a prompt; with --evict, give memory back and go on with the conversation.
 *
 * The text goes to stdout as it comes, figures follow on stderr; with --json stdout carries one
 * JSON object per event instead, so that scripts need not parse sentences.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/session.h"

#define COMMAND "run"

static const char help[] =
    "Usage: mzcache run -m FILE (-p TEXT | -f FILE) [OPTIONS]\n\n"
    "Load a model, answer a prompt and say what it took. With --evict memory is given back after\n"
    "the answer, and the conversation goes on with a second prompt.\n\n"
    "  -p, --prompt TEXT        the prompt\n"
    "  -f, --file FILE          the prompt from a file (-: standard input)\n"
    "  -n, --predict N          most tokens to generate for each prompt (64)\n"
    "      --evict SIZE         give back SIZE (512M, 40%: of what is resident) after the answer\n"
    "      --then TEXT          the second prompt, after the eviction "
    "(Continue.)\n" MZ_CLI_MODEL_HELP
    "\nExit codes: 0 done, 1 failed, 2 wrong use, 3 less freed than asked for.\n";

enum { OPTION_EVICT = MZ_CLI_OWN, OPTION_THEN };

typedef struct run_options {
    mz_cli_model model;
    const char *prompt, *file, *then;
    long predict;
    bool evict;
    mz_size evict_size;
} run_options;

static bool take_option(int option, const char *value, run_options *run)
{
    switch (option) {
    case 'p':
        run->prompt = value;
        return true;
    case 'f':
        run->file = value;
        return true;
    case 'n':
        return mz_cli_parse_number(COMMAND, "-n", value, 0, &run->predict);
    case OPTION_EVICT:
        run->evict = true;
        return mz_cli_parse_size(COMMAND, "--evict", value, &run->evict_size);
    case OPTION_THEN:
        run->then = value;
        return true;
    default:
        return mz_cli_take_model_option(COMMAND, option, value, &run->model);
    }
}

static int parse_options(int argc, char **argv, run_options *run)
{
    static const struct option table[] = {MZ_CLI_MODEL_LONG,
                                          {"prompt", required_argument, NULL, 'p'},
                                          {"file", required_argument, NULL, 'f'},
                                          {"predict", required_argument, NULL, 'n'},
                                          {"evict", required_argument, NULL, OPTION_EVICT},
                                          {"then", required_argument, NULL, OPTION_THEN},
                                          {NULL, 0, NULL, 0}};
    memset(run, 0, sizeof *run);
    mz_cli_model_default(&run->model);
    run->predict = 64;
    run->then = "Continue.";
    int option;
    while ((option = getopt_long(argc, argv, MZ_CLI_MODEL_SHORT "p:f:n:", table, NULL)) != -1) {
        if (!take_option(option, optarg, run)) {
            return MZ_CLI_USAGE;
        }
    }
    if (run->model.wants_help) {
        return MZ_CLI_OK;
    }
    if (optind < argc) {
        return mz_cli_wrong_use(COMMAND, "\"%s\" is too much", argv[optind]);
    }
    if (run->model.llm.model_path == NULL) {
        return mz_cli_wrong_use(COMMAND, "no model given (-m)");
    }
    if ((run->prompt == NULL) == (run->file == NULL)) {
        return mz_cli_wrong_use(COMMAND, "give either -p or -f");
    }
    if (run->evict && run->model.llm.stock) {
        return mz_cli_wrong_use(COMMAND, "--evict needs mzCache, --stock runs without it");
    }
    return MZ_CLI_OK;
}

static void print_answer(const run_options *run, const char *name, const mz_cli_session *session,
                         const mz_cli_answer *answer)
{
    const mz_llm_timing *timing = &answer->timing;
    if (!run->model.json) {
        fprintf(stdout, "\n");
        fflush(stdout);
        fprintf(stderr,
                "%s: %u tokens in, first token after %.1f ms (%.1f ms at the gate), "
                "%u tokens out in %.1f ms; context %u\n",
                name, timing->input_tokens, mz_cli_ms(timing->ttft_ns), mz_cli_ms(timing->stall_ns),
                timing->output_tokens, mz_cli_ms(timing->total_ns), timing->context_tokens);
        return;
    }
    json_t *tokens = json_array();
    for (size_t i = 0; i < answer->token_count; i++) {
        json_array_append_new(tokens, json_integer(answer->tokens[i]));
    }
    /* A generation may stop within a character: such text is no JSON string and is left out. */
    json_t *text = json_stringn(answer->text != NULL ? answer->text : "", answer->text_bytes);
    mz_cli_print_json(
        json_pack("{s:s, s:s, s:o, s:o, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "event", "answer",
                  "name", name, "text", text != NULL ? text : json_null(), "tokens", tokens,
                  "load_ms", mz_cli_ms(session->open_ns), "ttft_ms", mz_cli_ms(timing->ttft_ns),
                  "stall_ms", mz_cli_ms(timing->stall_ns), "total_ms", mz_cli_ms(timing->total_ns),
                  "input_tokens", (json_int_t)timing->input_tokens, "output_tokens",
                  (json_int_t)timing->output_tokens, "context_tokens",
                  (json_int_t)timing->context_tokens, "pss_bytes", (json_int_t)mz_cli_pss_bytes()));
}

static void print_eviction(const run_options *run, const mz_cli_eviction *eviction)
{
    if (!run->model.json) {
        mz_cli_eviction_print(eviction, stderr);
        return;
    }
    mz_cli_print_json(json_pack(
        "{s:s, s:s, s:I, s:I, s:f, s:I, s:I, s:s}", "event", "evict", "status",
        mz_status_name(eviction->status), "asked_bytes", (json_int_t)eviction->asked_bytes,
        "freed_bytes", (json_int_t)eviction->freed_bytes, "evict_ms", mz_cli_ms(eviction->taken_ns),
        "pss_before_bytes", (json_int_t)eviction->pss_before, "pss_after_bytes",
        (json_int_t)eviction->pss_after, "reason", eviction->reason));
}

static int ask(const run_options *run, mz_cli_session *session, const char *name, const char *text)
{
    size_t count = 0;
    bool is_first = mz_llm_context_tokens(session->llm) == 0;
    int32_t *tokens = mz_cli_session_tokenize(session, text, is_first, &count);
    if (tokens == NULL) {
        return MZ_CLI_FAILED;
    }
    mz_cli_answer answer;
    int code = mz_cli_session_ask(session, tokens, count, (size_t)run->predict, &answer);
    if (code == MZ_CLI_OK) {
        print_answer(run, name, session, &answer);
    }
    mz_cli_answer_release(&answer);
    free(tokens);
    return code;
}

static int converse(const run_options *run, mz_cli_session *session, const char *prompt)
{
    int code = ask(run, session, "answer", prompt);
    if (code != MZ_CLI_OK || !run->evict) {
        return code;
    }
    mz_cli_eviction eviction;
    mz_cli_session_evict(session, run->evict_size, &eviction);
    print_eviction(run, &eviction);
    int evicted = mz_cli_eviction_exit(&eviction);
    if (evicted == MZ_CLI_FAILED) {
        return evicted;
    }
    code = ask(run, session, "answer after the eviction", run->then);
    return code != MZ_CLI_OK ? code : evicted;
}

int mz_cli_run(int argc, char **argv)
{
    run_options run;
    int code = parse_options(argc, argv, &run);
    if (code != MZ_CLI_OK || run.model.wants_help) {
        if (code == MZ_CLI_OK) {
            fputs(help, stdout);
        }
        return code;
    }
    char *from_file = NULL;
    if (run.file != NULL) {
        from_file = mz_cli_read_text(COMMAND, run.file);
        if (from_file == NULL) {
            return MZ_CLI_FAILED;
        }
    }
    mz_cli_session session;
    code = mz_cli_session_open(&session, COMMAND, &run.model);
    if (code == MZ_CLI_OK) {
        code = converse(&run, &session, from_file != NULL ? from_file : run.prompt);
        mz_cli_session_close(&session);
    }
    free(from_file);
    return code;
}

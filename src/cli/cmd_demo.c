/* SPDX-License-Identifier: MIT */
/*
 * mzcache demo: the same long conversation three times.
 *
 * 1. A process that never gives memory back: the right answers, and the time to beat.
 * 2. A process that gives everything back between the turns and is then asked on.
 * 3. A process that was ended instead, and has to load the model and read the conversation again.
 *
 * Each is a process of its own, so that its memory is what the kernel counts for it and the third
 * starts with nothing. This process never touches a model; results come back through a pipe.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/session.h"
#include "codec/codec.h"
#include "os/direct_io.h"

#define COMMAND "demo"
#define TURNS 2u

static const char help[] =
    "Usage: mzcache demo -m FILE [OPTIONS]\n\n"
    "A long conversation: all of its memory is given back, then it goes on. Compared with a "
    "process\n"
    "that never gave anything back, and with one that was ended and started again.\n\n"
    "  -f, --file FILE          text that the conversation is about (a built-in one)\n"
    "  -t, --tokens N           length of that text in tokens (2000)\n"
    "  -n, --predict N          most tokens of each answer (48)\n" MZ_CLI_FILE_HELP MZ_CLI_CTX_HELP
        MZ_CLI_ENGINE_HELP MZ_CLI_COMPARE_HELP
    "      --trace FILE         write what happened when in the process that is evicted, for a\n"
    "                           trace viewer\n"
    "\nExit codes: 0 done, 1 failed or (with an exact codec) the answers differ, 2 wrong use.\n";

static const char built_in_text[] =
    "The lighthouse stood on a spit of black rock where two currents met. Its keeper wrote a page "
    "each "
    "evening: the wind, the ships that passed, and one thing that had surprised him. On some days "
    "it "
    "was a bird that would not leave the gallery. On others it was a letter which had taken a year "
    "to "
    "arrive, or the way in which fog makes a small sound seem near. He kept the pages in a tin "
    "box, and "
    "he numbered them, because he held that memory is a matter of order more than of strength. "
    "When the "
    "lamp was changed he wrote down what the old one had cost and what the new one would save. ";

/* What stands before and behind the text in the first message. */
static const char before_text[] = "Here is something that I want to talk about with you.\n\n";
static const char behind_text[] = "\n\nThat is the end of it. In two sentences: what is it about?";

static const char *const questions[TURNS] = {
    "Thank you. What would be a good gift for the person who wrote it, and why?",
    "Write a short poem about the sea for them."};

typedef enum role { ROLE_KEEPS, ROLE_EVICTS, ROLE_RESTARTS } role;

typedef struct demo {
    mz_cli_model model;
    const char *file;
    long text_tokens, predict;
    char *text;       /* owned; what the conversation is about */
    int32_t *history; /* owned; all said up to the second question, for who starts again */
    size_t history_count;
} demo;

/* ---- in the child ---- */

/*
 * The first message: the text, repeated or cut to about the wanted number of tokens, and a
 * question.
 */
static char *text_of_length(mz_cli_session *session, const char *source, long wanted)
{
    long per_piece = mz_llm_tokenize(session->llm, source, false, NULL, 0);
    if (per_piece <= 0) {
        return NULL;
    }
    size_t bytes = strlen(source);
    size_t total = (size_t)((double)bytes * (double)wanted / (double)per_piece);
    char *text = malloc(sizeof before_text + total + sizeof behind_text);
    if (text == NULL) {
        return NULL;
    }
    char *middle = stpcpy(text, before_text);
    for (size_t at = 0; at < total; at++) {
        middle[at] = source[at % bytes];
    }
    while (total > 0 && middle[total - 1] != ' ' && middle[total - 1] != '\n') {
        total--;
    }
    strcpy(middle + total, behind_text);
    return text;
}

static json_t *pack_tokens(const int32_t *tokens, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(array, json_integer(tokens[i]));
    }
    return array;
}

static json_t *pack_answer(const int32_t *input, size_t count, const mz_cli_answer *answer)
{
    json_t *text = json_stringn(answer->text != NULL ? answer->text : "", answer->text_bytes);
    return json_pack("{s:o, s:o, s:o, s:I, s:I, s:I}", "input", pack_tokens(input, count), "tokens",
                     pack_tokens(answer->tokens, answer->token_count), "text",
                     text != NULL ? text : json_string("(not whole characters)"), "ttft_ns",
                     (json_int_t)answer->timing.ttft_ns, "stall_ns",
                     (json_int_t)answer->timing.stall_ns, "context_tokens",
                     (json_int_t)answer->timing.context_tokens);
}

static int ask(demo *d, mz_cli_session *session, const char *text, json_t *answers)
{
    size_t count = 0;
    int32_t *tokens = mz_cli_session_message(session, text, &count);
    if (tokens == NULL) {
        return MZ_CLI_FAILED;
    }
    mz_cli_answer answer;
    int code = mz_cli_session_ask(session, tokens, count, (size_t)d->predict, &answer);
    if (code == MZ_CLI_OK) {
        json_array_append_new(answers, pack_answer(tokens, count, &answer));
    }
    mz_cli_answer_release(&answer);
    free(tokens);
    return code;
}

static int evict_all(mz_cli_session *session, json_t *evictions)
{
    const mz_size all = {true, 100.0, 0};
    mz_cli_eviction eviction;
    mz_cli_session_evict(session, all, &eviction);
    if (eviction.status != MZ_OK) {
        fprintf(stderr, "mzcache demo: not everything was evicted: %s\n", eviction.reason);
        return MZ_CLI_FAILED;
    }
    json_array_append_new(evictions, json_pack("{s:I, s:I, s:I, s:I}", "freed_bytes",
                                               (json_int_t)eviction.freed_bytes, "evict_ns",
                                               (json_int_t)eviction.taken_ns, "pss_before_bytes",
                                               (json_int_t)eviction.pss_before, "pss_after_bytes",
                                               (json_int_t)eviction.pss_after));
    return MZ_CLI_OK;
}

/* Processes 1 and 2: they differ in the evictions only. */
static int talk_on(demo *d, mz_cli_session *session, bool evicts, json_t *result)
{
    json_t *answers = json_array(), *evictions = json_array();
    json_object_set_new(result, "answers", answers);
    json_object_set_new(result, "evictions", evictions);
    int code = ask(d, session, d->text, answers);
    for (size_t turn = 0; turn < TURNS && code == MZ_CLI_OK; turn++) {
        if (evicts) {
            code = evict_all(session, evictions);
        }
        if (code == MZ_CLI_OK) {
            code = ask(d, session, questions[turn], answers);
        }
    }
    json_object_set_new(result, "pss_bytes", json_integer((json_int_t)mz_cli_pss_bytes()));
    return code;
}

/* Process 3: everything that was said before and the second question, in one prompt. */
static int talk_again(demo *d, mz_cli_session *session, json_t *result)
{
    json_t *answers = json_array();
    json_object_set_new(result, "answers", answers);
    mz_cli_answer answer;
    int code = mz_cli_session_ask(session, d->history, d->history_count, 1, &answer);
    if (code == MZ_CLI_OK) {
        json_array_append_new(answers, pack_answer(NULL, 0, &answer));
    }
    mz_cli_answer_release(&answer);
    return code;
}

/* Processes 1 and 2, on a text of the length that was asked for. */
static int talk_first(demo *d, mz_cli_session *session, bool evicts, json_t *result)
{
    char *text = text_of_length(session, d->text, d->text_tokens);
    if (text == NULL) {
        fprintf(stderr, "mzcache demo: the text gives no tokens\n");
        return MZ_CLI_FAILED;
    }
    free(d->text);
    d->text = text;
    return talk_on(d, session, evicts, result);
}

static int run_role(demo *d, role which, json_t *result)
{
    mz_cli_session session;
    int code = mz_cli_session_open(&session, COMMAND, &d->model);
    if (code != MZ_CLI_OK) {
        return code;
    }
    session.print = false;
    json_object_set_new(result, "open_ns", json_integer((json_int_t)session.open_ns));
    code = which == ROLE_RESTARTS ? talk_again(d, &session, result)
                                  : talk_first(d, &session, which == ROLE_EVICTS, result);
    mz_cli_session_close(&session);
    return code;
}

/* Play the role, send the result. The trace is written at exit, by one role only. */
static int play_in_child(demo *d, role which, int channel)
{
    if (which != ROLE_EVICTS) {
        d->model.llm.trace = NULL;
        unsetenv("MZCACHE_TRACE");
    }
    json_t *result = json_object();
    int code = run_role(d, which, result);
    if (code == MZ_CLI_OK && json_dumpfd(result, channel, JSON_COMPACT) != 0) {
        code = MZ_CLI_FAILED;
    }
    json_decref(result);
    close(channel);
    return code;
}

/* ---- in the parent ---- */

/* The result of a process that plays the role; NULL if it failed (it said why). */
static json_t *play(demo *d, role which)
{
    int ends[2];
    fflush(stdout);
    if (pipe(ends) != 0) {
        perror("mzcache demo: pipe");
        return NULL;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        exit(play_in_child(d, which, ends[1]));
    }
    close(ends[1]);
    json_error_t reason;
    json_t *result = child > 0 ? json_loadfd(ends[0], 0, &reason) : NULL;
    close(ends[0]);
    int state = 0;
    if (child > 0 && (waitpid(child, &state, 0) != child || state != 0)) {
        fprintf(stderr, "mzcache demo: the process ended with status %d\n", state);
        json_decref(result);
        return NULL;
    }
    return result;
}

static uint64_t number_at(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

static const json_t *answer_at(const json_t *result, size_t index)
{
    return json_array_get(json_object_get(result, "answers"), index);
}

static void append_tokens(demo *d, const json_t *tokens)
{
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        d->history[d->history_count++] = (int32_t)json_integer_value(json_array_get(tokens, i));
    }
}

static bool keep_history(demo *d, const json_t *keeps)
{
    const json_t *parts[3] = {json_object_get(answer_at(keeps, 0), "input"),
                              json_object_get(answer_at(keeps, 0), "tokens"),
                              json_object_get(answer_at(keeps, 1), "input")};
    size_t total = 1;
    for (size_t i = 0; i < 3; i++) {
        total += json_array_size(parts[i]);
    }
    d->history = malloc(total * sizeof *d->history);
    for (size_t i = 0; i < 3 && d->history != NULL; i++) {
        append_tokens(d, parts[i]);
    }
    return d->history != NULL;
}

/* A process that was ended long ago finds its model on flash, as the evicted one does. */
static void forget_model_file(const demo *d)
{
    mz_file file;
    mz_error error = MZ_ERROR_INIT;
    if (mz_file_open(&file, mz_os_linux(), d->model.llm.model_path, &error) == MZ_OK) {
        mz_file_drop_cache(&file, 0, file.bytes);
        mz_file_close(&file);
    }
}

typedef struct figures {
    uint64_t pss_keeps, pss_before, pss_evicted, pss_after, freed_bytes, evict_ns;
    uint64_t ttft_keeps_ns, ttft_evicted_ns, stall_ns, ttft_restart_ns;
    uint64_t context_tokens;
    bool identical;
} figures;

static figures compare(const json_t *keeps, const json_t *evicts, const json_t *restarts)
{
    const json_t *eviction = json_array_get(json_object_get(evicts, "evictions"), 0);
    figures f = {
        .pss_keeps = number_at(keeps, "pss_bytes"),
        .pss_before = number_at(eviction, "pss_before_bytes"),
        .pss_evicted = number_at(eviction, "pss_after_bytes"),
        .pss_after = number_at(evicts, "pss_bytes"),
        .freed_bytes = number_at(eviction, "freed_bytes"),
        .evict_ns = number_at(eviction, "evict_ns"),
        .ttft_keeps_ns = number_at(answer_at(keeps, 1), "ttft_ns"),
        .ttft_evicted_ns = number_at(answer_at(evicts, 1), "ttft_ns"),
        .stall_ns = number_at(answer_at(evicts, 1), "stall_ns"),
        .ttft_restart_ns =
            number_at(restarts, "open_ns") + number_at(answer_at(restarts, 0), "ttft_ns"),
        .context_tokens = number_at(answer_at(keeps, 0), "context_tokens"),
        .identical = true,
    };
    for (size_t i = 0; i <= TURNS; i++) {
        f.identical = f.identical && json_equal(json_object_get(answer_at(keeps, i), "tokens"),
                                                json_object_get(answer_at(evicts, i), "tokens"));
    }
    return f;
}

static void print_table(const figures *f, const json_t *evicts)
{
    char a[32], b[32], c[32], e[32];
    printf("\nThe evicted process answered:\n");
    for (size_t i = 1; i <= TURNS; i++) {
        printf("  > %s\n  %s\n", questions[i - 1],
               json_string_value(json_object_get(answer_at(evicts, i), "text")));
    }
    printf("\n%-34s %14s %14s\n", "", "memory (PSS)", "first token");
    printf("%-34s %14s %11.0f ms\n", "never evicted", mz_size_format(f->pss_keeps, a, sizeof a),
           mz_cli_ms(f->ttft_keeps_ns));
    printf("%-34s %14s\n", "before the eviction", mz_size_format(f->pss_before, b, sizeof b));
    printf("%-34s %14s\n", "evicted, waiting for the user",
           mz_size_format(f->pss_evicted, c, sizeof c));
    printf("%-34s %14s %11.0f ms\n", "asked on after the eviction",
           mz_size_format(f->pss_after, e, sizeof e), mz_cli_ms(f->ttft_evicted_ns));
    printf("%-34s %14s %11.0f ms\n", "cold start (reads all again)", "",
           mz_cli_ms(f->ttft_restart_ns));
    printf("\ngiven back: %s in %.0f ms; waited for memory at the gate: %.0f ms\n",
           mz_size_format(f->freed_bytes, a, sizeof a), mz_cli_ms(f->evict_ns),
           mz_cli_ms(f->stall_ns));
    printf("tokens identical to the process that was never evicted: %s\n",
           f->identical ? "yes" : "NO");
}

static void print_figures(const demo *d, const figures *f, const json_t *evicts)
{
    if (!d->model.json) {
        print_table(f, evicts);
        return;
    }
    mz_cli_print_json(json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:b}", "event", "demo",
        "context_tokens", (json_int_t)f->context_tokens, "pss_never_evicted_bytes",
        (json_int_t)f->pss_keeps, "pss_before_bytes", (json_int_t)f->pss_before,
        "pss_evicted_bytes", (json_int_t)f->pss_evicted, "pss_after_bytes",
        (json_int_t)f->pss_after, "freed_bytes", (json_int_t)f->freed_bytes, "evict_ms",
        mz_cli_ms(f->evict_ns), "ttft_never_evicted_ms", mz_cli_ms(f->ttft_keeps_ns),
        "ttft_after_eviction_ms", mz_cli_ms(f->ttft_evicted_ns), "stall_ms", mz_cli_ms(f->stall_ns),
        "ttft_restart_ms", mz_cli_ms(f->ttft_restart_ns), "tokens_identical", f->identical));
}

static int play_all(demo *d)
{
    json_t *evicts = NULL, *restarts = NULL;
    int code = MZ_CLI_FAILED;
    fprintf(stderr, "1/3 never evicted: reads a text of %ld tokens, answers three questions\n",
            d->text_tokens);
    json_t *keeps = play(d, ROLE_KEEPS);
    if (keeps == NULL || !keep_history(d, keeps)) {
        goto out;
    }
    fprintf(stderr,
            "2/3 evicted: the same, and gives everything back before each further question\n");
    evicts = play(d, ROLE_EVICTS);
    if (evicts == NULL) {
        goto out;
    }
    fprintf(stderr, "3/3 ended and started again: loads the model and reads everything again\n");
    forget_model_file(d);
    restarts = play(d, ROLE_RESTARTS);
    if (restarts == NULL) {
        goto out;
    }
    figures f = compare(keeps, evicts, restarts);
    print_figures(d, &f, evicts);
    /* A lossy codec may answer in other words; an exact one may not. */
    const mz_codec *codec = d->model.llm.codec != NULL ? mz_codec_find(d->model.llm.codec) : NULL;
    bool is_exact = codec == NULL || codec->exact; /* "raw" is no codec: bytes as they are */
    code = f.identical || !is_exact ? MZ_CLI_OK : MZ_CLI_FAILED;
out:
    json_decref(keeps);
    json_decref(evicts);
    json_decref(restarts);
    return code;
}

static int parse_options(int argc, char **argv, demo *d)
{
    static const struct option table[] = {MZ_CLI_MODEL_LONG,
                                          {"file", required_argument, NULL, 'f'},
                                          {"tokens", required_argument, NULL, 't'},
                                          {"predict", required_argument, NULL, 'n'},
                                          {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, MZ_CLI_MODEL_SHORT "f:t:n:", table, NULL)) != -1) {
        bool is_right = true;
        if (option == 'f') {
            d->file = optarg;
        } else if (option == 't') {
            is_right = mz_cli_parse_number(COMMAND, "-t", optarg, 1, &d->text_tokens);
        } else if (option == 'n') {
            is_right = mz_cli_parse_number(COMMAND, "-n", optarg, 1, &d->predict);
        } else {
            is_right = mz_cli_take_model_option(COMMAND, option, optarg, &d->model);
        }
        if (!is_right) {
            return MZ_CLI_USAGE;
        }
    }
    if (d->model.wants_help) {
        return MZ_CLI_OK;
    }
    if (optind < argc) {
        return mz_cli_wrong_use(COMMAND, "\"%s\" is too much", argv[optind]);
    }
    if (d->model.llm.model_path == NULL) {
        return mz_cli_wrong_use(COMMAND, "no model given (-m)");
    }
    if (d->model.llm.stock) {
        return mz_cli_wrong_use(COMMAND, "a stock engine can't evict");
    }
    return MZ_CLI_OK;
}

int mz_cli_demo(int argc, char **argv)
{
    demo d;
    memset(&d, 0, sizeof d);
    mz_cli_model_default(&d.model);
    d.text_tokens = 2000;
    d.predict = 48;
    int code = parse_options(argc, argv, &d);
    if (code != MZ_CLI_OK || d.model.wants_help) {
        if (code == MZ_CLI_OK) {
            fputs(help, stdout);
        }
        return code;
    }
    if (d.model.llm.context_tokens == 0) {
        /* Room for the answers, the questions and the template around them. */
        d.model.llm.context_tokens =
            (uint32_t)(d.text_tokens + (TURNS + 1) * (d.predict + 64) + 256);
    }
    /* What is shown is of this conversation: no measurement beside it, no eviction but its own. */
    setenv("MZCACHE_PROFILE", "off", 1);
    setenv("MZCACHE_PRESSURE", "off", 1);
    d.text = d.file != NULL ? mz_cli_read_text(COMMAND, d.file) : strdup(built_in_text);
    code = d.text != NULL ? play_all(&d) : MZ_CLI_FAILED;
    free(d.history);
    free(d.text);
    return code;
}

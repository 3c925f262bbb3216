/* SPDX-License-Identifier: MIT */
/* A conversation as a command has it; see session.h. */
#include "cli/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"

#define DEFAULT_BATCH_TOKENS 512u

int mz_cli_session_open(mz_cli_session *session, const char *command, const mz_cli_model *model)
{
    char message[512] = "";
    memset(session, 0, sizeof *session);
    session->command = command;
    session->batch_tokens =
        model->llm.batch_tokens != 0 ? model->llm.batch_tokens : DEFAULT_BATCH_TOKENS;
    session->print = !model->json;
    mz_cli_progress_init(&session->progress);
    mz_cli_progress_begin(&session->progress, true, "loading the model");
    uint64_t started_ns = mz_now_ns();
    mz_status status = mz_llm_open(&model->llm, &session->llm, message, sizeof message);
    session->open_ns = mz_now_ns() - started_ns;
    mz_cli_progress_end(&session->progress);
    if (status != MZ_OK) {
        fprintf(stderr, "mzcache %s: %s (%s)\n", command, message, mz_status_text(status));
        return MZ_CLI_FAILED;
    }
    return MZ_CLI_OK;
}

void mz_cli_session_close(mz_cli_session *session)
{
    mz_llm_close(session->llm);
    session->llm = NULL;
}

int32_t *mz_cli_session_tokenize(mz_cli_session *session, const char *text, bool add_special,
                                 size_t *count)
{
    long wanted = mz_llm_tokenize(session->llm, text, add_special, NULL, 0);
    if (wanted <= 0) {
        fprintf(stderr, "mzcache %s: the text gives no tokens\n", session->command);
        return NULL;
    }
    int32_t *tokens = malloc((size_t)wanted * sizeof *tokens);
    if (tokens == NULL) {
        fprintf(stderr, "mzcache %s: out of memory\n", session->command);
        return NULL;
    }
    *count = (size_t)mz_llm_tokenize(session->llm, text, add_special, tokens, (size_t)wanted);
    return tokens;
}

/* The message in the model's template, or bare if it has none; to be freed. */
static char *format_message(mz_llm *llm, const char *text)
{
    long bytes = mz_llm_chat_format(llm, "user", text, NULL, 0);
    if (bytes < 0) {
        return strdup(text);
    }
    char *message = malloc((size_t)bytes + 1);
    if (message != NULL) {
        mz_llm_chat_format(llm, "user", text, message, (size_t)bytes + 1);
    }
    return message;
}

int32_t *mz_cli_session_message(mz_cli_session *session, const char *text, size_t *count)
{
    bool is_first = mz_llm_context_tokens(session->llm) == 0;
    char *message = format_message(session->llm, text);
    int32_t *tokens = NULL;
    if (message != NULL) {
        tokens = mz_cli_session_tokenize(session, message, is_first, count);
    }
    free(message);
    return tokens;
}

typedef struct collector {
    mz_cli_session *session;
    mz_cli_answer *answer;
    size_t text_capacity, token_capacity;
} collector;

static bool grow(void **data, size_t *capacity, size_t wanted, size_t element_bytes)
{
    if (wanted <= *capacity) {
        return true;
    }
    size_t larger = wanted * 2 + 64;
    void *moved = realloc(*data, larger * element_bytes);
    if (moved == NULL) {
        return false;
    }
    *data = moved;
    *capacity = larger;
    return true;
}

static bool collect_token(void *context, int32_t token, const char *text, size_t text_bytes)
{
    collector *c = context;
    mz_cli_answer *answer = c->answer;
    void *words = answer->text;
    void *numbers = answer->tokens;
    bool has_room = grow(&words, &c->text_capacity, answer->text_bytes + text_bytes + 1, 1);
    has_room =
        grow(&numbers, &c->token_capacity, answer->token_count + 1, sizeof token) && has_room;
    answer->text = words;
    answer->tokens = numbers;
    if (!has_room) {
        return false;
    }
    mz_cli_progress_end(&c->session->progress);
    memcpy(answer->text + answer->text_bytes, text, text_bytes);
    answer->text_bytes += text_bytes;
    answer->text[answer->text_bytes] = '\0';
    answer->tokens[answer->token_count++] = token;
    if (c->session->print) {
        fwrite(text, 1, text_bytes, stdout);
        fflush(stdout);
    }
    return true;
}

static void report_failure(const mz_cli_session *session, mz_status status)
{
    mz_pool_status pool;
    const char *reason = "";
    if (session->llm != NULL && mz_llm_pool(session->llm) != NULL &&
        mz_status_get(mz_llm_pool(session->llm), &pool) == MZ_OK) {
        reason = pool.last_error;
    }
    if (status == MZ_E_INVALID) {
        reason = "the conversation does not fit into the context; raise --ctx";
    }
    fprintf(stderr, "\nmzcache %s: %s%s%s\n", session->command, mz_status_text(status),
            reason[0] != '\0' ? ": " : "", reason);
}

/* Prefill all but the last step, so that progress shows; the steps are those of one long call. */
static mz_status prefill_steps(mz_cli_session *session, const int32_t *tokens, size_t count,
                               size_t *done, mz_llm_timing *sum)
{
    size_t step = session->batch_tokens;
    mz_cli_progress_begin(&session->progress, false, "");
    /* A pending token of the last answer takes one place in the first step. */
    size_t first = step > 1 && mz_llm_context_tokens(session->llm) > 0 ? step - 1 : step;
    while (count - *done > (*done == 0 ? first : step)) {
        size_t take = *done == 0 ? first : step;
        mz_llm_timing timing;
        mz_status status =
            mz_llm_restore_generate(session->llm, tokens + *done, take, 0, NULL, NULL, &timing);
        if (status != MZ_OK) {
            return status;
        }
        *done += take;
        sum->ttft_ns += timing.total_ns;
        sum->total_ns += timing.total_ns;
        sum->stall_ns += timing.stall_ns;
        sum->input_tokens += timing.input_tokens;
        mz_cli_progress_update(&session->progress, "reading the prompt", *done, count, "tokens");
    }
    return MZ_OK;
}

int mz_cli_session_ask(mz_cli_session *session, const int32_t *tokens, size_t count, size_t max_new,
                       mz_cli_answer *answer)
{
    memset(answer, 0, sizeof *answer);
    collector c = {session, answer, 0, 0};
    mz_llm_timing timing = {0};
    size_t done = 0;
    mz_status status = prefill_steps(session, tokens, count, &done, &answer->timing);
    if (status == MZ_OK) {
        status = mz_llm_restore_generate(session->llm, tokens + done, count - done, max_new,
                                         collect_token, &c, &timing);
    }
    mz_cli_progress_end(&session->progress);
    if (status != MZ_OK) {
        report_failure(session, status);
        return MZ_CLI_FAILED;
    }
    answer->timing.ttft_ns += timing.ttft_ns;
    answer->timing.total_ns += timing.total_ns;
    answer->timing.stall_ns += timing.stall_ns;
    answer->timing.input_tokens += timing.input_tokens;
    answer->timing.output_tokens = timing.output_tokens;
    answer->timing.context_tokens = timing.context_tokens;
    return MZ_CLI_OK;
}

void mz_cli_answer_release(mz_cli_answer *answer)
{
    free(answer->text);
    free(answer->tokens);
    memset(answer, 0, sizeof *answer);
}

void mz_cli_session_evict(mz_cli_session *session, mz_size size, mz_cli_eviction *eviction)
{
    memset(eviction, 0, sizeof *eviction);
    mz_pool *pool = mz_llm_pool(session->llm);
    mz_pool_status before;
    eviction->status = mz_status_get(pool, &before);
    if (eviction->status != MZ_OK) {
        return;
    }
    uint64_t resident_bytes = mz_cli_resident_bytes(&before);
    eviction->asked_bytes = mz_size_of(size, resident_bytes);
    eviction->pss_before = mz_cli_pss_bytes();
    if (eviction->asked_bytes > 0) {
        uint64_t started_ns = mz_now_ns();
        eviction->status = mz_evict(pool, eviction->asked_bytes, &eviction->freed_bytes);
        eviction->taken_ns = mz_now_ns() - started_ns;
    }
    eviction->pss_after = mz_cli_pss_bytes();
    if (eviction->status != MZ_OK) {
        mz_pool_status after;
        bool is_known = mz_status_get(pool, &after) == MZ_OK;
        bool wanted_all = size.is_percent && size.percent >= 100.0;
        if (eviction->status == MZ_E_PARTIAL && wanted_all && is_known &&
            mz_cli_resident_bytes(&after) == 0) {
            /* All is out; what compressed units take in memory is no failure to evict. */
            eviction->status = MZ_OK;
            return;
        }
        bool has_reason = is_known && after.last_error[0] != '\0';
        snprintf(eviction->reason, sizeof eviction->reason, "%s",
                 has_reason ? after.last_error : mz_status_text(eviction->status));
    }
}

int mz_cli_eviction_exit(const mz_cli_eviction *eviction)
{
    if (eviction->status == MZ_OK) {
        return MZ_CLI_OK;
    }
    return eviction->status == MZ_E_PARTIAL ? MZ_CLI_PARTIAL : MZ_CLI_FAILED;
}

void mz_cli_eviction_print(const mz_cli_eviction *eviction, FILE *out)
{
    char asked[32], freed[32], before[32], after[32];
    fprintf(out, "evicted %s of %s asked for in %.1f ms; the process went from %s to %s\n",
            mz_size_format(eviction->freed_bytes, freed, sizeof freed),
            mz_size_format(eviction->asked_bytes, asked, sizeof asked),
            mz_cli_ms(eviction->taken_ns),
            mz_size_format(eviction->pss_before, before, sizeof before),
            mz_size_format(eviction->pss_after, after, sizeof after));
    if (eviction->status != MZ_OK) {
        fprintf(out, "  not all of it: %s\n", eviction->reason);
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * See eval.h.
 *
 * Every chunk has to go through the codec, while an eviction would send some to flash as they are.
 * So no file may grow meanwhile, and the eviction, refused by the store, goes on with the stack.
 * `raw` is the other way round: everything goes to flash. It measures no codec but this code: a
 * difference other than exactly 0 would be an error of its own.
 */
#include "cli/eval.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/questions.h"
#include "pool/pool.h"

#define COMMAND "eval"
#define ANSWER_TOKENS 12u

static bool say(const char *what, mz_status status)
{
    fprintf(stderr, "mzcache " COMMAND ": %s (%s)\n", what, mz_status_text(status));
    return false;
}

/* Append tokens; the logits of the last one, or NULL, having said why. */
static const float *feed(mz_eval *eval, const int32_t *tokens, size_t count)
{
    mz_llm *llm = eval->session->llm;
    mz_status status = mz_llm_restore_generate(llm, tokens, count, 0, NULL, NULL, NULL);
    const float *logits = status == MZ_OK ? mz_llm_logits(llm, &eval->vocabulary) : NULL;
    if (logits == NULL) {
        say("a step failed", status);
    }
    return logits;
}

static double log_of_sum(const float *logits, size_t count)
{
    double highest = logits[0], sum = 0;
    for (size_t i = 1; i < count; i++) {
        highest = logits[i] > highest ? logits[i] : highest;
    }
    for (size_t i = 0; i < count; i++) {
        sum += exp(logits[i] - highest);
    }
    return highest + log(sum);
}

static size_t likeliest(const float *logits, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

/* KL(plain || codec) of one token and what else is summed; `next` is the text's next token. */
static void compare(const float *plain, const float *codec, size_t count, int32_t next,
                    mz_eval_row *row)
{
    double plain_log = log_of_sum(plain, count), codec_log = log_of_sum(codec, count), kl = 0;
    for (size_t i = 0; i < count; i++) {
        double p = plain[i] - plain_log;
        kl += exp(p) * (p - (codec[i] - codec_log));
    }
    row->kl += kl;
    row->largest_kl = kl > row->largest_kl ? kl : row->largest_kl;
    row->plain_loss += plain_log - plain[next];
    row->codec_loss += codec_log - codec[next];
    row->same_top += likeliest(plain, count) == likeliest(codec, count) ? 1 : 0;
}

/* The statuses don't matter: what did not leave is seen afterwards. */
static void evict_all(mz_pool *pool)
{
    uint64_t freed = 0;
    /* What the store refused stays; with weights still to go, plans use the stack only. */
    (void)mz_evict_tagged(pool, UINT64_MAX, MZ_TAG_KV_CACHE, &freed);
    (void)mz_evict(pool, UINT64_MAX, &freed);
}

static bool evict_into_stack(mz_pool *pool)
{
    struct rlimit kept, none;
    if (getrlimit(RLIMIT_FSIZE, &kept) != 0) {
        return false;
    }
    none = kept;
    none.rlim_cur = 0;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
    evict_all(pool);
    setrlimit(RLIMIT_FSIZE, &kept);
    signal(SIGXFSZ, handler);
    return true;
}

/* All KV through the codec into the stack, with `raw` to flash; false, having said why, if not. */
static bool encode_all(mz_pool *pool, bool raw, mz_eval_row *row)
{
    mz_pool_status status;
    if (raw) {
        evict_all(pool);
    } else if (!evict_into_stack(pool)) {
        return false;
    }
    if (mz_status_get(pool, &status) != MZ_OK) {
        return false;
    }
    const mz_tag_status *kv = &status.kv_cache;
    uint64_t right_units = raw ? kv->stored_units : kv->compressed_units;
    uint64_t wrong_units = raw ? kv->compressed_units : kv->stored_units;
    if (right_units == 0 || wrong_units > 0 || kv->resident_bytes > 0 || kv->lost_units > 0) {
        fprintf(stderr, "mzcache " COMMAND ": %s keeps not all KV of this model %s: %s\n",
                status.codec, raw ? "on flash" : "in memory", status.last_error);
        return false;
    }
    uint64_t kept_bytes = raw ? kv->stored_bytes : kv->compressed_bytes;
    row->kept_share = (double)kept_bytes / (double)kv->total_bytes;
    return true;
}

/* Restore before anything computes, so that decoding has the cores to itself and is timed. */
static bool restore_all(mz_pool *pool, mz_eval_row *row)
{
    mz_pool_status before, after;
    mz_status status = mz_status_get(pool, &before);
    status = status == MZ_OK ? mz_prefetch(pool) : status;
    status = status == MZ_OK ? mz_prefetch_wait(pool) : status;
    status = status == MZ_OK ? mz_status_get(pool, &after) : status;
    if (status != MZ_OK) {
        return say("the KV can't be restored", status);
    }
    if (after.decode_ns > before.decode_ns) {
        row->decode_bytes_per_s = (double)(after.decoded_bytes - before.decoded_bytes) * 1e9 /
                                  (double)(after.decode_ns - before.decode_ns);
    }
    return true;
}

/* Put a conversation back and send its KV through the codec. */
static bool cycle(mz_eval *eval, const mz_llm_copy *copy, const char *codec, mz_eval_row *row)
{
    mz_pool *pool = mz_llm_pool(eval->session->llm);
    mz_error error = MZ_ERROR_INIT;
    mz_status status = mz_pool_set_codec(pool, codec, &error);
    if (status != MZ_OK) {
        return say(error.text, status);
    }
    status = mz_llm_copy_restore(eval->session->llm, copy);
    if (status != MZ_OK) {
        return say("the KV can't be put back", status);
    }
    return encode_all(pool, strcmp(codec, "raw") == 0, row) && restore_all(pool, row);
}

static bool read_text(mz_eval *eval)
{
    if (feed(eval, eval->tokens, eval->context) == NULL) {
        return false;
    }
    mz_status status = mz_llm_copy_make(eval->session->llm, &eval->read);
    if (status != MZ_OK) {
        return say("the KV can't be copied", status);
    }
    eval->rows = calloc(eval->score, eval->vocabulary * sizeof *eval->rows);
    if (eval->rows == NULL) {
        return say("the logits don't fit", MZ_E_NOMEM);
    }
    for (size_t i = 0; i < eval->score; i++) {
        const float *logits = feed(eval, eval->tokens + eval->context + i, 1);
        if (logits == NULL) {
            return false;
        }
        memcpy(eval->rows + i * eval->vocabulary, logits, eval->vocabulary * sizeof *logits);
    }
    return true;
}

static bool measure_text(mz_eval *eval, const char *codec, mz_eval_row *row)
{
    if (!cycle(eval, eval->read, codec, row)) {
        return false;
    }
    for (size_t i = 0; i < eval->score; i++) {
        const int32_t *at = eval->tokens + eval->context + i;
        const float *logits = feed(eval, at, 1);
        if (logits == NULL) {
            return false;
        }
        compare(eval->rows + i * eval->vocabulary, logits, eval->vocabulary, at[1], row);
    }
    return true;
}

typedef struct answer_text {
    char text[256];
    size_t bytes;
} answer_text;

/* An answer ends with its sentence. */
static bool collect(void *context, int32_t token, const char *text, size_t bytes)
{
    (void)token;
    answer_text *answer = context;
    if (answer->bytes + bytes >= sizeof answer->text) {
        return false;
    }
    memcpy(answer->text + answer->bytes, text, bytes);
    answer->bytes += bytes;
    answer->text[answer->bytes] = '\0';
    char *end = strpbrk(answer->text, ".\n");
    if (end != NULL) {
        *end = '\0';
    }
    return end == NULL;
}

/* Append text. False, having said why. */
static bool ask(mz_eval *eval, const char *text, bool begins, size_t max_new, answer_text *answer)
{
    size_t count = 0;
    int32_t *tokens = mz_cli_session_tokenize(eval->session, text, begins, &count);
    if (tokens == NULL) {
        return false;
    }
    mz_status status = mz_llm_restore_generate(eval->session->llm, tokens, count, max_new,
                                               max_new > 0 ? collect : NULL, answer, NULL);
    free(tokens);
    return status == MZ_OK ? true : say("a question can't be asked", status);
}

/* Ask the questions of a sheet, whose text was read; adds their F1. */
static bool ask_sheet(mz_eval *eval, unsigned sheet, double *f1)
{
    size_t read = mz_llm_context_tokens(eval->session->llm);
    size_t first = (size_t)sheet * MZ_SHEET_FACTS;
    for (unsigned i = 0; i < MZ_SHEET_FACTS && first + i < eval->questions; i++) {
        char question[MZ_QUESTION_BYTES], right[MZ_ANSWER_BYTES];
        answer_text answer = {.bytes = 0};
        mz_sheet_question(sheet, i, question, right);
        if (!ask(eval, question, false, ANSWER_TOKENS, &answer)) {
            return false;
        }
        *f1 += mz_answer_f1(answer.text, right);
        mz_status status = mz_llm_rewind(eval->session->llm, read);
        if (status != MZ_OK) {
            return say("this model can't go back to ask the next question", status);
        }
    }
    return true;
}

static unsigned sheet_count(const mz_eval *eval)
{
    return (unsigned)((eval->questions + MZ_SHEET_FACTS - 1) / MZ_SHEET_FACTS);
}

static bool read_sheets(mz_eval *eval)
{
    for (unsigned i = 0; i < sheet_count(eval); i++) {
        char text[MZ_SHEET_BYTES];
        mz_sheet_text(i, text);
        mz_llm_reset(eval->session->llm);
        if (!ask(eval, text, true, 0, NULL)) {
            return false;
        }
        mz_status status = mz_llm_copy_make(eval->session->llm, &eval->sheets[i]);
        if (status != MZ_OK) {
            return say("the KV can't be copied", status);
        }
        size_t tokens = mz_llm_context_tokens(eval->session->llm);
        eval->sheet_tokens = tokens > eval->sheet_tokens ? tokens : eval->sheet_tokens;
        if (!ask_sheet(eval, i, &eval->plain_f1)) {
            return false;
        }
    }
    eval->plain_f1 /= (double)eval->questions;
    return true;
}

bool mz_eval_prepare(mz_eval *eval)
{
    return (eval->tokens == NULL || read_text(eval)) && (eval->questions == 0 || read_sheets(eval));
}

bool mz_eval_codec(mz_eval *eval, const char *codec, mz_eval_row *row)
{
    memset(row, 0, sizeof *row);
    mz_eval_row of_sheets = {0};
    for (unsigned i = 0; i < sheet_count(eval); i++) {
        if (!cycle(eval, eval->sheets[i], codec, &of_sheets) ||
            !ask_sheet(eval, i, &of_sheets.f1)) {
            return false;
        }
    }
    /* Shares and rates are those of the text, which is longer, if there is one. */
    *row = of_sheets;
    row->f1 = eval->questions > 0 ? of_sheets.f1 / (double)eval->questions : 0;
    return eval->tokens == NULL || measure_text(eval, codec, row);
}

void mz_eval_release(mz_eval *eval)
{
    mz_llm_copy_free(eval->read);
    free(eval->rows);
    for (size_t i = 0; i < MZ_EVAL_SHEETS; i++) {
        mz_llm_copy_free(eval->sheets[i]);
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * mzcache eval: what a codec costs this model in accuracy, on a text of the user's.
 *
 * The same tokens are read twice by the same engine: with KV as it was computed, and with KV that
 * was encoded and restored before the scored part. What is compared are the distributions over the
 * next token, so no answer has to be judged: the mean Kullback-Leibler divergence, how often the
 * likeliest token is the same, and the perplexity of the text either way.
 *
 * Every chunk has to go through the codec, while an eviction would send some to flash as they are.
 * So no file may grow meanwhile, and the eviction, refused by the store, goes on with the stack.
 * `raw` is the other way round: everything goes to flash. It measures no codec but this command:
 * a difference other than exactly 0 would be an error of its own.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/cli.h"
#include "cli/session.h"

#define COMMAND "eval"
#define GATE_KL 0.01 /* nats per token; above it generated text differs visibly */

static const char help[] =
    "Usage: mzcache eval -m FILE -f TEXT [OPTIONS]\n\n"
    "Measure what --codec (q8) costs this model in accuracy: a text is read with its KV as it was\n"
    "computed and with KV that was encoded and restored, and the distributions over the next "
    "token\n"
    "are compared.\n\n"
    "  -f, --file FILE          the text (-: standard input)\n"
    "      --context TOKENS     tokens whose KV is encoded (1024)\n"
    "      --score TOKENS       tokens after them whose distributions are compared (128)\n"
    "      --gate               fail unless the mean divergence is at most 0.01 nats per token, "
    "the\n"
    "                           condition for using q4 or cachegen with a model\n" MZ_CLI_FILE_HELP
        MZ_CLI_CTX_HELP MZ_CLI_ENGINE_HELP MZ_CLI_SWITCHES_HELP
    "\nExit codes: 0 done, 1 failed or not let through the gate, 2 wrong use.\n";

enum { OPTION_CONTEXT = MZ_CLI_OWN, OPTION_SCORE, OPTION_GATE };

typedef struct eval_options {
    mz_cli_model model;
    const char *file;
    long context, score;
    bool gate;
} eval_options;

typedef struct eval_sums {
    double kl, largest_kl;         /* nats: sum, and of one token */
    double plain_loss, codec_loss; /* nats: sums of -log p(next token of the text) */
    long same_top;                 /* tokens whose likeliest next token is the same */
    double kept_share;             /* encoded bytes, with raw those on flash, over bytes of KV */
} eval_sums;

static bool take_option(int option, const char *value, eval_options *eval)
{
    switch (option) {
    case 'f':
        eval->file = value;
        return true;
    case OPTION_CONTEXT:
        return mz_cli_parse_number(COMMAND, "--context", value, 1, &eval->context);
    case OPTION_SCORE:
        return mz_cli_parse_number(COMMAND, "--score", value, 1, &eval->score);
    case OPTION_GATE:
        eval->gate = true;
        return true;
    default:
        return mz_cli_take_model_option(COMMAND, option, value, &eval->model);
    }
}

static int parse_options(int argc, char **argv, eval_options *eval)
{
    static const struct option table[] = {MZ_CLI_MODEL_LONG,
                                          {"file", required_argument, NULL, 'f'},
                                          {"context", required_argument, NULL, OPTION_CONTEXT},
                                          {"score", required_argument, NULL, OPTION_SCORE},
                                          {"gate", no_argument, NULL, OPTION_GATE},
                                          {NULL, 0, NULL, 0}};
    memset(eval, 0, sizeof *eval);
    mz_cli_model_default(&eval->model);
    eval->context = 1024;
    eval->score = 128;
    int option;
    while ((option = getopt_long(argc, argv, MZ_CLI_MODEL_SHORT "f:", table, NULL)) != -1) {
        if (!take_option(option, optarg, eval)) {
            return MZ_CLI_USAGE;
        }
    }
    mz_llm_options *llm = &eval->model.llm;
    if (eval->model.wants_help) {
        return MZ_CLI_OK;
    }
    if (optind < argc) {
        return mz_cli_wrong_use(COMMAND, "\"%s\" is too much", argv[optind]);
    }
    if (llm->model_path == NULL || eval->file == NULL) {
        return mz_cli_wrong_use(COMMAND, "-m and -f are needed");
    }
    if (llm->stock) {
        return mz_cli_wrong_use(COMMAND, "the stock engine has no codec to be measured");
    }
    llm->codec = llm->codec != NULL ? llm->codec : "q8";
    if (llm->context_tokens == 0) {
        llm->context_tokens = (uint32_t)(eval->context + eval->score + 1);
    }
    return MZ_CLI_OK;
}

/* Append tokens; the logits of the last one, [*vocabulary], or NULL, having said why. */
static const float *feed(mz_cli_session *session, const int32_t *tokens, size_t count,
                         size_t *vocabulary)
{
    mz_status status = mz_llm_restore_generate(session->llm, tokens, count, 0, NULL, NULL, NULL);
    const float *logits = status == MZ_OK ? mz_llm_logits(session->llm, vocabulary) : NULL;
    if (logits == NULL) {
        fprintf(stderr, "mzcache " COMMAND ": a step failed (%s)\n", mz_status_text(status));
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
                    eval_sums *sums)
{
    double plain_log = log_of_sum(plain, count), codec_log = log_of_sum(codec, count), kl = 0;
    for (size_t i = 0; i < count; i++) {
        double p = plain[i] - plain_log;
        kl += exp(p) * (p - (codec[i] - codec_log));
    }
    sums->kl += kl;
    sums->largest_kl = kl > sums->largest_kl ? kl : sums->largest_kl;
    sums->plain_loss += plain_log - plain[next];
    sums->codec_loss += codec_log - codec[next];
    sums->same_top += likeliest(plain, count) == likeliest(codec, count) ? 1 : 0;
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
static bool encode_all(mz_cli_session *session, bool raw, eval_sums *sums)
{
    mz_pool *pool = mz_llm_pool(session->llm);
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
    sums->kept_share = (double)kept_bytes / (double)kv->total_bytes;
    return true;
}

/* Logits after each scored token, [score][*vocabulary]; to be freed. NULL, having said why. */
static float *plain_rows(const eval_options *eval, mz_cli_session *session, const int32_t *tokens,
                         size_t *vocabulary)
{
    size_t context = (size_t)eval->context, score = (size_t)eval->score;
    if (feed(session, tokens, context, vocabulary) == NULL) {
        return NULL;
    }
    float *rows = calloc(score, *vocabulary * sizeof *rows);
    for (size_t i = 0; rows != NULL && i < score; i++) {
        const float *logits = feed(session, tokens + context + i, 1, vocabulary);
        if (logits == NULL) {
            free(rows);
            return NULL;
        }
        memcpy(rows + i * *vocabulary, logits, *vocabulary * sizeof *rows);
    }
    return rows;
}

static bool measure(const eval_options *eval, mz_cli_session *session, const int32_t *tokens,
                    eval_sums *sums)
{
    size_t vocabulary = 0, context = (size_t)eval->context;
    float *rows = plain_rows(eval, session, tokens, &vocabulary);
    if (rows == NULL) {
        return false;
    }
    mz_llm_reset(session->llm);
    bool raw = strcmp(eval->model.llm.codec, "raw") == 0;
    bool good =
        feed(session, tokens, context, &vocabulary) != NULL && encode_all(session, raw, sums);
    for (size_t i = 0; good && i < (size_t)eval->score; i++) {
        const float *logits = feed(session, tokens + context + i, 1, &vocabulary);
        good = logits != NULL;
        if (good) {
            compare(rows + i * vocabulary, logits, vocabulary, tokens[context + i + 1], sums);
        }
    }
    free(rows);
    return good;
}

static int report(const eval_options *eval, const eval_sums *sums)
{
    double score = (double)eval->score, kl = sums->kl / score;
    double same = (double)sums->same_top / score, saved = 1 - sums->kept_share;
    double plain = exp(sums->plain_loss / score), codec = exp(sums->codec_loss / score);
    bool passes = kl <= GATE_KL;
    if (eval->model.json) {
        mz_cli_print_json(json_pack(
            "{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "event", "eval", "codec",
            eval->model.llm.codec, "context_tokens", (json_int_t)eval->context, "scored_tokens",
            (json_int_t)eval->score, "saved", saved, "mean_kl", kl, "largest_kl", sums->largest_kl,
            "same_top", same, "perplexity_f16", plain, "perplexity", codec, "passes", passes));
    } else {
        printf("%-8s saves %.1f %%  mean KL %.6f (largest %.4f) nats  same top token %.1f %%  "
               "perplexity %.3f, without codec %.3f\n",
               eval->model.llm.codec, 100 * saved, kl, sums->largest_kl, 100 * same, codec, plain);
    }
    if (eval->gate && !passes) {
        fprintf(stderr,
                "mzcache " COMMAND ": %s is not let through: mean KL %.4f is above %.2f; use q8 "
                "with this model\n",
                eval->model.llm.codec, kl, GATE_KL);
        return MZ_CLI_FAILED;
    }
    return MZ_CLI_OK;
}

static int evaluate(const eval_options *eval, mz_cli_session *session, const char *text)
{
    size_t count = 0;
    int32_t *tokens = mz_cli_session_tokenize(session, text, true, &count);
    if (tokens == NULL) {
        return MZ_CLI_FAILED;
    }
    int code = MZ_CLI_FAILED;
    eval_sums sums = {0};
    if (count < (size_t)(eval->context + eval->score + 1)) {
        fprintf(stderr, "mzcache " COMMAND ": the text has %zu tokens, %ld are needed\n", count,
                eval->context + eval->score + 1);
    } else if (measure(eval, session, tokens, &sums)) {
        code = report(eval, &sums);
    }
    free(tokens);
    return code;
}

int mz_cli_eval(int argc, char **argv)
{
    eval_options eval;
    int code = parse_options(argc, argv, &eval);
    if (code != MZ_CLI_OK || eval.model.wants_help) {
        if (code == MZ_CLI_OK) {
            fputs(help, stdout);
        }
        return code;
    }
    char *text = mz_cli_read_text(COMMAND, eval.file);
    if (text == NULL) {
        return MZ_CLI_FAILED;
    }
    mz_cli_session session;
    setenv("MZCACHE_PRESSURE", "off", 1); /* evictions here are part of what is measured */
    code = mz_cli_session_open(&session, COMMAND, &eval.model);
    if (code == MZ_CLI_OK) {
        code = evaluate(&eval, &session, text);
        mz_cli_session_close(&session);
    }
    free(text);
    return code;
}

/* SPDX-License-Identifier: MIT */
/*
 * mzcache eval: what codecs cost this model in accuracy, as one table.
 *
 * The same tokens are read by the same engine with KV as it was computed and with KV that was
 * encoded and restored (eval.h). What is compared are the distributions over the next token, so no
 * answer has to be judged: the mean Kullback-Leibler divergence, how often the likeliest token is
 * the same, and the perplexity of the text either way. Beside them stands how well questions are
 * answered, which is what people notice.
 *
 * This command is what lets a codec through its gate, so it does not ask the gate itself.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/eval.h"
#include "cli/questions.h"
#include "profile/gate.h"

#define COMMAND "eval"
#define CODECS_MOST 16u
#define DEFAULT_QUESTIONS 100

static const char help[] =
    "Usage: mzcache eval -m FILE [-f TEXT] [OPTIONS]\n\n"
    "Measure what codecs cost this model in accuracy, as one table. A text is read with its KV as\n"
    "it was computed and with KV that was encoded and restored, and the distributions over the\n"
    "next token are compared; questions are answered from long contexts either way.\n\n"
    "  -f, --file FILE          the text (-: standard input); without it only questions are asked\n"
    "      --context TOKENS     tokens whose KV is encoded (1024)\n"
    "      --score TOKENS       tokens after them whose distributions are compared (128)\n"
    "      --questions N        questions to ask, 0 to 320 (100; 0 with --gate or --codec)\n"
    "      --codec NAMES        what to measure, separated by commas: those of run, and last-bit,\n"
    "                           which changes KV as little as can be, to compare with (default:\n"
    "                           all that change something, lossless and last-bit; with --gate\n"
    "                           those that need it)\n"
    "      --gate               keep for this model which codecs passed: the mean divergence is\n"
    "                           at most 0.01 nats per token. q4 is used only with models that\n"
    "                           did\n"
    "\nAs with run:\n" MZ_CLI_FILE_HELP MZ_CLI_CTX_HELP
        MZ_CLI_ENGINE_HELP MZ_CLI_SWITCHES_HELP
    "\nExit codes: 0 done, 1 failed or not let through the gate, 2 wrong use.\n";

enum { OPTION_CONTEXT = MZ_CLI_OWN, OPTION_SCORE, OPTION_GATE, OPTION_QUESTIONS };

typedef struct eval_options {
    mz_cli_model model;
    const char *file;
    long context, score, questions; /* questions: -1: not said */
    bool gate;
    char *codec_words;               /* NULL: the default; what `codecs` points into */
    const char *codecs[CODECS_MOST]; /* [codec_count] */
    size_t codec_count;
} eval_options;

static bool take_option(int option, const char *value, eval_options *eval)
{
    switch (option) {
    case 'f':
        eval->file = value;
        return true;
    case MZ_CLI_CODEC:
        free(eval->codec_words);
        eval->codec_words = strdup(value);
        return eval->codec_words != NULL;
    case OPTION_CONTEXT:
        return mz_cli_parse_number(COMMAND, "--context", value, 1, &eval->context);
    case OPTION_SCORE:
        return mz_cli_parse_number(COMMAND, "--score", value, 1, &eval->score);
    case OPTION_QUESTIONS:
        return mz_cli_parse_number(COMMAND, "--questions", value, 0, &eval->questions);
    case OPTION_GATE:
        eval->gate = true;
        return true;
    default:
        return mz_cli_take_model_option(COMMAND, option, value, &eval->model);
    }
}

static bool is_codec(const char *name)
{
    return strcmp(name, "raw") == 0 || strcmp(name, MZ_EVAL_LAST_BIT) == 0 ||
           mz_codec_find(name) != NULL;
}

/* Which codecs: those that were named, or the default. */
static bool choose_codecs(eval_options *eval)
{
    char *rest = NULL;
    for (char *word = eval->codec_words != NULL ? strtok_r(eval->codec_words, ",", &rest) : NULL;
         word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (!is_codec(word) || eval->codec_count == CODECS_MOST) {
            mz_cli_wrong_use(COMMAND, "--codec can't be \"%s\"", word);
            return false;
        }
        eval->codecs[eval->codec_count++] = word;
    }
    if (eval->codec_words != NULL) {
        return eval->codec_count > 0 || mz_cli_wrong_use(COMMAND, "--codec names nothing") == 0;
    }
    for (size_t i = 0; mz_codec_at(i) != NULL && eval->codec_count < CODECS_MOST - 2; i++) {
        if (eval->gate ? mz_codec_at(i)->needs_gate : !mz_codec_at(i)->exact) {
            eval->codecs[eval->codec_count++] = mz_codec_at(i)->name;
        }
    }
    if (!eval->gate) {
        eval->codecs[eval->codec_count++] = "lossless";
        eval->codecs[eval->codec_count++] = MZ_EVAL_LAST_BIT;
    }
    return true;
}

static int check_options(eval_options *eval)
{
    mz_llm_options *llm = &eval->model.llm;
    if (eval->questions < 0) {
        eval->questions = eval->gate || eval->codec_words != NULL ? 0 : DEFAULT_QUESTIONS;
    }
    if (llm->model_path == NULL || (eval->file == NULL && (eval->gate || eval->questions == 0))) {
        return mz_cli_wrong_use(COMMAND, "-m and -f are needed");
    }
    if (eval->questions > (long)(MZ_EVAL_SHEETS * MZ_SHEET_FACTS)) {
        return mz_cli_wrong_use(COMMAND, "there are %u questions at most",
                                MZ_EVAL_SHEETS * MZ_SHEET_FACTS);
    }
    if (llm->stock) {
        return mz_cli_wrong_use(COMMAND, "the stock engine has no codec to be measured");
    }
    llm->codec = "raw"; /* to begin with: the choice is made for each row */
    if (llm->context_tokens == 0) {
        uint32_t text = eval->file != NULL ? (uint32_t)(eval->context + eval->score + 1) : 0;
        uint32_t sheets = eval->questions > 0 ? MZ_EVAL_SHEET_ROOM : 0;
        llm->context_tokens = text > sheets ? text : sheets;
    }
    return choose_codecs(eval) ? MZ_CLI_OK : MZ_CLI_USAGE;
}

static int parse_options(int argc, char **argv, eval_options *eval)
{
    static const struct option table[] = {MZ_CLI_MODEL_LONG,
                                          {"file", required_argument, NULL, 'f'},
                                          {"context", required_argument, NULL, OPTION_CONTEXT},
                                          {"score", required_argument, NULL, OPTION_SCORE},
                                          {"questions", required_argument, NULL, OPTION_QUESTIONS},
                                          {"gate", no_argument, NULL, OPTION_GATE},
                                          {NULL, 0, NULL, 0}};
    memset(eval, 0, sizeof *eval);
    mz_cli_model_default(&eval->model);
    eval->context = 1024;
    eval->score = 128;
    eval->questions = -1;
    int option;
    while ((option = getopt_long(argc, argv, MZ_CLI_MODEL_SHORT "f:", table, NULL)) != -1) {
        if (!take_option(option, optarg, eval)) {
            return MZ_CLI_USAGE;
        }
    }
    if (eval->model.wants_help) {
        return MZ_CLI_OK;
    }
    if (optind < argc) {
        return mz_cli_wrong_use(COMMAND, "\"%s\" is too much", argv[optind]);
    }
    return check_options(eval);
}

static json_t *number_or_null(bool known, double number)
{
    return known ? json_real(number) : json_null();
}

static void print_json(const eval_options *options, const mz_eval *eval, const char *codec,
                       const mz_eval_row *row)
{
    bool text = eval->tokens != NULL, asked = eval->questions > 0;
    double score = text ? (double)eval->score : 1, kl = row->kl / score;
    const char *file = strrchr(options->model.llm.model_path, '/');
    file = file != NULL ? file + 1 : options->model.llm.model_path;
    mz_cli_print_json(json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o}", "event",
        "eval", "model", file, "codec", codec, "context_tokens",
        (json_int_t)(text ? eval->context : 0), "scored_tokens",
        (json_int_t)(text ? eval->score : 0), "saved", 1 - row->kept_share, "mean_kl",
        number_or_null(text, kl), "largest_kl", number_or_null(text, row->largest_kl), "same_top",
        number_or_null(text, (double)row->same_top / score), "perplexity_f16",
        number_or_null(text, exp(row->plain_loss / score)), "perplexity",
        number_or_null(text, exp(row->codec_loss / score)), "passes",
        text ? json_boolean(kl <= MZ_GATE_KL) : json_null(), "questions",
        (json_int_t)eval->questions, "f1_f16", number_or_null(asked, eval->plain_f1), "f1",
        number_or_null(asked, row->f1), "decode_gbps",
        number_or_null(row->decode_bytes_per_s > 0, row->decode_bytes_per_s / 1e9)));
}

static void print_heading(const mz_eval *eval)
{
    if (eval->tokens != NULL) {
        printf("%zu tokens after %zu whose KV was encoded", eval->score, eval->context);
    }
    if (eval->questions > 0) {
        printf("%s%zu questions to contexts of up to %zu tokens, F1 without codec %.3f",
               eval->tokens != NULL ? "; " : "", eval->questions, eval->sheet_tokens,
               eval->plain_f1);
    }
    printf("\n%-10s %7s %10s %10s %8s %11s %11s %6s %12s\n", "codec", "saves", "mean KL",
           "largest", "same top", "perplexity", "without", "F1", "decode GB/s");
}

static void print_row(const mz_eval *eval, const char *codec, const mz_eval_row *row)
{
    printf("%-10s %5.1f %%", codec, 100 * (1 - row->kept_share));
    if (eval->tokens != NULL) {
        double score = (double)eval->score;
        printf(" %10.6f %10.4f %6.1f %% %11.3f %11.3f", row->kl / score, row->largest_kl,
               100 * (double)row->same_top / score, exp(row->codec_loss / score),
               exp(row->plain_loss / score));
    } else {
        printf(" %10s %10s %8s %11s %11s", "-", "-", "-", "-", "-");
    }
    if (eval->questions > 0) {
        printf(" %6.3f", row->f1);
    } else {
        printf(" %6s", "-");
    }
    if (row->decode_bytes_per_s > 0) {
        printf(" %12.2f\n", row->decode_bytes_per_s / 1e9);
    } else {
        printf(" %12s\n", "-");
    }
    fflush(stdout);
}

/* Keep the result for this model and say what follows from it; whether the codec passed. */
static bool pass_gate(const eval_options *options, const char *codec, const mz_eval_row *row)
{
    double kl = row->kl / (double)options->score;
    const mz_codec *known = mz_codec_find(codec);
    mz_gate_record record = {kl, options->context, options->score};
    mz_error error = MZ_ERROR_INIT;
    bool kept = known == NULL || !known->needs_gate ||
                mz_gate_save(options->model.llm.model_path, known, &record, &error) == MZ_OK;
    if (!kept) {
        fprintf(stderr, "mzcache " COMMAND ": the result is not kept: %s\n", error.text);
    }
    bool passes = kl <= MZ_GATE_KL;
    if (!passes) {
        fprintf(stderr,
                "mzcache " COMMAND ": %s is not let through: mean KL %.4f is above %.2f; use q8 "
                "with this model\n",
                codec, kl, MZ_GATE_KL);
    }
    return kept && passes;
}

static int measure(const eval_options *options, mz_eval *eval)
{
    if (!mz_eval_prepare(eval)) {
        return MZ_CLI_FAILED;
    }
    if (!options->model.json) {
        print_heading(eval);
    }
    bool good = true;
    for (size_t i = 0; i < options->codec_count; i++) {
        const char *codec = options->codecs[i];
        mz_eval_row row;
        if (!mz_eval_codec(eval, codec, &row)) {
            good = false;
            continue;
        }
        if (options->model.json) {
            print_json(options, eval, codec, &row);
        } else {
            print_row(eval, codec, &row);
        }
        good = (!options->gate || pass_gate(options, codec, &row)) && good;
    }
    return good ? MZ_CLI_OK : MZ_CLI_FAILED;
}

static int evaluate(const eval_options *options, mz_cli_session *session, const char *text)
{
    size_t count = 0;
    int code = MZ_CLI_FAILED;
    mz_eval eval = {.session = session,
                    .context = (size_t)options->context,
                    .score = (size_t)options->score,
                    .questions = (size_t)options->questions};
    if (text != NULL) {
        eval.tokens = mz_cli_session_tokenize(session, text, true, &count);
        if (eval.tokens == NULL) {
            return MZ_CLI_FAILED;
        }
    }
    if (text != NULL && count < eval.context + eval.score + 1) {
        fprintf(stderr, "mzcache " COMMAND ": the text has %zu tokens, %zu are needed\n", count,
                eval.context + eval.score + 1);
    } else if (mz_eval_add_last_bit()) {
        code = measure(options, &eval);
    }
    mz_eval_release(&eval);
    free(eval.tokens);
    return code;
}

static int run(const eval_options *options)
{
    char *text = options->file != NULL ? mz_cli_read_text(COMMAND, options->file) : NULL;
    if (options->file != NULL && text == NULL) {
        return MZ_CLI_FAILED;
    }
    mz_cli_session session;
    setenv("MZCACHE_PRESSURE", "off", 1); /* evictions here are part of what is measured */
    int code = mz_cli_session_open(&session, COMMAND, &options->model);
    if (code == MZ_CLI_OK) {
        code = evaluate(options, &session, text);
        mz_cli_session_close(&session);
    }
    free(text);
    return code;
}

int mz_cli_eval(int argc, char **argv)
{
    eval_options options;
    int code = parse_options(argc, argv, &options);
    if (code == MZ_CLI_OK) {
        if (options.model.wants_help) {
            fputs(help, stdout);
        } else {
            code = run(&options);
        }
    }
    free(options.codec_words);
    return code;
}

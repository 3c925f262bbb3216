/* SPDX-License-Identifier: MIT */
/*
 * What a codec costs a model in accuracy: the measuring behind `mzcache eval`.
 *
 * A *mz_eval* holds what the codecs are compared with: a text that was read once, its KV as it was
 * computed, the distributions that followed, and the sheets of questions, read once as well. For
 * each codec the same KV is put back, encoded and restored, and what follows is computed again. So
 * codecs differ in nothing but what they did to the KV.
 */
#ifndef MZ_CLI_EVAL_H
#define MZ_CLI_EVAL_H

#include "cli/session.h"

/* Sheets of questions at most. */
#define MZ_EVAL_SHEETS 16u

typedef struct mz_eval {
    mz_cli_session *session;
    int32_t *tokens;        /* [context + score + 1] of the text; NULL: no text */
    size_t context, score;  /* tokens whose KV is encoded; tokens scored after them */
    mz_llm_copy *read;      /* behind the context */
    float *rows;            /* [score][vocabulary] logits with KV as computed */
    size_t vocabulary;
    size_t questions;       /* 0: none */
    mz_llm_copy *sheets[MZ_EVAL_SHEETS]; /* behind the text of each */
    double plain_f1;        /* mean over the questions, with KV as computed */
    size_t sheet_tokens;    /* of the longest sheet */
} mz_eval;

/* Of one codec. */
typedef struct mz_eval_row {
    double kept_share;             /* encoded bytes, with raw those on flash, over bytes of KV */
    double kl, largest_kl;         /* nats: sum, and of one token */
    double plain_loss, codec_loss; /* nats: sums of -log p(next token of the text) */
    size_t same_top;               /* tokens whose likeliest next token is the same */
    double f1;                     /* mean over the questions */
    double decode_bytes_per_s;     /* of one thread, into place; 0 with raw */
} mz_eval_row;

/*
 * Read text and sheets with KV as it is computed. The caller has set session, tokens, context,
 * score and questions of a zeroed object, and calls mz_eval_release in any case. False, having said
 * why on stderr.
 */
bool mz_eval_prepare(mz_eval *eval);

/* Measure a codec by its name. False, having said why on stderr. */
bool mz_eval_codec(mz_eval *eval, const char *codec, mz_eval_row *row);

/* Frees what mz_eval_prepare made; tokens and session stay with the caller. */
void mz_eval_release(mz_eval *eval);

/* Tokens that a context must have room for if questions are asked. */
#define MZ_EVAL_SHEET_ROOM 4096u

/*
 * "last-bit", a codec that leaves out the last bit of each f16: the least change of KV there is. It
 * tells what any change costs, which is a lot with quantized weights. Adds it to this process.
 */
#define MZ_EVAL_LAST_BIT "last-bit"
bool mz_eval_add_last_bit(void);

#endif

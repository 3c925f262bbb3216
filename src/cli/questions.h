/* SPDX-License-Identifier: MIT */
/*
 * Questions whose answers stand in a long context, made up from a seed, and how answers are scored.
 *
 * A *sheet* is a context: sentences of no interest, and among them facts of the form "Gift for
 * Alma Reyes violet kettle." with another person each. A question begins one of the facts, "Gift
 * for Alma Reyes", so that a small model has only to look up and to copy two words; whole
 * questions were answered no better by one of 135M. All is generated:
 * nobody has seen it in training, and a model can't know the answer otherwise. Guessing two of the
 * words gives an F1 of 1/20.
 */
#ifndef MZ_CLI_QUESTIONS_H
#define MZ_CLI_QUESTIONS_H

#include <stddef.h>

/* Facts of a sheet; each is asked for once. */
#define MZ_SHEET_FACTS 20u

/* Bytes that suffice for the text of a sheet, of a question and of an answer, 0 included. */
#define MZ_SHEET_BYTES 16384u
#define MZ_QUESTION_BYTES 256u
#define MZ_ANSWER_BYTES 64u

/* The context with this number; the same number gives the same text everywhere. */
void mz_sheet_text(unsigned sheet, char text[MZ_SHEET_BYTES]);

/* Question `fact` (below MZ_SHEET_FACTS) of a sheet, to follow its text, and the right answer. */
void mz_sheet_question(unsigned sheet, unsigned fact, char question[MZ_QUESTION_BYTES],
                       char answer[MZ_ANSWER_BYTES]);

/*
 * F1 of an answer, as SQuAD defines it: lower case, no punctuation, no articles; of the words that
 * are left, 2PR / (P + R) with P the share of the answer's words that are in the right one and R
 * the share of the right one's words that are in the answer, as multisets. At most 64 words count.
 */
double mz_answer_f1(const char *answer, const char *right);

#endif

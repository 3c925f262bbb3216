/* SPDX-License-Identifier: MIT */
/*
 * See questions.h. All of a fact follows from the numbers of sheet and fact by arithmetic, so a
 * question needs no memory of the text: each list is dealt without repetition, in an order and
 * from a place that the number of the sheet decides, so that no word stands in two facts.
 */
#include "cli/questions.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LIST 20u   /* words of each list; steps with no factor of it deal all of them */
#define FILLERS 3u /* sentences of no interest before each fact */
#define WORDS_MOST 64u
#define WORD_BYTES 32u

static const char *const first_names[LIST] = {
    "Alma",  "Boris", "Clara", "Derek", "Edith", "Felix",  "Greta", "Hugo",  "Irene", "Jonas",
    "Karin", "Lewis", "Mabel", "Nolan", "Olive", "Peter", "Quinn", "Rosa", "Simon", "Tessa"};
static const char *const last_names[LIST] = {
    "Reyes", "Stone", "Baker", "Lopez", "Frost", "Young",  "Ellis", "Grant", "Meyer", "Walsh",
    "Hayes", "Patel", "Quist", "Silva", "Novak", "Turner", "Iqbal", "Moss", "Zhang", "Carter"};
static const char *const kinds[LIST] = {
    "red",    "blue",  "green",  "yellow", "black", "white",  "brown",  "grey",  "pink", "purple",
    "bronze", "gold", "silver", "violet", "wooden", "plastic", "golden", "dark", "small", "large"};
static const char *const things[LIST] = {
    "kettle", "lamp",  "bicycle", "piano", "ladder", "mirror", "basket", "hammer", "guitar",
    "clock",  "boat",  "chair",   "camera", "drum",  "tent",   "wagon",  "shovel", "vase",
    "radio",  "table"};

static const char *const places[] = {"harbour", "mill", "school", "bridge", "market", "station"};
static const char *const loads[] = {"bags of salt", "letters", "old maps", "crates of apples",
                                    "bundles of wool"};

static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u; /* splitmix64 */
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

typedef struct fact_words {
    const char *first, *last, *kind, *thing;
} fact_words;

static fact_words fact_of(unsigned sheet, unsigned fact)
{
    uint64_t deal = mix(sheet);
    uint64_t shift = mix(deal); /* by which the lists are turned against each other */
    return (fact_words){first_names[(fact * 7 + deal % LIST) % LIST],
                        last_names[(fact * 3 + (deal >> 16) % LIST) % LIST],
                        kinds[(fact * 9 + shift % LIST) % LIST],
                        things[(fact * 11 + (shift >> 16) % LIST) % LIST]};
}

void mz_sheet_text(unsigned sheet, char text[MZ_SHEET_BYTES])
{
    size_t used = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < MZ_SHEET_FACTS * (FILLERS + 1); i++) {
        size_t room = MZ_SHEET_BYTES - used;
        int wrote;
        if (i % (FILLERS + 1) < FILLERS) {
            uint64_t random = mix((uint64_t)sheet * 100000 + i + 50000);
            wrote = snprintf(text + used, room, "On day %u they carried %u %s to the %s. ", i + 1,
                             (unsigned)(random % 90 + 10), loads[(random >> 16) % 5],
                             places[(random >> 32) % 6]);
        } else {
            fact_words f = fact_of(sheet, i / (FILLERS + 1));
            wrote = snprintf(text + used, room, "\nGift for %s %s %s %s.\n", f.first, f.last,
                             f.kind, f.thing);
        }
        used += wrote > 0 && (size_t)wrote < room ? (size_t)wrote : 0;
    }
}

void mz_sheet_question(unsigned sheet, unsigned fact, char question[MZ_QUESTION_BYTES],
                       char answer[MZ_ANSWER_BYTES])
{
    fact_words f = fact_of(sheet, fact);
    snprintf(question, MZ_QUESTION_BYTES, "\nGift for %s %s", f.first, f.last);
    snprintf(answer, MZ_ANSWER_BYTES, "%s %s", f.kind, f.thing);
}

static bool is_article(const char *word)
{
    return strcmp(word, "a") == 0 || strcmp(word, "an") == 0 || strcmp(word, "the") == 0;
}

/* The words that count, in lower case; longer ones are cut. Returns how many. */
static size_t split(const char *text, char words[WORDS_MOST][WORD_BYTES])
{
    size_t count = 0;
    while (*text != '\0' && count < WORDS_MOST) {
        size_t bytes = 0;
        for (; *text != '\0' && !isspace((unsigned char)*text); text++) {
            if (!ispunct((unsigned char)*text) && bytes < WORD_BYTES - 1) {
                words[count][bytes++] = (char)tolower((unsigned char)*text);
            }
        }
        words[count][bytes] = '\0';
        count += bytes > 0 && !is_article(words[count]) ? 1 : 0;
        while (isspace((unsigned char)*text)) {
            text++;
        }
    }
    return count;
}

double mz_answer_f1(const char *answer, const char *right)
{
    char ours[WORDS_MOST][WORD_BYTES], theirs[WORDS_MOST][WORD_BYTES];
    size_t our_count = split(answer, ours), right_count = split(right, theirs), common = 0;
    if (our_count == 0 || right_count == 0) {
        return our_count == right_count ? 1 : 0;
    }
    for (size_t i = 0; i < our_count; i++) {
        for (size_t k = 0; k < right_count; k++) {
            if (strcmp(ours[i], theirs[k]) == 0) {
                theirs[k][0] = '\0'; /* each word is matched once; none of ours is empty */
                common++;
                break;
            }
        }
    }
    double precision = (double)common / (double)our_count;
    double recall = (double)common / (double)right_count;
    return common == 0 ? 0 : 2 * precision * recall / (precision + recall);
}

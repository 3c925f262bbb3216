/* SPDX-License-Identifier: MIT */
/*
 * Goal: every question has one right answer in its context, and answers are scored as SQuAD does.
 * Method: each sheet's text is searched for the words of each fact; scores are compared with values
 * worked out by hand from the definition.
 */
#include "cli/questions.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static size_t count_of(const char *text, const char *what)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what)) {
        count++;
    }
    return count;
}

static void test_each_answer_stands_once_behind_its_question(void **state)
{
    (void)state;
    for (unsigned sheet = 0; sheet < 16; sheet++) {
        char text[MZ_SHEET_BYTES];
        mz_sheet_text(sheet, text);
        assert_true(strlen(text) < MZ_SHEET_BYTES - 256); /* nothing was cut off */
        for (unsigned fact = 0; fact < MZ_SHEET_FACTS; fact++) {
            char question[MZ_QUESTION_BYTES], answer[MZ_ANSWER_BYTES];
            char both[MZ_QUESTION_BYTES + MZ_ANSWER_BYTES + 2];
            mz_sheet_question(sheet, fact, question, answer);
            snprintf(both, sizeof both, "%s %s.", question, answer);
            assert_int_equal(count_of(text, question), 1);
            assert_int_equal(count_of(text, answer), 1);
            assert_int_equal(count_of(text, both), 1);
        }
    }
}

static void test_sheets_differ(void **state)
{
    (void)state;
    char texts[2][MZ_SHEET_BYTES];
    for (unsigned sheet = 1; sheet < 16; sheet++) {
        mz_sheet_text(sheet - 1, texts[0]);
        mz_sheet_text(sheet, texts[1]);
        assert_string_not_equal(texts[0], texts[1]);
    }
}

static void assert_f1(const char *answer, const char *right, double f1)
{
    double ours = mz_answer_f1(answer, right);
    if (ours < f1 - 1e-12 || ours > f1 + 1e-12) {
        fail_msg("\"%s\" for \"%s\": %.6f, right is %.6f", answer, right, ours, f1);
    }
}

static void test_f1(void **state)
{
    (void)state;
    assert_f1("red kettle", "red kettle", 1);
    assert_f1("  The RED, kettle! ", "a red kettle", 1);
    assert_f1("kettle red", "red kettle", 1);
    assert_f1("red lamp", "red kettle", 0.5);
    assert_f1("red", "red kettle", 2.0 / 3);               /* P 1, R 1/2 */
    assert_f1("a very red kettle", "red kettle", 0.8);     /* P 2/3, R 1 */
    assert_f1("red red red", "red kettle", 0.4);           /* counted once: P 1/3, R 1/2 */
    assert_f1("blue lamp", "red kettle", 0);
    assert_f1("", "red kettle", 0);
    assert_f1("the a an ...", "red kettle", 0);
    assert_f1("the", "", 1);
    assert_f1("it's", "its", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_answer_stands_once_behind_its_question),
        cmocka_unit_test(test_sheets_differ),
        cmocka_unit_test(test_f1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

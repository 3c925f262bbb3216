/* SPDX-License-Identifier: MIT */
/*
 * Goal: whoever reads a message learns the reason, however long the names in it are.
 * Method: the longest names that the parts put into a message (100 bytes each, tests/host has one
 * of them for real); the reason is libc's own text for the errno.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

#define PATH_100                                                                                   \
    "/23456789/23456789/23456789/23456789/23456789/23456789/23456789/23456789/23456789/23456789"   \
    "/23456789"

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

static void test_reason_stays_behind_long_names(void **state)
{
    (void)state;
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_error_set(&error, MZ_E_NOTFOUND, ENOTDIR,
                                  "cannot create a file in %.100s (check that the directory "
                                  "exists and can be written)",
                                  PATH_100),
                     MZ_E_NOTFOUND);
    mz_error_prefix(&error, "cannot evict %s", PATH_100 PATH_100);
    assert_non_null(strstr(error.text, PATH_100));
    assert_true(ends_with(error.text, strerror(ENOTDIR)));
    assert_int_equal(strncmp(error.text, "cannot evict /2345", 18), 0);
}

static void test_too_much_is_cut_off(void **state)
{
    (void)state;
    char words[1000];
    mz_error error = MZ_ERROR_INIT;
    memset(words, 'w', sizeof words);
    words[sizeof words - 1] = '\0';
    mz_error_set(&error, MZ_E_IO, EIO, "%s", words);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    mz_error_prefix(&error, "%s", words);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_int_equal(strncmp(error.text + 98, "ww: ww", 6), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reason_stays_behind_long_names),
        cmocka_unit_test(test_too_much_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

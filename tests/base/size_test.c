/* SPDX-License-Identifier: MIT */
/*
 * Goal: sizes are read and written as size.h says, in every locale.
 * Method: tables worked out by hand.
 */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void test_bytes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"512M", UINT64_C(536870912)},
        {"512m", UINT64_C(536870912)},
        {"1.5G", UINT64_C(1610612736)},
        {"1.50gb", UINT64_C(1610612736)},
        {"2GiB", UINT64_C(2147483648)},
        {"2gIb", UINT64_C(2147483648)},
        {"1k", 1024},
        {"1KB", 1024},
        {"0.25KiB", 256},
        {"0.1K", 102}, /* 102.4 */
        {"3T", UINT64_C(3298534883328)},
        {"0.0000000000001T", 0},
        {"1.99999999999999999999K", 2047},
        {"16777215.9999999999999999T", UINT64_MAX},
        {"18446744073709551615", UINT64_MAX},
        {"0018", 18},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        mz_size size = {.is_percent = true};
        assert_true(mz_size_parse(cases[i].text, &size));
        assert_false(size.is_percent);
        assert_true(size.bytes == cases[i].bytes);
    }
}

static void test_percent(void **state)
{
    static const struct {
        const char *text;
        uint64_t of_thousand;
        uint64_t of_most; /* of 2^64 - 1 */
    } cases[] = {
        {"0%", 0, 0},
        {"40%", 400, UINT64_C(7378697629483820646)},
        {"12.5%", 125, UINT64_C(2305843009213693951)},
        {"100%", 1000, UINT64_MAX},
        {"100.0%", 1000, UINT64_MAX},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        mz_size size = {.is_percent = false};
        assert_true(mz_size_parse(cases[i].text, &size));
        assert_true(size.is_percent);
        assert_true(mz_size_of(size, 1000) == cases[i].of_thousand);
        assert_true(mz_size_of(size, UINT64_MAX) - cases[i].of_most <= 1);
    }
    mz_size absolute = {.bytes = 77};
    assert_true(mz_size_of(absolute, 10) == 77);
}

static void test_refused(void **state)
{
    static const char *const texts[] = {
        "",
        " ",
        " 1",
        "1 ",
        "1 G",
        "-1",
        "+1",
        "-1%",
        "G",
        "%",
        "1.5",
        "1.",
        ".5G",
        "1..5G",
        "1.G",
        "1,5G",
        "0x10",
        "1e3",
        "1e3K",
        "nan",
        "inf",
        "1P",
        "1Ki",
        "1KBB",
        "1Kb ",
        "12B",
        "1GM",
        "101%",
        "100.1%",
        "40%%",
        "40%G",
        "40K%",
        "18446744073709551616",
        "16777216T",
        "99999999999999999999G",
        "1\n",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        mz_size size = {.bytes = 123};
        assert_false(mz_size_parse(texts[i], &size));
        assert_true(size.bytes == 123);
    }
    mz_size size;
    assert_false(mz_size_parse(NULL, &size));
}

static void test_format(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {12, "12 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {98304, "96.0 KiB"},
        {1536, "1.5 KiB"},
        {1587, "1.5 KiB"}, /* 1.5498 */
        {1588, "1.6 KiB"}, /* 1.5508 */
        {1048524, "1023.9 KiB"},
        {1048525, "1.0 MiB"}, /* 1023.95 rounds to 1024.0 */
        {UINT64_C(1610612736), "1.5 GiB"},
        {UINT64_C(3298534883328), "3.0 TiB"},
        {UINT64_C(1125899906842624), "1.0 PiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    (void)state;
    char text[32];
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_ptr_equal(mz_size_format(cases[i].bytes, text, sizeof text), text);
        assert_string_equal(text, cases[i].text);
    }
    char cut[4];
    assert_string_equal(mz_size_format(12345678, cut, sizeof cut), "11.");
}

static void test_locale_with_comma(void **state)
{
    (void)state;
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL) {
        skip();
    }
    mz_size size;
    char text[32];
    assert_true(mz_size_parse("1.5G", &size));
    assert_true(size.bytes == UINT64_C(1610612736));
    assert_string_equal(mz_size_format(1536, text, sizeof text), "1.5 KiB");
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_percent),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_locale_with_comma),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

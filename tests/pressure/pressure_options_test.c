/* SPDX-License-Identifier: MIT */
/*
 * Goal: every word of the pressure options means what the documentation says, and no other word
 * means anything. Method: tables of words with values worked out by hand.
 */
#include "os/scratch.h"

#include "pressure/options.h"

static void right_words(void **state)
{
    (void)state;
    mz_pressure_choice choice = mz_pressure_choice_default();
    mz_error error = MZ_ERROR_INIT;
    assert_true(choice.watch);
#define GOOD(name, text)                                                                           \
    assert_int_equal(mz_pressure_choice_parse(name, text, &choice, &error), MZ_OK)
    GOOD("pressure", "off");
    assert_false(choice.watch);
    GOOD("pressure", "auto");
    assert_true(choice.watch);
    GOOD("keep", "0");
    assert_true(!choice.policy.keep.is_percent && choice.policy.keep.bytes == 0);
    GOOD("keep", "25%");
    assert_true(choice.policy.keep.is_percent && choice.policy.keep.percent == 25);
    GOOD("max", "1.5G");
    assert_int_equal(choice.policy.max.bytes, 1610612736);
    GOOD("max", "off");
    assert_true(!choice.policy.max.is_percent && choice.policy.max.bytes == 0);
    GOOD("evict-step", "25%");
    assert_true(choice.policy.step_percent == 25);
    GOOD("idle-evict", "90");
    assert_int_equal(choice.policy.idle_ns, 90000000000);
    GOOD("idle-evict", "60s");
    assert_int_equal(choice.policy.idle_ns, 60000000000);
    GOOD("idle-evict", "5m");
    assert_int_equal(choice.policy.idle_ns, 300000000000);
    GOOD("idle-evict", "2h");
    assert_int_equal(choice.policy.idle_ns, 7200000000000);
    GOOD("idle-evict", "off");
    assert_int_equal(choice.policy.idle_ns, 0);
#undef GOOD
}

static void wrong_words_change_nothing(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"pressure", ""},         {"pressure", "on"},      {"pressure", "automatic"},
        {"keep", ""},             {"keep", "off"},         {"keep", "101%"},
        {"keep", "-1"},           {"max", "0"},            {"max", "0%"},
        {"max", "lots"},          {"evict-step", "15"},    {"evict-step", "0%"},
        {"evict-step", "1M"},     {"evict-step", "off"},   {"idle-evict", ""},
        {"idle-evict", "0"},      {"idle-evict", "-5"},    {"idle-evict", " 5"},
        {"idle-evict", "5d"},     {"idle-evict", "5ss"},   {"idle-evict", "99999999999999999999"},
        {"idle-evict", "999999h"}, {"idle-evict", "1.5h"}, {"grace", "1s"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mz_pressure_choice before = mz_pressure_choice_default(), choice = before;
        mz_error error = MZ_ERROR_INIT;
        assert_int_equal(mz_pressure_choice_parse(rows[i][0], rows[i][1], &choice, &error),
                         MZ_E_INVALID);
        assert_non_null(strstr(error.text, rows[i][0]));
        assert_true(choice.watch == before.watch &&
                    choice.policy.idle_ns == before.policy.idle_ns &&
                    choice.policy.step_percent == before.policy.step_percent &&
                    choice.policy.keep.percent == before.policy.keep.percent &&
                    choice.policy.max.bytes == before.policy.max.bytes);
    }
}

static void count_line(void *context, mz_log_level level, const char *line)
{
    assert_int_equal(level, MZ_LOG_WARN);
    assert_non_null(strstr(line, "MZCACHE_MAX is ignored"));
    ++*(int *)context;
}

static void the_environment_is_read(void **state)
{
    (void)state;
    int lines = 0;
    mz_log_sink log = {.write = count_line, .context = &lines, .level = MZ_LOG_DEBUG};
    setenv("MZCACHE_PRESSURE", "off", 1);
    setenv("MZCACHE_KEEP", "1G", 1);
    setenv("MZCACHE_MAX", "nonsense", 1);
    setenv("MZCACHE_EVICT_STEP", "20%", 1);
    setenv("MZCACHE_IDLE_EVICT", "3m", 1);
    mz_pressure_choice choice = mz_pressure_choice_from_env(&log);
    assert_int_equal(lines, 1);
    assert_false(choice.watch);
    assert_int_equal(choice.policy.keep.bytes, 1073741824);
    assert_int_equal(choice.policy.max.bytes, 0);
    assert_true(choice.policy.step_percent == 20);
    assert_int_equal(choice.policy.idle_ns, 180000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_words),
        cmocka_unit_test(wrong_words_change_nothing),
        cmocka_unit_test(the_environment_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * What the kernels' tests use of cmocka, for machines for which there is no cmocka to link: a check
 * that fails names its line and ends the program with 1.
 */
#ifndef MZ_TESTS_AARCH64_CMOCKA_H
#define MZ_TESTS_AARCH64_CMOCKA_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
};

static inline void check_holds(int holds, const char *what, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
        exit(1);
    }
}

#define CHECK(holds, what) check_holds((holds) ? 1 : 0, what, __FILE__, __LINE__)
#define assert_true(a) CHECK(a, #a)
#define assert_false(a) CHECK(!(a), "not " #a)
#define assert_null(a) CHECK((a) == NULL, #a " is NULL")
#define assert_non_null(a) CHECK((a) != NULL, #a " is not NULL")
#define assert_int_equal(a, b) CHECK((long long)(a) == (long long)(b), #a " == " #b)
#define assert_ptr_equal(a, b) CHECK((const void *)(a) == (const void *)(b), #a " == " #b)
#define assert_ptr_not_equal(a, b) CHECK((const void *)(a) != (const void *)(b), #a " != " #b)
#define assert_string_equal(a, b) CHECK(strcmp(a, b) == 0, #a " == " #b)
#define assert_memory_equal(a, b, bytes) CHECK(memcmp(a, b, bytes) == 0, #a " == " #b)

#define cmocka_unit_test(f) {#f, f}
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    run_tests(tests, sizeof(tests) / sizeof((tests)[0]))

static inline int run_tests(const struct CMUnitTest *tests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *state = NULL;
        tests[i].test(&state);
        printf("aarch64: %s passed\n", tests[i].name);
    }
    return 0;
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What a fuzz target is, for two drivers: libFuzzer where the compiler is clang (it finds its own
 * way by coverage), and driver.c for every other compiler, which changes valid inputs at random but
 * repeatably, so that it runs in every build and fails on the same input again.
 *
 * A target aborts when something is wrong; the driver prints what it was fed.
 */
#ifndef MZ_TESTS_FUZZ_FUZZ_H
#define MZ_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MZ_FUZZ_MOST 65536u /* bytes of an input */

/* What is known of an input. */
typedef enum mz_fuzz_kind {
    MZ_FUZZ_SEED,    /* valid: it must be accepted */
    MZ_FUZZ_CHANGED, /* a seed that was changed, or by chance was not */
    MZ_FUZZ_SEALED,  /* changed, and then checksums were put right */
} mz_fuzz_kind;

typedef struct mz_fuzz_target {
    const char *name;
    /* A valid input into data[MZ_FUZZ_MOST]; its bytes, 0 when there are no more. */
    size_t (*seed)(size_t index, uint8_t *data);
    /* Make checksums fit what a mutation did, so that it gets past them; NULL: there are none. */
    void (*seal)(uint8_t *data, size_t bytes);
    /* Try an input. `data` ends right before an inaccessible page. */
    void (*run)(const uint8_t *data, size_t bytes, mz_fuzz_kind kind);
} mz_fuzz_target;

extern const mz_fuzz_target mz_fuzz;

/* `bytes` writable bytes, zero, that end right before an inaccessible page; never freed. */
uint8_t *mz_fuzz_guarded(size_t bytes);

/* An assertion that stays in every build. */
#define MZ_FUZZ_CHECK(condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif

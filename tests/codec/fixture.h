/* SPDX-License-Identifier: MIT */
/*
 * What the codec tests share: buffers that end at a guard page, a repeatable source of random
 * numbers, the value of an f16 by its definition, and the list of variants.
 *
 * A read or write behind a guarded buffer, or more than its slack before it, faults and fails the
 * test program. Nothing here uses code of the library except to find the variants.
 */
#ifndef MZ_TESTS_CODEC_FIXTURE_H
#define MZ_TESTS_CODEC_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <sys/mman.h>

#include "kernels/kernels.h"

#define PAGE 4096u

static const char *const variant_names[] = {"generic", "avx2", "avx512", "neon"};
#define VARIANT_NAMES (sizeof variant_names / sizeof variant_names[0])

/* `bytes` usable bytes that end right before an inaccessible page; more such pages stand before. */
typedef struct guarded {
    uint8_t *data;  /* [bytes], zero at first */
    uint8_t *pages; /* the mapping */
    size_t mapped;  /* bytes of the mapping */
} guarded;

static inline guarded guarded_new(size_t bytes)
{
    size_t usable = (bytes + PAGE - 1) / PAGE * PAGE;
    guarded buffer = {.mapped = usable + 2 * PAGE};
    buffer.pages = mmap(NULL, buffer.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(buffer.pages, MAP_FAILED);
    if (usable > 0) {
        assert_int_equal(mprotect(buffer.pages + PAGE, usable, PROT_READ | PROT_WRITE), 0);
    }
    buffer.data = buffer.pages + PAGE + usable - bytes;
    return buffer;
}

static inline void guarded_free(guarded *buffer)
{
    assert_int_equal(munmap(buffer->pages, buffer->mapped), 0);
}

/* xorshift64*: repeatable everywhere; never 0. */
static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

/* The value of a finite f16 by its definition: sign, 5 bits of exponent, 10 of fraction. */
static inline double f16_value(uint16_t half)
{
    int exponent = half >> 10 & 31;
    int fraction = half & 1023;
    double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

/* The scale of a code by its definition. */
static inline double scale_value(uint8_t code)
{
    return ldexp(1.0 + (code & 3) / 4.0, (code >> 2) - 22);
}

/*
 * Groups as KV holds them and worse: each has its own magnitude, from denormals to 65504, every
 * eighth element is small beside it, some groups are zero. count is in groups.
 */
static inline void fill_groups(uint16_t *data, size_t count, uint64_t *state)
{
    for (size_t group = 0; group < count; group++) {
        unsigned top = (unsigned)(random_next(state) % 0x7c00);
        unsigned kind = (unsigned)(random_next(state) % 8);
        for (size_t i = 0; i < 32; i++) {
            uint64_t bits = random_next(state);
            unsigned magnitude = top == 0 || kind == 0 ? 0 : (unsigned)(bits >> 20) % (top + 1);
            unsigned near = magnitude > 0x1000 ? 0x1000 : magnitude;
            magnitude = i % 8 == 0 ? magnitude : top - (top > near ? near : top);
            data[group * 32 + i] = (uint16_t)(kind == 0 ? 0 : magnitude | (bits >> 63) << 15);
        }
    }
}

#endif

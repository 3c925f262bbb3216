/* SPDX-License-Identifier: MIT */
/*
 * Inner loops, one table of functions per instruction set.
 *
 * An *mz_kernels* is an immutable table; every variant gives the same bytes as "generic", which is
 * plain C and the reference. mz_kernels_get picks the widest one that the processor has.
 *
 * Shared preconditions: pointers need no more than the alignment of their type, ranges do not
 * overlap, a count of 0 is allowed. All functions are pure; any number of threads.
 */
#ifndef MZ_KERNELS_KERNELS_H
#define MZ_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/attention.h"
#include "kernels/cg.h"
#include "kernels/q8.h"

typedef struct mz_kernels {
    const char *name; /* "generic", "avx2", "avx512", "neon" */
    /*
     * f16 to 8 bit, see q8.h. source: [groups][32] f16; codes: [groups]; q: [groups][32].
     * Returns false if a value is NaN or infinite; codes and q are unspecified then.
     */
    bool (*q8_encode)(const uint16_t *source, size_t groups, uint8_t *codes, int8_t *q);
    /* 8 bit to f16: target[g][i] = q[g][i] * scale(codes[g]). codes are <= MZ_Q8_CODE_MAX. */
    void (*q8_decode)(const uint8_t *codes, const int8_t *q, size_t groups, uint16_t *target);
    /*
     * f16 to 4 bit, see q4.h. source: tokens (1 to 64) of 32 channels, `stride` f16 apart; strip:
     * [mz_q4_strip_bytes(tokens)]. Returns false if a value is NaN or infinite; the strip is
     * unspecified then.
     */
    bool (*q4_encode)(const uint16_t *source, size_t stride, size_t tokens, uint8_t *strip);
    /* 4 bit to f16, for strips whose lo and hi are finite and lo <= hi. */
    void (*q4_decode)(const uint8_t *strip, size_t tokens, uint16_t *target, size_t stride);
    /* Whether all bytes are zero. */
    bool (*is_zero)(const void *data, size_t bytes);
    /* Bytes at even places apart from those at odd ones: source [2 * pairs], the others [pairs]. */
    void (*split2)(const uint8_t *source, size_t pairs, uint8_t *even, uint8_t *odd);
    /* The inverse: target [2 * pairs]. */
    void (*merge2)(const uint8_t *even, const uint8_t *odd, size_t pairs, uint8_t *target);
    /* Those of attention, which are the only ones that differ in the last digits. */
    const mz_attention_kernels *attention;
    const mz_cg_kernels *cg; /* the steps of "cachegen", see cg.h */
} mz_kernels;

/*
 * The table for this processor, the same one in every call (but see mz_kernels_use). The
 * environment variable MZCACHE_CPU (generic, avx2, avx512, neon), read at the first call, lowers
 * the choice; it never raises it, and any other value is ignored.
 */
const mz_kernels *mz_kernels_get(void);

/* The tables that this processor can use, widest first; NULL behind the last one. */
const mz_kernels *mz_kernels_at(size_t index);

/*
 * Let mz_kernels_get give this table to the calling thread, until NULL is set. To measure codecs,
 * which ask mz_kernels_get, by every variant; nothing else has a reason to. The table must be one
 * of mz_kernels_at.
 */
void mz_kernels_use(const mz_kernels *kernels);

/* The table of that name; NULL if there is none or the processor lacks the instructions. */
const mz_kernels *mz_kernels_variant(const char *name);

/* The tables themselves, for dispatch.c; others use mz_kernels_variant, which asks the CPU. */
extern const mz_kernels mz_kernels_generic;
#if defined(__x86_64__)
extern const mz_kernels mz_kernels_avx2;
extern const mz_kernels mz_kernels_avx512;
#elif defined(__aarch64__)
extern const mz_kernels mz_kernels_neon;
#endif

#endif

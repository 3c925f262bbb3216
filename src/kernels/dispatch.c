/* SPDX-License-Identifier: MIT */
/*
 * Which kernels this processor gets.
 *
 * One binary runs on every machine of its architecture, so the choice is made at run time: the
 * widest variant whose instructions both the processor and the operating system support
 * (__builtin_cpu_supports looks at CPUID and XGETBV). It is made once and never changes, so that
 * all threads use one table, but for one that measures another (mz_kernels_use). The variants give
 * equal bytes, so the choice shows in speed only.
 */
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Widest first; a variant is usable if its probe says so. */
typedef struct variant {
    const mz_kernels *kernels;
    bool (*usable)(void);
} variant;

static bool usable_always(void)
{
    return true;
}

#if defined(__x86_64__)
static bool usable_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") &&
           __builtin_cpu_supports("fma");
}

static bool usable_avx512(void)
{
    return usable_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

static const variant variants[] = {
#if defined(__x86_64__)
    {&mz_kernels_avx512, usable_avx512},
    {&mz_kernels_avx2, usable_avx2},
#elif defined(__aarch64__)
    {&mz_kernels_neon, usable_always},
#endif
    {&mz_kernels_generic, usable_always},
};
#define VARIANTS (sizeof variants / sizeof variants[0])

/* Written once under `once`, read-only afterwards. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const mz_kernels *chosen;

/* Of each thread: what it measures instead, NULL for all others. */
static _Thread_local const mz_kernels *measured;

static void choose(void)
{
    size_t first = 0;
    const char *limit = getenv("MZCACHE_CPU");
    for (size_t i = 0; limit != NULL && i < VARIANTS; i++) {
        if (strcmp(limit, variants[i].kernels->name) == 0) {
            first = i;
        }
    }
    while (!variants[first].usable()) {
        first++; /* ends at the last one, which is always usable */
    }
    chosen = variants[first].kernels;
}

const mz_kernels *mz_kernels_get(void)
{
    if (measured != NULL) {
        return measured;
    }
    pthread_once(&once, choose);
    return chosen;
}

void mz_kernels_use(const mz_kernels *kernels)
{
    measured = kernels;
}

const mz_kernels *mz_kernels_at(size_t index)
{
    for (size_t i = 0; i < VARIANTS; i++) {
        if (variants[i].usable() && index-- == 0) {
            return variants[i].kernels;
        }
    }
    return NULL;
}

const mz_kernels *mz_kernels_variant(const char *name)
{
    for (size_t i = 0; i < VARIANTS; i++) {
        if (strcmp(name, variants[i].kernels->name) == 0) {
            return variants[i].usable() ? variants[i].kernels : NULL;
        }
    }
    return NULL;
}

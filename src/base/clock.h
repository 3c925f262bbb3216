/* SPDX-License-Identifier: MIT */
/* Monotonic time in nanoseconds; CLOCK_MONOTONIC never jumps when the wall clock is set. */
#ifndef MZ_BASE_CLOCK_H
#define MZ_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t mz_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif

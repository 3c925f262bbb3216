/* SPDX-License-Identifier: MIT */
/* The automatic policy in words, as options and environment variables have it. */
#ifndef MZ_PRESSURE_OPTIONS_H
#define MZ_PRESSURE_OPTIONS_H

#include "base/error.h"
#include "base/log.h"
#include "pressure/policy.h"

typedef struct mz_pressure_choice {
    bool watch; /* evict by itself at all */
    mz_pressure_policy policy;
} mz_pressure_choice;

/* auto, with the default policy. */
MZ_API mz_pressure_choice mz_pressure_choice_default(void);

/*
 * Set one part from words: "pressure" (auto, off), "keep" and "max" (512M, 40%; max also off),
 * "evict-step" (above 0 %, to 100 %), "idle-evict" (90, 60s, 5m, 2h, off).
 * Errors: MZ_E_INVALID with a sentence; *choice is then as before.
 */
MZ_API mz_status mz_pressure_choice_parse(const char *name, const char *text,
                                          mz_pressure_choice *choice, mz_error *error);

/*
 * The choice of the environment: MZCACHE_PRESSURE, _KEEP, _MAX, _EVICT_STEP, _IDLE_EVICT. What is
 * wrong is said to the log and left out.
 */
MZ_API mz_pressure_choice mz_pressure_choice_from_env(const mz_log_sink *log);

#endif

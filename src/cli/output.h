/* SPDX-License-Identifier: MIT */
/*
 * What people see while they wait, and memory figures.
 *
 * Progress is one line on stderr that is rewritten in place; it appears only on a terminal (or when
 * MZCACHE_PROGRESS=1 says so), and a step shows only once it has taken a second.
 */
#ifndef MZ_CLI_OUTPUT_H
#define MZ_CLI_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "mzcache/mzcache.h"

typedef struct mz_cli_progress {
    bool enabled;
    bool shown;          /* a line stands there */
    uint64_t started_ns; /* of the step under way */
} mz_cli_progress;

void mz_cli_progress_init(mz_cli_progress *progress);

/* A step begins. With `now` its line shows at once: it can't report before it is over. */
void mz_cli_progress_begin(mz_cli_progress *progress, bool now, const char *what);

/* `done` of `all` units of the step are over. */
void mz_cli_progress_update(mz_cli_progress *progress, const char *what, uint64_t done,
                            uint64_t all, const char *unit);

/* Take the line away. */
void mz_cli_progress_end(mz_cli_progress *progress);

/* Proportional set size of this process, 0 if the kernel doesn't say. */
uint64_t mz_cli_pss_bytes(void);

/* Bytes of elastic memory that are in place. */
uint64_t mz_cli_resident_bytes(const mz_pool_status *status);

/* Print a JSON value as one line on stdout and release it. */
void mz_cli_print_json(json_t *value);

/* Nanoseconds as milliseconds. */
double mz_cli_ms(uint64_t ns);

#endif

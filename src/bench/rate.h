/* SPDX-License-Identifier: MIT */
/* What this machine can do at best, measured in the run whose figures are compared with it. */
#ifndef MZ_BENCH_RATE_H
#define MZ_BENCH_RATE_H

#include <stdint.h>

#include "base/error.h"

/*
 * Best rate of sequential direct reads of a file, bytes per second: requests of 2 and 4 MB, 4 and 8
 * under way, into pages that are there already.
 */
mz_status mz_rate_read(const char *path, double *bytes_per_s, mz_error *error);

/* Rates of a codec over f16, bytes of f16 per second, on so many threads. */
mz_status mz_rate_codec(const char *codec, uint32_t threads, double *encode_bytes_per_s,
                        double *decode_bytes_per_s, mz_error *error);

#endif

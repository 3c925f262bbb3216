/* SPDX-License-Identifier: MIT */
/* What this machine can do at best, measured in the run whose figures are compared with it. */
#ifndef MZ_BENCH_RATE_H
#define MZ_BENCH_RATE_H

#include <stdint.h>

#include "base/error.h"

/* How a file is read. */
typedef struct mz_rate_request {
    uint32_t bytes; /* of one request, at most 2 MB */
    uint32_t depth; /* requests under way, at most 64 */
} mz_rate_request;

/*
 * Rate of direct reads of a whole file once, front to back, bytes per second, into pages that are
 * there already.
 */
mz_status mz_rate_read(const char *path, mz_rate_request request, double *bytes_per_s,
                       mz_error *error);

/* Rates of a codec over f16, bytes of f16 per second, on so many threads. */
mz_status mz_rate_codec(const char *codec, uint32_t threads, double *encode_bytes_per_s,
                        double *decode_bytes_per_s, mz_error *error);

#endif

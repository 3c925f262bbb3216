/* SPDX-License-Identifier: MIT */
/*
 * How the pool stands, as text for people's programs: JSON for GET /status, Prometheus for
 * GET /metrics.
 *
 * Both are made from one mz_pool_status, so they never touch the pool's memory. JSON names are the
 * names of the struct's fields, units included. Metric names start with mzcache_; times are in
 * seconds and counters end in _total there, as Prometheus wants it.
 */
#ifndef MZ_CONTROL_REPORT_H
#define MZ_CONTROL_REPORT_H

#include <jansson.h>

#include "mzcache/mzcache.h"

/* What belongs to the process rather than to the pool. */
typedef struct mz_control_identity {
    int pid;           /* of this process */
    uint64_t uptime_s; /* since the socket was opened */
} mz_control_identity;

/* An integer for JSON, which ends at 2^63 - 1. */
json_t *mz_control_json_integer(uint64_t value);

/* The object of GET /status; the caller decrefs it. NULL: out of memory. */
json_t *mz_control_status_json(const mz_pool_status *status, const mz_control_identity *identity);

/* The text of GET /metrics; the caller frees it. NULL: out of memory. */
char *mz_control_metrics_text(const mz_pool_status *status, const mz_control_identity *identity);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The thread that evicts by itself.
 *
 * A *monitor* sleeps in poll on the sources of pressure (source.h) and on the pool's mailbox
 * (mz_trim, mz_simulate_pressure), asks the policy (policy.h) what to give back, and has the pool
 * do it in such a way that no step waits longer than for the unit at hand. While all is calm it has
 * no timer. What it did and why stands in mz_pool_status.pressure.
 */
#ifndef MZ_PRESSURE_MONITOR_H
#define MZ_PRESSURE_MONITOR_H

#include "base/log.h"
#include "pool/pool.h"
#include "pressure/policy.h"
#include "pressure/source.h"

typedef struct mz_pressure_monitor mz_pressure_monitor;

typedef struct mz_pressure_options {
    mz_pressure_policy policy;
    mz_pressure_config config; /* os may be NULL: the real one; its texts are copied */
    mz_log_sink log;
} mz_pressure_options;

/*
 * Start to watch for a pool; one monitor a pool. What can't be watched is said to the log, once.
 * Owner: the caller ends it by mz_pressure_stop, before the pool goes.
 * Threads: signals of the host are never handled on the thread started here.
 * Errors: MZ_E_NOMEM, MZ_E_IO (no event descriptor, no thread), MZ_E_INVALID.
 */
MZ_API mz_status mz_pressure_start(mz_pool *pool, const mz_pressure_options *options,
                                   mz_pressure_monitor **monitor, mz_error *error);

/* Blocks: until an eviction under way has ended. NULL is fine. In a forked child it does nothing:
 * the thread is the parent's. */
MZ_API void mz_pressure_stop(mz_pressure_monitor *monitor);

#endif

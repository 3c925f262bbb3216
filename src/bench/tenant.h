/* SPDX-License-Identifier: MIT */
/*
 * The other program for whose sake memory was evicted.
 *
 * A virtual machine gives pages that nobody uses back to its host after a second or two, and the
 * next touch of each must wait for the host: ten times slower than anything measured here, and not
 * what happens to a user, whose memory was evicted because another program wanted it. So a process
 * takes as much memory as was evicted, and frees it right before the restore.
 */
#ifndef MZ_BENCH_TENANT_H
#define MZ_BENCH_TENANT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mz_tenant {
    int channel; /* socket to it; -1: none */
    int process;
} mz_tenant;

/* Fork it. This process must have no threads yet. False if there can be none. */
bool mz_tenant_start(mz_tenant *tenant);

/* Let it hold so many bytes, all touched; 0: none. Returns when it does; false if it can't. */
bool mz_tenant_hold(mz_tenant *tenant, uint64_t bytes);

void mz_tenant_stop(mz_tenant *tenant);

#endif

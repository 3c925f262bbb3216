/* SPDX-License-Identifier: MIT */
/* Progress lines and figures; see output.h. */
#include "cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/process.h"

#define SHOW_AFTER_NS 1000000000u

void mz_cli_progress_init(mz_cli_progress *progress)
{
    const char *wanted = getenv("MZCACHE_PROGRESS");
    memset(progress, 0, sizeof *progress);
    progress->enabled = wanted != NULL ? strcmp(wanted, "1") == 0 : isatty(STDERR_FILENO) == 1;
}

void mz_cli_progress_begin(mz_cli_progress *progress, bool now, const char *what)
{
    mz_cli_progress_end(progress);
    progress->started_ns = mz_now_ns();
    if (progress->enabled && now) {
        fprintf(stderr, "\r\033[K%s ...", what);
        progress->shown = true;
    }
}

void mz_cli_progress_update(mz_cli_progress *progress, const char *what, uint64_t done,
                            uint64_t all, const char *unit)
{
    uint64_t taken_ns = mz_now_ns() - progress->started_ns;
    if (!progress->enabled || taken_ns < SHOW_AFTER_NS || all == 0) {
        return;
    }
    double seconds = (double)taken_ns / 1e9;
    double left = done > 0 ? seconds * (double)(all - done) / (double)done : 0;
    fprintf(stderr, "\r\033[K%s: %llu of %llu %s, about %.0f s left", what,
            (unsigned long long)done, (unsigned long long)all, unit, left);
    progress->shown = true;
}

void mz_cli_progress_end(mz_cli_progress *progress)
{
    if (progress->shown) {
        fprintf(stderr, "\r\033[K");
        progress->shown = false;
    }
}

uint64_t mz_cli_pss_bytes(void)
{
    uint64_t bytes = 0;
    mz_error error = MZ_ERROR_INIT;
    return mz_process_pss(0, &bytes, &error) == MZ_OK ? bytes : 0;
}

uint64_t mz_cli_resident_bytes(const mz_pool_status *status)
{
    return status->weights.resident_bytes + status->kv_cache.resident_bytes;
}

void mz_cli_print_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_COMPACT);
    fputc('\n', stdout);
    fflush(stdout);
    json_decref(value);
}

double mz_cli_ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

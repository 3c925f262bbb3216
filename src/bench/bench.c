/* SPDX-License-Identifier: MIT */
/* The table of suites. */
#include "bench/bench.h"

#include "bench/report.h"
#include "bench/suites.h"

const mz_bench_suite mz_bench_suites[] = {
    {"resident", "speed with nothing evicted, against the bare engine", true, mz_bench_resident},
    {"evict", "how fast memory is given back", true, mz_bench_evict},
    {"ttft", "time to the first token after evictions, resident and cold", true, mz_bench_ttft},
    {"bound", "the same against the physical bound", true, mz_bench_bound},
    {"overlap", "first token by what overlaps in a restore (Figure 11a)", true, mz_bench_overlap},
    {"order", "first token by which layers left first (Figure 11b)", true, mz_bench_order},
    {"hybrid", "first token by the paths of a restore (Figure 12)", true, mz_bench_hybrid},
    {"storage", "what bounds a restore: flash, new pages, beside computing", false,
     mz_bench_storage},
    {"attention", "attention on KV as it is stored, against the bare engine", false,
     mz_bench_attention},
    {"codec", "codecs by kernels and threads, against memcpy", false, mz_bench_codec},
    {"codecs", "what codecs save and cost (Table 2, Figure 14)", true, mz_bench_codecs},
    {NULL, NULL, false, NULL},
};

bool mz_bench_run(const mz_bench_suite *suite, const mz_bench_options *options)
{
    mz_report_machine(suite->name, options);
    return suite->run(options);
}

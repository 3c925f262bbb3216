/* SPDX-License-Identifier: MIT */
/* The suites, each in the file that its name says; ttft to hybrid are in restore.c. */
#ifndef MZ_BENCH_SUITES_H
#define MZ_BENCH_SUITES_H

#include "bench/bench.h"

bool mz_bench_storage(const mz_bench_options *options);
bool mz_bench_attention(const mz_bench_options *options);
bool mz_bench_codec(const mz_bench_options *options);
bool mz_bench_codecs(const mz_bench_options *options);
bool mz_bench_resident(const mz_bench_options *options);
bool mz_bench_evict(const mz_bench_options *options);
bool mz_bench_ttft(const mz_bench_options *options);
bool mz_bench_bound(const mz_bench_options *options);
bool mz_bench_overlap(const mz_bench_options *options);
bool mz_bench_order(const mz_bench_options *options);
bool mz_bench_hybrid(const mz_bench_options *options);

#endif

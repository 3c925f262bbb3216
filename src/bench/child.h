/* SPDX-License-Identifier: MIT */
/* One run in a process of its own. */
#ifndef MZ_BENCH_CHILD_H
#define MZ_BENCH_CHILD_H

#include <stdbool.h>
#include <stddef.h>

/* Fills `result`, which begins as zeros; false, having written why into `message`, on failure. */
typedef bool (*mz_bench_work)(const void *input, void *result, char *message, size_t message_bytes);

/*
 * Fork, do the work there, bring the result (plain data of `result_bytes`) back. This process must
 * have no threads. False, having said why on stderr, if the work failed or its process died.
 */
bool mz_bench_child(mz_bench_work work, const void *input, void *result, size_t result_bytes);

#endif

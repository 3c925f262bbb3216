/* SPDX-License-Identifier: MIT */
/*
 * Figures as JSON lines or as a table.
 *
 * A suite makes one JSON object for each result and says which of its members are columns for
 * people; so both show the same numbers.
 */
#ifndef MZ_BENCH_REPORT_H
#define MZ_BENCH_REPORT_H

#include <jansson.h>

#include "bench/bench.h"

typedef struct mz_report_column {
    const char *key;   /* member of the object */
    const char *title; /* NULL: the last column has been */
} mz_report_column;

/* What was measured on, and how: begins each suite. */
void mz_report_machine(const char *suite, const mz_bench_options *options);

/* Titles of a table; nothing with --json. */
void mz_report_titles(const mz_bench_options *options, const mz_report_column *columns);

/* One result; releases it. */
void mz_report_line(const mz_bench_options *options, const mz_report_column *columns, json_t *line);

/* A file's name without its folders. */
const char *mz_report_name(const char *path);

/* The middle one of `count` > 0 values, or of the two middle ones their mean; sorts them. */
double mz_report_median(double *values, size_t count);

#endif

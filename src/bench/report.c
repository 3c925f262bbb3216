/* SPDX-License-Identifier: MIT */
/* Printing; see report.h. */
#include "bench/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/cache_directory.h"
#include "os/process.h"

#define FIRST_WIDTH 34
#define WIDTH 13

static void print_json(json_t *line)
{
    json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    fputc('\n', stdout);
    fflush(stdout);
    json_decref(line);
}

/* The device that a store in `directory` lies on, from the mount that holds it. */
static void find_disk(const char *directory, char *disk, size_t capacity)
{
    char device[256], point[512], type[64], line[2048];
    size_t longest = 0;
    snprintf(disk, capacity, "unknown");
    FILE *mounts = fopen("/proc/self/mounts", "r");
    while (mounts != NULL && fgets(line, sizeof line, mounts) != NULL) {
        if (sscanf(line, "%255s %511s %63s", device, point, type) == 3 &&
            strncmp(directory, point, strlen(point)) == 0 && strlen(point) >= longest) {
            longest = strlen(point);
            snprintf(disk, capacity, "%s (%s)", device, type);
        }
    }
    if (mounts != NULL) {
        fclose(mounts);
    }
}

void mz_report_machine(const char *suite, const mz_bench_options *options)
{
    struct utsname kernel;
    char cpu[128], disk[384], directory[1024] = "/";
    uint64_t total = 0, available = 0;
    mz_error error = MZ_ERROR_INIT;
    const char *codec = options->llm.codec != NULL ? options->llm.codec : "raw";
    if (options->llm.store_dir != NULL) {
        snprintf(directory, sizeof directory, "%s", options->llm.store_dir);
    } else {
        mz_cache_directory(directory, sizeof directory, &error);
    }
    double load = 0; /* processes that wanted to run, in the last minute */
    getloadavg(&load, 1);
    uname(&kernel);
    mz_machine_cpu_name(cpu, sizeof cpu);
    mz_machine_memory(&total, &available, &error);
    find_disk(directory, disk, sizeof disk);
    int threads = options->llm.threads > 0 ? options->llm.threads : mz_machine_cores();
    if (options->json) {
        print_json(
            json_pack("{s:s, s:s, s:s, s:i, s:s, s:I, s:s, s:f, s:s, s:i, s:I, s:I, s:s}", "suite",
                      suite, "event", "machine", "cpu", cpu, "cores", mz_machine_cores(), "kernel",
                      kernel.release, "memory_bytes", (json_int_t)total, "disk", disk, "load", load,
                      "codec", codec, "threads", threads, "repeats", (json_int_t)options->repeats,
                      "context_tokens", (json_int_t)options->tokens, "version", mz_version()));
        return;
    }
    printf("%s: %s, %d cores, %.1f GiB, Linux %s, %s, load %.1f\n"
           "codec %s, %d threads, medians of %u\n\n",
           suite, cpu, mz_machine_cores(), (double)total / (1u << 30), kernel.release, disk, load,
           codec, threads, options->repeats);
    fflush(stdout);
}

void mz_report_titles(const mz_bench_options *options, const mz_report_column *columns)
{
    for (int i = 0; !options->json && columns[i].title != NULL; i++) {
        printf("%*s", i == 0 ? -FIRST_WIDTH : WIDTH, columns[i].title);
    }
    if (!options->json) {
        putchar('\n');
    }
}

static void print_value(const json_t *value, bool is_first)
{
    int width = is_first ? -FIRST_WIDTH : WIDTH;
    if (json_is_string(value)) {
        printf(is_first ? "%*s" : "  %*s", is_first ? width : width - 2, json_string_value(value));
    } else if (json_is_integer(value)) {
        printf("%*lld", width, (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        printf("%*.2f", width, json_real_value(value));
    } else {
        printf("%*s", width, "-");
    }
}

void mz_report_line(const mz_bench_options *options, const mz_report_column *columns, json_t *line)
{
    if (options->json) {
        print_json(line);
        return;
    }
    for (int i = 0; columns[i].title != NULL; i++) {
        print_value(json_object_get(line, columns[i].key), i == 0);
    }
    putchar('\n');
    fflush(stdout);
    json_decref(line);
}

const char *mz_report_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double mz_report_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

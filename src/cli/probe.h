/* SPDX-License-Identifier: MIT */
/*
 * Questions to this machine that the library itself never asks: doctor's. Each tries the thing
 * instead of reading a version, because what a kernel has and what a container allows differ.
 */
#ifndef MZ_CLI_PROBE_H
#define MZ_CLI_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* First line of a small file, 0-terminated without newline; false if it can't be read. */
bool mz_probe_line(const char *path, char *line, size_t capacity);

/* Name and release of the kernel. */
void mz_probe_kernel(char *text, size_t capacity);

/* Whether pages can be committed ahead (MADV_POPULATE_WRITE, Linux 5.14). */
bool mz_probe_populate(void);

/* Whether io_uring_setup is allowed; containers often forbid it. */
bool mz_probe_io_uring(void);

/* How a folder is made of disk: made if missing, a page is written and read past the page cache. */
typedef struct mz_probe_store {
    bool usable;         /* a file can be made and written there */
    bool direct;         /* O_DIRECT works, for reads and writes */
    uint64_t free_bytes; /* for this user */
    char reason[512];    /* why it is not usable */
} mz_probe_store;
void mz_probe_store_dir(const char *directory, mz_probe_store *result);

/* The folder where a pool keeps its store when nobody says otherwise. */
void mz_probe_default_store(char *directory, size_t capacity);

/* Memory controller that governs this process. */
typedef enum mz_probe_cgroup {
    MZ_PROBE_NO_CGROUP,
    MZ_PROBE_CGROUP_V1,
    MZ_PROBE_CGROUP_V2
} mz_probe_cgroup;
mz_probe_cgroup mz_probe_memory_cgroup(void);

#endif

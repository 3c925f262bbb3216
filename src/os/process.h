/* SPDX-License-Identifier: MIT */
/* What /proc says about this process and machine. Read when asked, never polled. */
#ifndef MZ_OS_PROCESS_H
#define MZ_OS_PROCESS_H

#include "os/os.h"

/* Proportional set size of process `pid` (0: this one) from smaps_rollup, bytes. */
mz_status mz_process_pss(int pid, uint64_t *bytes, mz_error *error);

/* The file mapping that covers an address, from /proc/self/maps. */
typedef struct mz_mapping {
    uint64_t start, end;    /* addresses */
    uint64_t file_offset;   /* of `start` */
    uint64_t device, inode; /* as maps prints them; on btrfs and overlayfs not those of fstat */
    char path[1024];        /* as the kernel prints it; " (deleted)" is kept */
} mz_mapping;

/*
 * Errors: MZ_E_NOTFOUND if no mapping covers the address or it is anonymous; MZ_E_UNSUPPORTED if
 * the path does not fit mz_mapping.path.
 */
mz_status mz_process_find_mapping(const void *address, mz_mapping *mapping, mz_error *error);

/* MemTotal and MemAvailable of the machine, lowered to the memory cgroup's limit where one is
 * set. */
mz_status mz_machine_memory(uint64_t *total_bytes, uint64_t *available_bytes, mz_error *error);

/* The same for a tree that has proc/ and sys/fs/cgroup/ below `root` ("" is the machine's own). */
mz_status mz_machine_memory_at(const char *root, uint64_t *total_bytes, uint64_t *available_bytes,
                               mz_error *error);

/*
 * Path of a file of the memory cgroup that this process is in, such as "memory.pressure"; version
 * is 1 or 2, `root` as above. In a container whose mount shows only its own part of the tree that
 * part is the cgroup. MZ_E_NOTFOUND without such a cgroup or file, MZ_E_INVALID if the path does
 * not fit.
 */
mz_status mz_machine_cgroup_file(const char *root, int version, const char *file, char *path,
                                 size_t capacity, mz_error *error);

/* Cores that this process may run on. At least 1. */
int mz_machine_cores(void);

/* "model name" of /proc/cpuinfo, "unknown" if there is none. */
void mz_machine_cpu_name(char *name, size_t capacity);

#endif

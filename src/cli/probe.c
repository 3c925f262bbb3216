/* SPDX-License-Identifier: MIT */
/* Doctor's questions to the machine; see probe.h. */
#include "cli/probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cache_directory.h"
#include "os/direct_io.h"
#include "os/directory.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older headers lack the name */
#endif

bool mz_probe_line(const char *path, char *line, size_t capacity)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    bool has_line = fgets(line, (int)capacity, file) != NULL;
    fclose(file);
    if (has_line) {
        line[strcspn(line, "\n")] = '\0';
    }
    return has_line;
}

void mz_probe_kernel(char *text, size_t capacity)
{
    struct utsname name;
    if (uname(&name) == 0) {
        snprintf(text, capacity, "%s %s %s", name.sysname, name.release, name.machine);
    } else {
        snprintf(text, capacity, "unknown");
    }
}

bool mz_probe_populate(void)
{
    void *page =
        mmap(NULL, MZ_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return false;
    }
    bool works = madvise(page, MZ_PAGE_BYTES, MADV_POPULATE_WRITE) == 0;
    munmap(page, MZ_PAGE_BYTES);
    return works;
}

bool mz_probe_io_uring(void)
{
#ifdef SYS_io_uring_setup
    /* A null parameter block: EFAULT means that the call exists and is allowed. */
    return syscall(SYS_io_uring_setup, 1, NULL) < 0 && errno == EFAULT;
#else
    return false;
#endif
}

static mz_status try_page(mz_file *file, mz_error *error)
{
    void *page = NULL;
    if (posix_memalign(&page, MZ_PAGE_BYTES, MZ_PAGE_BYTES) != 0) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory");
    }
    memset(page, 0x5a, MZ_PAGE_BYTES);
    mz_status status = mz_file_write(file, page, MZ_PAGE_BYTES, 0, error);
    if (status == MZ_OK) {
        status = mz_file_read(file, page, MZ_PAGE_BYTES, 0, error);
    }
    free(page);
    return status;
}

void mz_probe_store_dir(const char *directory, mz_probe_store *result)
{
    memset(result, 0, sizeof *result);
    mz_directory_make(directory);
    mz_error error = MZ_ERROR_INIT;
    mz_file file;
    mz_status status = mz_file_create_temporary(&file, mz_os_linux(), directory, &error);
    if (status == MZ_OK) {
        status = try_page(&file, &error);
        result->direct = mz_file_is_direct(&file);
        mz_file_close(&file);
    }
    result->usable = status == MZ_OK;
    snprintf(result->reason, sizeof result->reason, "%s", error.text);
    struct statvfs volume;
    if (statvfs(directory, &volume) == 0) {
        result->free_bytes = (uint64_t)volume.f_bavail * volume.f_frsize;
    }
}

void mz_probe_default_store(char *directory, size_t capacity)
{
    const char *named = getenv("MZCACHE_STORE");
    mz_error error = MZ_ERROR_INIT;
    if (named != NULL && named[0] != '\0') {
        snprintf(directory, capacity, "%s", named);
    } else if (mz_cache_directory(directory, capacity, &error) != MZ_OK) {
        directory[0] = '\0'; /* as a pool does: there is no store then */
    }
}

/* Lines are "number:controllers:path"; version 2 has number 0 and no controllers. */
mz_probe_cgroup mz_probe_memory_cgroup(void)
{
    FILE *file = fopen("/proc/self/cgroup", "r");
    mz_probe_cgroup found = MZ_PROBE_NO_CGROUP;
    char line[512];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char controllers[256] = "";
        if (strncmp(line, "0::", 3) == 0) {
            /* The root group lists what it could hand on. */
            char offered[256];
            if (found == MZ_PROBE_NO_CGROUP &&
                mz_probe_line("/sys/fs/cgroup/cgroup.controllers", offered, sizeof offered) &&
                strstr(offered, "memory") != NULL) {
                found = MZ_PROBE_CGROUP_V2;
            }
        } else if (sscanf(line, "%*d:%255[^:]:", controllers) == 1 &&
                   strstr(controllers, "memory") != NULL) {
            found = MZ_PROBE_CGROUP_V1;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

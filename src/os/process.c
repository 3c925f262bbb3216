/* SPDX-License-Identifier: MIT */
/*
 * Reading /proc and the memory cgroup; the contract is in process.h.
 *
 * Problem: these files are text for people: paths hold spaces, lines are long, fields come and go
 * with the kernel. Approach: one line at a time in a fixed buffer, fields found by name, a line
 * that does not parse is skipped. Figures of the machine are lowered by every memory cgroup from
 * ours up to the root, because each of them may hold the limit that counts.
 * Invariant: nothing is guessed; what cannot be read is an error, or (for cgroups) no limit.
 */
#include "os/process.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* A line of maps: the longest path (4096) and the fields before it. */
#define LINE_BYTES (4096 + 256)
#define PATH_BYTES 4096

/* Read one line without its newline; a longer one is cut and its rest skipped. */
static bool read_line(FILE *stream, char *line, size_t capacity)
{
    if (fgets(line, (int)capacity, stream) == NULL) {
        return false;
    }
    size_t length = strlen(line);
    if (length > 0 && line[length - 1] == '\n') {
        line[length - 1] = '\0';
        return true;
    }
    for (int c = getc(stream); c != '\n' && c != EOF;) {
        c = getc(stream);
    }
    return true;
}

/* The number behind `name` at the start of a line of "name: value" or "name value". */
static bool read_field(const char *path, const char *name, uint64_t *value)
{
    FILE *stream = fopen(path, "re");
    if (stream == NULL) {
        return false;
    }
    char line[512];
    size_t length = strlen(name);
    bool found = false;
    errno = 0;
    while (!found && read_line(stream, line, sizeof line)) {
        found =
            strncmp(line, name, length) == 0 && sscanf(line + length, "%*[: ]%" SCNu64, value) == 1;
    }
    int sys_errno = errno;
    fclose(stream);
    errno = sys_errno;
    return found;
}

mz_status mz_process_pss(int pid, uint64_t *bytes, mz_error *error)
{
    char path[64];
    if (pid == 0) {
        snprintf(path, sizeof path, "/proc/self/smaps_rollup");
    } else {
        snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    }
    uint64_t kib = 0;
    errno = 0;
    if (read_field(path, "Pss", &kib)) {
        *bytes = kib * 1024;
        return MZ_OK;
    }
    int sys_errno = errno;
    mz_status status = sys_errno == 0       ? MZ_E_UNSUPPORTED
                       : sys_errno == ESRCH ? MZ_E_NOTFOUND
                                            : mz_status_from_errno(sys_errno);
    return mz_error_set(error, status, sys_errno,
                        "cannot read Pss from %s (needs Linux 4.14, a live process and its owner)",
                        path);
}

/* Parse "start-end perms offset major:minor inode   path". Returns the path in `line` or NULL. */
static const char *parse_mapping(const char *line, mz_mapping *mapping)
{
    unsigned device_major = 0;
    unsigned device_minor = 0;
    int used = 0;
    int fields = sscanf(line, "%" SCNx64 "-%" SCNx64 " %*4s %" SCNx64 " %x:%x %" SCNu64 "%n",
                        &mapping->start, &mapping->end, &mapping->file_offset, &device_major,
                        &device_minor, &mapping->inode, &used);
    if (fields != 6) {
        return NULL;
    }
    mapping->device = (uint64_t)makedev(device_major, device_minor);
    /* The kernel pads with spaces; a file's path begins with '/', so its own spaces come later. */
    return line + used + strspn(line + used, " ");
}

mz_status mz_process_find_mapping(const void *address, mz_mapping *mapping, mz_error *error)
{
    FILE *stream = fopen("/proc/self/maps", "re");
    if (stream == NULL) {
        return mz_error_set(error, mz_status_from_errno(errno), errno,
                            "cannot open /proc/self/maps (mount /proc)");
    }
    char line[LINE_BYTES];
    mz_mapping found = {0};
    const char *path = NULL;
    uint64_t wanted = (uint64_t)(uintptr_t)address;
    while (path == NULL && read_line(stream, line, sizeof line)) {
        path = parse_mapping(line, &found);
        if (path != NULL && (wanted < found.start || wanted >= found.end)) {
            path = NULL;
        }
    }
    fclose(stream);
    if (path == NULL || path[0] != '/') {
        return mz_error_set(error, MZ_E_NOTFOUND, 0, "no file is mapped at address %p", address);
    }
    size_t length = strlen(path);
    if (length >= sizeof found.path) {
        return mz_error_set(error, MZ_E_UNSUPPORTED, 0,
                            "the path of the file mapped at %p has %zu bytes; move it to a shorter "
                            "one",
                            address, length);
    }
    memcpy(found.path, path, length + 1);
    *mapping = found;
    return MZ_OK;
}

/* A file that holds one number; "max" and everything else that is no number is false. */
static bool read_number(const char *directory, const char *name, uint64_t *value)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *stream = fopen(path, "re");
    if (stream == NULL) {
        return false;
    }
    bool found = fscanf(stream, "%" SCNu64, value) == 1;
    fclose(stream);
    return found;
}

/* Lower the figures to one cgroup's limit. Page cache that is not in use counts as available. */
static void apply_cgroup(const char *directory, bool is_v2, uint64_t *total, uint64_t *available)
{
    uint64_t limit = 0;
    if (!read_number(directory, is_v2 ? "memory.max" : "memory.limit_in_bytes", &limit)) {
        return;
    }
    /* Version 1 writes "no limit" as a number near 2^63, which lowers nothing. */
    *total = limit < *total ? limit : *total;
    uint64_t used = 0;
    uint64_t cached = 0;
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/memory.stat", directory);
    if (!read_number(directory, is_v2 ? "memory.current" : "memory.usage_in_bytes", &used)) {
        used = 0;
    }
    if (!read_field(path, is_v2 ? "inactive_file" : "total_inactive_file", &cached)) {
        cached = 0;
    }
    used = used > cached ? used - cached : 0;
    uint64_t left = limit > used ? limit - used : 0;
    *available = left < *available ? left : *available;
}

/*
 * Apply the cgroup `group` below `mount` and all above it. In a container the mount may show only
 * our own part of the tree: then the deep paths do not exist and the mount itself holds the limit.
 */
static void apply_cgroup_chain(const char *mount, const char *group, bool is_v2, uint64_t *total,
                               uint64_t *available)
{
    char path[PATH_BYTES];
    int used = snprintf(path, sizeof path, "%s%s", mount, group);
    if (used < 0 || (size_t)used >= sizeof path) {
        return;
    }
    size_t mount_length = strlen(mount);
    for (;;) {
        apply_cgroup(path, is_v2, total, available);
        char *slash = strrchr(path + mount_length, '/');
        if (slash == NULL) {
            return;
        }
        *slash = '\0';
    }
}

/* Whether a comma-separated list of version 1 controllers holds "memory". */
static bool has_memory_controller(const char *list, size_t length)
{
    while (length > 0) {
        const char *comma = memchr(list, ',', length);
        size_t word = comma != NULL ? (size_t)(comma - list) : length;
        if (word == strlen("memory") && memcmp(list, "memory", word) == 0) {
            return true;
        }
        size_t step = comma != NULL ? word + 1 : word;
        list += step;
        length -= step;
    }
    return false;
}

static void apply_all_cgroups(const char *root, uint64_t *total, uint64_t *available)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *stream = fopen(path, "re");
    if (stream == NULL) {
        return;
    }
    char line[LINE_BYTES];
    while (read_line(stream, line, sizeof line)) {
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) {
            continue;
        }
        size_t length = (size_t)(group - controllers - 1);
        bool is_v2 = length == 0;
        if (is_v2 || has_memory_controller(controllers + 1, length)) {
            snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, is_v2 ? "" : "/memory");
            apply_cgroup_chain(path, group + 1, is_v2, total, available);
        }
    }
    fclose(stream);
}

/* The path of our group in one version's tree, from root/proc/self/cgroup; false: there is none. */
static bool own_group(const char *root, int version, char *group, size_t capacity)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *stream = fopen(path, "re");
    bool found = false;
    while (stream != NULL && !found && read_line(stream, line, sizeof line)) {
        char *controllers = strchr(line, ':');
        char *own = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (own == NULL) {
            continue;
        }
        size_t length = (size_t)(own - controllers - 1);
        found = version == 2 ? length == 0 : has_memory_controller(controllers + 1, length);
        if (found) {
            int used = snprintf(group, capacity, "%s", strcmp(own + 1, "/") == 0 ? "" : own + 1);
            found = used >= 0 && (size_t)used < capacity;
        }
    }
    if (stream != NULL) {
        fclose(stream);
    }
    return found;
}

mz_status mz_machine_cgroup_file(const char *root, int version, const char *file, char *path,
                                 size_t capacity, mz_error *error)
{
    /* A machine with both versions mounts the second one in a folder of its own. */
    static const char *const mounts[][2] = {{"/memory", "/memory"}, {"", "/unified"}};
    char group[PATH_BYTES];
    if (!own_group(root, version, group, sizeof group)) {
        return mz_error_set(error, MZ_E_NOTFOUND, 0,
                            "this process is in no memory cgroup of version %d", version);
    }
    for (int i = 0; i < 4; i++) {
        const char *mount = mounts[version - 1][i % 2];
        int used = snprintf(path, capacity, "%s/sys/fs/cgroup%s%s/%s", root, mount,
                            i < 2 ? group : "", file);
        if (used < 0 || (size_t)used >= capacity) {
            return mz_error_set(error, MZ_E_INVALID, 0, "the path of the memory cgroup is too long");
        }
        if (access(path, F_OK) == 0) {
            return MZ_OK;
        }
    }
    return mz_error_set(error, MZ_E_NOTFOUND, 0, "no %s in the memory cgroup of version %d", file,
                        version);
}

mz_status mz_machine_memory_at(const char *root, uint64_t *total_bytes, uint64_t *available_bytes,
                               mz_error *error)
{
    char path[PATH_BYTES];
    uint64_t total_kib = 0;
    uint64_t available_kib = 0;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    errno = 0;
    if (!read_field(path, "MemTotal", &total_kib) ||
        !read_field(path, "MemAvailable", &available_kib)) {
        return mz_error_set(error, errno == 0 ? MZ_E_UNSUPPORTED : mz_status_from_errno(errno),
                            errno, "cannot read MemTotal and MemAvailable (mount /proc)");
    }
    uint64_t total = total_kib * 1024;
    uint64_t available = available_kib * 1024;
    apply_all_cgroups(root, &total, &available);
    *total_bytes = total;
    *available_bytes = available;
    return MZ_OK;
}

mz_status mz_machine_memory(uint64_t *total_bytes, uint64_t *available_bytes, mz_error *error)
{
    return mz_machine_memory_at("", total_bytes, available_bytes, error);
}

int mz_machine_cores(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 0) {
        return CPU_COUNT(&allowed);
    }
    /* More than 1024 processors do not fit a cpu_set_t. */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

void mz_machine_cpu_name(char *name, size_t capacity)
{
    char line[512];
    snprintf(name, capacity, "unknown");
    FILE *stream = fopen("/proc/cpuinfo", "re");
    if (stream == NULL) {
        return;
    }
    while (read_line(stream, line, sizeof line)) {
        const char *colon = strchr(line, ':');
        if (colon != NULL && strncmp(line, "model name", strlen("model name")) == 0) {
            snprintf(name, capacity, "%s", colon + 1 + strspn(colon + 1, " "));
            break;
        }
    }
    fclose(stream);
}

/* SPDX-License-Identifier: MIT */
/*
 * Sockets of this user's processes: find, check and clean their directory.
 *
 * The fallback lives in /tmp, where anybody may have put a directory or a link of that name first.
 * So the directory is opened without following a link and judged by its descriptor: owner and mode
 * must be ours. In a directory that passes nobody else can create or replace anything, and the
 * later steps may use paths.
 *
 * Whether a socket is alive is asked of the socket (connect), not of the pid: pids are reused, and
 * a container that shares /tmp numbers its processes differently. For the same reason a socket is
 * removed only when it refuses connections *and* its pid is gone: a process that has bound but not
 * listened yet refuses too.
 */
#include "control/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

mz_status mz_control_directory_default(char *directory, size_t capacity, mz_error *error)
{
    const char *own = getenv("MZCACHE_CONTROL_DIR");
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat info;
    int length;
    if (own != NULL && own[0] != '\0') {
        if (own[0] != '/') {
            return mz_error_set(error, MZ_E_INVALID, 0,
                                "MZCACHE_CONTROL_DIR=%.100s must be an absolute path", own);
        }
        length = snprintf(directory, capacity, "%s", own);
    } else if (runtime != NULL && runtime[0] == '/' && stat(runtime, &info) == 0 &&
               S_ISDIR(info.st_mode)) {
        length = snprintf(directory, capacity, "%s/mzcache", runtime);
    } else {
        length = snprintf(directory, capacity, "/tmp/mzcache-%lu", (unsigned long)geteuid());
    }
    if (length < 0 || (size_t)length >= capacity) {
        return mz_error_set(
            error, MZ_E_INVALID, 0, "%s is too long for the path of a socket; shorten it",
            own != NULL && own[0] != '\0' ? "MZCACHE_CONTROL_DIR" : "XDG_RUNTIME_DIR");
    }
    return MZ_OK;
}

mz_status mz_control_directory_check(const char *directory, mz_error *error)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ELOOP || errno == ENOTDIR) {
            return mz_error_set(error, MZ_E_PERM, 0,
                                "%s is a link or no directory; remove it or set XDG_RUNTIME_DIR",
                                directory);
        }
        return mz_error_set(error, mz_status_from_errno(errno), errno, "open directory %s",
                            directory);
    }
    struct stat info;
    int failed = fstat(fd, &info);
    int reason = errno;
    close(fd);
    if (failed != 0) {
        return mz_error_set(error, MZ_E_IO, reason, "inspect directory %s", directory);
    }
    if (info.st_uid != geteuid()) {
        return mz_error_set(error, MZ_E_PERM, 0,
                            "directory %s belongs to user %lu; remove it or set XDG_RUNTIME_DIR",
                            directory, (unsigned long)info.st_uid);
    }
    if ((info.st_mode & 077) != 0) {
        return mz_error_set(error, MZ_E_PERM, 0,
                            "directory %s is open to others (mode %03o); chmod it to 0700",
                            directory, (unsigned)info.st_mode & 0777u);
    }
    return MZ_OK;
}

mz_status mz_control_directory_make(const char *directory, mz_error *error)
{
    if (mkdir(directory, 0700) != 0 && errno != EEXIST) {
        return mz_error_set(error, mz_status_from_errno(errno), errno, "make directory %s",
                            directory);
    }
    return mz_control_directory_check(directory, error);
}

mz_status mz_control_socket_address(const char *directory, int pid, struct sockaddr_un *address,
                                    mz_error *error)
{
    struct sockaddr_un made = {.sun_family = AF_UNIX};
    int length = snprintf(made.sun_path, sizeof made.sun_path, "%s/%d.sock", directory, pid);
    if (length < 0 || (size_t)length >= sizeof made.sun_path) {
        return mz_error_set(error, MZ_E_INVALID, 0,
                            "the path of a socket in %.100s... is longer than %zu bytes; choose a "
                            "shorter directory",
                            directory, sizeof made.sun_path - 1);
    }
    *address = made;
    return MZ_OK;
}

/* Whether somebody accepts connections there. Never waits: a full queue means somebody is there. */
static bool socket_is_alive(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return false;
    }
    bool alive =
        connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EAGAIN;
    close(fd);
    return alive;
}

/* The pid in a name like "1234.sock"; 0 if it is none. */
static int pid_of_name(const char *name)
{
    if (name[0] < '1' || name[0] > '9') {
        return 0;
    }
    char *end;
    errno = 0;
    long pid = strtol(name, &end, 10);
    if (errno != 0 || pid > INT_MAX || strcmp(end, ".sock") != 0) {
        return 0;
    }
    return (int)pid;
}

static int compare_pids(const void *left, const void *right)
{
    const mz_control_socket *a = left;
    const mz_control_socket *b = right;
    return (a->pid > b->pid) - (a->pid < b->pid);
}

/* Append the socket of one directory entry; entries that are none are skipped. */
static mz_status append_socket(const char *directory, const char *name, mz_control_socket **list,
                               size_t *count, mz_error *error)
{
    int pid = pid_of_name(name);
    struct sockaddr_un address;
    mz_error ignored = MZ_ERROR_INIT;
    struct stat info;
    if (pid == 0 || mz_control_socket_address(directory, pid, &address, &ignored) != MZ_OK ||
        lstat(address.sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) {
        return MZ_OK;
    }
    mz_control_socket *grown = realloc(*list, (*count + 1) * sizeof **list);
    if (grown == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "list the sockets in %s", directory);
    }
    *list = grown;
    mz_control_socket *added = &grown[*count];
    added->pid = pid;
    added->alive = socket_is_alive(&address);
    memcpy(added->path, address.sun_path, sizeof added->path);
    (*count)++;
    return MZ_OK;
}

mz_status mz_control_directory_scan(const char *directory, mz_control_socket **sockets,
                                    size_t *count, mz_error *error)
{
    DIR *stream = opendir(directory);
    if (stream == NULL) {
        return mz_error_set(error, mz_status_from_errno(errno), errno, "read directory %s",
                            directory);
    }
    mz_control_socket *list = NULL;
    size_t found = 0;
    mz_status status = MZ_OK;
    const struct dirent *entry;
    while (status == MZ_OK && (entry = readdir(stream)) != NULL) {
        status = append_socket(directory, entry->d_name, &list, &found, error);
    }
    closedir(stream);
    if (status != MZ_OK) {
        free(list);
        return status;
    }
    if (found > 1) {
        qsort(list, found, sizeof *list, compare_pids);
    }
    *sockets = list;
    *count = found;
    return MZ_OK;
}

void mz_control_directory_clean(const char *directory)
{
    mz_control_socket *sockets;
    size_t count;
    mz_error ignored = MZ_ERROR_INIT;
    if (mz_control_directory_scan(directory, &sockets, &count, &ignored) != MZ_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        bool gone = kill(sockets[i].pid, 0) != 0 && errno == ESRCH;
        if (!sockets[i].alive && gone) {
            unlink(sockets[i].path);
        }
    }
    free(sockets);
}

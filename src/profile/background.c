/* SPDX-License-Identifier: MIT */
/*
 * Finding and starting the command, and the lock that lets one process measure; see background.h.
 *
 * The command is looked for where the build and every installation have it, relative to the file
 * that this code was mapped from: /proc names that file absolutely, however the host loaded it.
 * PATH is not searched, because another version's record would be no use. The lock is a file
 * beside the record which stays: removing it would let two processes lock two files of one name.
 */
#include "profile/background.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "os/background.h"
#include "os/directory.h"
#include "os/process.h"

#define COMMAND_NAME "mzcache"
#define PATH_BYTES 4096

/* An address in the file of this code. */
static const char own_code[] = COMMAND_NAME;

static mz_status find_command(char *path, size_t capacity, mz_error *error)
{
    /* The build and most systems have lib/ and bin/; Debian has lib/<architecture>/. */
    static const char *const places[] = {"", "../bin/", "../../bin/"};
    mz_mapping own;
    mz_status status = mz_process_find_mapping(own_code, &own, error);
    if (status != MZ_OK) {
        return status;
    }
    char *slash = strrchr(own.path, '/');
    slash[1] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int used = snprintf(path, capacity, "%s%s%s", own.path, places[i], COMMAND_NAME);
        if (used > 0 && (size_t)used < capacity && access(path, X_OK) == 0) {
            return MZ_OK;
        }
    }
    return mz_error_set(error, MZ_E_NOTFOUND, 0, "there is no command " COMMAND_NAME " beside %s",
                        own.path);
}

mz_status mz_profile_start(const char *command, const char *directory, mz_error *error)
{
    char path[PATH_BYTES], store[PATH_BYTES];
    mz_status status = MZ_OK;
    int used = snprintf(store, sizeof store, "--store=%s", directory);
    if (used < 0 || (size_t)used >= sizeof store) {
        return mz_error_set(error, MZ_E_INVALID, 0, "the name of the store directory is too long");
    }
    if (command != NULL) {
        used = snprintf(path, sizeof path, "%s", command);
        if (used < 0 || (size_t)used >= sizeof path) {
            return mz_error_set(error, MZ_E_INVALID, 0, "the path of the command is too long");
        }
    } else {
        status = find_command(path, sizeof path, error);
    }
    if (status != MZ_OK) {
        return status;
    }
    char name[] = COMMAND_NAME, profile[] = "profile", quick[] = "--quick",
         missing[] = "--if-missing";
    char *const arguments[] = {name, profile, quick, missing, store, NULL};
    return mz_background_start(path, arguments, error);
}

mz_status mz_profile_lock(const char *path, bool wait, int *lock, mz_error *error)
{
    char name[PATH_BYTES];
    int used = snprintf(name, sizeof name, "%s.lock", path);
    if (used < 0 || (size_t)used >= sizeof name) {
        return mz_error_set(error, MZ_E_INVALID, 0, "the path of the profile is too long");
    }
    char *slash = strrchr(name, '/');
    if (slash != NULL) {
        *slash = '\0';
        mz_directory_make(name);
        *slash = '/';
    }
    int fd = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    int failed = fd < 0 ? -1 : flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB));
    while (failed != 0 && fd >= 0 && errno == EINTR) {
        failed = flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB));
    }
    if (failed != 0) {
        int sys_errno = errno;
        if (fd >= 0) {
            close(fd);
        }
        if (sys_errno == EWOULDBLOCK) {
            return mz_error_set(error, MZ_E_BUSY, 0, "another process is measuring");
        }
        return mz_error_set(error, mz_status_from_errno(sys_errno), sys_errno,
                            "cannot lock the profile by %s", name);
    }
    *lock = fd;
    return MZ_OK;
}

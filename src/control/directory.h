/* SPDX-License-Identifier: MIT */
/*
 * Where the control sockets are: one directory per user, one socket `<pid>.sock` per process.
 *
 * Whoever can connect to a socket can evict a model, so the directory must be ours alone: a
 * symbolic link, somebody else's directory or one that others can write to is refused, never
 * repaired. A socket is *alive* when its process accepts connections; what a killed process left
 * behind is *stale*.
 *
 * Errors: MZ_E_PERM (not ours), MZ_E_INVALID (path too long), MZ_E_NOTFOUND, MZ_E_IO, MZ_E_NOMEM.
 * Threads: any. Nothing here waits for another process.
 */
#ifndef MZ_CONTROL_DIRECTORY_H
#define MZ_CONTROL_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/un.h>

#include "base/error.h"

/* Room for the path of a socket, its final 0 included: the kernel's own limit. */
#define MZ_CONTROL_PATH_BYTES (sizeof(((struct sockaddr_un *)0)->sun_path))

typedef struct mz_control_socket {
    int pid;                          /* process that made it, by its name */
    bool alive;                       /* it accepts connections */
    char path[MZ_CONTROL_PATH_BYTES]; /* of the socket */
} mz_control_socket;

/*
 * The directory of this user: $MZCACHE_CONTROL_DIR, an absolute path, if it is set; else
 * $XDG_RUNTIME_DIR/mzcache if that variable names an existing directory by an absolute path, else
 * /tmp/mzcache-<uid>. Reads the environment.
 */
mz_status mz_control_directory_default(char *directory, size_t capacity, mz_error *error);

/* Make the directory (not its parents) with mode 0700 if it is missing, then check it. */
mz_status mz_control_directory_make(const char *directory, mz_error *error);

/* Check that the directory is ours alone. MZ_E_NOTFOUND if there is none. */
mz_status mz_control_directory_check(const char *directory, mz_error *error);

/* The address of the socket of process `pid`. MZ_E_INVALID if the path does not fit. */
mz_status mz_control_socket_address(const char *directory, int pid, struct sockaddr_un *address,
                                    mz_error *error);

/*
 * All sockets in a checked directory, by rising pid.
 * Owner: the caller frees *sockets by free(); NULL when there are none.
 */
mz_status mz_control_directory_scan(const char *directory, mz_control_socket **sockets,
                                    size_t *count, mz_error *error);

/* Remove stale sockets of processes that are gone. Failures are ignored: they only leave litter. */
void mz_control_directory_clean(const char *directory);

#endif

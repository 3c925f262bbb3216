/* SPDX-License-Identifier: MIT */
/*
 * Start a program beside a host that must not notice it.
 *
 * The program gets the lowest CPU priority and idle I/O, a session of its own, /dev/null as
 * standard streams, no other descriptor, default signals and this environment. It is nobody's
 * child here: waitpid(-1) never returns it and no SIGCHLD is sent. (A host that is itself process
 * 1 or a subreaper inherits it, as any orphan, when it ends.)
 */
#ifndef MZ_OS_BACKGROUND_H
#define MZ_OS_BACKGROUND_H

#include "base/error.h"

/*
 * Start the program at `path` with these arguments ([0] is its name, NULL behind the last).
 * Blocks: until it runs, about a millisecond; not until it ends.
 * Threads: any.
 * Errors: MZ_E_NOTFOUND, MZ_E_PERM, MZ_E_NOMEM, MZ_E_IO.
 */
mz_status mz_background_start(const char *path, char *const arguments[], mz_error *error);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Have this machine measured by another process: `mzcache profile --quick --if-missing`.
 *
 * The measurement takes memory and time that a host, just asked to give memory back, must not
 * spend. Its result is the record, which whoever wants it looks for later.
 */
#ifndef MZ_PROFILE_BACKGROUND_H
#define MZ_PROFILE_BACKGROUND_H

#include <stdbool.h>

#include "base/error.h"

/*
 * Start to measure for a store directory and return at once.
 * command: path of mzcache; NULL: the one in the folder of this library, or in bin beside it.
 * Errors: MZ_E_NOTFOUND if there is no command; those of mz_background_start.
 */
mz_status mz_profile_start(const char *command, const char *directory, mz_error *error);

/*
 * Take the right to measure for the record at `path`; *lock is closed to give it back. With `wait`
 * until nobody else measures, else MZ_E_BUSY if somebody does. The lock ends with its process.
 * Errors: MZ_E_BUSY, MZ_E_PERM, MZ_E_IO, MZ_E_NOSPC.
 */
mz_status mz_profile_lock(const char *path, bool wait, int *lock, mz_error *error);

#endif

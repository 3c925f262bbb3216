/* SPDX-License-Identifier: MIT */
/* Where this user's mzCache files lie: the store, and the profiles of machines. */
#ifndef MZ_BASE_CACHE_DIRECTORY_H
#define MZ_BASE_CACHE_DIRECTORY_H

#include <stddef.h>

#include "base/error.h"

/*
 * $XDG_CACHE_HOME/mzcache, or ~/.cache/mzcache, into directory[capacity]; it may not exist yet. A
 * relative $XDG_CACHE_HOME is ignored, as its specification says.
 * Errors: MZ_E_NOTFOUND if neither variable names a place, MZ_E_INVALID if the name is too long.
 */
mz_status mz_cache_directory(char *directory, size_t capacity, mz_error *error);

#endif

/* SPDX-License-Identifier: MIT */
/* One place for pool, profile and command, so that they never look in different ones. */
#include "base/cache_directory.h"

#include <stdio.h>
#include <stdlib.h>

mz_status mz_cache_directory(char *directory, size_t capacity, mz_error *error)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int used;
    if (cache != NULL && cache[0] == '/') {
        used = snprintf(directory, capacity, "%s/mzcache", cache);
    } else if (home != NULL && home[0] == '/') {
        used = snprintf(directory, capacity, "%s/.cache/mzcache", home);
    } else {
        return mz_error_set(error, MZ_E_NOTFOUND, 0,
                            "there is no cache directory; set XDG_CACHE_HOME or HOME");
    }
    if (used < 0 || (size_t)used >= capacity) {
        return mz_error_set(error, MZ_E_INVALID, 0, "the name of the cache directory is too long");
    }
    return MZ_OK;
}

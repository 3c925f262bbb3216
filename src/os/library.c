/* SPDX-License-Identifier: MIT */
/*
 * dlopen with all symbols resolved at once, so that a library which lacks something fails here and
 * not in the middle of an eviction; and with its symbols kept apart from those of the host.
 */
#include "os/library.h"

#include <dlfcn.h>
#include <stddef.h>

mz_status mz_library_symbol(const char *path, const char *symbol, void **address, mz_error *error)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror(); /* names the file */
        return mz_error_set(error, MZ_E_NOTFOUND, 0, "can't load a library: %s",
                            reason != NULL ? reason : path);
    }
    void *found = dlsym(library, symbol);
    if (found == NULL) {
        (void)dlclose(library); /* nothing of it is used */
        return mz_error_set(error, MZ_E_NOTFOUND, 0, "the library %s does not define %s", path,
                            symbol);
    }
    *address = found;
    return MZ_OK;
}

/* SPDX-License-Identifier: MIT */
/* Shared libraries that are loaded while the process runs. They are never unloaded. */
#ifndef MZ_OS_LIBRARY_H
#define MZ_OS_LIBRARY_H

#include "base/error.h"

/*
 * The address of `symbol` in the shared library at `path` (looked up as dlopen does), which is
 * loaded if it is not yet.
 * Errors: MZ_E_NOTFOUND if there is no such library or no such symbol in it.
 */
mz_status mz_library_symbol(const char *path, const char *symbol, void **address, mz_error *error);

#endif

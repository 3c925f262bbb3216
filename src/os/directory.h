/* SPDX-License-Identifier: MIT */
/* Directories that mzCache makes for itself: of the store, and of the profiles. */
#ifndef MZ_OS_DIRECTORY_H
#define MZ_OS_DIRECTORY_H

#include <stddef.h>

/*
 * Make a directory and those above it, open to this user only; what exists stays as it is.
 * No result: a failure shows, with its reason, when the directory is first used.
 */
void mz_directory_make(const char *directory);

#endif

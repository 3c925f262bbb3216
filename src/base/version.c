/* SPDX-License-Identifier: MIT */
/* The version of the library that is loaded, as opposed to the header that was compiled with. */
#include "mzcache/mzcache.h"

const char *mz_version(void)
{
    return MZ_VERSION_STRING;
}

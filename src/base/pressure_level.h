/* SPDX-License-Identifier: MIT */
/* The level that a word stands for; the other way is mz_pressure_level_name of mzcache.h. */
#ifndef MZ_BASE_PRESSURE_LEVEL_H
#define MZ_BASE_PRESSURE_LEVEL_H

#include "mzcache/mzcache.h"

/* "none", "low", "medium" or "critical"; false, *level unchanged, for any other word. */
bool mz_pressure_level_parse(const char *text, mz_pressure_level *level);

#endif

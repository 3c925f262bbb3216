/* SPDX-License-Identifier: MIT */
/* Levels of pressure and their words, for all who print or read them. */
#include "base/pressure_level.h"

#include <string.h>

static const char *const names[] = {"none", "low", "medium", "critical"};
#define LEVELS (sizeof names / sizeof names[0])

const char *mz_pressure_level_name(mz_pressure_level level)
{
    return (unsigned)level < LEVELS ? names[level] : "?";
}

bool mz_pressure_level_parse(const char *text, mz_pressure_level *level)
{
    for (unsigned i = 0; i < LEVELS; i++) {
        if (strcmp(text, names[i]) == 0) {
            *level = (mz_pressure_level)i;
            return true;
        }
    }
    return false;
}

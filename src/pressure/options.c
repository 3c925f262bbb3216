/* SPDX-License-Identifier: MIT */
/* Words to a policy; see options.h. A word that is not understood changes nothing. */
#include "pressure/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define IDLE_MOST_S (365ull * 24 * 3600)

mz_pressure_choice mz_pressure_choice_default(void)
{
    return (mz_pressure_choice){.watch = true, .policy = mz_pressure_policy_default()};
}

/* A time such as 90, 60s, 5m or 2h; from a second to a year. */
static bool parse_seconds(const char *text, uint64_t *seconds)
{
    char *end = NULL;
    if (*text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    uint64_t factor = 1;
    if (strcmp(end, "m") == 0) {
        factor = 60;
    } else if (strcmp(end, "h") == 0) {
        factor = 3600;
    } else if (*end != '\0' && strcmp(end, "s") != 0) {
        return false;
    }
    if (errno != 0 || value == 0 || value > IDLE_MOST_S / factor) {
        return false;
    }
    *seconds = value * factor;
    return true;
}

static bool parse_policy(const char *name, const char *text, mz_pressure_policy *policy)
{
    mz_size size;
    uint64_t seconds = 0;
    bool is_off = strcmp(text, "off") == 0;
    if (strcmp(name, "keep") == 0) {
        return mz_size_parse(text, &policy->keep);
    }
    if (strcmp(name, "max") == 0) {
        size = (mz_size){.is_percent = false, .bytes = 0};
        if (!is_off &&
            (!mz_size_parse(text, &size) || (size.is_percent ? size.percent <= 0 : !size.bytes))) {
            return false;
        }
        policy->max = size;
        return true;
    }
    if (strcmp(name, "evict-step") == 0) {
        if (!mz_size_parse(text, &size) || !size.is_percent || size.percent <= 0) {
            return false;
        }
        policy->step_percent = size.percent;
        return true;
    }
    if (!is_off && !parse_seconds(text, &seconds)) {
        return false;
    }
    policy->idle_ns = seconds * MZ_SECOND_NS;
    return true;
}

mz_status mz_pressure_choice_parse(const char *name, const char *text, mz_pressure_choice *choice,
                                   mz_error *error)
{
    static const char *const known[][2] = {{"pressure", "auto or off"},
                                           {"keep", "a size such as 512M or 10%"},
                                           {"max", "a size such as 2G or 50%, or off"},
                                           {"evict-step", "a share above 0% such as 15%"},
                                           {"idle-evict", "a time such as 60s, 5m or 2h, or off"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i][0]) != 0) {
            continue;
        }
        bool is_right = true;
        if (i > 0) {
            is_right = parse_policy(name, text, &choice->policy);
        } else if (strcmp(text, "auto") == 0 || strcmp(text, "off") == 0) {
            choice->watch = text[0] == 'a';
        } else {
            is_right = false;
        }
        return is_right ? MZ_OK
                        : mz_error_set(error, MZ_E_INVALID, 0, "%s can't be \"%.40s\"; it takes %s",
                                       name, text, known[i][1]);
    }
    return mz_error_set(error, MZ_E_INVALID, 0, "there is no option \"%.40s\" of pressure", name);
}

mz_pressure_choice mz_pressure_choice_from_env(const mz_log_sink *log)
{
    static const char *const known[][2] = {{"pressure", "MZCACHE_PRESSURE"},
                                           {"keep", "MZCACHE_KEEP"},
                                           {"max", "MZCACHE_MAX"},
                                           {"evict-step", "MZCACHE_EVICT_STEP"},
                                           {"idle-evict", "MZCACHE_IDLE_EVICT"}};
    mz_pressure_choice choice = mz_pressure_choice_default();
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *text = getenv(known[i][1]);
        mz_error error = MZ_ERROR_INIT;
        if (text != NULL && *text != '\0' &&
            mz_pressure_choice_parse(known[i][0], text, &choice, &error) != MZ_OK) {
            mz_log(log, MZ_LOG_WARN, "%s is ignored: %s", known[i][1], error.text);
        }
    }
    return choice;
}

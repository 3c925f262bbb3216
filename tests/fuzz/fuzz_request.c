/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever query and body a client sends, a request is understood as the documentation says
 * or refused with a sentence; and what was understood asks for something, of known tags.
 *
 * An input is two query values, each ended by a 0 byte (empty: not given), and the body.
 */
#include "fuzz.h"

#include <string.h>

#include "control/request.h"
#include "mzcache/mzcache.h"

static const struct {
    const char *first, *second, *body;
} seeds[] = {
    {"512M", "", ""},
    {"40%", "weights,kv_cache", ""},
    {"", "", "{\"bytes\": 1048576, \"tags\": [\"weights\", \"kv_cache\"]}"},
    {"", "kv_cache", "{\"bytes\": \"1.5GiB\"}"},
    {"0.5k", "weights", ""},
    {"true", "", ""},
    {"", "", "{\"wait\": true}"},
    {"", "", "{}"},
};

static size_t put(uint8_t *data, size_t at, const char *text)
{
    memcpy(data + at, text, strlen(text) + 1);
    return at + strlen(text) + 1;
}

static size_t seed(size_t index, uint8_t *data)
{
    if (index >= sizeof seeds / sizeof seeds[0]) {
        return 0;
    }
    size_t at = put(data, 0, seeds[index].first);
    at = put(data, at, seeds[index].second);
    return put(data, at, seeds[index].body) - 1; /* a body has no 0 */
}

static int is_known(mz_status status)
{
    return status == MZ_OK || status == MZ_E_INVALID || status == MZ_E_NOMEM;
}

static void run(const uint8_t *data, size_t bytes, mz_fuzz_kind kind)
{
    const char *text = (const char *)data;
    size_t first = strnlen(text, bytes);
    size_t second = first < bytes ? first + 1 + strnlen(text + first + 1, bytes - first - 1) : bytes;
    if (second >= bytes) {
        return; /* the values must end: libmicrohttpd ends them */
    }
    mz_error error = MZ_ERROR_INIT;
    mz_control_evict evict = {.tags = 99};
    const char *query = first > 0 ? text : NULL, *tags = second > first + 1 ? text + first + 1 : NULL;
    const char *body = text + second + 1;
    mz_status status =
        mz_control_parse_evict(query, tags, body, bytes - second - 1, &evict, &error);
    MZ_FUZZ_CHECK(is_known(status));
    if (status == MZ_OK) {
        MZ_FUZZ_CHECK(evict.tags >= 1 && evict.tags <= MZ_TAG_ALL);
        MZ_FUZZ_CHECK(evict.size.is_percent
                          ? evict.size.percent > 0 && evict.size.percent <= 100
                          : evict.size.bytes > 0);
    } else {
        MZ_FUZZ_CHECK(error.text[0] != '\0' && evict.tags == 99);
    }
    bool wait = false;
    mz_error error_of_prefetch = MZ_ERROR_INIT;
    mz_status prefetch =
        mz_control_parse_prefetch(query, body, bytes - second - 1, &wait, &error_of_prefetch);
    MZ_FUZZ_CHECK(is_known(prefetch));
    MZ_FUZZ_CHECK(prefetch == MZ_OK || error_of_prefetch.text[0] != '\0');
    MZ_FUZZ_CHECK(kind != MZ_FUZZ_SEED || status == MZ_OK || prefetch == MZ_OK);
}

const mz_fuzz_target mz_fuzz = {"request", seed, NULL, run};

/* SPDX-License-Identifier: MIT */
/*
 * What a POST asks for, from its query and its JSON body.
 *
 * Everything that is not understood is refused (MZ_E_INVALID, with a sentence for the sender): an
 * eviction that guesses takes somebody's model away. Query values may be NULL; an empty body is no
 * body. The same thing said twice (query and body) is refused too.
 */
#ifndef MZ_CONTROL_REQUEST_H
#define MZ_CONTROL_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/size.h"
#include "mzcache/mzcache.h"

typedef struct mz_control_evict {
    mz_size size;  /* how much; a share is one of the resident bytes of `tags` */
    unsigned tags; /* set of mz_tag, never empty */
} mz_control_evict;

/* {"bytes": 1048576 | "512M" | "40%", "tags": ["weights", "kv_cache"]}, ?bytes=512M&tags=weights */
mz_status mz_control_parse_evict(const char *query_bytes, const char *query_tags, const char *body,
                                 size_t body_bytes, mz_control_evict *evict, mz_error *error);

/* {"wait": true}, ?wait=true; without it *wait is false. */
mz_status mz_control_parse_prefetch(const char *query_wait, const char *body, size_t body_bytes,
                                    bool *wait, mz_error *error);

/* {"level": "medium"}, ?level=medium; a level above none. */
mz_status mz_control_parse_pressure(const char *query_level, const char *body, size_t body_bytes,
                                    mz_pressure_level *level, mz_error *error);

#endif

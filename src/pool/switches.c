/* SPDX-License-Identifier: MIT */
/*
 * Switches that take one idea of the pipeline away, to measure what it is worth (paper figures 11
 * and 12). Their words are those of the paper; see pool.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/internal.h"

/* Index of `text` among the words; -1 if it is none. */
static int find_word(const char *text, const char *const *words, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

static bool parse_order(const char *text, mz_pool_switches *switches)
{
    static const char random[] = "random-out:";
    static const char *const words[] = {"backward-out", "forward-out", "random-out"};
    static const mz_order orders[] = {MZ_ORDER_BACKWARD, MZ_ORDER_FORWARD, MZ_ORDER_RANDOM};
    int index = find_word(text, words, 3);
    uint64_t seed = 0;
    if (index < 0 && strncmp(text, random, sizeof random - 1) == 0) {
        const char *digits = text + sizeof random - 1;
        char *end = NULL;
        errno = 0;
        seed = strtoull(digits, &end, 10);
        bool is_number = *digits >= '0' && *digits <= '9' && *end == '\0' && errno == 0;
        index = is_number ? 2 : -1;
    }
    if (index < 0) {
        return false;
    }
    switches->order = orders[index];
    switches->order_seed = seed;
    return true;
}

static bool parse_overlap(const char *text, mz_pool_switches *switches)
{
    static const char *const words[] = {"all", "none", "alloc-reload", "reload-prefill"};
    static const mz_overlap overlaps[] = {MZ_OVERLAP_ALL, MZ_OVERLAP_NONE, MZ_OVERLAP_ALLOC_RELOAD,
                                          MZ_OVERLAP_RELOAD_PREFILL};
    int index = find_word(text, words, 4);
    switches->overlap = index >= 0 ? overlaps[index] : switches->overlap;
    return index >= 0;
}

static bool parse_paths(const char *text, mz_pool_switches *switches)
{
    static const char *const words[] = {"parallel", "sequential"};
    static const mz_paths paths[] = {MZ_PATHS_PARALLEL, MZ_PATHS_SEQUENTIAL};
    int index = find_word(text, words, 2);
    switches->paths = index >= 0 ? paths[index] : switches->paths;
    return index >= 0;
}

mz_status mz_pool_parse_switch(const char *name, const char *text, mz_pool_switches *switches,
                               mz_error *error)
{
    static const struct {
        const char *name, *choices;
        bool (*parse)(const char *text, mz_pool_switches *switches);
    } known[] = {
        {"order", "backward-out, forward-out, random-out or random-out:SEED", parse_order},
        {"overlap", "none, alloc-reload, reload-prefill or all", parse_overlap},
        {"paths", "parallel or sequential", parse_paths},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) == 0) {
            if (known[i].parse(text, switches)) {
                return MZ_OK;
            }
            return mz_error_set(error, MZ_E_INVALID, 0, "%s can't be \"%.40s\": use %s", name, text,
                                known[i].choices);
        }
    }
    return mz_error_set(error, MZ_E_INVALID, 0, "there is no switch \"%.40s\"", name);
}

void mz_pool_set_switches(mz_pool *pool, const mz_pool_switches *switches)
{
    pthread_mutex_lock(&pool->restore.lock);
    pool->order = switches->order;
    pool->order_seed = switches->order_seed;
    pool->restore.overlap = switches->overlap;
    pool->restore.paths = switches->paths;
    pthread_cond_broadcast(&pool->restore.work); /* what a switch held back may go on */
    pthread_mutex_unlock(&pool->restore.lock);
}

/* SPDX-License-Identifier: MIT */
/* The table of a mapped model file's tensors and their places, shared by weights.c and image.c. */
#ifndef MZ_PLUGIN_WEIGHT_MAP_H
#define MZ_PLUGIN_WEIGHT_MAP_H

#include "plugin/repack.h"

/* A tensor of the file inside the host's range. */
typedef struct mz_map_entry {
    uint64_t file_offset;
    uint64_t bytes;
    uint8_t *address; /* in the reservation */
    uint32_t layer;
    uint32_t group;        /* entries of one region have the same group */
    bool used;             /* the host placed a tensor here */
    mz_repacked *repacked; /* owned; NULL: these are the file's bytes */
} mz_map_entry;

struct mz_weight_map {
    mz_map_entry *entries; /* ordered by (group, file_offset) */
    size_t count;
    uint64_t file_offset; /* of arena->base */
    uint64_t data_offset; /* of the first tensor in the file; before it stands the GGUF header */
    int32_t source;       /* the model file in the pool */
    char path[4096];      /* of the model file */
    bool dirty;           /* an entry became used since the last seal */
    atomic_bool repacked; /* units hold repacked weights; set when sealed: release, acquire */
};

/* End of the entries that share a region with entries[first]. */
size_t mz_weight_map_region_end(const mz_weight_map *map, size_t first);

/* Whether a region [first, end) holds a repacked weight. */
bool mz_weight_map_has_repacked(const mz_weight_map *map, size_t first, size_t end);

#endif

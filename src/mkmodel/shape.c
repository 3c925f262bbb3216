/* SPDX-License-Identifier: MIT */
/*
 * The table of shapes, from the config.json that each model was published with.
 */
#include "mkmodel/shape.h"

#include <stddef.h>
#include <string.h>

const mz_shape mz_shapes[] = {
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6f, 1e-6f, MZ_NORMS_BEFORE,
     1, 0, 0, 0},
    {"qwen3-1.7b", "qwen3", 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e6f, 1e-6f, MZ_NORMS_BEFORE,
     1, 0, 0, 0},
    {"exaone-4.0-1.2b", "exaone4", 30, 2048, 4096, 32, 8, 64, 102400, 65536, 1e6f, 1e-5f,
     MZ_NORMS_AFTER, 1, 0, 0, 0},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5f, 1e-5f,
     MZ_NORMS_BEFORE, 0, 0, 0, 0},
    {"gemma-2-2b", "gemma2", 26, 2304, 9216, 8, 4, 256, 256000, 8192, 1e4f, 1e-6f, MZ_NORMS_BOTH, 0,
     4096, 50, 30},
    {.name = NULL},
};

const mz_shape *mz_shape_find(const char *name)
{
    for (const mz_shape *shape = mz_shapes; shape->name != NULL; shape++) {
        if (strcmp(shape->name, name) == 0) {
            return shape;
        }
    }
    return NULL;
}

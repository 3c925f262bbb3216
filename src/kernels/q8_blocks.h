/* SPDX-License-Identifier: MIT */
/*
 * The loop over blocks that the wide q8 encoders share.
 *
 * A block is small enough to stay in the first-level cache while it is gone over three times: the
 * maximum of each group (of the f16 bits without sign, which also finds NaN and infinity), then all
 * scale codes, then the values. One pass per group was rejected: deriving a scale costs a division
 * that has to be waited for, here several groups share it.
 *
 * The three steps are functions of the including file, compiled for its instruction set; the loop
 * is always inlined, so that they are too.
 */
#ifndef MZ_KERNELS_Q8_BLOCKS_H
#define MZ_KERNELS_Q8_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/q8.h"

/* Groups: 4 KiB of f16, and its arrays of floats are small beside it; a multiple of every step. */
#define MZ_Q8_BLOCK 64

typedef struct mz_q8_steps {
    size_t scales_at_once; /* groups that derive_scales takes */
    uint16_t (*max_of_group)(const uint16_t *source);
    void (*derive_scales)(const uint16_t *maxima, uint8_t *codes, float *inverses);
    void (*quantize_group)(const uint16_t *source, float inverse, int8_t *q);
} mz_q8_steps;

static inline __attribute__((always_inline)) bool mz_q8_encode_blocks(const mz_q8_steps steps,
                                                                      const uint16_t *source,
                                                                      size_t groups, uint8_t *codes,
                                                                      int8_t *q)
{
    uint16_t maxima[MZ_Q8_BLOCK] = {0};
    uint8_t block_codes[MZ_Q8_BLOCK];
    float inverses[MZ_Q8_BLOCK];
    while (groups > 0) {
        size_t count = groups < MZ_Q8_BLOCK ? groups : MZ_Q8_BLOCK;
        uint16_t largest = 0;
        for (size_t i = 0; i < count; i++) {
            maxima[i] = steps.max_of_group(source + i * MZ_Q8_GROUP);
            largest = maxima[i] > largest ? maxima[i] : largest;
        }
        if (largest >= 0x7c00u) {
            return false;
        }
        for (size_t i = 0; i < count; i += steps.scales_at_once) {
            steps.derive_scales(maxima + i, block_codes + i, inverses + i);
        }
        memcpy(codes, block_codes, count);
        for (size_t i = 0; i < count; i++) {
            steps.quantize_group(source + i * MZ_Q8_GROUP, inverses[i], q + i * MZ_Q8_GROUP);
        }
        groups -= count;
        source += count * MZ_Q8_GROUP;
        codes += count;
        q += count * MZ_Q8_GROUP;
    }
    return true;
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Byte planes with NEON, sixteen pairs at a time: its structure loads and stores take pairs apart
 * and put them together by themselves.
 */
#include "kernels/planes.h"

#include <arm_neon.h>

#define PAIRS 16

void mz_planes_split2_neon(const uint8_t *source, size_t pairs, uint8_t *even, uint8_t *odd)
{
    size_t i = 0;
    for (; i + PAIRS <= pairs; i += PAIRS) {
        uint8x16x2_t both = vld2q_u8(source + 2 * i);
        vst1q_u8(even + i, both.val[0]);
        vst1q_u8(odd + i, both.val[1]);
    }
    mz_planes_split2(source + 2 * i, pairs - i, even + i, odd + i);
}

void mz_planes_merge2_neon(const uint8_t *even, const uint8_t *odd, size_t pairs, uint8_t *target)
{
    size_t i = 0;
    for (; i + PAIRS <= pairs; i += PAIRS) {
        uint8x16x2_t both = {{vld1q_u8(even + i), vld1q_u8(odd + i)}};
        vst2q_u8(target + 2 * i, both);
    }
    mz_planes_merge2(even + i, odd + i, pairs - i, target + 2 * i);
}

/* SPDX-License-Identifier: MIT */
/*
 * The steps of "cachegen" for NEON: the loops of cg_body.h as the compiler makes them of its
 * instructions, which it may use everywhere on this architecture, and the generic entropy coder.
 *
 * NEON has no gather, and slots that have to be fetched one by one leave nothing to win by hand.
 */
#include "kernels/cg.h"
#include "kernels/cg_body.h"

static inline void load_row(const uint16_t *from, float *value)
{
    for (size_t lane = 0; lane < MZ_CG_LANES; lane++) {
        value[lane] = mz_f32_from_f16(from[lane]);
    }
}

const mz_cg_kernels mz_cg_neon = {
    .measure = body_measure,
    .on_grid = body_on_grid,
    .quantize = body_quantize,
    .sum = body_sum,
    .correlate = body_correlate,
    .predict = body_predict,
    .pack = mz_cg_pack,
    .unpack = mz_cg_unpack,
    .restore = mz_cg_restore,
};

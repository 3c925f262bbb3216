/* SPDX-License-Identifier: MIT */
/*
 * How often the residuals of "cachegen" have which value, and how that is kept.
 *
 * Channels differ in how far their residuals spread, by a factor of a hundred in keys. Each belongs
 * to one of 16 *classes* by the mean of |r|, half an octave wide; the channels of a class share a
 * *model*: frequencies of 0 and of each magnitude up to `top`, in 1024ths. Both signs of a
 * magnitude are as frequent as each other, as they are to within noise around a center, so a model
 * costs half of what a table with signs would. What lies beyond top is coded as top and corrected
 * by a list.
 */
#ifndef MZ_CODEC_CACHEGEN_MODEL_H
#define MZ_CODEC_CACHEGEN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cg.h"

#define MZ_CG_CLASSES 16u
#define MZ_CG_COUNTS (MZ_CG_TOP + 2u) /* magnitudes up to MZ_CG_TOP, and all beyond it */

typedef struct mz_cg_model {
    uint8_t top;                  /* largest magnitude that has symbols */
    uint16_t freq[MZ_CG_TOP + 1]; /* of 0, and of each sign of 1 .. top; freq[0] + 2 * the others
                                     is MZ_CG_SLOTS, each at least 1 */
} mz_cg_model;

/* Most bytes of a model: top, then a number of up to two bytes for each magnitude. */
#define MZ_CG_MODEL_MOST (1u + 2u * (MZ_CG_TOP + 1u))

/* The class of a channel whose |r| add up to `size` over so many rows (1 or more). */
unsigned mz_cg_class_of(uint32_t size, uint32_t rows);

/*
 * The model of counts[|r|] ([MZ_CG_COUNTS], not all 0); *beyond: how many lie beyond its top. Same
 * counts, same model, on every machine.
 */
mz_cg_model mz_cg_model_of(const uint32_t *counts, uint32_t *beyond);

/* Write a model, at most MZ_CG_MODEL_MOST bytes. Returns the first byte behind it. */
uint8_t *mz_cg_model_write(const mz_cg_model *model, uint8_t *out);

/* Read one that mz_cg_model_write wrote; *at moves. False for anything else. */
bool mz_cg_model_read(const uint8_t **at, const uint8_t *end, mz_cg_model *model);

/* What mz_cg_kernels.pack and unpack need: [MZ_CG_SYMBOLS], [MZ_CG_SLOTS]. */
void mz_cg_model_symbols(const mz_cg_model *model, uint32_t *symbols);
void mz_cg_model_slots(const mz_cg_model *model, uint32_t *slots);

/* Numbers below 2^21 in up to three bytes, low seven bits first; only the shortest form is read. */
uint8_t *mz_cg_number_write(uint32_t number, uint8_t *out);
bool mz_cg_number_read(const uint8_t **at, const uint8_t *end, uint32_t *number);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The image of a model's repacked weights: a file in the store directory that keeps what the model
 * file does not have, written once and found again by everyone who loads the same model.
 */
#ifndef MZ_PLUGIN_IMAGE_H
#define MZ_PLUGIN_IMAGE_H

#include "plugin/plugin.h"

/* Where an arena's memory begins in its image; before it stands the header. */
#define MZ_IMAGE_DATA_OFFSET MZ_PAGE_BYTES

/*
 * Find the image of an arena's repacked weights or write it, and open it as a source of the pool:
 * the byte at arena->memory + n is its byte MZ_IMAGE_DATA_OFFSET + n, for every region that holds a
 * repacked weight. Reads the whole model file when the image has to be written. plugin->lock is
 * held.
 * Errors: what reading the model or writing the store directory gives; nothing is left behind.
 */
mz_status mz_image_open(mz_arena *arena, int32_t *source, mz_error *error);

#endif

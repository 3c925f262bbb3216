/* SPDX-License-Identifier: MIT */
/*
 * Codecs from outside (mzcache/codec.h), wrapped so that they look like our own.
 *
 * The rest of the library sees an mz_codec for each of them, by the list in codec.h. Payload of
 * what is kept, after mz_codec_header:
 *
 *     u64      XXH3 of what decode gave when the span was encoded
 *     zeros    up to a multiple of 64 bytes from the start of the header
 *     payload  what the codec wrote
 *
 * Threads: adding takes a lock; looking up does not. A codec that was added stays.
 */
#ifndef MZ_CODEC_OUTSIDE_H
#define MZ_CODEC_OUTSIDE_H

#include "codec/codec.h"

/* As mz_codec_add. */
mz_status mz_outside_add(const mz_codec_table *table, mz_error *error);

/*
 * Load the library that MZCACHE_CODEC_LIBRARY names and add its codecs, at the first call; none is
 * named: nothing. Later calls give the same result again.
 * Errors: MZ_E_NOTFOUND (no such library or no such symbol in it), MZ_E_INVALID (no codec in it),
 *   those of mz_codec_add.
 */
mz_status mz_outside_load(mz_error *error);

/* Codecs in the order in which they were added; NULL behind the last one. */
const mz_codec *mz_outside_at(size_t index);

/* Whether this is the id of a codec from outside, known or not. */
bool mz_outside_has_id(uint16_t id);

#endif

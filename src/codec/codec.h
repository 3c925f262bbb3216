/* SPDX-License-Identifier: MIT */
/*
 * A codec turns the live rows of one span of memory into fewer bytes and back.
 *
 * One table per codec, found by name; nothing else in the library knows what a codec does. What a
 * codec writes describes itself (mz_codec_header: magic, codec id, type, counts, payload length and
 * checksum), so that bytes written by one codec are read right after the default changed, and
 * damaged bytes give MZ_E_CORRUPT: never a read or write out of bounds, never wrong bytes taken as
 * right.
 *
 * Codecs are idempotent: encode(decode(encode(x))) gives the bytes of encode(x).
 *
 * Threads: any number. A codec keeps at most working memory per thread, of a size that doesn't
 * depend on the data, made at the thread's first use.
 */
#ifndef MZ_CODEC_CODEC_H
#define MZ_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "mzcache/codec.h" /* mz_elem, mz_codec_shape */

typedef struct mz_codec {
    const char *name; /* as the user says it */
    uint16_t id;      /* in the header of what it writes; never reused */
    bool exact;       /* decode gives the very bytes that were encoded */
    bool in_place;    /* rows can be read where they were written, without decoding the rest: the
                         payload has a fixed layout and bound() is its exact size */
    bool needs_gate;  /* ruins some models: used only with those measured to bear it */
    /* Whether this codec takes such data; if not the caller asks mz_codec_or_exact. */
    bool (*takes)(const mz_codec_shape *shape);
    /* Most bytes that encode can write for this shape, header included. */
    size_t (*bound)(const mz_codec_shape *shape);
    /*
     * Bytes that encode is likely to write for KV of this shape, for planning only; NULL: bound().
     * Use mz_codec_expected.
     */
    size_t (*expected)(const mz_codec_shape *shape);
    /*
     * Encode `source` ([rows * row_bytes]) into `target` (room for bound()). *bytes: written.
     * Errors: MZ_E_UNSUPPORTED for values it can't keep (NaN or infinity in a lossy codec) or
     * without working memory for this thread; the caller then uses "sparse". MZ_E_CORRUPT from a
     * codec from outside that broke its contract: the caller uses it no more.
     */
    mz_status (*encode)(const mz_codec_shape *shape, const void *source, void *target,
                        size_t *bytes);
    /*
     * Decode straight into place: `target` has rows * row_bytes and reads as zero beforehand, so
     * zeros may be left unwritten (no page is committed for them).
     * Errors: MZ_E_CORRUPT for anything that encode would not have written for this shape;
     * MZ_E_NOMEM without working memory for this thread.
     */
    mz_status (*decode)(const mz_codec_shape *shape, const void *source, size_t bytes,
                        void *target);
} mz_codec;

/*
 * Built-in codecs: "sparse" (exact; whole pages of zeros are left out; takes everything), "q8"
 * (8-bit groups of 32; f16 only), "q4" (4-bit ranges of channels; f16 only),
 * "cachegen" (integers on a grid, entropy coded; f16 only), "lossless" (exact;
 * byte planes through lz4 or zstd; takes everything), "lz4" and "zstd" (exact; page by page as
 * zRAM does, for comparison). "raw", writing memory to the store as it is, is no codec here: it is
 * what the store does when asked for none. Others come from outside: outside.h.
 */
const mz_codec *mz_codec_find(const char *name); /* NULL if there is none */
const mz_codec *mz_codec_by_id(uint16_t id);     /* NULL if there is none */

/* All codecs, in a fixed order, those from outside last; NULL behind the last one. */
const mz_codec *mz_codec_at(size_t index);

/*
 * The codec that keeps such data for a pool that uses `codec`: itself if it takes them; else
 * "lossless" for elements of two or four bytes, whose exponents repeat. NULL for others, that is
 * quantized KV and memory without structure: an entropy coder saves little or nothing of those, so
 * they go to the store as they are.
 */
const mz_codec *mz_codec_or_exact(const mz_codec *codec, const mz_codec_shape *shape);

/* codec->expected, or its bound if it has no better idea. */
size_t mz_codec_expected(const mz_codec *codec, const mz_codec_shape *shape);

/*
 * Decode whatever codec wrote it (by the header's id); `target` as for decode.
 * Errors: MZ_E_CORRUPT, MZ_E_NOMEM; MZ_E_NOTFOUND if it is intact, but from an outside codec that
 *   this process doesn't have.
 */
mz_status mz_codec_decode(const mz_codec_shape *shape, const void *source, size_t bytes,
                          void *target);

/*
 * The codec that wrote these bytes for this shape, if they can be read where they are; *payload is
 * what stands behind the header. NULL for other codecs, or if the header doesn't fit. No checksum
 * is taken: the bytes never left this process's memory, and are trusted like all else there.
 */
const mz_codec *mz_codec_view(const mz_codec_shape *shape, const void *source, size_t bytes,
                              const uint8_t **payload);

#endif

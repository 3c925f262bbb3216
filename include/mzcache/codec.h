/* SPDX-License-Identifier: MIT */
/*
 * Codecs from outside: how a program or a shared library adds a codec of its own.
 *
 * An *mz_codec_table* says what the codec is called and how it encodes and decodes the rows of one
 * KV chunk. It comes into a process in one of two ways:
 * - MZCACHE_CODEC_LIBRARY names a shared library that defines MZ_CODEC_LIBRARY_SYMBOL. It is loaded
 *   once, when the pool of the process is created, and never unloaded. The library links nothing of
 *   mzCache: this header is all it needs. A name without "/" is looked up as dlopen(3) does.
 * - a program calls mz_codec_add before it loads a model.
 * From then on the codec is chosen by its name like a built-in one (MZCACHE_CODEC, --codec).
 *
 * What mzCache does so that a broken codec loses nothing:
 * - What encode wrote is decoded at once, while the chunk is still in place. An exact codec has to
 *   give the very bytes back, another one finite values where they were finite. If it does not, if
 *   it says it wrote more than `room`, or if it wrote up to 256 bytes behind `room` or behind the
 *   decoded rows, it is reported, used no more by this pool, and the chunk goes to the store.
 * - What is kept stands behind a header with its length and checksum, and with a checksum of what
 *   decode gave then. A restore that gives other bytes is an error, never wrong KV. So decode must
 *   give the same bytes for the same input, on all processors that share what was kept.
 * It runs in the process of the host all the same: nothing protects from a codec that crashes, or
 * that writes further away than those 256 bytes.
 *
 * The ABI is this header. It changes only together with MZ_CODEC_ABI; members may be added behind
 * the last one without that, which is what table_bytes is for.
 */
#ifndef MZCACHE_CODEC_H
#define MZCACHE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mzcache/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element type of a span, as far as a codec cares. OPAQUE: bytes without structure. */
typedef enum mz_elem {
    MZ_ELEM_OPAQUE = 0,
    MZ_ELEM_F16 = 1,
    MZ_ELEM_BF16 = 2,
    MZ_ELEM_F32 = 3,
} mz_elem;

/* The shape of what is encoded: `rows` rows of `row_bytes`, contiguous. Opaque data is one row. */
typedef struct mz_codec_shape {
    mz_elem elem;       /* type of the elements of a row */
    uint32_t row_bytes; /* bytes of one row (one token of one layer's K or V) */
    uint32_t rows;      /* rows present */
} mz_codec_shape;

#define MZ_CODEC_ABI 1

/* Ids of codecs from outside. They stand in what was written, so never use one for two formats. */
#define MZ_CODEC_ID_OUTSIDE_FIRST 0x8000
#define MZ_CODEC_ID_OUTSIDE_LAST 0xfffe

/* Codecs from outside that a process can have. */
#define MZ_CODEC_OUTSIDE_MOST 4

/* Largest span that an outside codec is given; larger ones go to the store. */
#define MZ_CODEC_OUTSIDE_BYTES (16u << 20)

/*
 * One codec. The functions are called by any number of threads at once and keep no state between
 * calls that changes what they write.
 */
typedef struct mz_codec_table {
    uint32_t abi;         /* MZ_CODEC_ABI */
    uint32_t table_bytes; /* sizeof(mz_codec_table) */
    const char *name;     /* 1 to 15 of a-z, 0-9, "_" and "-"; none that is taken, and not "raw" */
    uint16_t id;          /* MZ_CODEC_ID_OUTSIDE_FIRST to _LAST */
    bool exact;           /* decode gives the very bytes that were encoded */
    /* Whether it takes such data. What it doesn't take goes to the store as it is. */
    bool (*takes)(const mz_codec_shape *shape);
    /* Most bytes that encode can write for this shape; more than twice the data is not taken. */
    size_t (*bound)(const mz_codec_shape *shape);
    /* Bytes that it is likely to write, for planning; NULL: bound. */
    size_t (*expected)(const mz_codec_shape *shape);
    /*
     * Encode `source` ([rows * row_bytes]) into `target`, which has room for `room` = bound(shape)
     * bytes and is 16-byte aligned; *bytes: written. A codec that is not exact has to be
     * idempotent: encode(decode(encode(x))) gives the bytes of encode(x), or values walk away with
     * each cycle. mzCache does not check that.
     * Errors: any status but MZ_OK sends this span to the store; MZ_E_UNSUPPORTED is the usual one.
     */
    mz_status (*encode)(const mz_codec_shape *shape, const void *source, void *target, size_t room,
                        size_t *bytes);
    /*
     * Decode `bytes` bytes at `source` straight into place: `target` has rows * row_bytes and reads
     * as zero beforehand. What stands at `source` passed its checksum.
     * Errors: MZ_E_NOMEM; any other failure counts as MZ_E_CORRUPT.
     */
    mz_status (*decode)(const mz_codec_shape *shape, const void *source, size_t bytes,
                        void *target);
} mz_codec_table;

/*
 * What a library that MZCACHE_CODEC_LIBRARY names defines: the table of codec `index`, counted from
 * 0, and NULL behind the last one.
 */
#define MZ_CODEC_LIBRARY_SYMBOL "mz_codec_library"
typedef const mz_codec_table *(*mz_codec_library_fn)(uint32_t index);

/*
 * Add a codec to this process, for good; the table is copied. Call it before a model is loaded. Of
 * a table that was added before nothing changes.
 * message: receives one sentence on failure, at most message_bytes including its 0; may be NULL.
 * Errors: MZ_E_INVALID (what the table says is not allowed), MZ_E_UNSUPPORTED (another ABI),
 *   MZ_E_BUSY (name or id is taken, or there are MZ_CODEC_OUTSIDE_MOST codecs already).
 */
MZ_API mz_status mz_codec_add(const mz_codec_table *table, char *message, size_t message_bytes);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT */
/*
 * lz4 and zstd for one plane of bytes at a time, with what they need kept per thread.
 *
 * An *mz_codec_tools* holds the state of both libraries and two scratch buffers of one block. Its
 * size doesn't depend on what is encoded: about 0.3 MB of buffers, and inside zstd about 0.5 MB
 * once a thread compresses and 0.1 MB once it decompresses. It is made at a thread's first use and
 * freed when the thread ends; calls after the first allocate nothing.
 *
 * Threads: a tools object belongs to the thread that asked for it.
 */
#ifndef MZ_CODEC_LIBRARY_H
#define MZ_CODEC_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Most bytes of a block. On real KV 64 KB saves 0.1 % less and 16 KB 0.7 % less. */
#define MZ_BLOCK_MOST (128u << 10)

/* How a plane is kept; the numbers stand in what is written. */
typedef enum mz_method {
    MZ_METHOD_ZEROS = 0, /* all bytes are zero, nothing is kept */
    MZ_METHOD_STORED = 1,
    MZ_METHOD_LZ4 = 2,
    MZ_METHOD_ZSTD = 3,
} mz_method;

typedef struct mz_codec_tools {
    void *lz4;                      /* state of the lz4 compressor */
    void *zstd_out;                 /* ZSTD_CCtx; NULL before the first use */
    void *zstd_in;                  /* ZSTD_DCtx; NULL before the first use */
    uint8_t planes[MZ_BLOCK_MOST];  /* scratch of the caller */
    uint8_t scratch[MZ_BLOCK_MOST]; /* scratch of the caller; mz_library_pack overwrites it */
} mz_codec_tools;

/* The tools of this thread; NULL if there is no memory for them. */
mz_codec_tools *mz_codec_tools_get(void);

/*
 * Keep `bytes` bytes (1 to MZ_BLOCK_MOST) of `plane` in `target`, which has room for `bytes`, by
 * the best of the allowed methods; stored if none saves 1/32. The result for the same bytes is
 * always the same. Returns the bytes written.
 */
size_t mz_library_pack(mz_codec_tools *tools, bool lz4, bool zstd, const uint8_t *plane,
                       size_t bytes, uint8_t *target, mz_method *method);

/*
 * Bring a plane of exactly `bytes` bytes back from the `kept` bytes at `source`.
 * Errors: MZ_E_CORRUPT if they do not give a plane of this size, MZ_E_NOMEM.
 */
mz_status mz_library_unpack(mz_codec_tools *tools, mz_method method, const uint8_t *source,
                            size_t kept, uint8_t *plane, size_t bytes);

#endif

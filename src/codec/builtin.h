/* SPDX-License-Identifier: MIT */
/* The built-in codecs, for the list in codec.c; everything else finds them by name or id. */
#ifndef MZ_CODEC_BUILTIN_H
#define MZ_CODEC_BUILTIN_H

#include "codec/codec.h"

/* Ids stand in what was written, so a number is never reused. */
#define MZ_CODEC_ID_SPARSE 1
#define MZ_CODEC_ID_Q8 2
#define MZ_CODEC_ID_LOSSLESS 3
#define MZ_CODEC_ID_LZ4 4
#define MZ_CODEC_ID_ZSTD 5
#define MZ_CODEC_ID_Q4 6
#define MZ_CODEC_ID_CACHEGEN 7

extern const mz_codec mz_codec_sparse;
extern const mz_codec mz_codec_q8;
extern const mz_codec mz_codec_q4;
extern const mz_codec mz_codec_cachegen;
extern const mz_codec mz_codec_lossless;
extern const mz_codec mz_codec_lz4;
extern const mz_codec mz_codec_zstd;

#endif

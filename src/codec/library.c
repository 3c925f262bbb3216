/* SPDX-License-Identifier: MIT */
/*
 * The two libraries behind one interface, and the tools of a thread.
 *
 * zstd runs at level 1. What it gains on KV is entropy coding, not matches: levels 2 and 3 save
 * under 0.1 % more, the negative levels leave literals alone and save nothing. lz4 has no entropy
 * coder; it wins where bytes repeat, and decodes several times faster, so it is preferred when it
 * is as good within 1/32. A plane must shrink by 1/32, or reading it back is not worth the work.
 *
 * Tools hang on a pthread key and not on a thread-local variable, because a key frees them when the
 * thread ends. The key is given up when the library is unloaded, so that no thread that ends later
 * calls code that is gone; such threads leak their tools.
 */
#include "codec/library.h"

#include <lz4.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define ZSTD_LEVEL 1
#define LZ4_ACCELERATION 1

/* Written once under `once`, read-only afterwards. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static void tools_free(void *value)
{
    mz_codec_tools *tools = value;
    ZSTD_freeCCtx(tools->zstd_out);
    ZSTD_freeDCtx(tools->zstd_in);
    free(tools->lz4);
    free(tools);
}

static void make_key(void)
{
    has_key = pthread_key_create(&key, tools_free) == 0;
}

__attribute__((destructor)) static void give_key_up(void)
{
    if (has_key) {
        (void)pthread_key_delete(key);
    }
}

mz_codec_tools *mz_codec_tools_get(void)
{
    pthread_once(&once, make_key);
    if (!has_key) {
        return NULL;
    }
    mz_codec_tools *tools = pthread_getspecific(key);
    if (tools != NULL) {
        return tools;
    }
    tools = calloc(1, sizeof *tools);
    if (tools == NULL) {
        return NULL;
    }
    tools->lz4 = malloc((size_t)LZ4_sizeofState());
    if (tools->lz4 == NULL || pthread_setspecific(key, tools) != 0) {
        tools_free(tools);
        return NULL;
    }
    return tools;
}

/* Bytes that lz4 needs, at most `most`; 0 if it needs more. */
static size_t pack_lz4(mz_codec_tools *tools, const uint8_t *plane, size_t bytes, uint8_t *target,
                       size_t most)
{
    int packed = LZ4_compress_fast_extState(tools->lz4, (const char *)plane, (char *)target,
                                            (int)bytes, (int)most, LZ4_ACCELERATION);
    return packed > 0 ? (size_t)packed : 0;
}

/* The same of zstd; 0 without memory for its context too, which costs the saving only. */
static size_t pack_zstd(mz_codec_tools *tools, const uint8_t *plane, size_t bytes, uint8_t *target,
                        size_t most)
{
    if (tools->zstd_out == NULL) {
        tools->zstd_out = ZSTD_createCCtx();
        if (tools->zstd_out == NULL) {
            return 0;
        }
    }
    size_t packed = ZSTD_compressCCtx(tools->zstd_out, target, most, plane, bytes, ZSTD_LEVEL);
    return ZSTD_isError(packed) ? 0 : packed;
}

size_t mz_library_pack(mz_codec_tools *tools, bool lz4, bool zstd, const uint8_t *plane,
                       size_t bytes, uint8_t *target, mz_method *method)
{
    size_t most = bytes - bytes / 32 - 1;
    size_t by_zstd = zstd ? pack_zstd(tools, plane, bytes, target, most) : 0;
    size_t enough = by_zstd > 0 ? by_zstd + by_zstd / 32 : most;
    enough = enough < most ? enough : most;
    size_t by_lz4 = lz4 ? pack_lz4(tools, plane, bytes, tools->scratch, enough) : 0;
    if (by_lz4 > 0) {
        memcpy(target, tools->scratch, by_lz4);
        *method = MZ_METHOD_LZ4;
        return by_lz4;
    }
    if (by_zstd > 0) {
        *method = MZ_METHOD_ZSTD;
        return by_zstd;
    }
    memcpy(target, plane, bytes);
    *method = MZ_METHOD_STORED;
    return bytes;
}

static mz_status unpack_zstd(mz_codec_tools *tools, const uint8_t *source, size_t kept,
                             uint8_t *plane, size_t bytes)
{
    if (tools->zstd_in == NULL) {
        tools->zstd_in = ZSTD_createDCtx();
        if (tools->zstd_in == NULL) {
            return MZ_E_NOMEM;
        }
    }
    return ZSTD_decompressDCtx(tools->zstd_in, plane, bytes, source, kept) == bytes ? MZ_OK
                                                                                    : MZ_E_CORRUPT;
}

mz_status mz_library_unpack(mz_codec_tools *tools, mz_method method, const uint8_t *source,
                            size_t kept, uint8_t *plane, size_t bytes)
{
    switch (method) {
    case MZ_METHOD_ZEROS:
        memset(plane, 0, bytes);
        return MZ_OK;
    case MZ_METHOD_STORED:
        if (kept != bytes) {
            return MZ_E_CORRUPT;
        }
        memcpy(plane, source, bytes);
        return MZ_OK;
    case MZ_METHOD_LZ4:
        return LZ4_decompress_safe((const char *)source, (char *)plane, (int)kept, (int)bytes) ==
                       (int)bytes
                   ? MZ_OK
                   : MZ_E_CORRUPT;
    case MZ_METHOD_ZSTD:
        return unpack_zstd(tools, source, kept, plane, bytes);
    default:
        return MZ_E_CORRUPT;
    }
}

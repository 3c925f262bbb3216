/* SPDX-License-Identifier: MIT */
/*
 * What one device, directory and processor can do (paper 4.3, "offline profiling").
 *
 * A *mz_profile_record* holds throughputs, measured once and kept as JSON under
 * $XDG_CACHE_HOME/mzcache/, one file per device, file system and processor. The per-unit times that
 * the policy needs are derived from it and the sizes of the units at hand, so a new model never
 * needs a new profile. All rates are bytes per second of the data that comes out.
 *
 * Threads: plain data; the functions may be called from any thread.
 */
#ifndef MZ_PROFILE_RECORD_H
#define MZ_PROFILE_RECORD_H

#include "codec/codec.h"
#include "os/os.h"
#include "swap/policy.h"

#define MZ_PROFILE_READS 48
#define MZ_PROFILE_CODECS 64

/* What codecs are measured with: 256 tokens of the size of Qwen3-0.6B's K or V, 512 KB of f16. */
#define MZ_PROFILE_ROWS 256u
#define MZ_PROFILE_ROW_BYTES 2048u
extern const mz_codec_shape mz_profile_shape;

/* Sequential direct reads of one request size with so many under way. */
typedef struct mz_profile_read {
    uint32_t request_bytes;
    uint32_t depth;
    double bytes_per_s;
} mz_profile_read;

/* One codec by one kernel variant on so many threads. */
typedef struct mz_profile_codec {
    char codec[16];
    char variant[16];
    uint32_t threads;
    double encode_bytes_per_s, decode_bytes_per_s;
} mz_profile_codec;

/* Committing pages by MADV_POPULATE_WRITE. */
typedef struct mz_profile_pages {
    double small_bytes_per_s;     /* 4 KB pages, one thread */
    double huge_bytes_per_s;      /* huge pages, one thread */
    double small_all_bytes_per_s; /* 4 KB pages, one thread per core */
    double huge_all_bytes_per_s;
} mz_profile_pages;

typedef struct mz_profile_record {
    char cpu[128];
    uint32_t cores;
    uint64_t device;      /* f_fsid of the store directory, or st_dev where there is none */
    uint64_t file_system; /* f_type of statfs */
    bool direct;          /* false: the file system refused O_DIRECT, reads were buffered */
    bool quick;           /* measured in two seconds instead of in full */
    uint64_t measured_s;  /* when, in seconds since 1970 */
    uint32_t read_count, codec_count;
    mz_profile_read reads[MZ_PROFILE_READS];
    mz_profile_codec codecs[MZ_PROFILE_CODECS];
    mz_profile_pages pages;
    double write_bytes_per_s;
    double memcpy_bytes_per_s;   /* one thread, to compare the codecs with */
    uint32_t knee_request_bytes; /* smallest request that reaches 95 % of the best rate, ... */
    uint32_t knee_depth;         /* ... at the smallest depth that does */
} mz_profile_record;

/*
 * Path of the record for a store directory on this machine, into path[capacity].
 * Errors: MZ_E_NOTFOUND if the directory does not exist or there is no cache directory.
 */
mz_status mz_profile_path(const char *directory, char *path, size_t capacity, mz_error *error);

/* Fill cpu, cores, device and file_system of a record for a directory. MZ_E_NOTFOUND. */
mz_status mz_profile_identify(const char *directory, mz_profile_record *record, mz_error *error);

/* Write a record, in one step: a reader sees the old one or the new one. */
mz_status mz_profile_save(const mz_profile_record *record, const char *path, mz_error *error);

/*
 * Read a record.
 * Errors: MZ_E_NOTFOUND; MZ_E_CHANGED if another version wrote it or a codec of this one is not in
 * it; MZ_E_CORRUPT if it is damaged or was measured elsewhere than `expected` says (NULL:
 * anywhere).
 */
mz_status mz_profile_load(const char *path, const mz_profile_record *expected,
                          mz_profile_record *record, mz_error *error);

/* Load the record of this machine for a store directory. Errors: those of path and load. */
mz_status mz_profile_find(const char *directory, mz_profile_record *record, mz_error *error);

/* Age at which a quick record is worth another measurement. */
#define MZ_PROFILE_QUICK_AGE_S (24u * 60 * 60)

/* Whether it was measured quickly, perhaps while the machine was busy, and so long ago. */
bool mz_profile_is_stale(const mz_profile_record *record, uint64_t now_s);

/*
 * Of every rate that both have keep the better one in `record`: whatever else the machine did made
 * a rate worse, never better.
 */
void mz_profile_keep_better(mz_profile_record *record, const mz_profile_record *older);

/* Smallest request and depth that reach 95 % of the best read rate. Sets both knee fields. */
void mz_profile_find_knee(mz_profile_record *record);

/* Whether a record has rates of this codec: of every one that takes mz_profile_shape. */
bool mz_profile_wants(const mz_codec *codec);

/*
 * The three throughputs that the policy needs: the best of a codec (NULL: none) by a kernel
 * variant, or by any if that one was not measured; 0 for what was not measured at all.
 */
mz_profile mz_profile_summary(const mz_profile_record *record, const char *codec,
                              const char *variant);

/*
 * mz_profile_summary for the kernels of this process, with assumptions for what was not measured;
 * record NULL: nothing was.
 */
mz_profile mz_profile_rates(const mz_profile_record *record, const char *codec);

#endif

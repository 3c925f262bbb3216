/* SPDX-License-Identifier: MIT */
/*
 * How fast a file is read past the page cache, read as a restore reads: by io_uring and a few
 * threads, or where there is none by a thread for each read. The profile and the benchmarks measure
 * with it.
 */
#ifndef MZ_PROFILE_READ_RATE_H
#define MZ_PROFILE_READ_RATE_H

#include "os/direct_io.h"

#define MZ_READ_LOAD_DEPTH_MAX 64u

typedef struct mz_read_load {
    mz_file *file;
    uint64_t file_bytes;    /* read from the start to here, over and over */
    uint32_t request_bytes; /* whole pages; at most file_bytes */
    uint32_t depth;         /* reads under way, 1..MZ_READ_LOAD_DEPTH_MAX */
    bool by_threads;        /* no io_uring even where there is one */
    /*
     * Each read goes to huge pages that were committed for it and are given back after it, as in a
     * restore. Else all of a thread go to the same few, which tells what the storage alone can do.
     */
    bool new_pages;
    uint64_t limit_ns; /* begin no read after this long, but the first ones */
} mz_read_load;

/*
 * Read, and say how fast. Blocks for limit_ns and the time that the last reads take.
 * Errors: MZ_E_INVALID, MZ_E_NOMEM, those of mz_file_read.
 */
mz_status mz_read_rate(const mz_read_load *load, double *bytes_per_s, mz_error *error);

#endif

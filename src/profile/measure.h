/* SPDX-License-Identifier: MIT */
/*
 * Measure a profile record: storage, page allocation, codecs.
 *
 * Reads go through the same calls as a restore (io_uring where the kernel allows it), so that the
 * rate is one that a restore can reach. The file is nameless and gone afterwards.
 * Blocks for about 20 seconds, or about 2 when `quick`.
 */
#ifndef MZ_PROFILE_MEASURE_H
#define MZ_PROFILE_MEASURE_H

#include "profile/record.h"

typedef struct mz_profile_options {
    const char *directory; /* where the store lies; must exist */
    bool quick;            /* fewer sizes, a smaller file */
    /* Called before each part with what is measured and its share done (0..1); may be NULL. */
    void (*progress)(void *context, const char *what, double share);
    void *context;
} mz_profile_options;

/* Errors: MZ_E_NOTFOUND, MZ_E_PERM, MZ_E_NOSPC, MZ_E_IO, MZ_E_NOMEM. */
mz_status mz_profile_measure(const mz_os *os, const mz_profile_options *options,
                             mz_profile_record *record, mz_error *error);

/*
 * Rate of committing `bytes` of memory, by so many threads, 2 MB after 2 MB. Errors: MZ_E_NOMEM,
 * MZ_E_IO if no thread can be started.
 */
mz_status mz_profile_measure_pages(const mz_os *os, uint64_t bytes, bool huge, uint32_t threads,
                                   double *bytes_per_s, mz_error *error);

#endif

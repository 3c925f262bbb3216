/* SPDX-License-Identifier: MIT */
/*
 * Address ranges whose pages come and go: the memory side of arenas and stack segments.
 *
 * All ranges are multiples of MZ_PAGE_BYTES. Reserved ranges are private, anonymous, zero until
 * written and not counted against overcommit.
 */
#ifndef MZ_OS_MEMORY_H
#define MZ_OS_MEMORY_H

#include "os/os.h"

/* Reserve `bytes` of addresses aligned to `alignment` (a power of two >= page); no page is
 * committed. */
mz_status mz_memory_reserve(const mz_os *os, uint64_t bytes, uint64_t alignment, void **address,
                            mz_error *error);
void mz_memory_release(const mz_os *os, void *address, uint64_t bytes);

/* Ask for huge pages in the part of the range that holds whole ones; a hint, failure is ignored. */
void mz_memory_want_huge(const mz_os *os, void *address, uint64_t bytes);

/* Take that back: pages that are touched from now on are small ones. A hint as well. */
void mz_memory_want_small(const mz_os *os, void *address, uint64_t bytes);

/* Commit pages (MADV_POPULATE_WRITE; by touching each page on kernels before 5.14). MZ_E_NOMEM. */
mz_status mz_memory_populate(const mz_os *os, void *address, uint64_t bytes, mz_error *error);

/* Give the pages back; the range reads as zero afterwards. */
mz_status mz_memory_drop(const mz_os *os, void *address, uint64_t bytes, mz_error *error);

/* Forbid (or allow again) any access to the range; used to prove that nobody touches evicted
 * memory. */
mz_status mz_memory_guard(const mz_os *os, void *address, uint64_t bytes, bool forbid,
                          mz_error *error);

#endif

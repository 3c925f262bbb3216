/* SPDX-License-Identifier: MIT */
/* How much of an address range is in memory, as the kernel sees it. */
#ifndef MZ_OS_RESIDENCY_H
#define MZ_OS_RESIDENCY_H

#include <stdint.h>

/* Bytes of resident pages in a page-aligned range (mincore). 0 where the kernel does not tell. */
uint64_t mz_memory_resident(void *address, uint64_t bytes);

#endif

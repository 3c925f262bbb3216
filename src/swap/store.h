/* SPDX-License-Identifier: MIT */
/*
 * The store: the swap file on flash.
 *
 * A nameless file of one process, cut into slots. A slot is a header page (magic, version, length,
 * checksum of the header) and the unit's bytes behind it, each span starting at a page, so that a
 * span which is kept as it is can be read straight into place by direct I/O. Slots are found by
 * first fit among the free extents; freed room is punched out of the file.
 *
 * The file is made at the first write, so a host that never evicts leaves no trace.
 *
 * Threads: allocate and free under the caller's lock; reads and writes of slots that the caller
 * owns need none.
 */
#ifndef MZ_SWAP_STORE_H
#define MZ_SWAP_STORE_H

#include "os/direct_io.h"

typedef struct mz_store mz_store;

/* Room in the store. bytes == 0: none. */
typedef struct mz_store_slot {
    uint64_t offset; /* of the header page */
    uint64_t bytes;  /* header included, multiple of a page */
} mz_store_slot;

/* What the header page says of a slot. */
typedef struct mz_store_header {
    char magic[8];         /* "MZSLOT1" */
    uint32_t header_bytes; /* sizeof this */
    uint32_t tag, layer, chunk;
    uint64_t payload_bytes; /* pages behind the header */
    uint64_t checksum;      /* XXH3 of this struct with checksum = 0 */
} mz_store_header;

/* Remember where the file will be; nothing is made yet. directory: "" refuses every write. */
mz_status mz_store_create(const mz_os *os, const char *directory, mz_store **store,
                          mz_error *error);
void mz_store_destroy(mz_store *store);

/* Make the table of free extents large enough for `slots` slots, so that evict allocates
 * nothing. */
mz_status mz_store_reserve(mz_store *store, uint32_t slots, mz_error *error);

/* Find room for a header page and `payload_bytes` (rounded up to pages); makes the file if
 * needed. */
mz_status mz_store_allocate(mz_store *store, uint64_t payload_bytes, mz_store_slot *slot,
                            mz_error *error);

/* Give a slot's room back and clear it. */
void mz_store_free(mz_store *store, mz_store_slot *slot);

/* The file, for reads and writes inside slots. NULL before the first allocation. */
mz_file *mz_store_file(mz_store *store);

/* Write the header page of a slot. */
mz_status mz_store_write_header(mz_store *store, mz_store_slot slot, uint32_t tag, uint32_t layer,
                                uint32_t chunk, mz_error *error);

/* Read and check the header page of a slot: MZ_E_CORRUPT if it is not what was written. */
mz_status mz_store_check_header(mz_store *store, mz_store_slot slot, uint32_t tag, uint32_t layer,
                                uint32_t chunk, mz_error *error);

/* Bytes that all slots take. */
uint64_t mz_store_bytes(const mz_store *store);

const char *mz_store_directory(const mz_store *store);

/* Walk the free extents; false when they overlap, touch or do not add up. For tests. */
bool mz_store_check(const mz_store *store);

#endif

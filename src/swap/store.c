/* SPDX-License-Identifier: MIT */
/*
 * Free room is a table of extents sorted by offset, never two that touch. The table's capacity is
 * set at registration (one more extent than slots can ever lie between), so neither allocation nor
 * freeing needs memory. The end of the file is no extent: it is where first fit ends.
 */
#include "swap/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define DIRECTORY_BYTES 4096u

typedef struct extent {
    uint64_t offset, bytes;
} extent;

struct mz_store {
    const mz_os *os;
    char directory[DIRECTORY_BYTES];
    bool open;
    mz_file file;
    uint64_t end;   /* end of the last slot or free extent */
    uint64_t taken; /* bytes of all slots */
    extent *free;   /* [free_count], capacity free_capacity */
    uint32_t free_count, free_capacity;
};

mz_status mz_store_create(const mz_os *os, const char *directory, mz_store **store, mz_error *error)
{
    if (strlen(directory) >= DIRECTORY_BYTES) {
        return mz_error_set(error, MZ_E_INVALID, 0, "the name of the store directory is too long");
    }
    mz_store *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for the store");
    }
    made->os = os;
    memcpy(made->directory, directory, strlen(directory) + 1);
    *store = made;
    return MZ_OK;
}

void mz_store_destroy(mz_store *store)
{
    if (store == NULL) {
        return;
    }
    if (store->open) {
        mz_file_close(&store->file);
    }
    free(store->free);
    free(store);
}

mz_status mz_store_reserve(mz_store *store, uint32_t slots, mz_error *error)
{
    uint32_t capacity = slots + 1;
    if (capacity <= store->free_capacity) {
        return MZ_OK;
    }
    if (capacity < store->free_capacity * 2) {
        capacity = store->free_capacity * 2;
    }
    extent *grown = realloc(store->free, capacity * sizeof *grown);
    if (grown == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for the store's table of free room");
    }
    store->free = grown;
    store->free_capacity = capacity;
    return MZ_OK;
}

static mz_status store_open(mz_store *store, mz_error *error)
{
    if (store->open) {
        return MZ_OK;
    }
    if (store->directory[0] == '\0') {
        return mz_error_set(error, MZ_E_NOTFOUND, 0,
                            "there is no store directory; set one by --store or MZCACHE_STORE");
    }
    mz_status status = mz_file_create_temporary(&store->file, store->os, store->directory, error);
    store->open = status == MZ_OK;
    return status;
}

static void extent_remove(mz_store *store, uint32_t index)
{
    memmove(store->free + index, store->free + index + 1,
            (store->free_count - index - 1) * sizeof *store->free);
    store->free_count--;
}

mz_status mz_store_allocate(mz_store *store, uint64_t payload_bytes, mz_store_slot *slot,
                            mz_error *error)
{
    mz_status status = store_open(store, error);
    if (status != MZ_OK) {
        return status;
    }
    uint64_t bytes = MZ_PAGE_BYTES + mz_page_ceil(payload_bytes);
    store->taken += bytes;
    for (uint32_t i = 0; i < store->free_count; i++) {
        extent *room = &store->free[i];
        if (room->bytes >= bytes) {
            *slot = (mz_store_slot){room->offset, bytes};
            room->offset += bytes;
            room->bytes -= bytes;
            if (room->bytes == 0) {
                extent_remove(store, i);
            }
            return MZ_OK;
        }
    }
    *slot = (mz_store_slot){store->end, bytes};
    store->end += bytes;
    return MZ_OK;
}

/* Put an extent into the table, joined with its neighbours. */
static void extent_insert(mz_store *store, extent room)
{
    uint32_t at = 0;
    while (at < store->free_count && store->free[at].offset < room.offset) {
        at++;
    }
    bool joins_next = at < store->free_count && room.offset + room.bytes == store->free[at].offset;
    bool joins_previous =
        at > 0 && store->free[at - 1].offset + store->free[at - 1].bytes == room.offset;
    if (joins_previous) {
        store->free[at - 1].bytes += room.bytes;
        if (joins_next) {
            store->free[at - 1].bytes += store->free[at].bytes;
            extent_remove(store, at);
        }
    } else if (joins_next) {
        store->free[at].offset = room.offset;
        store->free[at].bytes += room.bytes;
    } else {
        assert(store->free_count < store->free_capacity);
        memmove(store->free + at + 1, store->free + at,
                (store->free_count - at) * sizeof *store->free);
        store->free[at] = room;
        store->free_count++;
    }
}

void mz_store_free(mz_store *store, mz_store_slot *slot)
{
    if (slot->bytes == 0) {
        return;
    }
    store->taken -= slot->bytes;
    mz_file_punch(&store->file, slot->offset, slot->bytes);
    extent_insert(store, (extent){slot->offset, slot->bytes});
    extent *last = &store->free[store->free_count - 1];
    if (last->offset + last->bytes == store->end) {
        store->end = last->offset;
        store->free_count--;
    }
    *slot = (mz_store_slot){0, 0};
}

mz_file *mz_store_file(mz_store *store)
{
    return store->open ? &store->file : NULL;
}

static void header_fill(mz_store_header *header, mz_store_slot slot, uint32_t tag, uint32_t layer,
                        uint32_t chunk)
{
    memset(header, 0, sizeof *header);
    memcpy(header->magic, "MZSLOT1", 8);
    header->header_bytes = (uint32_t)sizeof *header;
    header->tag = tag;
    header->layer = layer;
    header->chunk = chunk;
    header->payload_bytes = slot.bytes - MZ_PAGE_BYTES;
    header->checksum = XXH3_64bits(header, sizeof *header);
}

mz_status mz_store_write_header(mz_store *store, mz_store_slot slot, uint32_t tag, uint32_t layer,
                                uint32_t chunk, mz_error *error)
{
    _Alignas(MZ_PAGE_BYTES) uint8_t page[MZ_PAGE_BYTES] = {0};
    mz_store_header header;
    header_fill(&header, slot, tag, layer, chunk);
    memcpy(page, &header, sizeof header);
    return mz_file_write(&store->file, page, sizeof page, slot.offset, error);
}

mz_status mz_store_check_header(mz_store *store, mz_store_slot slot, uint32_t tag, uint32_t layer,
                                uint32_t chunk, mz_error *error)
{
    _Alignas(MZ_PAGE_BYTES) uint8_t page[MZ_PAGE_BYTES];
    mz_status status = mz_file_read(&store->file, page, sizeof page, slot.offset, error);
    if (status != MZ_OK) {
        return status;
    }
    mz_store_header expected;
    header_fill(&expected, slot, tag, layer, chunk);
    if (memcmp(page, &expected, sizeof expected) != 0) {
        return mz_error_set(error, MZ_E_CORRUPT, 0, "the store's slot at %llu has a damaged header",
                            (unsigned long long)slot.offset);
    }
    return MZ_OK;
}

uint64_t mz_store_bytes(const mz_store *store)
{
    return store->taken;
}

const char *mz_store_directory(const mz_store *store)
{
    return store->directory;
}

bool mz_store_check(const mz_store *store)
{
    uint64_t end = 0;
    uint64_t room = 0;
    for (uint32_t i = 0; i < store->free_count; i++) {
        const extent *e = &store->free[i];
        bool touches = i > 0 && e->offset == end;
        if (e->bytes == 0 || e->offset < end || touches) {
            return false;
        }
        end = e->offset + e->bytes;
        room += e->bytes;
    }
    return end <= store->end && !(end == store->end && store->free_count > 0) &&
           room + store->taken == store->end;
}

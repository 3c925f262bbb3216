/* SPDX-License-Identifier: MIT */
/*
 * Goal: a header page of the store that is not the one written for a unit is never accepted.
 *
 * An input is the beginning of a header page. Half of the changed ones have a right checksum, by
 * the documented layout; they must be refused all the same unless every field is as written.
 */
#include "fuzz.h"

#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "os/direct_io.h"
#include "os/memory.h"
#include "swap/store.h"

#define TAG 2u
#define LAYER 5u
#define CHUNK 7u
#define CHECKSUM_AT offsetof(mz_store_header, checksum)

static mz_store *store;
static mz_store_slot slot;
static mz_store_header written;
static uint8_t *page; /* aligned for direct I/O */

static void write_page(void)
{
    mz_error error = MZ_ERROR_INIT;
    MZ_FUZZ_CHECK(mz_file_write(mz_store_file(store), page, MZ_PAGE_BYTES, slot.offset, &error) ==
                  MZ_OK);
}

static void make_store(void)
{
    mz_error error = MZ_ERROR_INIT;
    char directory[] = "/tmp/mz-fuzz-XXXXXX";
    page = mz_fuzz_guarded(MZ_PAGE_BYTES);
    MZ_FUZZ_CHECK(mkdtemp(directory) != NULL);
    MZ_FUZZ_CHECK(mz_store_create(mz_os_linux(), directory, &store, &error) == MZ_OK);
    MZ_FUZZ_CHECK(mz_store_reserve(store, 4, &error) == MZ_OK);
    MZ_FUZZ_CHECK(mz_store_allocate(store, MZ_PAGE_BYTES, &slot, &error) == MZ_OK);
    MZ_FUZZ_CHECK(rmdir(directory) == 0); /* its file has no name */
    MZ_FUZZ_CHECK(mz_store_write_header(store, slot, TAG, LAYER, CHUNK, &error) == MZ_OK);
    MZ_FUZZ_CHECK(mz_file_read(mz_store_file(store), page, MZ_PAGE_BYTES, slot.offset, &error) ==
                  MZ_OK);
    memcpy(&written, page, sizeof written);
    MZ_FUZZ_CHECK(memcmp(written.magic, "MZSLOT1", 8) == 0 && written.layer == LAYER);
}

static size_t seed(size_t index, uint8_t *data)
{
    if (store == NULL) {
        make_store();
    }
    memcpy(data, &written, sizeof written);
    return index == 0 ? sizeof written : 0;
}

static void seal(uint8_t *data, size_t bytes)
{
    mz_store_header header;
    if (bytes >= sizeof header) {
        memcpy(&header, data, sizeof header);
        header.checksum = 0;
        header.checksum = XXH3_64bits(&header, sizeof header);
        memcpy(data, &header, sizeof header);
    }
}

static void run(const uint8_t *data, size_t bytes, mz_fuzz_kind kind)
{
    mz_error error = MZ_ERROR_INIT;
    if (store == NULL) {
        make_store();
    }
    size_t used = bytes < MZ_PAGE_BYTES ? bytes : MZ_PAGE_BYTES;
    memset(page, 0, MZ_PAGE_BYTES);
    memcpy(page, data, used);
    bool is_written = memcmp(page, &written, sizeof written) == 0;
    write_page();
    mz_status status = mz_store_check_header(store, slot, TAG, LAYER, CHUNK, &error);
    MZ_FUZZ_CHECK(status == (is_written ? MZ_OK : MZ_E_CORRUPT));
    MZ_FUZZ_CHECK(kind != MZ_FUZZ_SEED || is_written);
}

const mz_fuzz_target mz_fuzz = {"store", seed, seal, run};

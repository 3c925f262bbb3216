/* SPDX-License-Identifier: MIT */
/*
 * Goal: slots never overlap, freed room is used again, headers are checked, refusals are clear.
 * Method: allocate and free at random against a model of taken pages, walker after each operation.
 */
#include "swap/store.h"

#include <cmocka.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "os/fault_os.h"

#define SLOTS 64u
#define MODEL_PAGES 8192u

static void mark(uint8_t *pages, mz_store_slot slot, bool taken)
{
    for (uint64_t p = slot.offset / MZ_PAGE_BYTES; p < (slot.offset + slot.bytes) / MZ_PAGE_BYTES;
         p++) {
        assert_true(p < MODEL_PAGES);
        assert_int_equal(pages[p], taken ? 0 : 1);
        pages[p] = taken ? 1 : 0;
    }
}

static void slots_never_overlap(void **state)
{
    (void)state;
    static uint8_t pages[MODEL_PAGES];
    mz_error error = MZ_ERROR_INIT;
    mz_store *store = NULL;
    assert_int_equal(mz_store_create(mz_os_linux(), "/tmp", &store, &error), MZ_OK);
    assert_int_equal(mz_store_reserve(store, SLOTS, &error), MZ_OK);
    mz_store_slot slots[SLOTS];
    memset(slots, 0, sizeof slots);
    unsigned seed = 3;
    uint64_t taken = 0;
    for (int round = 0; round < 4000; round++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t at = (seed >> 8) % SLOTS;
        if (slots[at].bytes == 0) {
            uint64_t payload = 1 + (seed >> 10) % 200000u;
            assert_int_equal(mz_store_allocate(store, payload, &slots[at], &error), MZ_OK);
            assert_int_equal(slots[at].bytes, MZ_PAGE_BYTES + mz_page_ceil(payload));
            mark(pages, slots[at], true);
            taken += slots[at].bytes;
        } else {
            mark(pages, slots[at], false);
            taken -= slots[at].bytes;
            mz_store_free(store, &slots[at]);
        }
        assert_true(mz_store_check(store));
        assert_int_equal(mz_store_bytes(store), taken);
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        mz_store_free(store, &slots[i]);
    }
    assert_int_equal(mz_store_bytes(store), 0);
    assert_true(mz_store_check(store));
    mz_store_destroy(store);
}

static void a_header_tells_a_damaged_slot(void **state)
{
    (void)state;
    mz_error error = MZ_ERROR_INIT;
    mz_store *store = NULL;
    assert_int_equal(mz_store_create(mz_os_linux(), "/tmp", &store, &error), MZ_OK);
    assert_int_equal(mz_store_reserve(store, 2, &error), MZ_OK);
    assert_null(mz_store_file(store));
    mz_store_slot slot;
    assert_int_equal(mz_store_allocate(store, 100, &slot, &error), MZ_OK);
    assert_int_equal(mz_store_write_header(store, slot, 2, 5, 7, &error), MZ_OK);
    assert_int_equal(mz_store_check_header(store, slot, 2, 5, 7, &error), MZ_OK);
    assert_int_equal(mz_store_check_header(store, slot, 2, 5, 8, &error), MZ_E_CORRUPT);
    static _Alignas(MZ_PAGE_BYTES) uint8_t page[MZ_PAGE_BYTES];
    assert_int_equal(mz_file_read(mz_store_file(store), page, sizeof page, slot.offset, &error),
                     MZ_OK);
    for (size_t i = 0; i < sizeof(mz_store_header); i++) {
        page[i] ^= 1;
        assert_int_equal(
            mz_file_write(mz_store_file(store), page, sizeof page, slot.offset, &error), MZ_OK);
        assert_int_equal(mz_store_check_header(store, slot, 2, 5, 7, &error), MZ_E_CORRUPT);
        page[i] ^= 1;
    }
    mz_store_destroy(store);
}

static void a_store_without_a_place_refuses_in_words(void **state)
{
    (void)state;
    mz_error error = MZ_ERROR_INIT;
    mz_store *store = NULL;
    mz_store_slot slot = {0, 0};
    assert_int_equal(mz_store_create(mz_os_linux(), "", &store, &error), MZ_OK);
    assert_int_equal(mz_store_allocate(store, 1, &slot, &error), MZ_E_NOTFOUND);
    assert_non_null(strstr(error.text, "MZCACHE_STORE"));
    mz_store_destroy(store);
    assert_int_equal(mz_store_create(mz_os_linux(), "/nonexistent/place", &store, &error), MZ_OK);
    assert_int_equal(mz_store_allocate(store, 1, &slot, &error), MZ_E_NOTFOUND);
    mz_store_destroy(store);
    mz_fault_os fault;
    mz_fault_os_init(&fault);
    assert_int_equal(mz_store_create(&fault.os, "/tmp", &store, &error), MZ_OK);
    mz_fault_os_fail(&fault, MZ_FAULT_OPEN, 1, MZ_FAULT_FOREVER, EROFS);
    assert_int_equal(mz_store_allocate(store, 1, &slot, &error), MZ_E_PERM);
    mz_store_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_never_overlap),
        cmocka_unit_test(a_header_tells_a_damaged_slot),
        cmocka_unit_test(a_store_without_a_place_refuses_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

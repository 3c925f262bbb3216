/* SPDX-License-Identifier: MIT */
/*
 * Goal: the state machine of units has exactly the edges it should have, and slices cover a span.
 * Method: every pair is compared with a table written by hand from the description of the states;
 * slices of spans at odd addresses are laid end to end.
 */
#include "swap/unit.h"

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

static void every_edge_is_as_described(void **state)
{
    (void)state;
    /* Rows: from RESIDENT, EVICTING, COMPRESSED, STORED, RESTORING, LOST; '1': may move there. */
    static const char *const expected[MZ_UNIT_STATES] = {"010000", "101100", "100110",
                                                         "100010", "101101", "100000"};
    for (int from = 0; from < MZ_UNIT_STATES; from++) {
        for (int to = 0; to < MZ_UNIT_STATES; to++) {
            assert_int_equal(mz_unit_can_move((mz_unit_state)from, (mz_unit_state)to),
                             expected[from][to] == '1');
        }
        assert_true(strlen(mz_unit_state_name((mz_unit_state)from)) > 3);
    }
    assert_false(mz_unit_can_move(MZ_UNIT_STATES, MZ_UNIT_RESIDENT));
}

static void a_bad_description_is_refused(void **state)
{
    (void)state;
    static _Alignas(MZ_PAGE_BYTES) uint8_t memory[2 * MZ_PAGE_BYTES];
    mz_unit_desc good = {.tag = MZ_TAG_KV_CACHE, .layer = 3, .chunk = 1, .span_count = 1};
    good.spans[0] = (mz_span){memory, sizeof memory, -1, 0, MZ_ELEM_F16, 64};
    mz_unit *unit = NULL;
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_unit_create(&good, &unit, &error), MZ_OK);
    char name[64];
    assert_string_equal(mz_unit_name(unit, name, sizeof name), "KV chunk 1 of layer 3");
    mz_unit_free(unit);
    mz_unit_desc bad[6];
    for (size_t i = 0; i < 6; i++) {
        bad[i] = good;
    }
    bad[0].span_count = 0;
    bad[1].span_count = MZ_UNIT_SPANS + 1;
    bad[2].spans[0].address = memory + 8;
    bad[3].spans[0].bytes = 100;
    bad[4].spans[0].row_bytes = 0;
    bad[5].stored = true; /* without a source to read it from */
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(mz_unit_create(&bad[i], &unit, &error), MZ_E_INVALID);
    }
}

static void live_rows_make_the_shape(void **state)
{
    (void)state;
    static _Alignas(MZ_PAGE_BYTES) uint8_t memory[4 * MZ_PAGE_BYTES];
    mz_unit_desc desc = {.tag = MZ_TAG_KV_CACHE, .span_count = 1};
    desc.spans[0] = (mz_span){memory, sizeof memory, -1, 0, MZ_ELEM_F16, 128};
    mz_unit *unit = NULL;
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_unit_create(&desc, &unit, &error), MZ_OK);
    unit->spans[0].live_bytes = 33 * 128;
    mz_codec_shape shape = mz_unit_span_shape(&unit->spans[0]);
    assert_int_equal(shape.rows, 33);
    assert_int_equal(shape.row_bytes, 128);
    assert_int_equal(mz_unit_live_pages(unit), 2 * MZ_PAGE_BYTES); /* 4224 bytes */
    mz_unit_free(unit);
}

static void slices_cover_a_span_and_share_no_huge_page(void **state)
{
    (void)state;
    static const uint64_t leads[] = {0, MZ_PAGE_BYTES, MZ_SLICE_BYTES - MZ_PAGE_BYTES};
    static const uint64_t sizes[] = {MZ_PAGE_BYTES, MZ_SLICE_BYTES, MZ_SLICE_BYTES + MZ_PAGE_BYTES,
                                     5 * MZ_SLICE_BYTES - 3 * MZ_PAGE_BYTES};
    for (size_t l = 0; l < 3; l++) {
        for (size_t b = 0; b < 4; b++) {
            uintptr_t start = (uintptr_t)(7 * MZ_SLICE_BYTES + leads[l]); /* never touched */
            mz_unit_span span = {.place = {.address = (uint8_t *)start, .bytes = sizes[b]}};
            uint32_t count = mz_span_slice_count(&span, sizes[b]);
            uint64_t next = 0;
            uint64_t page_before = 0;
            for (uint32_t i = 0; i < count; i++) {
                mz_slice slice = mz_span_slice(&span, sizes[b], i);
                assert_int_equal(slice.offset, next);
                assert_true(slice.bytes > 0);
                uint64_t first = (start + slice.offset) / MZ_SLICE_BYTES;
                assert_int_equal((start + slice.offset + slice.bytes - 1) / MZ_SLICE_BYTES, first);
                assert_true(first > page_before);
                page_before = first;
                next += slice.bytes;
            }
            assert_int_equal(next, sizes[b]);
        }
    }
    mz_unit_span empty = {.place = {.address = NULL, .bytes = MZ_PAGE_BYTES}};
    assert_int_equal(mz_span_slice_count(&empty, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_edge_is_as_described),
        cmocka_unit_test(a_bad_description_is_refused),
        cmocka_unit_test(live_rows_make_the_shape),
        cmocka_unit_test(slices_cover_a_span_and_share_no_huge_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

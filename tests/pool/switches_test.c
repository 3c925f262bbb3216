/* SPDX-License-Identifier: MIT */
/*
 * Goal: each switch for comparisons does what its word says, and bytes stay right under all.
 * Method: the table of system calls notes the order of page commits and reads, or holds reads back:
 * what goes on meanwhile did not wait for them. No time is measured.
 */
#include "pool/call_notes.h"
#include "pool/fixture.h"
#include "pool/internal.h"

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

/* A toy whose calls are noted, with everything read once and evicted by `bytes`. */
static void open_evicted(toy_model *toy, const char *codec, const mz_pool_switches *switches,
                         uint64_t bytes)
{
    toy_open(toy, codec, false);
    toy_write_kv(toy, 256);
    assert_true(toy_is_right(toy));
    mz_pool_set_switches(toy->pool, switches);
    (void)mz_evict(toy->pool, bytes, NULL);
    calls_note(&toy->fault.os);
}

static bool weights_are_here(toy_model *toy, uint32_t layer)
{
    mz_pool_step_begin(toy->pool);
    bool here = mz_pool_ready(toy->pool, toy->weights + (uint64_t)layer * TOY_WEIGHT_STRIDE,
                              TOY_WEIGHT_BYTES);
    mz_pool_step_end(toy->pool);
    return here;
}

/* Evict one layer's weights by an order given in words; which layer went? */
static uint32_t first_out(const char *word)
{
    toy_model toy;
    mz_pool_switches switches = {0};
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_pool_parse_switch("order", word, &switches, &error), MZ_OK);
    toy_open(&toy, "raw", false);
    assert_true(toy_is_right(&toy));
    mz_pool_set_switches(toy.pool, &switches);
    assert_int_equal(mz_evict_tagged(toy.pool, 1, MZ_TAG_WEIGHTS, NULL), MZ_OK);
    uint32_t gone = TOY_LAYERS;
    for (uint32_t layer = 0; layer < TOY_LAYERS; layer++) {
        if (!weights_are_here(&toy, layer)) {
            assert_int_equal(gone, TOY_LAYERS);
            gone = layer;
        }
    }
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
    return gone;
}

static void the_order_says_which_layer_goes_first(void **state)
{
    (void)state;
    assert_int_equal(first_out("backward-out"), TOY_LAYERS - 1);
    assert_int_equal(first_out("forward-out"), 0);
    bool seen[TOY_LAYERS + 1] = {false};
    for (unsigned seed = 0; seed < 8; seed++) {
        char word[32];
        snprintf(word, sizeof word, "random-out:%u", seed);
        uint32_t gone = first_out(word);
        assert_int_equal(first_out(word), gone);
        seen[gone] = true;
    }
    assert_false(seen[TOY_LAYERS]);
    assert_true(seen[0] + seen[1] + seen[2] + seen[3] > 1);
}

static void restore_noted(const char *codec, mz_overlap overlap)
{
    toy_model toy;
    open_evicted(&toy, codec, &(mz_pool_switches){.overlap = overlap}, UINT64_MAX);
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(toy_restore(&toy, &error), MZ_OK);
    assert_true(calls.commits > 0 && calls.reads > 0);
    assert_int_equal(calls.reads_before_last_commit == 0, mz_overlap_allocates_first(overlap));
    if (strcmp(codec, "raw") == 0) {
        assert_true(toy_is_right(&toy));
    }
    assert_true(toy_check(&toy));
    toy_close(&toy);
}

static void allocation_comes_first_where_it_must_not_overlap(void **state)
{
    (void)state;
    for (int overlap = MZ_OVERLAP_ALL; overlap <= MZ_OVERLAP_RELOAD_PREFILL; overlap++) {
        restore_noted("raw", (mz_overlap)overlap);
        restore_noted("q8", (mz_overlap)overlap);
    }
}

static void prefill_waits_where_it_must_not_overlap(void **state)
{
    (void)state;
    for (int overlap = MZ_OVERLAP_ALL; overlap <= MZ_OVERLAP_RELOAD_PREFILL; overlap++) {
        toy_model toy;
        open_evicted(&toy, "raw", &(mz_pool_switches){.overlap = (mz_overlap)overlap}, UINT64_MAX);
        bool prefills = mz_overlap_prefills((mz_overlap)overlap);
        mz_range all = {toy.weights, (uint64_t)TOY_LAYERS * TOY_WEIGHT_STRIDE};
        mz_pool_step_begin(toy.pool);
        calls_hold_reads(prefills);
        mz_pool_request(toy.pool, &all, 1); /* would never return if it waited for held reads */
        assert_int_equal(mz_pool_ready(toy.pool, toy.weights, TOY_WEIGHT_BYTES), !prefills);
        calls_hold_reads(false);
        mz_pool_step_end(toy.pool);
        assert_true(toy_is_right(&toy));
        toy_close(&toy);
    }
}

/* A KV chunk in the stack. */
static const mz_unit *find_compressed(const toy_model *toy)
{
    for (uint32_t i = 0; i < toy->pool->unit_count; i++) {
        if (toy->pool->units[i]->state == MZ_UNIT_COMPRESSED) {
            return toy->pool->units[i];
        }
    }
    return NULL;
}

static void decoding_waits_for_reading_only_if_told(void **state)
{
    (void)state;
    for (int paths = MZ_PATHS_PARALLEL; paths <= MZ_PATHS_SEQUENTIAL; paths++) {
        toy_model toy;
        /* The last layer with its chunks: weights by reading, chunks by decoding. */
        open_evicted(&toy, "q8", &(mz_pool_switches){.paths = (mz_paths)paths},
                     TOY_WEIGHT_BYTES + 2u * TOY_CHUNK_BYTES);
        const mz_unit *unit = find_compressed(&toy);
        assert_non_null(unit);
        const mz_span *place = &unit->spans[0].place;
        calls.watched = place->address;
        mz_error error = MZ_ERROR_INIT;
        calls_hold_reads(paths == MZ_PATHS_PARALLEL);
        mz_pool_step_begin(toy.pool);
        assert_int_equal(mz_prefetch(toy.pool), MZ_OK);
        /* In parallel this ends although no read can. */
        assert_int_equal(mz_pool_need(toy.pool, place->address, place->bytes, &error), MZ_OK);
        unsigned reads_before = calls.reads_before_watched;
        calls_hold_reads(false);
        mz_pool_step_end(toy.pool);
        assert_int_equal(mz_prefetch_wait(toy.pool), MZ_OK);
        assert_true(calls.reads > 0);
        assert_int_equal(reads_before, paths == MZ_PATHS_PARALLEL ? 0 : calls.reads);
        toy_close(&toy);
    }
}

static void wrong_words_are_refused_and_change_nothing(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"order", ""},
        {"order", "backward"},
        {"order", "random-out:"},
        {"order", "random-out:-1"},
        {"order", "random-out:1x"},
        {"overlap", "some"},
        {"paths", "both"},
        {"color", "red"},
    };
    mz_pool_switches switches = {MZ_ORDER_RANDOM, 7, MZ_OVERLAP_NONE, MZ_PATHS_SEQUENTIAL};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mz_error error = MZ_ERROR_INIT;
        assert_int_equal(mz_pool_parse_switch(wrong[i][0], wrong[i][1], &switches, &error),
                         MZ_E_INVALID);
        assert_true(strlen(error.text) > 10);
    }
    assert_true(switches.order == MZ_ORDER_RANDOM && switches.order_seed == 7 &&
                switches.overlap == MZ_OVERLAP_NONE && switches.paths == MZ_PATHS_SEQUENTIAL);
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_pool_parse_switch("order", "random-out:12", &switches, &error), MZ_OK);
    assert_int_equal(switches.order_seed, 12);
}

int main(void)
{
    toy_io = MZ_IO_THREADS; /* what is noted and held are calls of pread */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_says_which_layer_goes_first),
        cmocka_unit_test(allocation_comes_first_where_it_must_not_overlap),
        cmocka_unit_test(prefill_waits_where_it_must_not_overlap),
        cmocka_unit_test(decoding_waits_for_reading_only_if_told),
        cmocka_unit_test(wrong_words_are_refused_and_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

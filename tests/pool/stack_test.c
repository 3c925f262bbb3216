/* SPDX-License-Identifier: MIT */
/*
 * Goal: records keep their bytes, room is given back as the stack shrinks, in any order of freeing.
 * Method: push and free at random with a fixed seed, the invariant walker after each operation.
 */
#include "swap/stack.h"

#include <cmocka.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "os/fault_os.h"

#define RECORDS 300u

static mz_stack_record push(mz_stack *stack, uint64_t room, uint64_t bytes, int fill)
{
    mz_error error = MZ_ERROR_INIT;
    void *data = NULL;
    assert_int_equal(mz_stack_room(stack, room, &data, &error), MZ_OK);
    memset(data, fill, bytes);
    return mz_stack_commit(stack, bytes);
}

static void assert_filled(mz_stack_record record, int fill)
{
    const uint8_t *data = mz_stack_data(record);
    for (uint64_t i = 0; i < record.bytes; i++) {
        assert_int_equal(data[i], fill);
    }
}

static void records_survive_any_order_of_freeing(void **state)
{
    (void)state;
    mz_error error = MZ_ERROR_INIT;
    mz_stack *stack = NULL;
    assert_int_equal(mz_stack_create(mz_os_linux(), &stack, &error), MZ_OK);
    static mz_stack_record records[RECORDS];
    memset(records, 0, sizeof records);
    unsigned seed = 7;
    for (int round = 0; round < 3000; round++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t at = (seed >> 8) % RECORDS;
        if (records[at].segment == NULL) {
            uint64_t bytes = 1 + (seed >> 12) % 60000u;
            records[at] = push(stack, bytes + 500, bytes, (int)(at & 0xff));
        } else {
            assert_filled(records[at], (int)(at & 0xff));
            mz_stack_free(stack, &records[at]);
            assert_null(records[at].segment);
        }
        assert_true(mz_stack_check(stack));
    }
    for (uint32_t i = 0; i < RECORDS; i++) {
        if (records[i].segment != NULL) {
            assert_filled(records[i], (int)(i & 0xff));
            mz_stack_free(stack, &records[i]);
        }
    }
    assert_true(mz_stack_check(stack));
    assert_int_equal(mz_stack_bytes(stack), 0);
    mz_stack_destroy(stack);
}

static void last_in_first_out_gives_pages_back_at_once(void **state)
{
    (void)state;
    mz_error error = MZ_ERROR_INIT;
    mz_stack *stack = NULL;
    assert_int_equal(mz_stack_create(mz_os_linux(), &stack, &error), MZ_OK);
    mz_stack_record records[40];
    for (int i = 0; i < 40; i++) {
        records[i] = push(stack, 1u << 20, 1u << 20, i); /* four to a segment of 4 MB */
    }
    assert_int_equal(mz_stack_bytes(stack), 40u << 20);
    for (int i = 39; i >= 0; i--) {
        mz_stack_free(stack, &records[i]);
        assert_int_equal(mz_stack_bytes(stack), (uint64_t)i << 20);
        assert_true(mz_stack_check(stack));
    }
    mz_stack_destroy(stack);
}

static void a_record_larger_than_a_segment_gets_its_own(void **state)
{
    (void)state;
    mz_error error = MZ_ERROR_INIT;
    mz_stack *stack = NULL;
    assert_int_equal(mz_stack_create(mz_os_linux(), &stack, &error), MZ_OK);
    mz_stack_record large = push(stack, 10u << 20, 9u << 20, 1);
    mz_stack_record small = push(stack, 100, 100, 2);
    assert_filled(large, 1);
    assert_true(mz_stack_check(stack));
    mz_stack_free(stack, &large);
    assert_filled(small, 2);
    mz_stack_free(stack, &small);
    assert_true(mz_stack_check(stack));
    mz_stack_destroy(stack);
}

static void no_memory_leaves_the_stack_as_it_was(void **state)
{
    (void)state;
    mz_error error = MZ_ERROR_INIT;
    mz_fault_os fault;
    mz_fault_os_init(&fault);
    mz_stack *stack = NULL;
    assert_int_equal(mz_stack_create(&fault.os, &stack, &error), MZ_OK);
    mz_stack_record first = push(stack, 4000, 4000, 1);
    mz_fault_os_fail(&fault, MZ_FAULT_MMAP, 1, MZ_FAULT_FOREVER, ENOMEM);
    void *data = NULL;
    assert_int_equal(mz_stack_room(stack, 16u << 20, &data, &error), MZ_E_NOMEM);
    assert_true(mz_stack_check(stack));
    assert_filled(first, 1);
    mz_stack_record second = push(stack, 4000, 4000, 2); /* the reserved segment still has room */
    mz_fault_os_clear(&fault);
    mz_stack_free(stack, &first);
    mz_stack_free(stack, &second);
    mz_stack_destroy(stack);
    mz_fault_os_fail(&fault, MZ_FAULT_MMAP, 1, MZ_FAULT_FOREVER, ENOMEM);
    assert_int_equal(mz_stack_create(&fault.os, &stack, &error), MZ_E_NOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_survive_any_order_of_freeing),
        cmocka_unit_test(last_in_first_out_gives_pages_back_at_once),
        cmocka_unit_test(a_record_larger_than_a_segment_gets_its_own),
        cmocka_unit_test(no_memory_leaves_the_stack_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

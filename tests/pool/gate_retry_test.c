/* SPDX-License-Identifier: MIT */
/*
 * Goal: who comes to the gate while a restore is under way that fails of an old cause does not take
 * that failure for its own: it tries again and finds the unit.
 * Method: reads are held while the first caller's restore is under way; the second caller comes
 * after the disk is whole again; then the held reads fail.
 */
#include "pool/fixture.h"

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

static atomic_bool broken, released;
static atomic_uint held;
/* A thread whose direct read was held fails the buffered try of the same slice too. */
static _Thread_local bool fails_again;

static void pause_ms(long milliseconds)
{
    struct timespec pause = {0, milliseconds * 1000000};
    nanosleep(&pause, NULL);
}

static ssize_t read_or_hold(void *context, int fd, void *data, size_t bytes, off_t offset)
{
    (void)context;
    bool fails = fails_again;
    fails_again = false;
    if (atomic_load(&broken)) {
        atomic_fetch_add(&held, 1);
        while (!atomic_load(&released)) {
            pause_ms(1);
        }
        fails = true;
        fails_again = true;
    }
    if (fails) {
        errno = EIO;
        return -1;
    }
    return mz_os_linux()->pread(NULL, fd, data, bytes, offset);
}

typedef struct caller {
    toy_model *toy;
    mz_status status;
    bool right;
} caller;

static void *need_weights(void *argument)
{
    caller *self = argument;
    toy_model *toy = self->toy;
    mz_error error = MZ_ERROR_INIT;
    mz_pool_step_begin(toy->pool);
    self->status = mz_pool_need(toy->pool, toy->weights, TOY_WEIGHT_BYTES, &error);
    self->right =
        self->status == MZ_OK && memcmp(toy->weights, toy->weights_shadow, TOY_WEIGHT_BYTES) == 0;
    mz_pool_step_end(toy->pool);
    return NULL;
}

static void an_old_failure_is_not_a_new_one(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", false);
    assert_true(toy_is_right(&toy));
    (void)mz_evict(toy.pool, UINT64_MAX, NULL);
    toy.fault.os.pread = read_or_hold;
    atomic_store(&released, false);
    atomic_store(&broken, true);
    pthread_t threads[2];
    caller first = {&toy, MZ_OK, false};
    caller second = {&toy, MZ_OK, false};
    assert_int_equal(pthread_create(&threads[0], NULL, need_weights, &first), 0);
    while (atomic_load(&held) == 0) {
        pause_ms(1);
    }
    atomic_store(&broken, false);
    assert_int_equal(pthread_create(&threads[1], NULL, need_weights, &second), 0);
    pause_ms(
        100); /* lets it reach the gate; if it does not, it finds nothing to join: also right */
    atomic_store(&released, true);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_int_equal(first.status, MZ_E_IO);
    assert_int_equal(second.status, MZ_OK);
    assert_true(second.right);
    assert_true(toy_check(&toy));
    toy_close(&toy);
}

int main(void)
{
    toy_io = MZ_IO_THREADS; /* what is held are calls of pread */
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_old_failure_is_not_a_new_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * Goal: an eviction in the middle of a restore waits for the step that needs it, and turns round
 * what nobody waits for; a forked process is refused instead of waiting for threads that it does
 * not have; one core is enough.
 * Method: reads are held back, so that the restore is certainly in its middle.
 */
#include "pool/call_notes.h"
#include "pool/fixture.h"
#include "pool/internal.h"

#include <cmocka.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void open_evicted(toy_model *toy, const char *codec)
{
    toy_open(toy, codec, false);
    toy_write_kv(toy, 256);
    assert_true(toy_is_right(toy));
    (void)mz_evict(toy->pool, UINT64_MAX, NULL);
    calls_note(&toy->fault.os);
}

typedef struct eviction {
    pthread_t thread;
    mz_pool *pool;
    mz_status status;
} eviction;

static void *evict_all(void *argument)
{
    eviction *self = argument;
    self->status = mz_evict(self->pool, UINT64_MAX, NULL);
    return NULL;
}

static void eviction_start(eviction *self, mz_pool *pool)
{
    self->pool = pool;
    assert_int_equal(pthread_create(&self->thread, NULL, evict_all, self), 0);
    bool begun = false;
    while (!begun) {
        pthread_mutex_lock(&pool->restore.lock);
        begun = pool->evict_busy;
        pthread_mutex_unlock(&pool->restore.lock);
        sched_yield();
    }
}

static void a_prefetch_is_turned_round(void **state)
{
    (void)state;
    toy_model toy;
    open_evicted(&toy, "raw");
    calls_hold_reads(true);
    assert_int_equal(mz_prefetch(toy.pool), MZ_OK);
    calls_wait_for_held_read();
    eviction running;
    eviction_start(&running, toy.pool);
    calls_hold_reads(false);
    assert_int_equal(pthread_join(running.thread, NULL), 0);
    assert_int_equal(mz_prefetch_wait(toy.pool), MZ_E_CANCELLED);
    mz_pool_status status;
    assert_int_equal(mz_status_get(toy.pool, &status), MZ_OK);
    assert_int_equal(status.weights.resident_bytes + status.kv_cache.resident_bytes, 0);
    assert_true(toy_check(&toy));
    assert_int_equal(mz_prefetch(toy.pool), MZ_OK);
    assert_int_equal(mz_prefetch_wait(toy.pool), MZ_OK);
    assert_true(mz_pool_all_resident(toy.pool));
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void a_step_that_restores_goes_first(void **state)
{
    (void)state;
    toy_model toy;
    open_evicted(&toy, "raw");
    calls_hold_reads(true);
    mz_range all = {toy.weights, (uint64_t)TOY_LAYERS * TOY_WEIGHT_STRIDE};
    mz_error error = MZ_ERROR_INIT;
    mz_pool_step_begin(toy.pool);
    mz_pool_request(toy.pool, &all, 1);
    calls_wait_for_held_read();
    eviction running;
    eviction_start(&running, toy.pool);
    calls_hold_reads(false);
    assert_int_equal(mz_pool_need(toy.pool, all.address, all.bytes, &error), MZ_OK);
    for (uint32_t layer = 0; layer < TOY_LAYERS; layer++) {
        uint64_t at = (uint64_t)layer * TOY_WEIGHT_STRIDE;
        assert_memory_equal(toy.weights + at, toy.weights_shadow + at, TOY_WEIGHT_BYTES);
    }
    mz_pool_step_end(toy.pool);
    assert_int_equal(pthread_join(running.thread, NULL), 0);
    mz_pool_status status;
    assert_int_equal(mz_status_get(toy.pool, &status), MZ_OK);
    assert_int_equal(status.weights.resident_bytes, 0);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void a_forked_process_is_told(void **state)
{
    (void)state;
    toy_model toy;
    open_evicted(&toy, "raw");
    pid_t child = fork();
    if (child == 0) {
        mz_error error = MZ_ERROR_INIT;
        mz_pool_step_begin(toy.pool);
        bool refused = mz_pool_need(toy.pool, toy.weights, 1, &error) == MZ_E_UNSUPPORTED;
        mz_pool_step_end(toy.pool);
        refused = refused && mz_evict(toy.pool, 1, NULL) == MZ_E_UNSUPPORTED;
        _exit(refused && strstr(error.text, "forked") != NULL ? 0 : 1);
    }
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void one_core_is_enough(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    size_t core = 0;
    while (!CPU_ISSET(core, &before)) {
        core++;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (int overlap = MZ_OVERLAP_ALL; overlap <= MZ_OVERLAP_RELOAD_PREFILL; overlap++) {
        toy_model toy;
        toy_open(&toy, "q8", false); /* its threads inherit the one core */
        mz_pool_set_switches(toy.pool, &(mz_pool_switches){.overlap = (mz_overlap)overlap});
        toy_write_kv(&toy, 256);
        (void)mz_evict(toy.pool, TOY_WEIGHT_BYTES + TOY_KV_BYTES / 2, NULL);
        mz_error error = MZ_ERROR_INIT;
        assert_int_equal(toy_restore(&toy, &error), MZ_OK);
        toy_accept(&toy);
        (void)mz_evict(toy.pool, UINT64_MAX, NULL);
        assert_true(toy_is_right(&toy));
        toy_close(&toy);
    }
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    toy_io = MZ_IO_THREADS; /* what is noted and held are calls of pread */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefetch_is_turned_round),
        cmocka_unit_test(a_step_that_restores_goes_first),
        cmocka_unit_test(a_forked_process_is_told),
        cmocka_unit_test(one_core_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

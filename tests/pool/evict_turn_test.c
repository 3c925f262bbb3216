/* SPDX-License-Identifier: MIT */
/*
 * Goal: an eviction is not kept waiting by a host that always has another step to begin.
 * Method: steps of three threads that overlap. An eviction comes while the first is open; the second
 * may still begin, the third must wait until the eviction had its turn.
 */
#include "pool/fixture.h"

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>

#include "pool/internal.h"

typedef struct stepper {
    mz_pool *pool;
    atomic_bool begun, may_end;
    uint64_t freed_before; /* what evictions had freed when the step began */
} stepper;

static void *step(void *argument)
{
    stepper *s = argument;
    mz_pool_status status;
    mz_pool_step_begin(s->pool);
    mz_status_get(s->pool, &status);
    s->freed_before = status.last_freed_bytes;
    atomic_store(&s->begun, true);
    while (!atomic_load(&s->may_end)) {
        sched_yield();
    }
    mz_pool_step_end(s->pool);
    return NULL;
}

static void *evict(void *argument)
{
    uint64_t freed = 0;
    mz_evict(argument, TOY_WEIGHT_BYTES, &freed);
    return NULL;
}

/* What the pool says about steps and evictions now. */
typedef struct turns {
    bool evict_waits;
    uint32_t open, waiting;
} turns;

static turns look(mz_pool *pool)
{
    pthread_mutex_lock(&pool->restore.lock);
    turns now = {pool->evict_waits, pool->steps_open, pool->steps_waiting};
    pthread_mutex_unlock(&pool->restore.lock);
    return now;
}

static void await(const atomic_bool *flag)
{
    while (!atomic_load(flag)) {
        sched_yield();
    }
}

static void an_eviction_waits_for_one_further_step_only(void **state)
{
    (void)state;
    toy_model toy;
    toy_open(&toy, "raw", true);
    assert_true(toy_is_right(&toy));
    stepper steppers[3] = {{.pool = toy.pool}, {.pool = toy.pool}, {.pool = toy.pool}};
    pthread_t threads[3], evictor;
    assert_int_equal(pthread_create(&threads[0], NULL, step, &steppers[0]), 0);
    await(&steppers[0].begun);
    assert_int_equal(pthread_create(&evictor, NULL, evict, toy.pool), 0);
    while (!look(toy.pool).evict_waits) {
        sched_yield();
    }
    assert_int_equal(pthread_create(&threads[1], NULL, step, &steppers[1]), 0);
    await(&steppers[1].begun);
    assert_int_equal(pthread_create(&threads[2], NULL, step, &steppers[2]), 0);
    turns now = look(toy.pool);
    while (now.waiting == 0 && now.open < 3) {
        sched_yield();
        now = look(toy.pool);
    }
    assert_int_equal(now.open, 2);
    assert_int_equal(now.waiting, 1);
    for (int i = 0; i < 3; i++) {
        atomic_store(&steppers[i].may_end, true);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_join(evictor, NULL);
    assert_int_equal(steppers[0].freed_before, 0);
    assert_int_equal(steppers[1].freed_before, 0);
    assert_true(steppers[2].freed_before >= TOY_WEIGHT_BYTES);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_eviction_waits_for_one_further_step_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

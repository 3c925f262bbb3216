/* SPDX-License-Identifier: MIT */
/*
 * Goal: the monitor evicts a real pool by itself when it is told to, never while a step is open,
 * sleeps while all is calm, and stops cleanly whatever fails. Method: the toy model of the pool's
 * tests, whose truth is a shadow copy; signals through mz_trim, mz_simulate_pressure and a FIFO in
 * the place of systemd's file; a tree without any other source. Waiting is for a state, not for a
 * time.
 */
#include "os/scratch.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "pool/fixture.h"
#include "pressure/monitor.h"

typedef struct fixture {
    toy_model toy;
    mz_fault_os fault; /* of the monitor alone */
    char root[256], fifo[300];
    mz_pressure_options options;
    mz_pressure_monitor *monitor;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    mz_error error = MZ_ERROR_INIT;
    toy_open(&f->toy, "raw", true);
    toy_write_kv(&f->toy, 256);
    assert_int_equal(toy_restore(&f->toy, &error), MZ_OK);
    scratch_make_directory(f->root, sizeof f->root);
    snprintf(f->fifo, sizeof f->fifo, "%s/fifo", f->root);
    assert_int_equal(mkfifo(f->fifo, 0600), 0);
    mz_fault_os_init(&f->fault);
    f->options.policy = mz_pressure_policy_default();
    f->options.policy.grace_ns = 0;
    f->options.config = (mz_pressure_config){
        .os = &f->fault.os, .root = f->root, .watch = f->fifo};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    mz_pressure_stop(f->monitor);
    toy_close(&f->toy);
    unlink(f->fifo);
    assert_int_equal(rmdir(f->root), 0);
    free(f);
    return 0;
}

static void start(fixture *f)
{
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_pressure_start(f->toy.pool, &f->options, &f->monitor, &error), MZ_OK);
}

static mz_pool_status status_of(fixture *f)
{
    mz_pool_status status;
    assert_int_equal(mz_status_get(f->toy.pool, &status), MZ_OK);
    return status;
}

static mz_pressure_status wait_for_evictions(fixture *f, uint64_t count)
{
    while (status_of(f).pressure.evictions < count) {
        sched_yield();
    }
    return status_of(f).pressure;
}

static uint64_t resident_of(fixture *f)
{
    mz_pool_status status = status_of(f);
    return status.weights.resident_bytes + status.kv_cache.resident_bytes;
}

static uint64_t total_of(fixture *f)
{
    mz_pool_status status = status_of(f);
    return status.weights.total_bytes + status.kv_cache.total_bytes;
}

static void simulated_pressure_frees_by_itself(void **state)
{
    fixture *f = *state;
    uint64_t total = total_of(f);
    start(f);
    assert_int_equal(mz_simulate_pressure(f->toy.pool, MZ_PRESSURE_CRITICAL), MZ_OK);
    mz_pressure_status pressure = wait_for_evictions(f, 1);
    /* Four steps of 15 %; whole units, of which the largest is a layer of 5 MiB. */
    assert_true(pressure.freed_bytes >= total / 100 * 60);
    assert_true(pressure.last_bytes == pressure.freed_bytes && pressure.last_reaction_ns > 0);
    assert_int_equal(pressure.level, MZ_PRESSURE_CRITICAL);
    assert_int_equal(pressure.signals, 1);
    assert_true(pressure.watching);
    assert_non_null(strstr(pressure.reason, "critical pressure (simulated)"));
    assert_string_equal(pressure.sources, "systemd");
    assert_true(resident_of(f) <= total / 100 * 40 + 1);
    assert_true(toy_is_right(&f->toy));
}

static void every_way_to_signal_arrives(void **state)
{
    fixture *f = *state;
    start(f);
    assert_int_equal(mz_trim(f->toy.pool, 20), MZ_OK);
    assert_int_equal(mz_simulate_pressure(f->toy.pool, MZ_PRESSURE_NONE), MZ_OK);
    assert_int_equal(mz_trim(f->toy.pool, 40), MZ_OK);
    mz_pressure_status pressure = wait_for_evictions(f, 1);
    assert_int_equal(pressure.signals, 1);
    assert_non_null(strstr(pressure.reason, "low pressure (trim)"));
    /* One of a higher level is answered although the first was answered just now. */
    int fd = open(f->fifo, O_RDWR | O_CLOEXEC);
    assert_int_equal(write(fd, "!", 1), 1);
    close(fd);
    pressure = wait_for_evictions(f, 2);
    assert_non_null(strstr(pressure.reason, "medium pressure (systemd)"));
    assert_int_equal(mz_trim(f->toy.pool, 80), MZ_OK);
    pressure = wait_for_evictions(f, 3);
    assert_non_null(strstr(pressure.reason, "critical pressure (trim)"));
    assert_true(toy_is_right(&f->toy));
}

static void nothing_leaves_during_a_step(void **state)
{
    fixture *f = *state;
    start(f);
    mz_pool_step_begin(f->toy.pool);
    assert_int_equal(mz_simulate_pressure(f->toy.pool, MZ_PRESSURE_CRITICAL), MZ_OK);
    while (status_of(f).pressure.level != MZ_PRESSURE_CRITICAL) {
        sched_yield();
    }
    assert_int_equal(status_of(f).pressure.evictions, 0);
    assert_int_equal(resident_of(f), total_of(f));
    mz_pool_step_end(f->toy.pool);
    wait_for_evictions(f, 1);
}

static void idle_time_is_up_again_after_each_request(void **state)
{
    fixture *f = *state;
    f->options.policy.idle_ns = MZ_SECOND_NS / 50;
    start(f);
    for (uint64_t round = 1; round <= 3; round++) {
        mz_pressure_status pressure = wait_for_evictions(f, round);
        assert_non_null(strstr(pressure.reason, "idle time"));
        assert_true(resident_of(f) <= total_of(f) / 10 + TOY_WEIGHT_BYTES);
        assert_true(toy_is_right(&f->toy)); /* a request: it brings all back */
    }
}

static void the_cap_is_kept_between_requests(void **state)
{
    fixture *f = *state;
    uint64_t total = total_of(f);
    f->options.policy.max = (mz_size){.is_percent = true, .percent = 50};
    start(f);
    mz_pressure_status pressure = wait_for_evictions(f, 1);
    assert_non_null(strstr(pressure.reason, "cap"));
    assert_true(resident_of(f) <= total / 2);
    assert_true(resident_of(f) > total / 10);
}

static void calm_is_asleep(void **state)
{
    fixture *f = *state;
    start(f);
    while (mz_fault_os_count(&f->fault, MZ_FAULT_POLL) == 0) {
        sched_yield();
    }
    usleep(300000);
    assert_int_equal(mz_fault_os_count(&f->fault, MZ_FAULT_POLL), 1);
}

static void without_a_monitor_signals_are_refused(void **state)
{
    fixture *f = *state;
    assert_int_equal(mz_trim(f->toy.pool, 40), MZ_E_UNSUPPORTED);
    assert_int_equal(mz_simulate_pressure(f->toy.pool, MZ_PRESSURE_LOW), MZ_E_UNSUPPORTED);
    assert_int_equal(mz_trim(NULL, 40), MZ_E_INVALID);
    assert_int_equal(mz_trim(f->toy.pool, 4), MZ_E_INVALID);
    assert_int_equal(mz_simulate_pressure(f->toy.pool, (mz_pressure_level)4), MZ_E_INVALID);
    assert_false(status_of(f).pressure.watching);
    start(f);
    assert_true(status_of(f).pressure.watching);
    mz_pressure_stop(f->monitor);
    f->monitor = NULL;
    assert_false(status_of(f).pressure.watching);
    assert_int_equal(mz_trim(f->toy.pool, 40), MZ_E_UNSUPPORTED);
}

static void quiet_evictions_stay_away_from_steps(void **state)
{
    fixture *f = *state;
    mz_pool *pool = f->toy.pool;
    mz_pool_activity activity;
    uint64_t freed = 7;
    mz_pool_get_activity(pool, &activity);
    assert_true(activity.steps > 0 && activity.last_step_ns > 0 && !activity.computing);
    assert_int_equal(mz_pool_evict_quietly(pool, 1, activity.steps - 1, &freed), MZ_E_BUSY);
    mz_pool_step_begin(pool);
    mz_pool_activity inside;
    mz_pool_get_activity(pool, &inside);
    assert_true(inside.computing && inside.steps == activity.steps + 1);
    assert_int_equal(mz_pool_evict_quietly(pool, 1, inside.steps, &freed), MZ_E_BUSY);
    mz_pool_step_end(pool);
    assert_int_equal(freed, 7);
    assert_int_equal(mz_pool_evict_quietly(pool, 1, inside.steps, &freed), MZ_OK);
    assert_true(freed > 0);
    mz_pool_get_activity(pool, &activity);
    assert_int_equal(activity.returned_ns, 0);
    mz_pool_step_begin(pool);
    mz_pool_step_end(pool);
    mz_pool_get_activity(pool, &activity);
    assert_true(activity.returned_ns > 0 && activity.last_step_ns >= activity.returned_ns);
}

/* The pool of give_way, for the calls of its table, which have no other context. */
static struct {
    mz_pool *pool;
    pthread_t thread;
    bool begun;
} stepping;

static void *take_a_step(void *argument)
{
    mz_pool_step_begin(argument);
    mz_pool_step_end(argument);
    return NULL;
}

/* The first pages to go wait until a step has come. */
static int drop_beside_a_step(void *context, void *address, size_t bytes, int advice)
{
    if (advice == MADV_DONTNEED && !stepping.begun) {
        mz_pool_activity activity = {.computing = false};
        stepping.begun = true;
        pthread_create(&stepping.thread, NULL, take_a_step, stepping.pool);
        while (!activity.computing) {
            sched_yield();
            mz_pool_get_activity(stepping.pool, &activity);
        }
    }
    (void)context;
    return mz_os_linux()->madvise(NULL, address, bytes, advice);
}

static void an_eviction_gives_way_after_the_unit_at_hand(void **state)
{
    fixture *f = *state;
    mz_pool *pool = f->toy.pool;
    mz_pool_activity activity;
    uint64_t freed = 0, total = resident_of(f);
    mz_pool_get_activity(pool, &activity);
    stepping.pool = pool;
    stepping.begun = false;
    f->toy.fault.os.madvise = drop_beside_a_step;
    assert_int_equal(mz_pool_evict_quietly(pool, total, activity.steps, &freed), MZ_E_CANCELLED);
    pthread_join(stepping.thread, NULL);
    assert_true(freed > 0 && freed < total / 2);
    assert_true(toy_is_right(&f->toy));
}

/* Each call of a start fails in turn: it fails whole, or works without that source. */
static void no_failure_leaks(void **state)
{
    fixture *f = *state;
    int before = scratch_count_entries("/proc/self/fd");
    for (uint64_t n = 1; n <= 12; n++) {
        mz_error error = MZ_ERROR_INIT;
        mz_fault_os_fail(&f->fault, MZ_FAULT_ANY, n, 1, EMFILE);
        mz_status status = mz_pressure_start(f->toy.pool, &f->options, &f->monitor, &error);
        assert_int_equal(status, n == 1 ? MZ_E_IO : MZ_OK);
        if (status == MZ_OK) {
            mz_fault_os_clear(&f->fault);
            assert_int_equal(mz_simulate_pressure(f->toy.pool, MZ_PRESSURE_LOW), MZ_OK);
            mz_pressure_stop(f->monitor);
            f->monitor = NULL;
        }
    }
    assert_int_equal(scratch_count_entries("/proc/self/fd"), before);
}

static void a_failing_poll_is_survived(void **state)
{
    fixture *f = *state;
    mz_fault_os_fail(&f->fault, MZ_FAULT_POLL, 1, 2, ENOMEM);
    start(f);
    assert_int_equal(mz_simulate_pressure(f->toy.pool, MZ_PRESSURE_MEDIUM), MZ_OK);
    wait_for_evictions(f, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(simulated_pressure_frees_by_itself),
        CASE(every_way_to_signal_arrives),
        CASE(nothing_leaves_during_a_step),
        CASE(idle_time_is_up_again_after_each_request),
        CASE(the_cap_is_kept_between_requests),
        CASE(calm_is_asleep),
        CASE(without_a_monitor_signals_are_refused),
        CASE(quiet_evictions_stay_away_from_steps),
        CASE(an_eviction_gives_way_after_the_unit_at_hand),
        CASE(no_failure_leaks),
        CASE(a_failing_poll_is_survived),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}

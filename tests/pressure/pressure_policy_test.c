/* SPDX-License-Identifier: MIT */
/*
 * Goal: every rule of the automatic policy, one by one. Method: a fake clock and amounts worked out
 * by hand: 1000 MiB in all, a floor of 10 %, steps of 15 %, 5 s of grace.
 */
#include "os/scratch.h"

#include "pressure/policy.h"

#define MIB ((uint64_t)1 << 20)
#define S MZ_SECOND_NS
#define SHARE(p) ((mz_size){.is_percent = true, .percent = (p)})
#define BYTES(b) ((mz_size){.is_percent = false, .bytes = (b)})

typedef struct fixture {
    mz_pressure_policy policy;
    mz_pressure_state state;
    mz_pressure_view view;
} fixture;

/* All is resident, the last step ended at 100 s, and it is 200 s. */
static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->policy = mz_pressure_policy_default();
    f->view = (mz_pressure_view){.now_ns = 200 * S,
                                 .total_bytes = 1000 * MIB,
                                 .resident_bytes = 1000 * MIB,
                                 .last_step_ns = 100 * S};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static mz_pressure_decision tick(fixture *f)
{
    return mz_pressure_decide(&f->policy, &f->state, &f->view, NULL);
}

static mz_pressure_decision tell(fixture *f, mz_pressure_level level)
{
    mz_pressure_signal signal = {level, "test"};
    return mz_pressure_decide(&f->policy, &f->state, &f->view, &signal);
}

/* Carry a decision out at once. */
static void obey(fixture *f, const mz_pressure_decision *decision)
{
    f->view.resident_bytes -= decision->bytes;
    f->view.returned_ns = 0;
    mz_pressure_done(&f->state, decision, decision->bytes, f->view.now_ns);
}

static void defaults_are_as_documented(void **state)
{
    fixture *f = *state;
    assert_true(f->policy.keep.is_percent && f->policy.keep.percent == 10);
    assert_true(!f->policy.max.is_percent && f->policy.max.bytes == 0);
    assert_true(f->policy.step_percent == 15);
    assert_int_equal(f->policy.idle_ns, 0);
    assert_int_equal(f->policy.grace_ns, 5 * S);
}

static void amounts_are_graded_by_level(void **state)
{
    fixture *f = *state;
    static const uint64_t mib[] = {0, 150, 300, 600};
    for (int level = 0; level <= 3; level++) {
        f->state = (mz_pressure_state){.level = MZ_PRESSURE_NONE};
        mz_pressure_decision d = tell(f, (mz_pressure_level)level);
        assert_int_equal(d.bytes, mib[level] * MIB);
        assert_int_equal(d.level, level);
        assert_int_equal(d.why, level == 0 ? MZ_WHY_NOTHING : MZ_WHY_SIGNAL);
    }
}

static void the_floor_stays(void **state)
{
    fixture *f = *state;
    f->view.resident_bytes = 250 * MIB;
    assert_int_equal(tell(f, MZ_PRESSURE_CRITICAL).bytes, 150 * MIB);
    f->state = (mz_pressure_state){.level = MZ_PRESSURE_NONE};
    f->view.resident_bytes = 100 * MIB;
    assert_int_equal(tell(f, MZ_PRESSURE_CRITICAL).bytes, 0);
    f->policy.keep = BYTES(240 * MIB);
    f->view.resident_bytes = 250 * MIB;
    assert_int_equal(tell(f, MZ_PRESSURE_CRITICAL).bytes, 10 * MIB);
}

static void calm_needs_no_timer(void **state)
{
    fixture *f = *state;
    mz_pressure_decision d = tick(f);
    assert_int_equal(d.bytes, 0);
    assert_int_equal(d.ask_again_ns, 0);
    assert_false(d.wake_on_step);
    assert_false(mz_pressure_is_watching(&f->state));
    f->view.computing = true;
    assert_int_equal(tick(f).ask_again_ns, 0);
}

static void inference_is_left_alone(void **state)
{
    fixture *f = *state;
    f->view.computing = true;
    mz_pressure_decision d = tell(f, MZ_PRESSURE_CRITICAL);
    assert_int_equal(d.bytes, 0);
    assert_int_equal(d.ask_again_ns, f->view.now_ns + S / 2);

    f->view.computing = false;
    f->view.last_step_ns = 200 * S;
    f->view.now_ns = 200 * S + S / 4;
    d = tick(f);
    assert_int_equal(d.bytes, 0);
    assert_int_equal(d.ask_again_ns, 200 * S + S / 2);
    f->view.now_ns = d.ask_again_ns;
    assert_int_equal(tick(f).bytes, 600 * MIB);
}

static void medium_pressure_waits_for_the_grace_time(void **state)
{
    fixture *f = *state;
    f->view.last_step_ns = 198 * S;
    mz_pressure_decision d = tell(f, MZ_PRESSURE_MEDIUM);
    assert_int_equal(d.bytes, 0);
    /* Memory is looked at before the grace time is over. */
    assert_int_equal(d.ask_again_ns, 201 * S);
    f->view.now_ns = 203 * S - 1;
    assert_int_equal(tick(f).bytes, 0);
    f->view.now_ns = 203 * S;
    d = tick(f);
    assert_int_equal(d.bytes, 300 * MIB);
    assert_string_equal(d.source, "test");
}

static void pressure_that_passed_is_forgotten(void **state)
{
    fixture *f = *state;
    f->view.computing = true;
    assert_int_equal(tell(f, MZ_PRESSURE_MEDIUM).bytes, 0);
    f->view.now_ns += 10 * S;
    f->view.computing = false;
    assert_true(mz_pressure_is_watching(&f->state));
    mz_pressure_decision d = tick(f);
    assert_int_equal(d.bytes, 0);
    assert_int_equal(d.ask_again_ns, 0);
    assert_false(mz_pressure_is_watching(&f->state));
    assert_int_equal(f->state.level, MZ_PRESSURE_NONE);
}

static void what_was_answered_is_not_answered_twice(void **state)
{
    fixture *f = *state;
    mz_pressure_decision d = tell(f, MZ_PRESSURE_MEDIUM);
    obey(f, &d);
    f->view.now_ns += S;
    assert_int_equal(tell(f, MZ_PRESSURE_MEDIUM).bytes, 0);
    assert_int_equal(tell(f, MZ_PRESSURE_LOW).bytes, 0);
    f->view.now_ns += S;
    /* The signals above were dropped, not kept for later. */
    assert_int_equal(tick(f).bytes, 0);
    assert_int_equal(tell(f, MZ_PRESSURE_MEDIUM).bytes, 300 * MIB);
}

static void a_higher_level_is_answered_at_once(void **state)
{
    fixture *f = *state;
    mz_pressure_decision d = tell(f, MZ_PRESSURE_MEDIUM);
    obey(f, &d);
    f->view.now_ns += S / 10;
    d = tell(f, MZ_PRESSURE_CRITICAL);
    assert_int_equal(d.bytes, 600 * MIB);
    obey(f, &d);
    f->view.now_ns += S / 10;
    assert_int_equal(tell(f, MZ_PRESSURE_CRITICAL).bytes, 0);
    f->view.now_ns += S / 4;
    assert_int_equal(tell(f, MZ_PRESSURE_CRITICAL).bytes, 0); /* 100 MiB are the floor */
    f->view.resident_bytes = 1000 * MIB;
    assert_int_equal(tell(f, MZ_PRESSURE_CRITICAL).bytes, 600 * MIB);
}

static void short_memory_is_met_exactly_while_pressure_lasts(void **state)
{
    fixture *f = *state;
    f->view.machine_bytes = 10000 * MIB;
    f->view.available_bytes = 900 * MIB;
    assert_int_equal(tick(f).bytes, 0); /* nobody waits for memory: it is not our business */
    mz_pressure_decision d = tell(f, MZ_PRESSURE_LOW);
    /* Available memory is below 10 %: medium, which is more than the signal says. */
    assert_int_equal(d.why, MZ_WHY_MEMORY);
    assert_int_equal(d.bytes, 100 * MIB);
    obey(f, &d);
    f->view.now_ns += 2 * S;
    f->view.available_bytes = 950 * MIB;
    d = tick(f);
    assert_int_equal(d.bytes, 50 * MIB);
    assert_null(d.source);
    obey(f, &d);
    f->view.now_ns += 2 * S;
    f->view.available_bytes = 1000 * MIB;
    assert_int_equal(tick(f).bytes, 0);
}

static void the_watch_slows_down_and_ends(void **state)
{
    fixture *f = *state;
    f->view.machine_bytes = 10000 * MIB;
    f->view.available_bytes = 5000 * MIB;
    f->view.resident_bytes = 0;
    mz_pressure_decision d = tell(f, MZ_PRESSURE_MEDIUM);
    int looks = 0;
    while (d.ask_again_ns != 0 && looks < 100) {
        assert_true(d.ask_again_ns > f->view.now_ns);
        assert_int_equal(d.bytes, 0);
        f->view.now_ns = d.ask_again_ns;
        d = tick(f);
        looks++;
    }
    /* After 1, 2, 4 and 8 s: 15 s are more than the 10 of calm. */
    assert_int_equal(looks, 4);
    assert_int_equal(f->view.now_ns, 215 * S);
}

static void nothing_freed_is_not_tried_again_soon(void **state)
{
    fixture *f = *state;
    mz_pressure_decision d = tell(f, MZ_PRESSURE_MEDIUM);
    mz_pressure_done(&f->state, &d, 0, f->view.now_ns);
    f->view.now_ns += 29 * S;
    assert_int_equal(tell(f, MZ_PRESSURE_MEDIUM).bytes, 0);
    f->view.now_ns += S;
    assert_int_equal(tell(f, MZ_PRESSURE_MEDIUM).bytes, 300 * MIB);
}

/* Evict at now, come back after `away_ns`, and end a step 1 s later. */
static void evict_and_return(fixture *f, mz_pressure_level level, uint64_t away_ns)
{
    mz_pressure_decision d = tell(f, level);
    assert_true(d.bytes > 0);
    obey(f, &d);
    f->view.returned_ns = f->view.now_ns + away_ns;
    f->view.last_step_ns = f->view.returned_ns + S;
    f->view.resident_bytes = 1000 * MIB;
}

static void regret_makes_patient_and_rest_forgets_it(void **state)
{
    fixture *f = *state;
    static const uint64_t graces[] = {10, 20, 40, 80, 80};
    for (size_t i = 0; i < 5; i++) {
        evict_and_return(f, MZ_PRESSURE_MEDIUM, 29 * S);
        f->view.now_ns = f->view.last_step_ns + graces[i] * S - 1;
        assert_int_equal(tell(f, MZ_PRESSURE_MEDIUM).bytes, 0);
        f->view.now_ns++;
    }
    static const uint64_t shorter[] = {40, 20, 10, 5, 5};
    for (size_t i = 0; i < 5; i++) {
        evict_and_return(f, MZ_PRESSURE_MEDIUM, 30 * S);
        f->view.now_ns = f->view.last_step_ns + shorter[i] * S - 1;
        assert_int_equal(tell(f, MZ_PRESSURE_MEDIUM).bytes, 0);
        f->view.now_ns++;
    }
}

/* The user came back while the eviction was still under way. */
static void a_step_beside_the_eviction_is_a_regret(void **state)
{
    fixture *f = *state;
    mz_pressure_decision d = tell(f, MZ_PRESSURE_MEDIUM);
    f->view.now_ns += S / 10;
    f->view.returned_ns = f->view.now_ns - S / 20;
    f->view.resident_bytes -= d.bytes;
    mz_pressure_done(&f->state, &d, d.bytes, f->view.now_ns);
    f->view.last_step_ns = f->view.now_ns + S;
    f->view.now_ns = f->view.last_step_ns + 10 * S - 1;
    assert_int_equal(tell(f, MZ_PRESSURE_MEDIUM).bytes, 0);
    f->view.now_ns++;
    assert_int_equal(tick(f).bytes, 300 * MIB);
}

static void critical_pressure_does_not_wait_longer(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 6; i++) {
        evict_and_return(f, MZ_PRESSURE_CRITICAL, S);
        f->view.now_ns = f->view.last_step_ns + S / 2;
    }
    assert_true(f->state.patience <= 1);
    assert_int_equal(tell(f, MZ_PRESSURE_CRITICAL).bytes, 600 * MIB);
}

static void idle_time_takes_all_above_the_floor_once(void **state)
{
    fixture *f = *state;
    f->policy.idle_ns = 60 * S;
    f->view.last_step_ns = 0;
    mz_pressure_decision d = tick(f);
    assert_true(d.wake_on_step && d.ask_again_ns == 0 && d.bytes == 0);
    f->view.computing = true;
    d = tick(f);
    assert_int_equal(d.ask_again_ns, 260 * S);
    f->view.computing = false;
    f->view.last_step_ns = 230 * S;
    f->view.now_ns = 260 * S;
    d = tick(f);
    assert_int_equal(d.bytes, 0);
    assert_int_equal(d.ask_again_ns, 290 * S);
    f->view.now_ns = 290 * S;
    d = tick(f);
    assert_int_equal(d.bytes, 900 * MIB);
    assert_int_equal(d.why, MZ_WHY_IDLE);
    obey(f, &d);
    f->view.resident_bytes = 1000 * MIB; /* somebody restored, but computed nothing */
    d = tick(f);
    assert_true(d.bytes == 0 && d.ask_again_ns == 0 && d.wake_on_step);
}

static void the_cap_holds_between_requests(void **state)
{
    fixture *f = *state;
    f->policy.max = BYTES(700 * MIB);
    f->view.computing = true;
    mz_pressure_decision d = tick(f);
    assert_int_equal(d.bytes, 0);
    assert_int_equal(d.ask_again_ns, 205 * S);
    f->view.computing = false;
    f->view.last_step_ns = 201 * S;
    f->view.now_ns = 206 * S;
    d = tick(f);
    assert_int_equal(d.bytes, 300 * MIB);
    assert_int_equal(d.why, MZ_WHY_MAX);
    /* Pressure that wants more than the cap wins, one that wants less does not. */
    f->state = (mz_pressure_state){.level = MZ_PRESSURE_NONE};
    d = tell(f, MZ_PRESSURE_CRITICAL);
    assert_true(d.why == MZ_WHY_SIGNAL && d.bytes == 600 * MIB);
    f->state = (mz_pressure_state){.level = MZ_PRESSURE_NONE};
    d = tell(f, MZ_PRESSURE_LOW);
    assert_true(d.why == MZ_WHY_MAX && d.bytes == 300 * MIB);
    /* A cap below the floor goes down to the floor. */
    f->state = (mz_pressure_state){.level = MZ_PRESSURE_NONE};
    f->policy.max = SHARE(1);
    assert_int_equal(tick(f).bytes, 900 * MIB);
}

static void an_empty_pool_gives_nothing(void **state)
{
    fixture *f = *state;
    f->view.total_bytes = f->view.resident_bytes = 0;
    f->policy.idle_ns = S;
    f->policy.max = BYTES(MIB);
    for (int level = 0; level <= 3; level++) {
        assert_int_equal(tell(f, (mz_pressure_level)level).bytes, 0);
    }
}

static void levels_have_names(void **state)
{
    (void)state;
    assert_string_equal(mz_pressure_level_name(MZ_PRESSURE_NONE), "none");
    assert_string_equal(mz_pressure_level_name(MZ_PRESSURE_LOW), "low");
    assert_string_equal(mz_pressure_level_name(MZ_PRESSURE_MEDIUM), "medium");
    assert_string_equal(mz_pressure_level_name(MZ_PRESSURE_CRITICAL), "critical");
    assert_string_equal(mz_pressure_level_name((mz_pressure_level)4), "?");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(defaults_are_as_documented),
        CASE(amounts_are_graded_by_level),
        CASE(the_floor_stays),
        CASE(calm_needs_no_timer),
        CASE(inference_is_left_alone),
        CASE(medium_pressure_waits_for_the_grace_time),
        CASE(pressure_that_passed_is_forgotten),
        CASE(what_was_answered_is_not_answered_twice),
        CASE(a_higher_level_is_answered_at_once),
        CASE(short_memory_is_met_exactly_while_pressure_lasts),
        CASE(the_watch_slows_down_and_ends),
        CASE(nothing_freed_is_not_tried_again_soon),
        CASE(regret_makes_patient_and_rest_forgets_it),
        CASE(a_step_beside_the_eviction_is_a_regret),
        CASE(critical_pressure_does_not_wait_longer),
        CASE(idle_time_takes_all_above_the_floor_once),
        CASE(the_cap_holds_between_requests),
        CASE(an_empty_pool_gives_nothing),
        CASE(levels_have_names),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}

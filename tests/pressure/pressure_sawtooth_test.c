/* SPDX-License-Identifier: MIT */
/*
 * Goal: no flapping over 30 minutes of a sawtooth load, and never a decision that breaks a rule.
 *
 * Method: a machine of 16 GiB in a simulation with a fake clock. Another program's memory rises and
 * falls as a saw's teeth; a model of 4 GiB is asked every few seconds, which brings all of it back;
 * whoever lacks memory makes the kernel signal, once in its window of 2 s. Counted is what hurts: an
 * eviction after which the user was back within 30 s (a flap). The same load under a policy without
 * memory (a fresh state and no grace for every decision) must flap often, or the test proves
 * nothing.
 */
#include "os/scratch.h"

#include "pressure/policy.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define S MZ_SECOND_NS
#define TICK_NS (S / 20)
#define MACHINE_BYTES (16 * GIB)
#define OTHERS_BYTES (6 * GIB)
#define MODEL_BYTES (4 * GIB)
#define WINDOW_NS (2 * S)
#define LENGTH_NS (30 * 60 * S)

typedef struct load {
    uint64_t tooth_ns;   /* period of the sawtooth */
    uint64_t most_bytes; /* top of a tooth */
    uint64_t pause_ns;   /* of the user, between an answer and the next question; +- half of it */
    uint64_t answer_ns;  /* computing one answer */
    unsigned long long seed;
    bool forgetful;      /* the policy without memory */
} load;

typedef struct simulation {
    const load *load;
    mz_pressure_policy policy;
    mz_pressure_state state;
    mz_pressure_view view;
    uint64_t start_ns;
    uint64_t ask_ns;                   /* of the last decision */
    uint64_t question_ns, answered_ns; /* next question; end of the answer under way */
    uint64_t signalled_ns;
    uint64_t evicted_ns; /* last eviction; 0: the user was back since */
    bool evicted_gently; /* all evictions since the user left were below critical */
    unsigned evictions, flaps, gentle_flaps;
    unsigned long long random;
} simulation;

static unsigned long long draw(simulation *sim)
{
    sim->random = sim->random * 6364136223846793005ull + 1442695040888963407ull;
    return sim->random >> 33;
}

static uint64_t hog_bytes(const simulation *sim)
{
    uint64_t at = (sim->view.now_ns - sim->start_ns) % sim->load->tooth_ns;
    return (uint64_t)((double)sim->load->most_bytes * (double)at / (double)sim->load->tooth_ns);
}

static uint64_t available_bytes(const simulation *sim)
{
    uint64_t used = OTHERS_BYTES + hog_bytes(sim) + sim->view.resident_bytes;
    return used < MACHINE_BYTES ? MACHINE_BYTES - used : 0;
}

static void check_rules(const simulation *sim, const mz_pressure_decision *d)
{
    uint64_t floor_bytes = MODEL_BYTES / 10;
    assert_true(d->bytes <= sim->view.resident_bytes);
    if (d->bytes == 0) {
        return;
    }
    assert_true(sim->view.resident_bytes - d->bytes >= floor_bytes);
    assert_false(sim->view.computing);
    if (!sim->load->forgetful) {
        uint64_t still_ns = sim->view.now_ns - sim->view.last_step_ns;
        assert_true(still_ns >= (d->level == MZ_PRESSURE_CRITICAL ? S / 2 : 5 * S));
    }
}

static void decide(simulation *sim, mz_pressure_level level)
{
    mz_pressure_signal signal = {level, "psi"};
    bool looks = level != MZ_PRESSURE_NONE || mz_pressure_is_watching(&sim->state);
    sim->view.machine_bytes = looks ? MACHINE_BYTES : 0;
    sim->view.available_bytes = looks ? available_bytes(sim) : 0;
    if (sim->load->forgetful) {
        sim->state = (mz_pressure_state){.level = MZ_PRESSURE_NONE};
    }
    mz_pressure_decision d = mz_pressure_decide(&sim->policy, &sim->state, &sim->view,
                                                level != MZ_PRESSURE_NONE ? &signal : NULL);
    check_rules(sim, &d);
    if (d.bytes > 0) {
        sim->view.resident_bytes -= d.bytes;
        sim->view.returned_ns = 0;
        sim->evictions++;
        if (sim->evicted_ns == 0) {
            sim->evicted_gently = true;
        }
        sim->evicted_gently = sim->evicted_gently && d.level < MZ_PRESSURE_CRITICAL;
        sim->evicted_ns = sim->view.now_ns;
        mz_pressure_done(&sim->state, &d, d.bytes, sim->view.now_ns);
        d = mz_pressure_decide(&sim->policy, &sim->state, &sim->view, NULL);
        assert_true(sim->load->forgetful || d.bytes == 0);
    }
    sim->ask_ns = d.ask_again_ns;
    assert_true(sim->ask_ns == 0 || sim->ask_ns > sim->view.now_ns);
}

static void begin_answer(simulation *sim)
{
    sim->view.computing = true;
    sim->view.resident_bytes = MODEL_BYTES;
    sim->answered_ns = sim->view.now_ns + sim->load->answer_ns;
    if (sim->view.returned_ns == 0) {
        sim->view.returned_ns = sim->view.now_ns;
    }
    if (sim->evicted_ns != 0) {
        bool soon = sim->view.now_ns - sim->evicted_ns < 30 * S;
        sim->flaps += soon ? 1 : 0;
        sim->gentle_flaps += soon && sim->evicted_gently ? 1 : 0;
        sim->evicted_ns = 0;
    }
}

static void end_answer(simulation *sim)
{
    sim->view.computing = false;
    sim->view.last_step_ns = sim->view.now_ns;
    uint64_t half_ns = sim->load->pause_ns / 2;
    sim->question_ns = sim->view.now_ns + half_ns + half_ns * (draw(sim) % 1000) / 500;
}

static simulation play(const load *l)
{
    simulation sim = {.load = l, .policy = mz_pressure_policy_default(), .start_ns = 1000 * S};
    if (l->forgetful) {
        sim.policy.grace_ns = 0;
    }
    sim.random = l->seed;
    sim.view = (mz_pressure_view){.now_ns = sim.start_ns,
                                  .total_bytes = MODEL_BYTES,
                                  .resident_bytes = MODEL_BYTES,
                                  .last_step_ns = sim.start_ns};
    sim.question_ns = sim.start_ns + l->pause_ns;
    for (; sim.view.now_ns < sim.start_ns + LENGTH_NS; sim.view.now_ns += TICK_NS) {
        if (sim.view.computing && sim.view.now_ns >= sim.answered_ns) {
            end_answer(&sim);
        } else if (!sim.view.computing && sim.view.now_ns >= sim.question_ns) {
            begin_answer(&sim);
        }
        uint64_t available = available_bytes(&sim);
        bool window_over = sim.view.now_ns >= sim.signalled_ns + WINDOW_NS;
        if (available < GIB && window_over) {
            sim.signalled_ns = sim.view.now_ns;
            decide(&sim, available < GIB / 4 ? MZ_PRESSURE_CRITICAL : MZ_PRESSURE_MEDIUM);
        } else if (sim.ask_ns != 0 && sim.view.now_ns >= sim.ask_ns) {
            decide(&sim, MZ_PRESSURE_NONE);
        }
    }
    return sim;
}

static const uint64_t pauses_s[] = {2, 6, 12, 25, 45, 100};
static const uint64_t teeth_s[] = {20, 60, 300};
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Teeth that bring available memory down to 0.5 GiB: short, never critical. */
static void gentle_teeth_do_not_flap(void **state)
{
    (void)state;
    unsigned evictions = 0, forgetful_flaps = 0, flaps = 0;
    for (size_t p = 0; p < COUNT_OF(pauses_s); p++) {
        for (size_t t = 0; t < COUNT_OF(teeth_s); t++) {
            for (unsigned long long seed = 1; seed <= 3; seed++) {
                load l = {teeth_s[t] * S, 11 * GIB / 2, pauses_s[p] * S, S, seed, false};
                simulation sim = play(&l);
                evictions += sim.evictions;
                flaps += sim.flaps;
                /* Four regrets double the grace time to its most; each further one follows a
                 * pause of at least 80 s, or one without regret of 30 s and more. */
                assert_true(sim.gentle_flaps <= 4 + 1800 / 40);
                if (pauses_s[p] <= 12) {
                    /* Pauses of at most 18 s: a grace of 20 s, two regrets on, outlasts them. */
                    assert_true(sim.gentle_flaps <= 2);
                }
                l.forgetful = true;
                forgetful_flaps += play(&l).flaps;
            }
        }
    }
    print_message("gentle: %u evictions, %u flaps; without memory %u flaps\n", evictions, flaps,
                  forgetful_flaps);
    assert_true(evictions > 0);
    assert_true(forgetful_flaps > 10 * flaps);
}

/* Teeth up to the last byte: critical pressure is answered, but only a few times in a tooth. */
static void steep_teeth_are_answered_a_few_times_each(void **state)
{
    (void)state;
    for (size_t p = 0; p < COUNT_OF(pauses_s); p++) {
        for (size_t t = 0; t < COUNT_OF(teeth_s); t++) {
            load l = {teeth_s[t] * S, 10 * GIB, pauses_s[p] * S, S, 7, false};
            simulation sim = play(&l);
            uint64_t teeth = LENGTH_NS / l.tooth_ns;
            uint64_t questions = LENGTH_NS / (l.pause_ns / 2 + l.answer_ns);
            assert_true(sim.evictions > 0);
            /* To the floor takes at most ceil(90 / 15) evictions; again after each question. */
            assert_true(sim.evictions <= 6 * (teeth + questions));
            assert_true(sim.gentle_flaps <= 4 + 1800 / 40);
        }
    }
}

/* A tooth ends, and all timers with it. */
static void calm_returns_after_the_load(void **state)
{
    (void)state;
    load l = {60 * S, 10 * GIB, 20 * S, S, 3, false};
    simulation sim = play(&l);
    sim.load = &(load){60 * S, 0, 20 * S, S, 3, false};
    sim.view.computing = false;
    for (int i = 0; i < 1000 && sim.ask_ns != 0; i++) {
        sim.view.now_ns = sim.ask_ns > sim.view.now_ns ? sim.ask_ns : sim.view.now_ns + 1;
        decide(&sim, MZ_PRESSURE_NONE);
    }
    assert_int_equal(sim.ask_ns, 0);
    assert_false(mz_pressure_is_watching(&sim.state));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gentle_teeth_do_not_flap),
        cmocka_unit_test(steep_teeth_are_answered_a_few_times_each),
        cmocka_unit_test(calm_returns_after_the_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

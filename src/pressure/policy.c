/* SPDX-License-Identifier: MIT */
/*
 * From signals to amounts; see policy.h, and docs/pressure.md for the reasons.
 *
 * The problem is flapping: memory that is given back is memory that the next request brings in
 * again, which may be the next signal. So a level rises at once and falls only after a calm time;
 * an eviction is followed by a pause in which what the kernel still says about the time before is
 * not answered a second time; nothing goes while somebody is being answered; and whoever comes back
 * soon after an eviction makes the next one wait twice as long. Only critical pressure does not
 * wait longer for that: then the choice is no longer between memory and speed.
 */
#include "pressure/policy.h"

#include <stddef.h>

mz_pressure_policy mz_pressure_policy_default(void)
{
    return (mz_pressure_policy){
        .keep = {.is_percent = true, .percent = 10},
        .max = {.is_percent = false, .bytes = 0},
        .step_percent = 15, /* of the paper's two, the smaller one */
        .idle_ns = 0,
        .grace_ns = 5 * MZ_SECOND_NS,
    };
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What one decision works with, worked out once. */
typedef struct question {
    const mz_pressure_policy *policy;
    mz_pressure_state *state;
    const mz_pressure_view *view;
    uint64_t evictable_bytes; /* above the floor */
    uint64_t missing_bytes;   /* until enough is available; 0: enough, or not looked at */
    mz_pressure_level memory; /* what available memory says */
} question;

static uint64_t share_of(uint64_t bytes, unsigned percent)
{
    return bytes / 100 * percent;
}

mz_pressure_level mz_pressure_level_of_memory(uint64_t machine_bytes, uint64_t available_bytes)
{
    if (available_bytes >= share_of(machine_bytes, MZ_PRESSURE_SHORT_PERCENT)) {
        return MZ_PRESSURE_NONE;
    }
    bool is_short = available_bytes >= share_of(machine_bytes, MZ_PRESSURE_VERY_SHORT_PERCENT);
    return is_short ? MZ_PRESSURE_MEDIUM : MZ_PRESSURE_CRITICAL;
}

static void look_at_memory(question *q)
{
    const mz_pressure_view *view = q->view;
    q->memory = mz_pressure_level_of_memory(view->machine_bytes, view->available_bytes);
    if (q->memory != MZ_PRESSURE_NONE) {
        q->missing_bytes =
            share_of(view->machine_bytes, MZ_PRESSURE_SHORT_PERCENT) - view->available_bytes;
    }
}

/* Learn from how soon the user came back after the last eviction. */
static void judge(const question *q)
{
    mz_pressure_state *state = q->state;
    uint64_t returned_ns = q->view->returned_ns;
    if (state->judged || state->answered_ns == 0 || returned_ns <= state->asked_ns) {
        return;
    }
    /* A step that came while the eviction was under way was the soonest possible. */
    uint64_t away_ns = returned_ns > state->answered_ns ? returned_ns - state->answered_ns : 0;
    state->judged = true;
    uint32_t patience = state->patience > 0 ? state->patience : 1;
    if (away_ns >= MZ_PRESSURE_REGRET_NS) {
        state->patience = patience > 1 ? patience / 2 : 1;
    } else if (state->answered < MZ_PRESSURE_CRITICAL) {
        state->patience = patience < MZ_PRESSURE_PATIENCE_MOST ? patience * 2 : patience;
    }
}

/* Whether what is noticed now was already answered, by an eviction that has yet to show. */
static bool is_settled(const question *q, mz_pressure_level level)
{
    const mz_pressure_state *state = q->state;
    return state->answered_ns == 0 || level > state->answered ||
           q->view->now_ns >= state->answered_ns + state->settle_ns;
}

static void note_signal(const question *q, const mz_pressure_signal *signal)
{
    mz_pressure_state *state = q->state;
    uint64_t now_ns = q->view->now_ns;
    if (signal == NULL || signal->level == MZ_PRESSURE_NONE) {
        return;
    }
    state->signal_ns = now_ns;
    if (signal->level >= state->level || now_ns - state->level_ns >= MZ_PRESSURE_CALM_NS) {
        state->level = signal->level;
        state->level_ns = now_ns;
    }
    if (is_settled(q, signal->level)) {
        state->watch_ns = MZ_PRESSURE_WATCH_LEAST_NS;
        state->watched_ns = now_ns;
        if (signal->level > state->pending) {
            state->pending = signal->level;
            state->source = signal->source;
        }
    }
}

/* While pressure lasts, short memory is a signal too; when neither lasts any more it is calm. */
static void note_memory(const question *q)
{
    mz_pressure_state *state = q->state;
    uint64_t now_ns = q->view->now_ns;
    if (state->level == MZ_PRESSURE_NONE) {
        return;
    }
    bool from_memory = state->pending != MZ_PRESSURE_NONE && state->source == NULL;
    if (from_memory) {
        state->pending = q->memory;
    }
    if (q->memory > state->pending && is_settled(q, q->memory)) {
        state->pending = q->memory;
        state->source = NULL;
    }
    if (now_ns - state->signal_ns >= MZ_PRESSURE_CALM_NS) {
        state->level = q->evictable_bytes > 0 ? q->memory : MZ_PRESSURE_NONE;
        state->pending = state->pending < state->level ? state->pending : state->level;
    }
    if (state->level == MZ_PRESSURE_NONE) {
        state->watch_ns = 0;
    } else if (now_ns >= state->watched_ns + state->watch_ns) {
        state->watched_ns = now_ns;
        state->watch_ns = least(state->watch_ns * 2, MZ_PRESSURE_WATCH_MOST_NS);
    }
}

/* How long inference has to be still before an eviction for this level. */
static uint64_t grace_of(const question *q, mz_pressure_level level)
{
    uint64_t grace_ns = q->policy->grace_ns;
    if (level == MZ_PRESSURE_CRITICAL) {
        return least(grace_ns, MZ_PRESSURE_CRITICAL_GRACE_NS);
    }
    return grace_ns * (q->state->patience > 0 ? q->state->patience : 1);
}

/* When inference has been still for so long; a time that has passed if it has. */
static uint64_t still_at(const question *q, uint64_t grace_ns)
{
    const mz_pressure_view *view = q->view;
    if (view->computing) {
        return view->now_ns + (grace_ns > 0 ? grace_ns : 1);
    }
    return view->last_step_ns == 0 ? 0 : view->last_step_ns + grace_ns;
}

static void ask_at(mz_pressure_decision *decision, uint64_t when_ns)
{
    if (decision->ask_again_ns == 0 || when_ns < decision->ask_again_ns) {
        decision->ask_again_ns = when_ns;
    }
}

static uint64_t step_bytes(const question *q, mz_pressure_level level)
{
    static const double steps[] = {0, 1, 2, 4};
    double bytes = (double)q->view->total_bytes * q->policy->step_percent / 100 * steps[level];
    return bytes < (double)q->evictable_bytes ? (uint64_t)bytes : q->evictable_bytes;
}

static void decide_pressure(const question *q, mz_pressure_decision *decision)
{
    mz_pressure_state *state = q->state;
    mz_pressure_level level = state->pending;
    if (level != MZ_PRESSURE_NONE && q->evictable_bytes == 0) {
        state->pending = MZ_PRESSURE_NONE; /* what is not there can't be given */
    } else if (level != MZ_PRESSURE_NONE) {
        uint64_t due_ns = still_at(q, grace_of(q, level));
        if (!is_settled(q, level) && due_ns < state->answered_ns + state->settle_ns) {
            due_ns = state->answered_ns + state->settle_ns;
        }
        if (due_ns > q->view->now_ns) {
            ask_at(decision, due_ns);
        } else {
            bool from_memory = state->source == NULL;
            uint64_t bytes = step_bytes(q, level);
            decision->bytes = from_memory ? least(bytes, q->missing_bytes) : bytes;
            decision->why = from_memory ? MZ_WHY_MEMORY : MZ_WHY_SIGNAL;
            decision->level = level;
            decision->source = state->source;
            state->asked_ns = q->view->now_ns;
        }
    }
    if (state->level != MZ_PRESSURE_NONE) {
        ask_at(decision, state->watched_ns + state->watch_ns);
    }
}

/*
 * Give back what lies above `keep_bytes` once inference has been still for grace_ns; once in each
 * quiet time, whose last step *used_ns remembers.
 */
static void decide_quiet(const question *q, mz_pressure_why why, uint64_t keep_bytes,
                         uint64_t grace_ns, uint64_t *used_ns, mz_pressure_decision *decision)
{
    const mz_pressure_view *view = q->view;
    if (!view->computing && (view->last_step_ns == 0 || *used_ns == view->last_step_ns)) {
        decision->wake_on_step = true;
        return;
    }
    uint64_t due_ns = still_at(q, grace_ns);
    if (due_ns > view->now_ns) {
        ask_at(decision, due_ns);
        return;
    }
    *used_ns = view->last_step_ns;
    decision->wake_on_step = true;
    uint64_t above = view->resident_bytes > keep_bytes ? view->resident_bytes - keep_bytes : 0;
    uint64_t bytes = least(above, q->evictable_bytes);
    if (bytes > decision->bytes) {
        decision->bytes = bytes;
        decision->why = why;
        decision->level = MZ_PRESSURE_NONE;
        decision->source = NULL;
    }
}

mz_pressure_decision mz_pressure_decide(const mz_pressure_policy *policy, mz_pressure_state *state,
                                        const mz_pressure_view *view,
                                        const mz_pressure_signal *signal)
{
    mz_pressure_decision decision = {.bytes = 0, .why = MZ_WHY_NOTHING};
    question q = {.policy = policy, .state = state, .view = view};
    uint64_t floor_bytes = mz_size_of(policy->keep, view->total_bytes);
    if (view->resident_bytes > floor_bytes) {
        q.evictable_bytes = view->resident_bytes - floor_bytes;
    }
    look_at_memory(&q);
    judge(&q);
    note_signal(&q, signal);
    note_memory(&q);
    decide_pressure(&q, &decision);
    if (policy->idle_ns > 0) {
        decide_quiet(&q, MZ_WHY_IDLE, floor_bytes, policy->idle_ns, &state->idle_step_ns,
                     &decision);
    }
    uint64_t max_bytes = mz_size_of(policy->max, view->total_bytes);
    if (max_bytes > 0) {
        decide_quiet(&q, MZ_WHY_MAX, max_bytes, policy->grace_ns, &state->max_step_ns, &decision);
    }
    return decision;
}

void mz_pressure_done(mz_pressure_state *state, const mz_pressure_decision *decision,
                      uint64_t freed_bytes, uint64_t now_ns)
{
    if (decision->why != MZ_WHY_SIGNAL && decision->why != MZ_WHY_MEMORY) {
        return;
    }
    bool is_critical = decision->level == MZ_PRESSURE_CRITICAL;
    state->answered = decision->level;
    state->answered_ns = now_ns;
    state->settle_ns = is_critical ? MZ_PRESSURE_CRITICAL_SETTLE_NS : MZ_PRESSURE_SETTLE_NS;
    if (freed_bytes == 0) {
        state->settle_ns = MZ_PRESSURE_WATCH_MOST_NS; /* asking again at once gives no more */
    }
    state->judged = false;
    state->pending = MZ_PRESSURE_NONE;
    state->watch_ns = state->settle_ns;
    state->watched_ns = now_ns;
}

bool mz_pressure_is_watching(const mz_pressure_state *state)
{
    return state->level != MZ_PRESSURE_NONE;
}

/* SPDX-License-Identifier: MIT */
/*
 * How much to give back by itself, and why: the automatic policy as a pure function.
 *
 * It knows no clock, no file and no pool. Whoever asks brings the time, what the pool looks like
 * (mz_pressure_view) and what was noticed (mz_pressure_signal); the answer is an amount, a reason
 * and the time at which to ask again although nothing happens. So its tests run half an hour in
 * milliseconds. Rules and their reasons: docs/pressure.md.
 *
 * Always true: no decision takes more than what lies above the floor; none is made while inference
 * computes, or in the grace time after it; while all is calm no time to ask again is given.
 */
#ifndef MZ_PRESSURE_POLICY_H
#define MZ_PRESSURE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/size.h"
#include "mzcache/mzcache.h"

#define MZ_SECOND_NS 1000000000ull

/* How long inference must have been still before a critical signal takes memory. */
#define MZ_PRESSURE_CRITICAL_GRACE_NS (MZ_SECOND_NS / 2)
/* Between two automatic evictions: until the kernel can have noticed the first. 2 s is the window
 * of a trigger without privileges; when it is critical nobody can wait so long. */
#define MZ_PRESSURE_SETTLE_NS (2 * MZ_SECOND_NS)
#define MZ_PRESSURE_CRITICAL_SETTLE_NS (MZ_SECOND_NS / 4)
/* A level lasts so long after its last signal: five windows without a stall. */
#define MZ_PRESSURE_CALM_NS (10 * MZ_SECOND_NS)
/* A user who comes back so soon after an eviction would have been better off without it. */
#define MZ_PRESSURE_REGRET_NS (30 * MZ_SECOND_NS)
/* The grace time doubles with each regret, up to this factor. */
#define MZ_PRESSURE_PATIENCE_MOST 16u
/* How often memory is looked at while pressure lasts; the pause doubles while nothing changes. */
#define MZ_PRESSURE_WATCH_LEAST_NS MZ_SECOND_NS
#define MZ_PRESSURE_WATCH_MOST_NS (30 * MZ_SECOND_NS)
/* Below these shares of the machine's memory what is available is short, or very short. While it
 * is short, no more is given back than is missing to the first. */
#define MZ_PRESSURE_SHORT_PERCENT 10u
#define MZ_PRESSURE_VERY_SHORT_PERCENT 2u

/* What the user wants. All zero is no sensible policy: begin with mz_pressure_policy_default. */
typedef struct mz_pressure_policy {
    mz_size keep;        /* the floor, never evicted by itself; a share is one of all memory */
    mz_size max;         /* cap between requests; 0 bytes: none */
    double step_percent; /* of all memory, given back at a low level; 2 and 4 times it above */
    uint64_t idle_ns;    /* all above the floor goes after so long without a step; 0: never */
    uint64_t grace_ns;   /* after the last step nothing goes for so long */
} mz_pressure_policy;

/* keep 10 %, no cap, steps of 15 %, no idle time, 5 s of grace. */
mz_pressure_policy mz_pressure_policy_default(void);

/* What pool and machine look like when a decision is made. */
typedef struct mz_pressure_view {
    uint64_t now_ns;
    uint64_t total_bytes;     /* if everything were resident */
    uint64_t resident_bytes;  /* of that, in place */
    bool computing;           /* a step is open */
    uint64_t last_step_ns;    /* when the last step ended; 0: there was none */
    uint64_t returned_ns;     /* when the first step since the last eviction began; 0: none yet */
    uint64_t machine_bytes;   /* memory of the machine or of the cgroup; 0: not looked at */
    uint64_t available_bytes; /* of that */
} mz_pressure_view;

/* Something that was noticed. */
typedef struct mz_pressure_signal {
    mz_pressure_level level;
    const char *source; /* in words for people, static, never NULL: "psi", "trim" */
} mz_pressure_signal;

typedef enum mz_pressure_why {
    MZ_WHY_NOTHING, /* nothing is to be done */
    MZ_WHY_SIGNAL,  /* a source said so */
    MZ_WHY_MEMORY,  /* pressure lasts, and available memory is short */
    MZ_WHY_IDLE,    /* no step for the idle time */
    MZ_WHY_MAX,     /* more than the cap is resident, and the request is over */
} mz_pressure_why;

typedef struct mz_pressure_decision {
    uint64_t bytes; /* to evict now; 0: nothing */
    mz_pressure_why why;
    mz_pressure_level level; /* that it answers; MZ_PRESSURE_NONE for idle and cap */
    const char *source;      /* of the signal; NULL for the other reasons */
    uint64_t ask_again_ns;   /* absolute time; 0: not before something happens */
    bool wake_on_step;       /* ask again when a step begins */
} mz_pressure_decision;

/* What is remembered between two decisions. Zero at first. */
typedef struct mz_pressure_state {
    mz_pressure_level level;    /* of the pressure that lasts */
    uint64_t level_ns;          /* when that level was noticed last */
    uint64_t signal_ns;         /* when any was */
    mz_pressure_level pending;  /* noticed and not answered yet */
    const char *source;         /* of what is pending */
    mz_pressure_level answered; /* by the last eviction for pressure */
    uint64_t answered_ns;       /* when it ended; 0: there was none */
    uint64_t asked_ns;          /* when it was decided */
    uint64_t settle_ns;         /* pause after it */
    bool judged;                /* it is known whether the user came back too soon */
    uint32_t patience;          /* factor of the grace time, 0 is 1 */
    uint64_t watch_ns;          /* pause between two looks; 0: nobody looks */
    uint64_t watched_ns;        /* last look */
    uint64_t idle_step_ns;      /* the quiet time after this step was used for idle, ... */
    uint64_t max_step_ns;       /* ... and for the cap */
} mz_pressure_state;

/*
 * Decide. signal: NULL if nothing was noticed and only time has passed. After an eviction that was
 * decided here, whatever it freed, call mz_pressure_done before the next decision.
 */
mz_pressure_decision mz_pressure_decide(const mz_pressure_policy *policy, mz_pressure_state *state,
                                        const mz_pressure_view *view,
                                        const mz_pressure_signal *signal);

/* The eviction of a decision is over. */
void mz_pressure_done(mz_pressure_state *state, const mz_pressure_decision *decision,
                      uint64_t freed_bytes, uint64_t now_ns);

/* Whether available memory has to be read for the next decision: only while pressure lasts. */
bool mz_pressure_is_watching(const mz_pressure_state *state);

/* The level that available memory stands for while pressure lasts. */
mz_pressure_level mz_pressure_level_of_memory(uint64_t machine_bytes, uint64_t available_bytes);

#endif

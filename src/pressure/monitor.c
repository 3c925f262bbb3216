/* SPDX-License-Identifier: MIT */
/*
 * The loop of the monitor; see monitor.h.
 *
 * Each turn: sleep until a descriptor is ready or the policy's time has come, take the highest
 * level that was noticed, look at the pool, decide, evict, and look again until nothing more is to
 * be done. MemAvailable is read only while pressure lasts. An eviction that a step prevented or
 * stopped leaves the policy's question open: it is asked again after the grace time.
 *
 * We live in somebody else's process: the thread blocks all signals but those of faults, and a
 * poll that fails again and again must not take a core.
 */
#include "pressure/monitor.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/process.h"

#define STACK_BYTES (1u << 20) /* a host may lock all its memory; paths and codecs need a part */

struct mz_pressure_monitor {
    mz_pool *pool;
    mz_pressure_policy policy;
    mz_pressure_config config; /* its texts are those below */
    mz_log_sink log;
    char *root, *watch, *write;
    pid_t process;
    int event_fd;
    pthread_t thread;
    atomic_bool stop; /* release by mz_pressure_stop, acquire by the thread */

    /* Of the thread alone. */
    mz_pressure_sources sources;
    mz_pressure_state state;
    mz_pressure_status status;
    uint64_t evicted_ns; /* when the last eviction ended; 0: there was none */
};

/* What the policy has to know now. *steps is what mz_pool_evict_quietly wants. */
static mz_pressure_view look(mz_pressure_monitor *m, bool with_memory, uint64_t *steps)
{
    mz_pressure_view view = {.now_ns = 0};
    mz_pool_status status;
    mz_pool_activity activity;
    mz_error ignored = MZ_ERROR_INIT;
    mz_pool_get_activity(m->pool, &activity);
    if (mz_status_get(m->pool, &status) == MZ_OK) {
        view.total_bytes = status.weights.total_bytes + status.kv_cache.total_bytes;
        view.resident_bytes = status.weights.resident_bytes + status.kv_cache.resident_bytes;
    }
    view.computing = activity.computing;
    view.last_step_ns = activity.last_step_ns;
    view.returned_ns = activity.returned_ns;
    *steps = activity.steps;
    if (with_memory && mz_machine_memory_at(m->config.root, &view.machine_bytes,
                                            &view.available_bytes, &ignored) != MZ_OK) {
        view.machine_bytes = 0;
        view.available_bytes = 0;
    }
    view.now_ns = mz_now_ns(); /* not before what was looked at */
    return view;
}

static void list_sources(mz_pressure_monitor *m)
{
    char *text = m->status.sources;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < m->sources.count; i++) {
        const mz_pressure_source *source = &m->sources.list[i];
        bool is_named = strstr(text, source->name) != NULL;
        if (source->fd >= 0 && !is_named && used < sizeof m->status.sources) {
            used += (size_t)snprintf(text + used, sizeof m->status.sources - used, "%s%s",
                                     used > 0 ? ", " : "", source->name);
        }
    }
}

/* Why an eviction was made, in one sentence. */
static void explain(mz_pressure_monitor *m, const mz_pressure_decision *decision,
                    const mz_pressure_view *view, uint64_t freed_bytes)
{
    char asked[32], freed[32], cause[96];
    mz_size_format(decision->bytes, asked, sizeof asked);
    mz_size_format(freed_bytes, freed, sizeof freed);
    const char *level = mz_pressure_level_name(decision->level);
    double still_s = (double)(view->now_ns - view->last_step_ns) / 1e9;
    switch (decision->why) {
    case MZ_WHY_SIGNAL:
        snprintf(cause, sizeof cause, "%s pressure (%s)", level, decision->source);
        break;
    case MZ_WHY_MEMORY:
        snprintf(cause, sizeof cause, "%s pressure (available memory is short)", level);
        break;
    case MZ_WHY_IDLE:
        snprintf(cause, sizeof cause, "the idle time is over");
        break;
    default:
        snprintf(cause, sizeof cause, "more was resident than the cap allows");
        break;
    }
    char since[64] = "";
    if (view->last_step_ns != 0) {
        snprintf(since, sizeof since, ", %.1f s after the last step", still_s);
    }
    snprintf(m->status.reason, sizeof m->status.reason, "%s%s: freed %s of %s", cause, since, freed,
             asked);
    mz_log(&m->log, MZ_LOG_INFO, "evicted by itself: %s", m->status.reason);
}

/* Carry a decision out. False: a step prevented it, ask again. */
static bool obey(mz_pressure_monitor *m, const mz_pressure_decision *decision,
                 const mz_pressure_view *view, uint64_t steps, uint64_t noticed_ns)
{
    uint64_t freed_bytes = 0;
    mz_status status = mz_pool_evict_quietly(m->pool, decision->bytes, steps, &freed_bytes);
    uint64_t now_ns = mz_now_ns();
    if (status == MZ_E_BUSY || (status == MZ_E_CANCELLED && freed_bytes == 0)) {
        return false;
    }
    mz_pressure_done(&m->state, decision, freed_bytes, now_ns);
    if (freed_bytes > 0) {
        m->status.evictions++;
        m->status.freed_bytes += freed_bytes;
        m->status.last_bytes = freed_bytes;
        m->status.last_reaction_ns = now_ns - noticed_ns;
        m->evicted_ns = now_ns;
        explain(m, decision, view, freed_bytes);
    }
    return true;
}

/* Decide and obey until nothing more is to be done now. Returns the last decision. */
static mz_pressure_decision act(mz_pressure_monitor *m, const mz_pressure_signal *signal)
{
    uint64_t noticed_ns = mz_now_ns();
    mz_pressure_decision decision;
    do {
        uint64_t steps = 0;
        bool with_memory = signal != NULL || mz_pressure_is_watching(&m->state);
        mz_pressure_view view = look(m, with_memory, &steps);
        decision = mz_pressure_decide(&m->policy, &m->state, &view, signal);
        signal = NULL;
        if (decision.bytes > 0) {
            (void)obey(m, &decision, &view, steps, noticed_ns);
        } else if (decision.wake_on_step) {
            mz_pool_wake_on_step(m->pool, steps);
        }
    } while (decision.bytes > 0 && !atomic_load_explicit(&m->stop, memory_order_acquire));
    m->status.level = m->state.level;
    mz_pool_set_pressure(m->pool, &m->status, m->evicted_ns);
    return decision;
}

/* Read what poll reported. Returns whether it is a signal, the highest one in *signal. */
static bool take_events(mz_pressure_monitor *m, const struct pollfd *polled,
                        mz_pressure_signal *signal)
{
    const mz_os *os = m->config.os;
    *signal = (mz_pressure_signal){MZ_PRESSURE_NONE, ""};
    if (polled[0].revents != 0) {
        uint64_t count;
        (void)!os->read(os->context, m->event_fd, &count, sizeof count);
    }
    const char *source = NULL;
    mz_pressure_level level = mz_pool_take_posted(m->pool, &source);
    if (level != MZ_PRESSURE_NONE) {
        *signal = (mz_pressure_signal){level, source};
        m->status.signals++;
    }
    for (size_t i = 0; i < m->sources.count; i++) {
        mz_pressure_source *one = &m->sources.list[i];
        bool was_open = one->fd >= 0;
        level = was_open ? mz_pressure_source_read(one, &m->config, polled[i + 1].revents)
                         : MZ_PRESSURE_NONE;
        m->status.signals += level != MZ_PRESSURE_NONE ? 1 : 0;
        if (level > signal->level) {
            *signal = (mz_pressure_signal){level, one->name};
        }
        if (was_open && one->fd < 0) {
            mz_log(&m->log, MZ_LOG_INFO, "pressure is no longer watched by %s: %s", one->name,
                   one->why.text);
            list_sources(m);
        }
    }
    return signal->level != MZ_PRESSURE_NONE;
}

/* Sleep until an event or until `ask_ns` (0: for ever). */
static void wait_for_events(mz_pressure_monitor *m, struct pollfd *polled, uint64_t ask_ns)
{
    const mz_os *os = m->config.os;
    polled[0] = (struct pollfd){.fd = m->event_fd, .events = POLLIN};
    for (size_t i = 0; i < m->sources.count; i++) {
        /* poll skips a negative descriptor: a source that is missing. */
        polled[i + 1] = (struct pollfd){.fd = m->sources.list[i].fd,
                                        .events = m->sources.list[i].events};
    }
    int timeout_ms = -1;
    if (ask_ns != 0) {
        uint64_t now_ns = mz_now_ns();
        /* Rounded up, or it would wake early and ask for the same time again. */
        uint64_t left_ms = ask_ns > now_ns ? (ask_ns - now_ns + 999999) / 1000000 : 0;
        timeout_ms = left_ms < INT_MAX ? (int)left_ms : INT_MAX;
    }
    if (os->poll(os->context, polled, (nfds_t)m->sources.count + 1, timeout_ms) < 0) {
        for (size_t i = 0; i <= m->sources.count; i++) {
            polled[i].revents = 0;
        }
        if (errno != EINTR) {
            mz_log(&m->log, MZ_LOG_DEBUG, "cannot wait for pressure: %s", strerror(errno));
            nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        }
    }
}

static void *monitor_main(void *argument)
{
    mz_pressure_monitor *m = argument;
    struct pollfd polled[1 + MZ_PRESSURE_SOURCES_MOST];
    mz_pressure_decision decision = act(m, NULL);
    while (!atomic_load_explicit(&m->stop, memory_order_acquire)) {
        mz_pressure_signal signal;
        wait_for_events(m, polled, decision.ask_again_ns);
        bool noticed = take_events(m, polled, &signal);
        if (!atomic_load_explicit(&m->stop, memory_order_acquire)) {
            decision = act(m, noticed ? &signal : NULL);
        }
    }
    return NULL;
}

static mz_status start_thread(mz_pressure_monitor *m, mz_error *error)
{
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    pthread_attr_t attributes;
    int failure = pthread_attr_init(&attributes);
    if (failure == 0) {
        failure = pthread_attr_setstacksize(&attributes, STACK_BYTES);
        failure = failure != 0 ? failure
                               : pthread_create(&m->thread, &attributes, monitor_main, m);
        pthread_attr_destroy(&attributes);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0) {
        return mz_error_set(error, MZ_E_IO, failure, "cannot start the thread of the monitor");
    }
    return MZ_OK;
}

/* A copy; NULL for NULL. *failed is set if there was no memory for it. */
static char *copy(const char *text, bool *failed)
{
    char *made = text != NULL ? strdup(text) : NULL;
    *failed = *failed || (text != NULL && made == NULL);
    return made;
}

static void release(mz_pressure_monitor *m)
{
    if (m->event_fd >= 0) {
        m->config.os->close(m->config.os->context, m->event_fd);
    }
    free(m->root);
    free(m->watch);
    free(m->write);
    free(m);
}

static mz_pressure_monitor *make(mz_pool *pool, const mz_pressure_options *options, mz_error *error)
{
    const mz_os *os = options->config.os != NULL ? options->config.os : mz_os_linux();
    bool failed = false;
    mz_pressure_monitor *m = calloc(1, sizeof *m);
    if (m == NULL) {
        mz_error_set(error, MZ_E_NOMEM, 0, "no memory for the monitor");
        return NULL;
    }
    m->pool = pool;
    m->policy = options->policy;
    m->log = options->log;
    m->process = getpid();
    atomic_init(&m->stop, false);
    m->root = copy(options->config.root != NULL ? options->config.root : "", &failed);
    m->watch = copy(options->config.watch, &failed);
    m->write = copy(options->config.write, &failed);
    m->config = (mz_pressure_config){
        .os = os, .root = m->root, .watch = m->watch, .write = m->write};
    m->event_fd = -1;
    if (failed) {
        mz_error_set(error, MZ_E_NOMEM, 0, "no memory for the monitor");
    } else {
        m->event_fd = os->eventfd(os->context, 0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (m->event_fd < 0) {
            mz_error_set(error, MZ_E_IO, errno, "cannot make an event descriptor");
            failed = true;
        }
    }
    if (failed) {
        release(m);
        return NULL;
    }
    return m;
}

mz_status mz_pressure_start(mz_pool *pool, const mz_pressure_options *options,
                            mz_pressure_monitor **monitor, mz_error *error)
{
    if (pool == NULL || options == NULL || monitor == NULL) {
        return mz_error_set(error, MZ_E_INVALID, 0, "a monitor needs a pool");
    }
    mz_pressure_monitor *m = make(pool, options, error);
    if (m == NULL) {
        return error->status;
    }
    mz_pressure_sources_open(&m->sources, &m->config);
    for (size_t i = 0; i < m->sources.count; i++) {
        const mz_pressure_source *source = &m->sources.list[i];
        if (source->fd < 0) {
            mz_log(&m->log, MZ_LOG_INFO, "pressure is not watched by %s: %s", source->name,
                   source->why.text);
        }
    }
    m->status.watching = true;
    list_sources(m);
    mz_pool_monitor_begin(pool, m->event_fd);
    mz_pool_set_pressure(pool, &m->status, 0);
    mz_status status = start_thread(m, error);
    if (status != MZ_OK) {
        mz_pool_monitor_end(pool);
        mz_pressure_sources_close(&m->sources, &m->config);
        release(m);
        return status;
    }
    *monitor = m;
    return MZ_OK;
}

void mz_pressure_stop(mz_pressure_monitor *monitor)
{
    if (monitor == NULL || getpid() != monitor->process) {
        return;
    }
    const mz_os *os = monitor->config.os;
    uint64_t one = 1;
    atomic_store_explicit(&monitor->stop, true, memory_order_release);
    (void)!os->write(os->context, monitor->event_fd, &one, sizeof one);
    pthread_join(monitor->thread, NULL);
    mz_pool_monitor_end(monitor->pool);
    mz_pressure_sources_close(&monitor->sources, &monitor->config);
    release(monitor);
}

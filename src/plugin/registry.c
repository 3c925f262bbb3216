/* SPDX-License-Identifier: MIT */
/*
 * Entry points of the plug-in: what ggml looks up after dlopen, and what hosts look up after that.
 *
 * The plug-in has one static state. That is inherent in the interface: ggml_backend_init takes no
 * context, the registry entry that it returns lives as long as the process, and the function behind
 * MZ_PLUGIN_POOL_PROC takes no argument. It is written once, under a lock, before its address is
 * given away, and reached from everywhere else through the contexts of device, buffers and types.
 *
 * Whatever fails here is said in one sentence and answered by NULL: the host goes on without us.
 */
#include <stdlib.h>
#include <string.h>

#include "control/server.h"
#include "plugin/plugin.h"
#include "pool/fill.h"
#include "pressure/monitor.h"
#include "pressure/options.h"

#define PLUGIN_EXPORT __attribute__((visibility("default")))

PLUGIN_EXPORT ggml_backend_reg_t ggml_backend_init(void);
PLUGIN_EXPORT int ggml_backend_score(void);

/* See above. `ready` is guarded by start_lock and set last. */
static struct {
    pthread_mutex_t start_lock;
    bool ready;
    _Atomic(mz_control *) control; /* release when opened, acquire at exit; NULL: none */
    mz_plugin plugin;
} state = {.start_lock = PTHREAD_MUTEX_INITIALIZER};

static mz_pool *plugin_pool(void)
{
    return state.plugin.pool;
}

static void set_filling(bool fill)
{
    if (fill && !atomic_load_explicit(&state.plugin.filling, memory_order_relaxed)) {
        mz_error note = MZ_ERROR_INIT;
        mz_error_set(&note, MZ_E_UNSUPPORTED, 0,
                     "a benchmark fills the KV cache with invented values: text that is generated "
                     "now means nothing");
        mz_pool_report(state.plugin.pool, &note);
    }
    atomic_store_explicit(&state.plugin.filling, fill, memory_order_relaxed);
}

static const char *registry_get_name(ggml_backend_reg_t reg)
{
    (void)reg;
    return "MZ";
}

static size_t registry_get_device_count(ggml_backend_reg_t reg)
{
    (void)reg;
    return 1;
}

static ggml_backend_dev_t registry_get_device(ggml_backend_reg_t reg, size_t index)
{
    mz_plugin *plugin = reg->context;
    return index == 0 ? &plugin->device : NULL;
}

static void *registry_get_proc_address(ggml_backend_reg_t reg, const char *name)
{
    (void)reg;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0) {
        ggml_backend_set_n_threads_t function = mz_backend_set_threads;
        return (void *)function;
    }
    if (strcmp(name, "ggml_backend_set_abort_callback") == 0) {
        ggml_backend_set_abort_callback_t function = mz_backend_set_abort_callback;
        return (void *)function;
    }
    if (strcmp(name, MZ_PLUGIN_POOL_PROC) == 0) {
        mz_plugin_pool_fn function = plugin_pool;
        return (void *)function;
    }
    if (strcmp(name, MZ_PLUGIN_FILL_PROC) == 0) {
        mz_plugin_fill_fn function = set_filling;
        return (void *)function;
    }
    return NULL;
}

static mz_log_level log_level_from_env(void)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    const char *text = getenv("MZCACHE_LOG");
    for (int i = 0; text != NULL && i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            return (mz_log_level)i;
        }
    }
    return MZ_LOG_WARN;
}

/* A number of reads; 0 (the default) for anything that is none. */
static int depth_from_env(const mz_log_sink *log)
{
    const char *text = getenv("MZCACHE_RESTORE_DEPTH");
    if (text == NULL || *text == '\0') {
        return 0;
    }
    char *end = NULL;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value < 0 || value > 256) {
        mz_log(log, MZ_LOG_WARN, "MZCACHE_RESTORE_DEPTH=%s is no number from 0 to 256; ignored",
               text);
        return 0;
    }
    return (int)value;
}

/* How the storage path reads; a wrong word is said and changes nothing. */
static mz_restore_io io_from_env(const mz_log_sink *log)
{
    const char *text = getenv("MZCACHE_IO");
    if (text == NULL || *text == '\0' || strcmp(text, "auto") == 0) {
        return MZ_IO_AUTO;
    }
    if (strcmp(text, "threads") != 0) {
        mz_log(log, MZ_LOG_WARN, "MZCACHE_IO=%s is ignored: use auto or threads", text);
        return MZ_IO_AUTO;
    }
    return MZ_IO_THREADS;
}

static bool wants_profile(const char *text)
{
    return text == NULL || strcmp(text, "off") != 0;
}

/* Switches for comparisons; a wrong word is said and changes nothing. */
static mz_pool_switches switches_from_env(const mz_log_sink *log)
{
    static const char *const known[][2] = {
        {"order", "MZCACHE_ORDER"}, {"overlap", "MZCACHE_OVERLAP"}, {"paths", "MZCACHE_PATHS"}};
    mz_pool_switches switches = {0};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *text = getenv(known[i][1]);
        mz_error error = MZ_ERROR_INIT;
        if (text != NULL && *text != '\0' &&
            mz_pool_parse_switch(known[i][0], text, &switches, &error) != MZ_OK) {
            mz_log(log, MZ_LOG_WARN, "%s is ignored: %s", known[i][1], error.text);
        }
    }
    return switches;
}

/* Events go to the file that MZCACHE_TRACE names, when the process ends. */
static mz_trace *trace_from_env(const mz_log_sink *log)
{
    const char *path = getenv("MZCACHE_TRACE");
    mz_trace *trace = NULL;
    mz_error error = MZ_ERROR_INIT;
    if (path != NULL && *path != '\0' && mz_trace_create(path, &trace, &error) != MZ_OK) {
        mz_log(log, MZ_LOG_WARN, "MZCACHE_TRACE is ignored: %s", error.text);
    }
    return trace;
}

/* Repacked weights are used as stock llama.cpp uses them, unless they are switched off. */
static bool wants_repack(void)
{
    const char *text = getenv("MZCACHE_REPACK");
    return text == NULL || strcmp(text, "off") != 0;
}

static mz_status create_pool(mz_plugin *plugin, mz_error *error)
{
    const char *guard = getenv("MZCACHE_GUARD");
    mz_pool_options options = {
        .os = plugin->os,
        .codec = getenv("MZCACHE_CODEC"),
        .store_dir = getenv("MZCACHE_STORE"),
        .restore_depth = depth_from_env(&plugin->log),
        .restore_io = io_from_env(&plugin->log),
        .auto_profile = wants_profile(getenv("MZCACHE_PROFILE")),
        .trace = plugin->trace,
        .switches = switches_from_env(&plugin->log),
        .guard = guard != NULL && strcmp(guard, "1") == 0,
        .log = plugin->log,
    };
    return mz_pool_create(&options, &plugin->pool, error);
}

/* Offer the pool to other processes (socket, metrics). A failure costs only that. */
static void start_control(mz_plugin *plugin)
{
    const char *wanted = getenv("MZCACHE_CONTROL");
    if (wanted != NULL && strcmp(wanted, "off") == 0) {
        return;
    }
    mz_error error = MZ_ERROR_INIT;
    mz_control *control = NULL;
    if (mz_control_start(plugin->pool, NULL, &control, &error) != MZ_OK) {
        mz_log(&plugin->log, MZ_LOG_WARN, "no control socket: %s", error.text);
        return;
    }
    atomic_store_explicit(&state.control, control, memory_order_release);
}

/*
 * Evict by itself when others need memory. The monitor lives as long as the process, as its pool
 * does; a failure costs only that.
 */
static void start_pressure(mz_plugin *plugin)
{
    mz_pressure_choice choice = mz_pressure_choice_from_env(&plugin->log);
    if (!choice.watch) {
        return;
    }
    mz_pressure_options options = {
        .policy = choice.policy,
        .config = {.os = plugin->os,
                   .root = "",
                   .watch = getenv("MEMORY_PRESSURE_WATCH"),
                   .write = getenv("MEMORY_PRESSURE_WRITE")},
        .log = plugin->log,
    };
    mz_error error = MZ_ERROR_INIT;
    if (mz_pressure_start(plugin->pool, &options, &plugin->pressure, &error) != MZ_OK) {
        mz_log(&plugin->log, MZ_LOG_WARN, "memory pressure is not watched: %s", error.text);
    }
}

/*
 * The socket's file must go with the process and the trace be written; nothing else may happen
 * here. Any thread may have called exit(), even one inside a step of inference or inside
 * ggml_backend_init, with others still computing. So no lock is taken and no thread joined: a
 * request under way may be waiting for the very step that will never end. The threads and the pool
 * end with the process a moment later. The library is never unloaded (nodelete), so this runs at
 * exit only; and after the host's atexit functions, which may still free buffers of ours.
 */
__attribute__((destructor)) static void leave_process(void)
{
    mz_error ignored = MZ_ERROR_INIT; /* nobody is left to hear it */
    (void)mz_trace_write(state.plugin.trace, &ignored);
    mz_control_hide(atomic_load_explicit(&state.control, memory_order_acquire));
}

static mz_status start_plugin(mz_plugin *plugin, const mz_host *host, mz_error *error)
{
    plugin->host = *host;
    plugin->os = mz_os_linux();
    plugin->trace = trace_from_env(&plugin->log);
    plugin->repack_wanted = wants_repack();
    mz_status status = create_pool(plugin, error);
    if (status != MZ_OK) {
        mz_trace_destroy(plugin->trace);
        plugin->trace = NULL;
        return status;
    }
    pthread_mutex_init(&plugin->lock, NULL);
    plugin->reg = (struct ggml_backend_reg){
        .api_version = host->api,
        .iface =
            {
                .get_name = registry_get_name,
                .get_device_count = registry_get_device_count,
                .get_device = registry_get_device,
                .get_proc_address = registry_get_proc_address,
            },
        .context = plugin,
    };
    mz_device_init(plugin);
    start_pressure(plugin);
    start_control(plugin);
    return MZ_OK;
}

ggml_backend_reg_t ggml_backend_init(void)
{
    mz_error error = MZ_ERROR_INIT;
    mz_host host;
    mz_log_sink log = mz_log_stderr(log_level_from_env());
    ggml_backend_reg_t reg = NULL;
    mz_status status = mz_host_resolve(&host, __builtin_return_address(0), &error);
    pthread_mutex_lock(&state.start_lock);
    if (status == MZ_OK && !state.ready) {
        state.plugin.log = log;
        status = start_plugin(&state.plugin, &host, &error);
        state.ready = status == MZ_OK;
    } else if (status == MZ_OK && state.plugin.host.ggml_version != host.ggml_version) {
        /* Two copies of ggml in one process share this library, but one pool serves one host. */
        status = mz_error_set(&error, MZ_E_HOST, 0,
                              "another copy of ggml in this process uses it already");
    }
    if (status == MZ_OK) {
        reg = &state.plugin.reg;
    }
    pthread_mutex_unlock(&state.start_lock);
    if (status != MZ_OK) {
        mz_log(&log, MZ_LOG_ERROR, "not loaded, the host goes on without it: %s", error.text);
    }
    return reg;
}

/* Any positive number: "works on this machine". Asked only of several variants of one backend. */
int ggml_backend_score(void)
{
    return 1;
}

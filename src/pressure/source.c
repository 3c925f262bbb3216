/* SPDX-License-Identifier: MIT */
/*
 * Opening and reading the kernel's sources; see source.h.
 *
 * A PSI trigger is a line written into the file, its final 0 included; the descriptor then reports
 * POLLPRI at most once in a window while the threshold is passed. Without privileges the kernel
 * takes only windows that are multiples of 2 s (Linux 6.5 and later), so a window of one second is
 * tried first. Thresholds are shares of the window: a tenth of it somebody waited for memory (what
 * systemd takes too), a twentieth of it nobody could go on.
 *
 * Rejected: to poll averages every second, which wakes an idle machine; the lowest level of version
 * 1, which is raised by ordinary use of the page cache.
 */
#include "pressure/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "os/process.h"
#include "pressure/policy.h"

#define PATH_BYTES 4352  /* of a cgroup's file: PATH_MAX and a name */
#define TEXT_BYTES 1024u /* of memory.events and single numbers */
#define NEAR_PERCENT 90u /* of a cgroup's limit: there usage is worth a look */

static void end_source(mz_pressure_source *source, const mz_os *os)
{
    if (source->fd >= 0) {
        os->close(os->context, source->fd);
        source->fd = -1;
    }
}

static int open_file(const mz_pressure_config *config, const char *path, int flags)
{
    return config->os->open(config->os->context, path, flags | O_CLOEXEC | O_NONBLOCK, 0);
}

/* The text of a small file from its beginning, 0-terminated. */
static bool read_text(const mz_os *os, int fd, char text[TEXT_BYTES])
{
    ssize_t bytes;
    do {
        bytes = os->pread(os->context, fd, text, TEXT_BYTES - 1, 0);
    } while (bytes < 0 && errno == EINTR);
    text[bytes > 0 ? bytes : 0] = '\0';
    return bytes >= 0;
}

static void set_missing(mz_pressure_source *source, int sys_errno, const char *what,
                        const char *path)
{
    mz_error_set(&source->why, mz_status_from_errno(sys_errno), sys_errno, "%s %s", what, path);
}

/* Write a trigger. Returns 0 or an errno. */
static int write_trigger(const mz_os *os, int fd, const char *kind, unsigned share, unsigned window)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %u %u", kind, window / share, window);
    ssize_t written = os->write(os->context, fd, line, (size_t)length + 1);
    return written == length + 1 ? 0 : written < 0 ? errno : EIO;
}

/* Open a trigger on a PSI file. */
static void open_psi(mz_pressure_source *source, const mz_pressure_config *config, const char *path,
                     const char *kind, unsigned share, mz_pressure_level level)
{
    const mz_os *os = config->os;
    source->level = level;
    source->events = POLLPRI;
    source->fd = open_file(config, path, O_RDWR);
    if (source->fd < 0) {
        set_missing(source, errno, "cannot open (needs Linux 4.20 with psi=1)", path);
        return;
    }
    int failure = write_trigger(os, source->fd, kind, share, 1000000);
    if (failure == EINVAL || failure == EPERM || failure == EACCES) {
        failure = write_trigger(os, source->fd, kind, share, 2000000);
    }
    if (failure != 0) {
        set_missing(source, failure,
                    "cannot set a trigger (needs Linux 6.5, or CAP_SYS_RESOURCE before) in", path);
        end_source(source, os);
    }
}

static mz_pressure_source *add_source(mz_pressure_sources *sources, const char *name)
{
    mz_pressure_source *source = &sources->list[sources->count++];
    *source = (mz_pressure_source){.name = name, .fd = -1, .why = MZ_ERROR_INIT};
    return source;
}

/* Both triggers of a PSI file; if there is no first one, the second is not named as well. */
static void add_psi(mz_pressure_sources *sources, const mz_pressure_config *config,
                    const char *name, const char *path)
{
    mz_pressure_source *some = add_source(sources, name);
    open_psi(some, config, path, "some", 10, MZ_PRESSURE_MEDIUM);
    if (some->fd >= 0) {
        open_psi(add_source(sources, name), config, path, "full", 20, MZ_PRESSURE_CRITICAL);
    }
}

/* The number behind a name in memory.events; 0 if it is not there. */
static uint64_t counter_of(const char *text, const char *name)
{
    size_t length = strlen(name);
    uint64_t value = 0;
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n' ? 1 : 0;
        if (strncmp(line, name, length) == 0 && line[length] == ' ' &&
            sscanf(line + length, "%" SCNu64, &value) == 1) {
            break;
        }
    }
    return value;
}

/* memory.events: which counters grew since the last look. Reading arms the next event. */
static bool read_events(mz_pressure_source *source, const mz_pressure_config *config,
                        mz_pressure_level *level)
{
    static const struct {
        const char *name;
        mz_pressure_level level;
    } known[MZ_PRESSURE_COUNTERS] = {{"high", MZ_PRESSURE_MEDIUM},
                                     {"max", MZ_PRESSURE_CRITICAL},
                                     {"oom", MZ_PRESSURE_CRITICAL}};
    char text[TEXT_BYTES];
    if (!read_text(config->os, source->fd, text)) {
        set_missing(source, errno, "cannot read", "memory.events any more: the cgroup is gone");
        return false;
    }
    *level = MZ_PRESSURE_NONE;
    for (size_t i = 0; i < MZ_PRESSURE_COUNTERS; i++) {
        uint64_t count = counter_of(text, known[i].name);
        if (count > source->counters[i] && known[i].level > *level) {
            *level = known[i].level;
        }
        source->counters[i] = count;
    }
    return true;
}

/* An event descriptor of version 1: take the event. */
static bool read_eventfd(mz_pressure_source *source, const mz_pressure_config *config,
                         mz_pressure_level *level)
{
    uint64_t count = 0;
    ssize_t bytes = config->os->read(config->os->context, source->fd, &count, sizeof count);
    *level = bytes == (ssize_t)sizeof count ? source->level : MZ_PRESSURE_NONE;
    return true;
}

/* Usage crossed its threshold, in either direction: what counts is what is left. */
static bool read_usage(mz_pressure_source *source, const mz_pressure_config *config,
                       mz_pressure_level *level)
{
    uint64_t machine_bytes = 0, available_bytes = 0;
    mz_error ignored = MZ_ERROR_INIT;
    (void)read_eventfd(source, config, level);
    if (*level != MZ_PRESSURE_NONE && mz_machine_memory_at(config->root, &machine_bytes,
                                                           &available_bytes, &ignored) == MZ_OK) {
        *level = mz_pressure_level_of_memory(machine_bytes, available_bytes);
    }
    return true;
}

/* Have version 1 raise an event descriptor for `what` of one of its files. */
static void open_v1(mz_pressure_source *source, const mz_pressure_config *config, const char *file,
                    const char *what, mz_pressure_level level)
{
    const mz_os *os = config->os;
    char path[PATH_BYTES], control_path[PATH_BYTES], line[64];
    source->level = level;
    source->events = POLLIN;
    source->read = read_eventfd;
    if (mz_machine_cgroup_file(config->root, 1, file, path, sizeof path, &source->why) != MZ_OK ||
        mz_machine_cgroup_file(config->root, 1, "cgroup.event_control", control_path,
                               sizeof control_path, &source->why) != MZ_OK) {
        return;
    }
    int event = os->eventfd(os->context, 0, EFD_CLOEXEC | EFD_NONBLOCK);
    int watched = event >= 0 ? open_file(config, path, O_RDONLY) : -1;
    int control = watched >= 0 ? open_file(config, control_path, O_WRONLY) : -1;
    int failure = control >= 0 ? 0 : errno;
    if (control >= 0) {
        int length = snprintf(line, sizeof line, "%d %d %s", event, watched, what);
        ssize_t written = os->write(os->context, control, line, (size_t)length);
        failure = written == length ? 0 : written < 0 ? errno : EIO;
        os->close(os->context, control);
    }
    if (watched >= 0) {
        os->close(os->context, watched); /* the kernel keeps what it needs */
    }
    source->fd = event;
    if (failure != 0) {
        set_missing(source, failure, "cannot have events of", path);
        end_source(source, os);
    }
}

/* The limit of our cgroup of version 1; 0: none below the machine's memory. */
static uint64_t v1_limit(const mz_pressure_config *config)
{
    char path[PATH_BYTES], text[TEXT_BYTES] = "";
    mz_error ignored = MZ_ERROR_INIT;
    uint64_t limit = 0, machine_bytes = 0, available_bytes = 0;
    if (mz_machine_cgroup_file(config->root, 1, "memory.limit_in_bytes", path, sizeof path,
                               &ignored) != MZ_OK ||
        mz_machine_memory_at(config->root, &machine_bytes, &available_bytes, &ignored) != MZ_OK) {
        return 0;
    }
    int fd = open_file(config, path, O_RDONLY);
    if (fd < 0) {
        return 0;
    }
    bool is_read = read_text(config->os, fd, text);
    config->os->close(config->os->context, fd);
    /* Lowered by the cgroups, machine_bytes is no more than the limit if that one counts. */
    return is_read && sscanf(text, "%" SCNu64, &limit) == 1 && limit <= machine_bytes ? limit : 0;
}

static void add_v1(mz_pressure_sources *sources, const mz_pressure_config *config)
{
    static const char name[] = "cgroup events";
    mz_pressure_source *medium = add_source(sources, name);
    open_v1(medium, config, "memory.pressure_level", "medium", MZ_PRESSURE_MEDIUM);
    if (medium->fd < 0) {
        return;
    }
    open_v1(add_source(sources, name), config, "memory.pressure_level", "critical",
            MZ_PRESSURE_CRITICAL);
    uint64_t limit = v1_limit(config);
    if (limit > 0) {
        char threshold[32];
        snprintf(threshold, sizeof threshold, "%" PRIu64, limit / 100 * NEAR_PERCENT);
        mz_pressure_source *usage = add_source(sources, "cgroup usage");
        open_v1(usage, config, "memory.usage_in_bytes", threshold, MZ_PRESSURE_MEDIUM);
        usage->read = read_usage;
    }
}

/* memory.events where version 2 has the memory, else the events of version 1. */
static void add_cgroup_events(mz_pressure_sources *sources, const mz_pressure_config *config)
{
    char path[PATH_BYTES];
    mz_error none = MZ_ERROR_INIT;
    if (mz_machine_cgroup_file(config->root, 2, "memory.events", path, sizeof path, &none) !=
        MZ_OK) {
        add_v1(sources, config);
        return;
    }
    mz_pressure_source *source = add_source(sources, "cgroup events");
    mz_pressure_level ignored;
    source->events = POLLPRI;
    source->read = read_events;
    source->fd = open_file(config, path, O_RDONLY);
    if (source->fd < 0) {
        set_missing(source, errno, "cannot open", path);
    } else if (!read_events(source, config, &ignored)) {
        end_source(source, config->os);
    }
}

void mz_pressure_sources_open(mz_pressure_sources *sources, const mz_pressure_config *config)
{
    char path[PATH_BYTES];
    sources->count = 0;
    mz_pressure_source *systemd = add_source(sources, "systemd");
    mz_pressure_open_systemd(systemd, config);
    if (systemd->why.status == MZ_E_CANCELLED) {
        return;
    }
    if (config->watch == NULL) {
        int used = snprintf(path, sizeof path, "%s/proc/pressure/memory", config->root);
        bool fits = used > 0 && (size_t)used < sizeof path;
        add_psi(sources, config, "psi", fits ? path : "");
        mz_error error = MZ_ERROR_INIT;
        if (mz_machine_cgroup_file(config->root, 2, "memory.pressure", path, sizeof path,
                                   &error) == MZ_OK) {
            add_psi(sources, config, "cgroup psi", path);
        } else {
            add_source(sources, "cgroup psi")->why = error;
        }
    }
    add_cgroup_events(sources, config);
}

void mz_pressure_sources_close(mz_pressure_sources *sources, const mz_pressure_config *config)
{
    for (size_t i = 0; i < sources->count; i++) {
        end_source(&sources->list[i], config->os);
    }
    sources->count = 0;
}

mz_pressure_level mz_pressure_source_read(mz_pressure_source *source,
                                          const mz_pressure_config *config, short revents)
{
    mz_pressure_level level = source->level;
    bool lives = true;
    if (source->fd < 0 || revents == 0) {
        return MZ_PRESSURE_NONE;
    }
    if (source->read != NULL) {
        lives = source->read(source, config, &level);
    } else if ((revents & (POLLERR | POLLNVAL)) != 0) {
        mz_error_set(&source->why, MZ_E_NOTFOUND, 0, "the cgroup is gone");
        lives = false;
    }
    if (!lives) {
        end_source(source, config->os);
        return MZ_PRESSURE_NONE;
    }
    return level;
}

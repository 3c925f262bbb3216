/* SPDX-License-Identifier: MIT */
/*
 * Where pressure is noticed: kernel files and systemd, each a descriptor to poll and a function
 * that reads what an event there says.
 *
 * A *source* is one descriptor. While all is calm nothing wakes: the kernel raises the event. A
 * source that this machine, kernel or container does not offer is *missing*: it keeps its name and
 * one sentence that says why, and the others work.
 *
 *   psi             /proc/pressure/memory: somebody waited for memory (some: medium), everybody
 *                   did (full: critical)
 *   cgroup psi      the same of our own cgroup, in version 2: memory.pressure
 *   cgroup events   memory.events of version 2: reclaim at the high limit (medium), at the maximum
 *                   or out of memory (critical); or of version 1 memory.pressure_level (medium,
 *                   critical) and memory.usage_in_bytes near its limit
 *   systemd         what MEMORY_PRESSURE_WATCH names; it then stands for all others of PSI
 *
 * Threads: one at a time.
 */
#ifndef MZ_PRESSURE_SOURCE_H
#define MZ_PRESSURE_SOURCE_H

#include "mzcache/mzcache.h"
#include "os/os.h"

#define MZ_PRESSURE_SOURCES_MOST 8u
#define MZ_PRESSURE_COUNTERS 3u

typedef struct mz_pressure_config {
    const mz_os *os;
    const char *root; /* a tree with proc/ and sys/fs/cgroup/; "" is the machine's own */
    const char *watch, *write; /* MEMORY_PRESSURE_WATCH and _WRITE; NULL: not set */
} mz_pressure_config;

typedef struct mz_pressure_source mz_pressure_source;

struct mz_pressure_source {
    const char *name;        /* in words for people, static */
    int fd;                  /* to poll; -1: missing */
    short events;            /* what to poll for */
    mz_pressure_level level; /* that an event stands for */
    /* What an event says; NULL: `level`. False: the source ended, `why` says how. */
    bool (*read)(mz_pressure_source *source, const mz_pressure_config *config,
                 mz_pressure_level *level);
    uint64_t counters[MZ_PRESSURE_COUNTERS]; /* memory.events: high, max, oom so far */
    mz_error why;                            /* it is missing; MZ_OK: it is not */
};

typedef struct mz_pressure_sources {
    mz_pressure_source list[MZ_PRESSURE_SOURCES_MOST];
    size_t count;
} mz_pressure_sources;

/* Open every source. What can't be opened is in the list as missing, once for each name. */
MZ_API void mz_pressure_sources_open(mz_pressure_sources *sources,
                                     const mz_pressure_config *config);

MZ_API void mz_pressure_sources_close(mz_pressure_sources *sources,
                                      const mz_pressure_config *config);

/*
 * Read the event that poll reported in `revents`. A source that ended becomes missing and
 * MZ_PRESSURE_NONE is returned; so it is for an event that says nothing.
 */
mz_pressure_level mz_pressure_source_read(mz_pressure_source *source,
                                          const mz_pressure_config *config, short revents);

/*
 * systemd.c: open what the environment names. MZ_E_CANCELLED in source->why: the service manager
 * wants this process to watch nothing at all.
 */
void mz_pressure_open_systemd(mz_pressure_source *source, const mz_pressure_config *config);

#endif

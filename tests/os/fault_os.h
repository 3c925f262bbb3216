/* SPDX-License-Identifier: MIT */
/*
 * A table of system calls in which chosen calls fail.
 *
 * A *mz_fault_os* counts every call by kind and hands it to the real table, except the calls from
 * the n-th to the last one of the rule: those fail with an errno, or move only a few bytes. Give
 * `&fault.os` to the code under test. Set one rule at a time, before the calls it is about.
 *
 *     mz_fault_os fault;
 *     mz_fault_os_init(&fault);
 *     mz_fault_os_fail(&fault, MZ_FAULT_PREAD, 2, 1, EIO);   the second read from now on fails
 *
 * Threads: calls through the table may come from any number at once, rules from one thread.
 */
#ifndef MZ_TEST_FAULT_OS_H
#define MZ_TEST_FAULT_OS_H

#include <pthread.h>
#include <stdatomic.h>

#include "os/os.h"

typedef enum mz_fault_kind {
    MZ_FAULT_ANY, /* rule: calls of every kind; count: all of them */
    MZ_FAULT_OPEN,
    MZ_FAULT_CLOSE, /* a failing close closes all the same, as Linux does */
    MZ_FAULT_FSTAT,
    MZ_FAULT_READ,
    MZ_FAULT_WRITE,
    MZ_FAULT_POLL,
    MZ_FAULT_EVENTFD,
    MZ_FAULT_CONNECT,
    MZ_FAULT_PREAD,
    MZ_FAULT_PWRITE,
    MZ_FAULT_FTRUNCATE,
    MZ_FAULT_FALLOCATE,
    MZ_FAULT_MMAP,
    MZ_FAULT_MUNMAP,
    MZ_FAULT_MPROTECT,
    MZ_FAULT_MADVISE,
    MZ_FAULT_FADVISE,
    MZ_FAULT_UNLINK,
    MZ_FAULT_FSYNC,
    MZ_FAULT_RENAME,
    MZ_FAULT_RING_OPEN,
    MZ_FAULT_RING_START,
    MZ_FAULT_RING_READ, /* the result of a read that a ring began */
    MZ_FAULT_KINDS,
} mz_fault_kind;

/* `times` of a rule that never ends. */
#define MZ_FAULT_FOREVER UINT64_MAX

typedef struct mz_fault_rule {
    mz_fault_kind kind;    /* MZ_FAULT_KINDS: no rule */
    uint64_t first, times; /* the calls that it changes, counted as calls[kind] is */
    int sys_errno;         /* what they fail with; 0: they move short_bytes */
    uint64_t short_bytes;  /* most that a read or write moves, if no errno */
    bool damage;           /* a bit of what pread brings is wrong */
} mz_fault_rule;

typedef struct mz_fault_os {
    mz_os os;                                   /* the table; its context is this struct */
    atomic_uint_fast64_t calls[MZ_FAULT_KINDS]; /* since init; relaxed */
    pthread_mutex_t lock;                       /* guards rule */
    mz_fault_rule rule;
    atomic_uint_fast64_t hits; /* calls that the rule has changed; relaxed */
} mz_fault_os;

/* The real table with counting and no rule. */
void mz_fault_os_init(mz_fault_os *fault);

/* Let `times` calls of `kind` fail with `sys_errno`, from the nth from now on (1: the next). */
void mz_fault_os_fail(mz_fault_os *fault, mz_fault_kind kind, uint64_t nth, uint64_t times,
                      int sys_errno);

/* Let `times` calls of pread bring a wrong bit in the middle of what they read. */
void mz_fault_os_damage(mz_fault_os *fault, uint64_t nth, uint64_t times);

/* Let `times` calls of read, pread, write or pwrite, or reads of a ring, move at most `short_bytes`
 * (0: the end of file). */
void mz_fault_os_shorten(mz_fault_os *fault, mz_fault_kind kind, uint64_t nth, uint64_t times,
                         uint64_t short_bytes);

/* Take the rule away; the counts stay. */
void mz_fault_os_clear(mz_fault_os *fault);

/* Calls of a kind since init. */
uint64_t mz_fault_os_count(const mz_fault_os *fault, mz_fault_kind kind);

/* Calls that the current rule has changed. */
uint64_t mz_fault_os_hits(const mz_fault_os *fault);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Notes in which order a pool commits pages and reads, and holds reads back: what goes on meanwhile
 * did not wait for them.
 */
#ifndef MZ_TEST_POOL_CALL_NOTES_H
#define MZ_TEST_POOL_CALL_NOTES_H

#include <pthread.h>

#include "os/os.h"

typedef struct call_notes {
    pthread_mutex_t lock;
    pthread_cond_t open; /* held or waiting changed */
    bool held;
    unsigned waiting;                  /* reads that are being held */
    unsigned commits, reads;           /* finished so far */
    unsigned reads_before_last_commit; /* finished when the last commit began */
    const uint8_t *watched;            /* a page commit that begins here ... */
    unsigned reads_before_watched;     /* ... came after so many reads */
} call_notes;

extern call_notes calls;

/* Note the calls that go through a table from now on. Nothing may be restoring. */
void calls_note(mz_os *os);

void calls_hold_reads(bool held);

void calls_wait_for_held_read(void);

#endif

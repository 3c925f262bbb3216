/* SPDX-License-Identifier: MIT */
/*
 * A record of what happened when, for a trace viewer (Chrome trace event format).
 *
 * A *mz_trace* is a buffer of events and the file that they are written to. The buffer is reserved
 * at creation, so noting an event allocates nothing and takes no lock; what does not fit any more
 * is counted. Everywhere a NULL trace means that nobody wants one, and costs a comparison.
 *
 * Threads: events may be added by any number at once, also while the file is written.
 */
#ifndef MZ_BASE_TRACE_H
#define MZ_BASE_TRACE_H

#include <stdint.h>

#include "base/error.h"

#define MZ_TRACE_EVENTS 65536u
#define MZ_TRACE_VALUES 3

typedef struct mz_trace mz_trace;

/* What happened; all texts are static and need no escapes in JSON. */
typedef struct mz_trace_what {
    const char *name, *category;
    const char *keys[MZ_TRACE_VALUES]; /* NULL: no such value */
    uint64_t values[MZ_TRACE_VALUES];
} mz_trace_what;

/* Reserve the buffer and open the file, which stays empty until mz_trace_write. */
mz_status mz_trace_create(const char *path, mz_trace **trace, mz_error *error);

/* Does not write. NULL is fine. */
void mz_trace_destroy(mz_trace *trace);

/* Start of an event: mz_now_ns(), 0 without a trace. */
uint64_t mz_trace_start(const mz_trace *trace);

/* Note an event of the calling thread that began at start_ns and ends now; 0: it has no length. */
void mz_trace_add(mz_trace *trace, uint64_t start_ns, const mz_trace_what *what);

/*
 * Write all events noted so far, in place of what was written before. Does nothing in a process
 * that was forked from the one that made the trace: the file is not its own. MZ_E_IO, MZ_E_NOSPC.
 */
mz_status mz_trace_write(mz_trace *trace, mz_error *error);

#endif

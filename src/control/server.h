/* SPDX-License-Identifier: MIT */
/*
 * The control socket of a process: HTTP over a Unix socket that only its user can reach.
 *
 * A *mz_control* is the open socket and the thread that sleeps on it. It steers one pool through
 * the public calls of mzcache.h alone:
 *   POST /evict     {"bytes": N | "512M" | "40%", "tags": ["weights", "kv_cache"]}
 *   POST /prefetch  {"wait": true}
 *   POST /simulate-pressure  {"level": "low" | "medium" | "critical"}
 *   GET /status     JSON     GET /metrics  Prometheus     GET /health  {"status": "ok"}
 * Requests run side by side: a long eviction does not keep /status waiting. Asking how things stand
 * never restores or touches evicted memory. An idle socket uses no processor time.
 */
#ifndef MZ_CONTROL_SERVER_H
#define MZ_CONTROL_SERVER_H

#include "base/error.h"
#include "mzcache/mzcache.h"

typedef struct mz_control mz_control;

/*
 * Open the socket <pid>.sock in `directory` and serve it. NULL: the user's own directory, see
 * directory.h. The directory is made if it is missing; sockets of dead processes in it are removed.
 * Owner: the caller ends it by mz_control_stop, before the pool goes.
 * Threads: signals of the host are never handled on the threads started here.
 * Errors: MZ_E_PERM (the directory is not ours alone), MZ_E_INVALID (path too long), MZ_E_BUSY
 *   (this process serves there already), MZ_E_NOMEM, MZ_E_IO.
 */
MZ_API mz_status mz_control_start(mz_pool *pool, const char *directory, mz_control **control,
                                  mz_error *error);

/*
 * Remove the socket and stop. NULL is fine. Not from a thread that serves a request.
 * Blocks: until requests under way have ended; their clients may get no answer. In a forked child
 * it only forgets what it holds: socket and threads are the parent's.
 */
MZ_API void mz_control_stop(mz_control *control);

/*
 * Remove the socket and leave the rest as it is: for a process that is about to end anyway.
 * Never blocks, takes no lock, frees nothing; requests under way go on until the process ends. NULL
 * is fine, and so is a forked child, where it does nothing. Threads: any.
 */
MZ_API void mz_control_hide(const mz_control *control);

/* Path of the socket; valid until mz_control_stop. */
MZ_API const char *mz_control_path(const mz_control *control);

#endif

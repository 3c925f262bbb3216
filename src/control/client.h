/* SPDX-License-Identifier: MIT */
/*
 * The other end of the control sockets: find the processes of this user and ask one of them.
 *
 * A *mz_control_reply* is an HTTP answer that arrived whole; that the process refused (4xx, 5xx) is
 * an answer too, not an error. Errors mean that no answer came.
 *
 * Threads: any, one call per reply at a time.
 */
#ifndef MZ_CONTROL_CLIENT_H
#define MZ_CONTROL_CLIENT_H

#include "control/directory.h"

/*
 * Processes that accept connections, by rising pid; stale sockets are left out. directory NULL:
 * the user's own. No such directory: success with none.
 * Owner: the caller frees *processes by free(); NULL when there are none.
 * Errors: those of directory.h.
 */
mz_status mz_control_list(const char *directory, mz_control_socket **processes, size_t *count,
                          mz_error *error);

typedef struct mz_control_reply {
    long http_status; /* 200, 400, ... */
    char *body;       /* 0-terminated; never NULL after success */
    size_t bytes;     /* of the body, without its 0 */
} mz_control_reply;

/*
 * Send one request and wait for the answer. method: "GET" or "POST"; target: path with query;
 * body: JSON for POST, NULL for none. limit_s: longest wait for the whole answer; 0: no limit.
 * Owner: the caller frees the reply by mz_control_reply_free.
 * Errors: MZ_E_NOTFOUND (nobody there), MZ_E_BUSY (no answer in time), MZ_E_IO, MZ_E_NOMEM.
 */
mz_status mz_control_request(const char *socket_path, const char *method, const char *target,
                             const char *body, long limit_s, mz_control_reply *reply,
                             mz_error *error);

void mz_control_reply_free(mz_control_reply *reply);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Serve the control socket by libmicrohttpd; see server.h.
 *
 * One thread sleeps in poll on the socket, each connection gets its own thread: an eviction may
 * take as long as the flash does, and /status must answer meanwhile. The number of connections,
 * their memory, the size of a body and the time of silence are all limited, so a stuck client costs
 * little. A thread pool was rejected: with n workers the n-th eviction blocks the socket.
 *
 * We live in somebody else's process: the threads block all signals but those of faults, the socket
 * has its mode from the moment it exists (fchmod before bind; umask belongs to the host), and
 * nothing is printed.
 */
#include "control/server.h"

#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/directory.h"
#include "control/report.h"
#include "control/request.h"

#define BODY_LIMIT_BYTES (64u << 10)   /* a larger body is answered by 413 */
#define DISCARD_LIMIT_BYTES (1u << 20) /* one that goes on beyond this is cut off */
#define CONNECTION_LIMIT 64u           /* threads at most; more clients are turned away */
#define CONNECTION_BYTES (32u << 10)   /* buffers of one connection; headers must fit */
#define STACK_BYTES (1u << 20)         /* jansson nests up to 2048 levels; the rest is shallow */
#define SILENCE_LIMIT_S 10u            /* a client that says nothing for so long is dropped */

struct mz_control {
    mz_pool *pool;
    struct MHD_Daemon *daemon;
    uint64_t started_ns;
    pid_t pid; /* process that started it; a forked child must not touch the socket */
    char path[MZ_CONTROL_PATH_BYTES];
};

/* A request while it arrives; freed when its connection is done with it. */
typedef struct upload {
    char *data;
    size_t bytes;
    size_t discarded_bytes; /* received beyond BODY_LIMIT_BYTES */
} upload;

typedef struct reply {
    unsigned http_status;
    const char *type;
    const char *allow; /* for 405: the method that works */
    char *text;        /* from malloc; NULL: no memory for it */
} reply;

typedef struct call {
    mz_control *control;
    struct MHD_Connection *connection;
    const upload *body;
} call;

/* Answer with an object, which is consumed; NULL means that there was no memory for it. */
static void reply_json(reply *answer, unsigned http_status, json_t *object)
{
    answer->http_status = http_status;
    answer->type = "application/json";
    answer->text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
}

static void reply_error(reply *answer, unsigned http_status, const char *text)
{
    reply_json(answer, http_status, json_pack("{s:s}", "error", text));
}

static unsigned http_of_status(mz_status status)
{
    switch (status) {
    case MZ_OK:
    case MZ_E_PARTIAL:
        return MHD_HTTP_OK;
    case MZ_E_INVALID:
        return MHD_HTTP_BAD_REQUEST;
    case MZ_E_BUSY:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    default:
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

static const char *word_of_status(mz_status status)
{
    return status == MZ_OK ? "ok" : status == MZ_E_PARTIAL ? "partial" : "error";
}

/* The sentence behind a status: the pool's own if it left one. null for success. */
static json_t *reason_json(mz_pool *pool, mz_status status)
{
    if (status == MZ_OK) {
        return json_null();
    }
    mz_pool_status pool_status;
    if (mz_status_get(pool, &pool_status) == MZ_OK) {
        json_t *reason = json_string(pool_status.last_error);
        if (reason != NULL && json_string_length(reason) > 0) {
            return reason;
        }
        json_decref(reason);
    }
    return json_string(mz_status_text(status));
}

static const char *query_value(const call *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

/* Work may take longer than a client may be silent: its time does not run meanwhile. */
static void set_silence_limit(const call *request, unsigned seconds)
{
    MHD_set_connection_option(request->connection, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

static uint64_t resident_bytes(const mz_pool_status *status, unsigned tags)
{
    uint64_t bytes = 0;
    if ((tags & MZ_TAG_WEIGHTS) != 0) {
        bytes += status->weights.resident_bytes;
    }
    if ((tags & MZ_TAG_KV_CACHE) != 0) {
        bytes += status->kv_cache.resident_bytes;
    }
    return bytes;
}

static void answer_evict(const call *request, reply *answer)
{
    mz_pool *pool = request->control->pool;
    mz_control_evict evict;
    mz_error error = MZ_ERROR_INIT;
    if (mz_control_parse_evict(query_value(request, "bytes"), query_value(request, "tags"),
                               request->body->data, request->body->bytes, &evict,
                               &error) != MZ_OK) {
        reply_error(answer, MHD_HTTP_BAD_REQUEST, error.text);
        return;
    }
    uint64_t asked = evict.size.bytes;
    mz_status status = MZ_OK;
    if (evict.size.is_percent) {
        mz_pool_status pool_status;
        status = mz_status_get(pool, &pool_status);
        if (status == MZ_OK) {
            asked = mz_size_of(evict.size, resident_bytes(&pool_status, evict.tags));
        }
    }
    uint64_t freed = 0;
    uint64_t began_ns = mz_now_ns();
    /* A share of nothing is nothing: done without asking the pool, which refuses 0 bytes. */
    if (status == MZ_OK && asked > 0) {
        set_silence_limit(request, 0);
        status = mz_evict_tagged(pool, asked, evict.tags, &freed);
        set_silence_limit(request, SILENCE_LIMIT_S);
    }
    uint64_t evict_ns = mz_now_ns() - began_ns;
    reply_json(answer, http_of_status(status),
               json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "status", word_of_status(status), "code",
                         mz_status_name(status), "asked_bytes", mz_control_json_integer(asked),
                         "freed_bytes", mz_control_json_integer(freed), "evict_ns",
                         mz_control_json_integer(evict_ns), "error", reason_json(pool, status)));
}

static void answer_prefetch(const call *request, reply *answer)
{
    mz_pool *pool = request->control->pool;
    bool wait;
    mz_error error = MZ_ERROR_INIT;
    if (mz_control_parse_prefetch(query_value(request, "wait"), request->body->data,
                                  request->body->bytes, &wait, &error) != MZ_OK) {
        reply_error(answer, MHD_HTTP_BAD_REQUEST, error.text);
        return;
    }
    set_silence_limit(request, 0);
    uint64_t began_ns = mz_now_ns();
    mz_status status = mz_prefetch(pool);
    if (status == MZ_OK && wait) {
        status = mz_prefetch_wait(pool);
    }
    uint64_t prefetch_ns = mz_now_ns() - began_ns;
    set_silence_limit(request, SILENCE_LIMIT_S);
    reply_json(answer, http_of_status(status),
               json_pack("{s:s, s:s, s:b, s:o, s:o}", "status", word_of_status(status), "code",
                         mz_status_name(status), "waited", (int)wait, "prefetch_ns",
                         mz_control_json_integer(prefetch_ns), "error", reason_json(pool, status)));
}

static void answer_pressure(const call *request, reply *answer)
{
    mz_pressure_level level;
    mz_error error = MZ_ERROR_INIT;
    if (mz_control_parse_pressure(query_value(request, "level"), request->body->data,
                                  request->body->bytes, &level, &error) != MZ_OK) {
        reply_error(answer, MHD_HTTP_BAD_REQUEST, error.text);
        return;
    }
    mz_status status = mz_simulate_pressure(request->control->pool, level);
    if (status == MZ_E_UNSUPPORTED) {
        reply_error(answer, MHD_HTTP_CONFLICT,
                    "this process does not watch for pressure (MZCACHE_PRESSURE=off)");
        return;
    }
    reply_json(answer, http_of_status(status),
               json_pack("{s:s, s:s}", "status", word_of_status(status), "level",
                         mz_pressure_level_name(level)));
}

static mz_control_identity identity_of(const mz_control *control)
{
    const uint64_t second = 1000000000u;
    return (mz_control_identity){.pid = (int)control->pid,
                                 .uptime_s = (mz_now_ns() - control->started_ns) / second};
}

/* False: the pool gave no status, and the answer says so. */
static bool take_status(const call *request, reply *answer, mz_pool_status *status)
{
    mz_status got = mz_status_get(request->control->pool, status);
    if (got != MZ_OK) {
        reply_error(answer, http_of_status(got), mz_status_text(got));
    }
    return got == MZ_OK;
}

static void answer_status(const call *request, reply *answer)
{
    mz_pool_status status;
    if (!take_status(request, answer, &status)) {
        return;
    }
    mz_control_identity identity = identity_of(request->control);
    reply_json(answer, MHD_HTTP_OK, mz_control_status_json(&status, &identity));
}

static void answer_metrics(const call *request, reply *answer)
{
    mz_pool_status status;
    if (!take_status(request, answer, &status)) {
        return;
    }
    mz_control_identity identity = identity_of(request->control);
    answer->http_status = MHD_HTTP_OK;
    answer->type = "text/plain; version=0.0.4; charset=utf-8";
    answer->text = mz_control_metrics_text(&status, &identity);
}

static void answer_health(const call *request, reply *answer)
{
    (void)request;
    reply_json(answer, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

typedef struct route {
    const char *path;
    const char *method;
    void (*answer)(const call *request, reply *answer);
} route;

static const route routes[] = {
    {"/evict", MHD_HTTP_METHOD_POST, answer_evict},
    {"/prefetch", MHD_HTTP_METHOD_POST, answer_prefetch},
    {"/simulate-pressure", MHD_HTTP_METHOD_POST, answer_pressure},
    {"/status", MHD_HTTP_METHOD_GET, answer_status},
    {"/metrics", MHD_HTTP_METHOD_GET, answer_metrics},
    {"/health", MHD_HTTP_METHOD_GET, answer_health},
};

/* HEAD is GET without the body, which libmicrohttpd leaves out by itself. */
static bool method_fits(const route *one, const char *method)
{
    return strcmp(method, one->method) == 0 || (strcmp(method, MHD_HTTP_METHOD_HEAD) == 0 &&
                                                strcmp(one->method, MHD_HTTP_METHOD_GET) == 0);
}

static void answer_request(const call *request, const char *path, const char *method, reply *answer)
{
    const route *found = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0] && found == NULL; i++) {
        if (strcmp(path, routes[i].path) == 0) {
            found = &routes[i];
        }
    }
    if (found == NULL) {
        reply_error(answer, MHD_HTTP_NOT_FOUND,
                    "unknown path; there are /evict, /prefetch, /simulate-pressure, /status, "
                    "/metrics and /health");
    } else if (!method_fits(found, method)) {
        reply_error(answer, MHD_HTTP_METHOD_NOT_ALLOWED, "this path takes another method");
        answer->allow = found->method;
    } else if (request->body->discarded_bytes > 0) {
        reply_error(answer, MHD_HTTP_CONTENT_TOO_LARGE, "the body is larger than 64 KiB");
    } else {
        found->answer(request, answer);
    }
}

/* Hand the answer to libmicrohttpd, which frees its text. */
static enum MHD_Result send_reply(struct MHD_Connection *connection, const reply *answer)
{
    static char no_memory[] = "{\"error\":\"out of memory\"}";
    unsigned http_status = answer->http_status;
    struct MHD_Response *response;
    if (answer->text != NULL) {
        response = MHD_create_response_from_buffer(strlen(answer->text), answer->text,
                                                   MHD_RESPMEM_MUST_FREE);
    } else {
        http_status = MHD_HTTP_INTERNAL_SERVER_ERROR;
        response = MHD_create_response_from_buffer(sizeof no_memory - 1, no_memory,
                                                   MHD_RESPMEM_PERSISTENT);
    }
    if (response == NULL) {
        free(answer->text);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
    if (answer->allow != NULL) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, answer->allow);
    }
    enum MHD_Result result = MHD_queue_response(connection, http_status, response);
    MHD_destroy_response(response);
    return result;
}

/* Keep what arrived, up to the limit. Returns MHD_NO to cut the connection. */
static enum MHD_Result take_upload(upload *body, const char *data, size_t bytes)
{
    if (body->discarded_bytes > 0 || bytes > BODY_LIMIT_BYTES - body->bytes) {
        body->discarded_bytes += bytes;
        return body->discarded_bytes <= DISCARD_LIMIT_BYTES ? MHD_YES : MHD_NO;
    }
    char *grown = realloc(body->data, body->bytes + bytes);
    if (grown == NULL) {
        return MHD_NO;
    }
    memcpy(grown + body->bytes, data, bytes);
    body->data = grown;
    body->bytes += bytes;
    return MHD_YES;
}

/* Called with the headers, then for each piece of the body, then once with the whole request. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
                                  const char *path, const char *method, const char *version,
                                  const char *data, size_t *data_bytes, void **state)
{
    (void)version;
    upload *body = *state;
    if (body == NULL) {
        *state = calloc(1, sizeof *body);
        return *state != NULL ? MHD_YES : MHD_NO;
    }
    if (*data_bytes > 0) {
        size_t bytes = *data_bytes;
        *data_bytes = 0;
        return take_upload(body, data, bytes);
    }
    call request = {.control = context, .connection = connection, .body = body};
    reply answer = {.type = "application/json"};
    answer_request(&request, path, method, &answer);
    return send_reply(connection, &answer);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    (void)context;
    (void)connection;
    (void)code;
    upload *body = *state;
    if (body != NULL) {
        free(body->data);
        free(body);
        *state = NULL;
    }
}

/* Bind and listen. *fd belongs to the caller, and so does the file at the address. */
static mz_status open_socket(const struct sockaddr_un *address, int *fd, mz_error *error)
{
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) {
        return mz_error_set(error, MZ_E_IO, errno, "make a socket");
    }
    bool bound = false;
    /* On Linux the file gets the mode that the socket has when it is bound. */
    if (fchmod(made, 0600) == 0 &&
        bind(made, (const struct sockaddr *)address, sizeof *address) == 0) {
        bound = true;
        if (listen(made, SOMAXCONN) == 0) {
            *fd = made;
            return MZ_OK;
        }
    }
    int reason = errno;
    mz_status status = reason == EADDRINUSE ? MZ_E_BUSY : mz_status_from_errno(reason);
    close(made);
    if (bound) {
        unlink(address->sun_path);
    }
    return mz_error_set(error, status, reason, "open the control socket %s", address->sun_path);
}

/* Remove a socket of an earlier process that had our pid. A live one stays: bind then fails. */
static void remove_own_stale(const char *directory, int pid)
{
    mz_control_socket *sockets;
    size_t count;
    mz_error ignored = MZ_ERROR_INIT;
    if (mz_control_directory_scan(directory, &sockets, &count, &ignored) != MZ_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (sockets[i].pid == pid && !sockets[i].alive) {
            unlink(sockets[i].path);
        }
    }
    free(sockets);
}

/* Start the threads. Takes over fd on success. */
static mz_status start_daemon(mz_control *control, int fd, mz_error *error)
{
    sigset_t blocked;
    sigset_t before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    control->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL |
            MHD_USE_ITC,
        0, NULL, NULL, on_request, control, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_CONNECTION_LIMIT,
        CONNECTION_LIMIT, MHD_OPTION_CONNECTION_TIMEOUT, SILENCE_LIMIT_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)STACK_BYTES, MHD_OPTION_END);
    int reason = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (control->daemon == NULL) {
        return mz_error_set(error, MZ_E_IO, reason, "serve the control socket %s", control->path);
    }
    return MZ_OK;
}

mz_status mz_control_start(mz_pool *pool, const char *directory, mz_control **control,
                           mz_error *error)
{
    if (pool == NULL || control == NULL) {
        return mz_error_set(error, MZ_E_INVALID, 0, "a control socket needs a pool");
    }
    char chosen[MZ_CONTROL_PATH_BYTES];
    struct sockaddr_un address;
    int pid = (int)getpid();
    int fd = -1;
    mz_status status = MZ_OK;
    if (directory == NULL) {
        status = mz_control_directory_default(chosen, sizeof chosen, error);
        directory = chosen;
    }
    if (status != MZ_OK ||
        (status = mz_control_socket_address(directory, pid, &address, error)) != MZ_OK ||
        (status = mz_control_directory_make(directory, error)) != MZ_OK) {
        return status;
    }
    mz_control *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "open the control socket");
    }
    made->pool = pool;
    made->started_ns = mz_now_ns();
    made->pid = pid;
    memcpy(made->path, address.sun_path, sizeof made->path);
    mz_control_directory_clean(directory);
    remove_own_stale(directory, pid);
    status = open_socket(&address, &fd, error);
    if (status != MZ_OK) {
        free(made);
        return status;
    }
    status = start_daemon(made, fd, error);
    if (status != MZ_OK) {
        close(fd);
        unlink(made->path);
        free(made);
        return status;
    }
    *control = made;
    return MZ_OK;
}

void mz_control_stop(mz_control *control)
{
    if (control == NULL) {
        return;
    }
    if (getpid() == control->pid) {
        unlink(control->path);
        MHD_stop_daemon(control->daemon);
    }
    free(control);
}

void mz_control_hide(const mz_control *control)
{
    if (control != NULL && getpid() == control->pid) {
        unlink(control->path);
    }
}

const char *mz_control_path(const mz_control *control)
{
    return control->path;
}

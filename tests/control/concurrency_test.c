/* SPDX-License-Identifier: MIT */
/*
 * Goal: requests run side by side, a stop waits for those under way, and the host's signals are
 * never handled on our threads.
 * Method: evictions that stay inside the pool until the test lets them go; order is forced by
 * condition variables, never by sleeping.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "control/server.h"
#include "fake_pool.h"

typedef struct fixture {
    mz_pool pool;
    scratch directory;
    mz_control *control;
    char path[MZ_CONTROL_PATH_BYTES];
} fixture;

static int setup(void **state)
{
    fixture *test = calloc(1, sizeof *test);
    mz_error error = MZ_ERROR_INIT;
    fake_pool_init(&test->pool);
    scratch_make(&test->directory);
    mz_status status = mz_control_start(&test->pool, test->directory.path, &test->control, &error);
    assert_int_equal(status, MZ_OK);
    strcpy(test->path, mz_control_path(test->control));
    *state = test;
    return 0;
}

static int teardown(void **state)
{
    fixture *test = *state;
    mz_control_stop(test->control);
    scratch_remove(&test->directory);
    free(test);
    return 0;
}

/* One request on a thread of its own. */
typedef struct client {
    pthread_t thread;
    const char *path;
    const char *method;
    const char *target;
    mz_status status;
    long http_status;
} client;

static void *run_client(void *context)
{
    client *one = context;
    mz_control_reply reply;
    mz_error error = MZ_ERROR_INIT;
    one->status = mz_control_request(one->path, one->method, one->target, NULL, 60, &reply, &error);
    if (one->status == MZ_OK) {
        one->http_status = reply.http_status;
        mz_control_reply_free(&reply);
    }
    return NULL;
}

static void start_client(client *one, const fixture *test, const char *method, const char *target)
{
    *one = (client){.path = test->path, .method = method, .target = target};
    assert_int_equal(pthread_create(&one->thread, NULL, run_client, one), 0);
}

static void status_answers_while_evictions_run(void **state)
{
    fixture *test = *state;
    client evicts[2];
    client status;
    test->pool.hold = true;
    start_client(&evicts[0], test, "POST", "/evict?bytes=1M");
    start_client(&evicts[1], test, "POST", "/evict?bytes=2M");
    fake_pool_await(&test->pool, 2);
    start_client(&status, test, "GET", "/status");
    pthread_join(status.thread, NULL);
    assert_int_equal(status.http_status, 200);
    fake_pool_await(&test->pool, 2);
    fake_pool_release(&test->pool);
    for (int i = 0; i < 2; i++) {
        pthread_join(evicts[i].thread, NULL);
        assert_int_equal(evicts[i].http_status, 200);
    }
    assert_int_equal(test->pool.evictions, 2);
}

static void many_clients_are_all_served(void **state)
{
    fixture *test = *state;
    enum { CLIENTS = 40 };
    client clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        start_client(&clients[i], test, "GET", "/metrics");
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(clients[i].status, MZ_OK);
        assert_int_equal(clients[i].http_status, 200);
    }
}

/* Whoever holds more connections than there may be is turned away, and harms nobody afterwards. */
static void too_many_connections_do_no_harm(void **state)
{
    fixture *test = *state;
    enum { CONNECTIONS = 100 };
    int fds[CONNECTIONS];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, test->path);
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fds[i], (const struct sockaddr *)&address, sizeof address), 0);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        close(fds[i]);
    }
    client health = {.http_status = 0};
    while (health.http_status != 200) {
        start_client(&health, test, "GET", "/health");
        pthread_join(health.thread, NULL);
    }
}

static void *run_stop(void *context)
{
    mz_control_stop(context);
    return NULL;
}

static void stop_waits_for_a_request(void **state)
{
    fixture *test = *state;
    client evict;
    pthread_t stopper;
    test->pool.hold = true;
    start_client(&evict, test, "POST", "/evict?bytes=1M");
    fake_pool_await(&test->pool, 1);
    assert_int_equal(pthread_create(&stopper, NULL, run_stop, test->control), 0);
    test->control = NULL;
    /* The file goes first, so nobody new comes while the stop waits. */
    while (access(test->path, F_OK) == 0) {
        sched_yield();
    }
    fake_pool_await(&test->pool, 1);
    fake_pool_release(&test->pool);
    pthread_join(stopper, NULL);
    assert_int_equal(test->pool.inside, 0);
    assert_int_equal(test->pool.evictions, 1);
    pthread_join(evict.thread, NULL);
    client late;
    start_client(&late, test, "GET", "/health");
    pthread_join(late.thread, NULL);
    assert_int_equal(late.status, MZ_E_NOTFOUND);
}

static void stop_and_start_again(void **state)
{
    fixture *test = *state;
    for (int i = 0; i < 20; i++) {
        mz_error error = MZ_ERROR_INIT;
        client health;
        start_client(&health, test, "GET", "/health");
        pthread_join(health.thread, NULL);
        assert_int_equal(health.http_status, 200);
        mz_control_stop(test->control);
        test->control = NULL;
        mz_status status =
            mz_control_start(&test->pool, test->directory.path, &test->control, &error);
        assert_int_equal(status, MZ_OK);
    }
}

static void a_forked_child_leaves_the_socket_alone(void **state)
{
    fixture *test = *state;
    pid_t child = fork();
    if (child == 0) {
        mz_control_stop(test->control);
        _exit(0);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    client health;
    start_client(&health, test, "GET", "/health");
    pthread_join(health.thread, NULL);
    assert_int_equal(health.http_status, 200);
}

static _Atomic(pthread_t) handled_by;
static atomic_int handled;

static void on_signal(int number)
{
    (void)number;
    atomic_store(&handled_by, pthread_self());
    atomic_fetch_add(&handled, 1);
}

/* With the main thread blocking it, a signal to the process stays pending: nobody else takes it. */
static void host_signals_stay_with_the_host(void **state)
{
    (void)state;
    sigset_t one;
    sigset_t before;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    signal(SIGUSR1, on_signal);
    pthread_sigmask(SIG_BLOCK, &one, &before);
    kill(getpid(), SIGUSR1);
    sigset_t pending;
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGUSR1));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(atomic_load(&handled), 1);
    assert_true(pthread_equal(atomic_load(&handled_by), pthread_self()));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(status_answers_while_evictions_run),
        CASE(many_clients_are_all_served),
        CASE(too_many_connections_do_no_harm),
        CASE(stop_waits_for_a_request),
        CASE(stop_and_start_again),
        CASE(a_forked_child_leaves_the_socket_alone),
        CASE(host_signals_stay_with_the_host),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}

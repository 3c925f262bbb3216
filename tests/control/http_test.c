/* SPDX-License-Identifier: MIT */
/*
 * Goal: every path of the control socket answers as its documentation says, and nothing that is
 * not understood reaches the pool.
 * Method: a real socket served in this process, real requests by libcurl, a pool that records its
 * arguments; right values are those that the test put into the pool.
 */
#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "control/server.h"
#include "fake_pool.h"

typedef struct fixture {
    mz_pool pool;
    scratch directory;
    mz_control *control;
} fixture;

static int setup(void **state)
{
    fixture *test = calloc(1, sizeof *test);
    mz_error error = MZ_ERROR_INIT;
    fake_pool_init(&test->pool);
    scratch_make(&test->directory);
    mz_status status = mz_control_start(&test->pool, test->directory.path, &test->control, &error);
    assert_int_equal(status, MZ_OK);
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

/* Send a request; the answer's body belongs to the caller. */
static mz_control_reply send_request(const fixture *test, const char *method, const char *target,
                                     const char *body)
{
    mz_control_reply reply;
    mz_error error = MZ_ERROR_INIT;
    mz_status status = mz_control_request(mz_control_path(test->control), method, target, body, 60,
                                          &reply, &error);
    if (status != MZ_OK) {
        fail_msg("%s %s: %s", method, target, error.text);
    }
    return reply;
}

/* Send a request, check its HTTP status and read its JSON. */
static json_t *expect_json(const fixture *test, const char *method, const char *target,
                           const char *body, long http_status)
{
    mz_control_reply reply = send_request(test, method, target, body);
    if (reply.http_status != http_status) {
        fail_msg("%s %s %s: %ld instead of %ld: %s", method, target, body != NULL ? body : "",
                 reply.http_status, http_status, reply.body);
    }
    json_t *object = json_loads(reply.body, 0, NULL);
    assert_true(json_is_object(object));
    mz_control_reply_free(&reply);
    return object;
}

static void assert_text(const json_t *object, const char *key, const char *right)
{
    assert_string_equal(json_string_value(json_object_get(object, key)), right);
}

static void assert_number(const json_t *object, const char *key, json_int_t right)
{
    assert_true(json_is_integer(json_object_get(object, key)));
    assert_int_equal(json_integer_value(json_object_get(object, key)), right);
}

static void evict_passes_what_was_asked(void **state)
{
    fixture *test = *state;
    static const struct {
        const char *target;
        const char *body;
        uint64_t bytes;
        unsigned tags;
    } rows[] = {
        {"/evict", "{\"bytes\": 1048576}", 1048576, 3},
        {"/evict", "{\"bytes\": \"512M\"}", 536870912, 3},
        {"/evict", "{\"bytes\": 4096, \"tags\": [\"weights\"]}", 4096, 1},
        {"/evict", "{\"bytes\": 4096, \"tags\": [\"kv_cache\"]}", 4096, 2},
        {"/evict", "{\"tags\": [\"kv_cache\", \"weights\"], \"bytes\": 4096}", 4096, 3},
        {"/evict?bytes=64K", NULL, 65536, 3},
        {"/evict?bytes=64K&tags=weights", "", 65536, 1},
        {"/evict?bytes=2G&tags=weights,kv_cache", NULL, 2147483648, 3},
        {"/evict?tags=kv_cache", "{\"bytes\": 8192}", 8192, 2},
        {"/evict", "{\"bytes\": \"40%\"}", 400, 3},
        {"/evict", "{\"bytes\": \"50%\", \"tags\": [\"weights\"]}", 300, 1},
        {"/evict?bytes=25%25&tags=kv_cache", NULL, 100, 2},
    };
    test->pool.status.weights.resident_bytes = 600;
    test->pool.status.kv_cache.resident_bytes = 400;
    test->pool.evict_freed = 77;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *answer = expect_json(test, "POST", rows[i].target, rows[i].body, 200);
        assert_int_equal(test->pool.asked_bytes, rows[i].bytes);
        assert_int_equal(test->pool.asked_tags, rows[i].tags);
        assert_int_equal(test->pool.evictions, (int)i + 1);
        assert_text(answer, "status", "ok");
        assert_number(answer, "asked_bytes", (json_int_t)rows[i].bytes);
        assert_number(answer, "freed_bytes", 77);
        assert_true(json_is_integer(json_object_get(answer, "evict_ns")));
        assert_true(json_is_null(json_object_get(answer, "error")));
        json_decref(answer);
    }
}

static void evict_tells_how_it_ended(void **state)
{
    fixture *test = *state;
    test->pool.evict_freed = 5;
    test->pool.evict_result = MZ_E_PARTIAL;
    json_t *answer = expect_json(test, "POST", "/evict?bytes=10", NULL, 200);
    assert_text(answer, "status", "partial");
    assert_text(answer, "code", "MZ_E_PARTIAL");
    assert_number(answer, "freed_bytes", 5);
    assert_text(answer, "error", "less memory was freed than asked for");
    json_decref(answer);

    strcpy(test->pool.status.last_error, "the store is full");
    answer = expect_json(test, "POST", "/evict?bytes=10", NULL, 200);
    assert_text(answer, "error", "the store is full");
    json_decref(answer);

    test->pool.evict_result = MZ_E_IO;
    answer = expect_json(test, "POST", "/evict?bytes=10", NULL, 500);
    assert_text(answer, "status", "error");
    assert_text(answer, "code", "MZ_E_IO");
    json_decref(answer);

    test->pool.evict_result = MZ_E_BUSY;
    json_decref(expect_json(test, "POST", "/evict?bytes=10", NULL, 503));
    test->pool.evict_result = MZ_E_INVALID;
    json_decref(expect_json(test, "POST", "/evict?bytes=10", NULL, 400));
}

static void a_share_of_nothing_is_nothing(void **state)
{
    fixture *test = *state;
    json_t *answer = expect_json(test, "POST", "/evict", "{\"bytes\": \"40%\"}", 200);
    assert_text(answer, "status", "ok");
    assert_number(answer, "asked_bytes", 0);
    assert_number(answer, "freed_bytes", 0);
    assert_int_equal(test->pool.evictions, 0);
    json_decref(answer);
}

static void bad_requests_never_reach_the_pool(void **state)
{
    fixture *test = *state;
    static const char *const bodies[] = {
        "",
        "{",
        "[]",
        "7",
        "null",
        "{}",
        "{\"bytes\": 0}",
        "{\"bytes\": -1}",
        "{\"bytes\": 1.5}",
        "{\"bytes\": true}",
        "{\"bytes\": null}",
        "{\"bytes\": \"\"}",
        "{\"bytes\": \"12X\"}",
        "{\"bytes\": \"101%\"}",
        "{\"bytes\": \"0%\"}",
        "{\"bytes\": \"0\"}",
        "{\"bytes\": 99999999999999999999}",
        "{\"bytes\": 1, \"bytes\": 2}",
        "{\"bytes\": 1, \"tag\": [\"weights\"]}",
        "{\"bytes\": 1, \"tags\": \"weights\"}",
        "{\"bytes\": 1, \"tags\": []}",
        "{\"bytes\": 1, \"tags\": [\"kv\"]}",
        "{\"bytes\": 1, \"tags\": [1]}",
        "{\"bytes\": 1} x",
        "bytes=1",
        "\xff\xfe",
        "{\"bytes\": \"1\\u0000\"}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        json_t *answer = expect_json(test, "POST", "/evict", bodies[i], 400);
        assert_true(json_string_length(json_object_get(answer, "error")) > 0);
        json_decref(answer);
    }
    static const char *const targets[] = {
        "/evict?bytes=",
        "/evict?bytes=x",
        "/evict?bytes",
        "/evict?tags=weights",
        "/evict?bytes=1&tags=",
        "/evict?bytes=1&tags=weights,",
        "/evict?bytes=1&tags=weight",
        "/prefetch?wait=maybe",
        "/prefetch?wait=",
    };
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        json_decref(expect_json(test, "POST", targets[i], NULL, 400));
    }
    json_decref(expect_json(test, "POST", "/evict?bytes=1", "{\"bytes\": 1}", 400));
    json_decref(expect_json(test, "POST", "/prefetch", "{\"wait\": 1}", 400));
    json_decref(expect_json(test, "POST", "/prefetch", "{\"waits\": true}", 400));
    json_decref(expect_json(test, "POST", "/prefetch?wait=true", "{\"wait\": true}", 400));
    assert_int_equal(test->pool.evictions, 0);
    assert_int_equal(test->pool.prefetches, 0);
}

static void deep_json_is_refused(void **state)
{
    fixture *test = *state;
    enum { DEPTH = 30000 };
    char *body = malloc(DEPTH + 1);
    memset(body, '[', DEPTH);
    body[DEPTH] = 0;
    json_decref(expect_json(test, "POST", "/evict", body, 400));
    free(body);
}

static void large_bodies_are_refused(void **state)
{
    fixture *test = *state;
    enum { LIMIT = 64 * 1024 };
    char *body = malloc(LIMIT + 2);
    const char *object = "{\"bytes\": 4096}";
    memset(body, ' ', LIMIT + 1);
    memcpy(body, object, strlen(object));
    body[LIMIT + 1] = 0;
    json_decref(expect_json(test, "POST", "/evict", body, 413));
    assert_int_equal(test->pool.evictions, 0);
    body[LIMIT] = 0;
    json_decref(expect_json(test, "POST", "/evict", body, 200));
    assert_int_equal(test->pool.evictions, 1);
    free(body);
}

static void prefetch_starts_or_waits(void **state)
{
    fixture *test = *state;
    json_decref(expect_json(test, "POST", "/prefetch", NULL, 200));
    json_decref(expect_json(test, "POST", "/prefetch", "{\"wait\": false}", 200));
    assert_int_equal(test->pool.prefetches, 2);
    assert_int_equal(test->pool.waits, 0);
    json_t *answer = expect_json(test, "POST", "/prefetch", "{\"wait\": true}", 200);
    assert_text(answer, "status", "ok");
    assert_true(json_is_true(json_object_get(answer, "waited")));
    json_decref(answer);
    json_decref(expect_json(test, "POST", "/prefetch?wait=true", NULL, 200));
    assert_int_equal(test->pool.waits, 2);
    test->pool.wait_result = MZ_E_CORRUPT;
    answer = expect_json(test, "POST", "/prefetch", "{\"wait\": true}", 500);
    assert_text(answer, "code", "MZ_E_CORRUPT");
    json_decref(answer);
}

static void pressure_can_be_simulated(void **state)
{
    fixture *test = *state;
    json_t *answer = expect_json(test, "POST", "/simulate-pressure?level=low", NULL, 200);
    assert_text(answer, "status", "ok");
    assert_text(answer, "level", "low");
    json_decref(answer);
    assert_int_equal(test->pool.level, MZ_PRESSURE_LOW);
    json_decref(
        expect_json(test, "POST", "/simulate-pressure", "{\"level\": \"critical\"}", 200));
    assert_int_equal(test->pool.level, MZ_PRESSURE_CRITICAL);
    assert_int_equal(test->pool.signals, 2);
    static const char *const bodies[] = {
        "",
        "{}",
        "[]",
        "{\"level\": \"none\"}",
        "{\"level\": \"high\"}",
        "{\"level\": 2}",
        "{\"level\": null}",
        "{\"lev\": 1}",
        "{\"level\": \"low\", \"x\": 1}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        json_decref(expect_json(test, "POST", "/simulate-pressure", bodies[i], 400));
    }
    json_decref(expect_json(test, "POST", "/simulate-pressure?level=", NULL, 400));
    json_decref(expect_json(test, "POST", "/simulate-pressure?level=low",
                            "{\"level\": \"low\"}", 400));
    json_decref(expect_json(test, "GET", "/simulate-pressure", NULL, 405));
    assert_int_equal(test->pool.signals, 2);
    test->pool.pressure_result = MZ_E_UNSUPPORTED;
    json_decref(expect_json(test, "POST", "/simulate-pressure?level=low", NULL, 409));
}

/* Give every number of a tag its own value. */
static void fill_tag(mz_tag_status *tag, uint64_t first)
{
    *tag = (mz_tag_status){first,     first + 1, first + 2, first + 3, first + 4,
                           first + 5, first + 6, first + 7, first + 8, first + 9};
}

static void fill_status(mz_pool_status *status)
{
    fill_tag(&status->weights, 100);
    fill_tag(&status->kv_cache, 200);
    status->stack_bytes = 300;
    status->store_bytes = 301;
    status->written_bytes = 302;
    status->read_bytes = 303;
    status->decoded_bytes = 304;
    status->evictions = 305;
    status->restores = 306;
    status->last_evict_bytes = 307;
    status->last_freed_bytes = 308;
    status->last_evict_ns = 1000000309;
    status->last_restore_ns = 310;
    status->last_stall_ns = 2500000000;
    status->steps = 312;
    status->restoring = true;
    strcpy(status->codec, "q8");
    strcpy(status->store_dir, "/srv/\"quoted\"");
    strcpy(status->last_error, "broken \xff byte");
    status->plan_read_bytes_per_s = 313;
    status->plan_decode_bytes_per_s = 314;
    strcpy(status->rates, "assumed");
    strcpy(status->rates_note, "nobody measured");
    status->pressure = (mz_pressure_status){.watching = true,
                                            .level = MZ_PRESSURE_MEDIUM,
                                            .signals = 401,
                                            .evictions = 402,
                                            .freed_bytes = 403,
                                            .last_bytes = 404,
                                            .last_reaction_ns = 1500000000,
                                            .ago_ns = 406,
                                            .reason = "because",
                                            .sources = "psi"};
}

static void assert_tag(const json_t *tag, json_int_t first)
{
    static const char *const names[] = {
        "total_units", "resident_units", "compressed_units", "stored_units", "lost_units",
        "total_bytes", "resident_bytes", "compressed_bytes", "stored_bytes", "clean_bytes",
    };
    for (size_t i = 0; i < 10; i++) {
        assert_number(tag, names[i], first + (json_int_t)i);
    }
    assert_int_equal(json_object_size(tag), 10);
}

static void status_has_every_field(void **state)
{
    fixture *test = *state;
    fill_status(&test->pool.status);
    json_t *answer = expect_json(test, "GET", "/status", NULL, 200);
    assert_tag(json_object_get(answer, "weights"), 100);
    assert_tag(json_object_get(answer, "kv_cache"), 200);
    static const char *const names[] = {
        "stack_bytes", "store_bytes", "written_bytes",    "read_bytes",       "decoded_bytes",
        "evictions",   "restores",    "last_evict_bytes", "last_freed_bytes",
    };
    for (size_t i = 0; i < 9; i++) {
        assert_number(answer, names[i], 300 + (json_int_t)i);
    }
    assert_number(answer, "last_evict_ns", 1000000309);
    assert_number(answer, "last_restore_ns", 310);
    assert_number(answer, "last_stall_ns", 2500000000);
    assert_number(answer, "steps", 312);
    assert_true(json_is_true(json_object_get(answer, "restoring")));
    assert_text(answer, "codec", "q8");
    assert_text(answer, "store_dir", "/srv/\"quoted\"");
    assert_text(answer, "last_error", "broken ? byte");
    assert_number(answer, "plan_read_bytes_per_s", 313);
    assert_number(answer, "plan_decode_bytes_per_s", 314);
    assert_text(answer, "rates", "assumed");
    assert_text(answer, "rates_note", "nobody measured");
    const json_t *pressure = json_object_get(answer, "pressure");
    assert_true(json_is_true(json_object_get(pressure, "watching")));
    assert_text(pressure, "level", "medium");
    assert_number(pressure, "signals", 401);
    assert_number(pressure, "evictions", 402);
    assert_number(pressure, "freed_bytes", 403);
    assert_number(pressure, "last_bytes", 404);
    assert_number(pressure, "last_reaction_ns", 1500000000);
    assert_number(pressure, "ago_ns", 406);
    assert_text(pressure, "reason", "because");
    assert_text(pressure, "sources", "psi");
    assert_int_equal(json_object_size(pressure), 10);
    assert_number(answer, "pid", getpid());
    assert_text(answer, "version", MZ_VERSION_STRING);
    assert_true(json_is_integer(json_object_get(answer, "uptime_s")));
    json_decref(answer);
    assert_int_equal(test->pool.prefetches + test->pool.waits + test->pool.evictions, 0);
}

/* Every sample line of a metric belongs to the TYPE line before it, and no name comes twice. */
static void assert_well_formed(char *text)
{
    char current[100] = "";
    char *rest = text;
    size_t bytes = strlen(text);
    assert_int_equal(text[bytes - 1], '\n');
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char name[100];
        if (sscanf(line, "# TYPE %99s", name) == 1) {
            assert_string_not_equal(name, current);
            strcpy(current, name);
        } else if (line[0] != '#') {
            assert_int_equal(sscanf(line, "%99[a-z_]", name), 1);
            assert_string_equal(name, current);
            char *end;
            strtod(strrchr(line, ' ') + 1, &end);
            assert_int_equal(*end, 0);
        }
    }
}

static void metrics_are_prometheus_text(void **state)
{
    fixture *test = *state;
    fill_status(&test->pool.status);
    mz_control_reply reply = send_request(test, "GET", "/metrics", NULL);
    assert_int_equal(reply.http_status, 200);
    static const char *const lines[] = {
        "\n# TYPE mzcache_resident_bytes gauge\n",
        "\nmzcache_resident_bytes{tag=\"weights\"} 106\n",
        "\nmzcache_resident_bytes{tag=\"kv_cache\"} 206\n",
        "\nmzcache_compressed_bytes{tag=\"kv_cache\"} 207\n",
        "\nmzcache_stored_bytes{tag=\"weights\"} 108\n",
        "\nmzcache_lost_units{tag=\"kv_cache\"} 204\n",
        "\n# TYPE mzcache_written_bytes_total counter\n",
        "\nmzcache_written_bytes_total 302\n",
        "\nmzcache_evictions_total 305\n",
        "\nmzcache_last_evict_seconds 1.000000309\n",
        "\nmzcache_last_restore_seconds 0.000000310\n",
        "\nmzcache_last_stall_seconds 2.500000000\n",
        "\nmzcache_restoring 1\n",
        "\nmzcache_pressure_level 2\n",
        "\nmzcache_pressure_evictions_total 402\n",
        "\nmzcache_pressure_last_reaction_seconds 1.500000000\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (strstr(reply.body, lines[i]) == NULL) {
            fail_msg("missing: %s", lines[i]);
        }
    }
    assert_well_formed(reply.body);
    mz_control_reply_free(&reply);
    assert_int_equal(test->pool.prefetches + test->pool.waits + test->pool.evictions, 0);
}

static void wrong_paths_and_methods_are_told_apart(void **state)
{
    fixture *test = *state;
    json_t *answer = expect_json(test, "GET", "/health", NULL, 200);
    assert_text(answer, "status", "ok");
    json_decref(answer);
    static const char *const unknown[] = {"/", "/evict/", "/Status", "/statusx", "//status"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        json_decref(expect_json(test, "GET", unknown[i], NULL, 404));
        json_decref(expect_json(test, "POST", unknown[i], "{\"bytes\": 1}", 404));
    }
    json_decref(expect_json(test, "GET", "/evict?bytes=1", NULL, 405));
    json_decref(expect_json(test, "DELETE", "/evict?bytes=1", NULL, 405));
    json_decref(expect_json(test, "GET", "/prefetch", NULL, 405));
    json_decref(expect_json(test, "POST", "/status", NULL, 405));
    json_decref(expect_json(test, "PUT", "/metrics", NULL, 405));
    json_decref(expect_json(test, "POST", "/health", NULL, 405));
    assert_int_equal(test->pool.evictions + test->pool.prefetches, 0);
}

static int connect_raw(const fixture *test)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, mz_control_path(test->control));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* SIGPIPE has its default action here: a write to a client that left would end this program. */
static void clients_that_leave_do_no_harm(void **state)
{
    fixture *test = *state;
    const char *request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    signal(SIGPIPE, SIG_DFL);
    for (int i = 0; i < 50; i++) {
        int fd = connect_raw(test);
        assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
        close(fd);
    }
    int fd = connect_raw(test);
    const char *held = "POST /evict?bytes=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    test->pool.hold = true;
    assert_int_equal(send(fd, held, strlen(held), MSG_NOSIGNAL), strlen(held));
    fake_pool_await(&test->pool, 1);
    close(fd);
    fake_pool_release(&test->pool);
    fake_pool_await(&test->pool, 0);
    json_decref(expect_json(test, "GET", "/health", NULL, 200));
}

static void rubbish_does_no_harm(void **state)
{
    fixture *test = *state;
    static const char rubbish[] = "\x16\x03\x01\r\n\r\n\r\nPOST\r\n\r\n";
    for (int i = 0; i < 20; i++) {
        int fd = connect_raw(test);
        assert_true(send(fd, rubbish, sizeof rubbish, MSG_NOSIGNAL) > 0);
        char answer[512];
        shutdown(fd, SHUT_WR);
        while (recv(fd, answer, sizeof answer, 0) > 0) {
        }
        close(fd);
    }
    json_decref(expect_json(test, "GET", "/health", NULL, 200));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(evict_passes_what_was_asked),   CASE(evict_tells_how_it_ended),
        CASE(a_share_of_nothing_is_nothing), CASE(bad_requests_never_reach_the_pool),
        CASE(deep_json_is_refused),          CASE(large_bodies_are_refused),
        CASE(prefetch_starts_or_waits),      CASE(pressure_can_be_simulated),
        CASE(status_has_every_field),
        CASE(metrics_are_prometheus_text),   CASE(wrong_paths_and_methods_are_told_apart),
        CASE(clients_that_leave_do_no_harm), CASE(rubbish_does_no_harm),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}

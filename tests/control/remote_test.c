/* SPDX-License-Identifier: MIT */
/*
 * Goal: the commands status, evict and prefetch ask the right process for the right thing, print
 * it, and return the exit codes that scripts rely on.
 * Method: the commands run in this process against its own control socket, their output goes to a
 * file; a second process is played by a socket that is named after our parent.
 */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/remote.h"
#include "control/server.h"
#include "fake_pool.h"

typedef struct fixture {
    mz_pool pool;
    scratch runtime;
    char directory[100]; /* of the sockets */
    mz_control *control; /* NULL: not started */
    char output[8192];   /* stdout and stderr of the last command */
} fixture;

static int setup(void **state)
{
    fixture *test = calloc(1, sizeof *test);
    mz_error error = MZ_ERROR_INIT;
    fake_pool_init(&test->pool);
    scratch_make(&test->runtime);
    snprintf(test->directory, sizeof test->directory, "%s/mzcache", test->runtime.path);
    setenv("XDG_RUNTIME_DIR", test->runtime.path, 1);
    assert_int_equal(mz_control_start(&test->pool, NULL, &test->control, &error), MZ_OK);
    *state = test;
    return 0;
}

static int teardown(void **state)
{
    fixture *test = *state;
    mz_control_stop(test->control);
    scratch_remove(&test->runtime);
    free(test);
    return 0;
}

/* Run a command given as words; its output is in test->output afterwards. Returns the exit code. */
static int run(fixture *test, int (*command)(int, char **), const char *words)
{
    char copy[200];
    char *argv[20];
    int argc = 0;
    char *rest;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    int out = dup(STDOUT_FILENO);
    int err = dup(STDERR_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    int code = command(argc, argv);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    rewind(file);
    test->output[fread(test->output, 1, sizeof test->output - 1, file)] = 0;
    fclose(file);
    return code;
}

static void assert_output_has(const fixture *test, const char *part)
{
    if (strstr(test->output, part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, test->output);
    }
}

static void evict_asks_and_tells(void **state)
{
    fixture *test = *state;
    test->pool.evict_freed = 512ull << 20;
    assert_int_equal(run(test, mz_cli_evict, "evict 512M"), 0);
    assert_int_equal(test->pool.asked_bytes, 512ull << 20);
    assert_int_equal(test->pool.asked_tags, MZ_TAG_ALL);
    assert_output_has(test, "freed 512.0 MiB of 512.0 MiB");
    char words[100];
    snprintf(words, sizeof words, "evict --tags kv_cache 4096 --pid %d", (int)getpid());
    assert_int_equal(run(test, mz_cli_evict, words), 0);
    assert_int_equal(test->pool.asked_bytes, 4096);
    assert_int_equal(test->pool.asked_tags, MZ_TAG_KV_CACHE);
    test->pool.status.weights.resident_bytes = 1000;
    test->pool.status.kv_cache.resident_bytes = 500;
    assert_int_equal(run(test, mz_cli_evict, "evict 40% --tags=weights"), 0);
    assert_int_equal(test->pool.asked_bytes, 400);
    assert_int_equal(test->pool.asked_tags, MZ_TAG_WEIGHTS);
    assert_int_equal(run(test, mz_cli_evict, "evict 1G --json"), 0);
    json_t *answer = json_loads(test->output, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(answer, "asked_bytes")), 1 << 30);
    json_decref(answer);
}

static void exit_codes_tell_partial_from_failed(void **state)
{
    fixture *test = *state;
    test->pool.evict_result = MZ_E_PARTIAL;
    strcpy(test->pool.status.last_error, "nothing more to take");
    assert_int_equal(run(test, mz_cli_evict, "evict 1G"), 3);
    assert_output_has(test, "nothing more to take");
    assert_int_equal(run(test, mz_cli_evict, "evict 1G --json"), 3);
    test->pool.evict_result = MZ_E_IO;
    assert_int_equal(run(test, mz_cli_evict, "evict 1G"), 1);
    assert_output_has(test, "nothing more to take");
    test->pool.wait_result = MZ_E_CORRUPT;
    assert_int_equal(run(test, mz_cli_prefetch, "prefetch --wait"), 1);
    assert_int_equal(run(test, mz_cli_prefetch, "prefetch"), 0);
}

static void prefetch_waits_on_request(void **state)
{
    fixture *test = *state;
    assert_int_equal(run(test, mz_cli_prefetch, "prefetch"), 0);
    assert_int_equal(test->pool.prefetches, 1);
    assert_int_equal(test->pool.waits, 0);
    assert_int_equal(run(test, mz_cli_prefetch, "prefetch --wait --json"), 0);
    assert_int_equal(test->pool.waits, 1);
}

static void status_is_a_table_or_a_list(void **state)
{
    fixture *test = *state;
    test->pool.status.weights.resident_bytes = 3ull << 29;
    test->pool.status.kv_cache.lost_units = 2;
    strcpy(test->pool.status.codec, "q8");
    strcpy(test->pool.status.last_error, "unit 7: read failed");
    test->pool.status.plan_read_bytes_per_s = 2100000000;
    test->pool.status.plan_decode_bytes_per_s = 16500000000;
    strcpy(test->pool.status.rates, "assumed");
    strcpy(test->pool.status.rates_note, "no command");
    assert_int_equal(run(test, mz_cli_status, "status"), 0);
    assert_output_has(test, "codec q8");
    assert_output_has(test, "1.5 GiB");
    assert_output_has(test, "2 units lost");
    assert_output_has(test, "unit 7: read failed");
    assert_output_has(test, "read 2.10 GB/s, decode 16.50 GB/s (assumed: no command)");
    assert_output_has(test, "pressure: not watched");
    test->pool.status.pressure = (mz_pressure_status){.watching = true,
                                                      .level = MZ_PRESSURE_LOW,
                                                      .evictions = 3,
                                                      .freed_bytes = 3ull << 30,
                                                      .last_reaction_ns = 12300000,
                                                      .ago_ns = 61000000000,
                                                      .reason = "low pressure (trim)",
                                                      .sources = "psi, systemd"};
    assert_int_equal(run(test, mz_cli_status, "status"), 0);
    assert_output_has(test, "pressure: low; watched: psi, systemd");
    assert_output_has(test, "3 evictions freed 3.0 GiB; the last 61 s ago, 12.3 ms after");
    assert_output_has(test, "low pressure (trim)");
    assert_int_equal(run(test, mz_cli_status, "status --json"), 0);
    json_t *list = json_loads(test->output, 0, NULL);
    assert_int_equal(json_array_size(list), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "pid")), getpid());
    json_decref(list);
    assert_int_equal(test->pool.prefetches + test->pool.evictions, 0);
}

static void wrong_usage_reaches_nobody(void **state)
{
    fixture *test = *state;
    static const char *const evicts[] = {
        "evict",           "evict 1G 2G",         "evict 0",
        "evict 0%",        "evict lots",          "evict -- -5",
        "evict 101%",      "evict 1G --tags",     "evict 1G --tags kv",
        "evict 1G --pid",  "evict 1G --pid 0",    "evict 1G --pid 12x",
        "evict 1G --wait", "evict 1G --nonsense", "evict 1G -x",
    };
    for (size_t i = 0; i < sizeof evicts / sizeof evicts[0]; i++) {
        assert_int_equal(run(test, mz_cli_evict, evicts[i]), 2);
        assert_output_has(test, "usage: mzcache evict");
    }
    assert_int_equal(run(test, mz_cli_prefetch, "prefetch now"), 2);
    assert_int_equal(run(test, mz_cli_prefetch, "prefetch --tags weights"), 2);
    assert_int_equal(run(test, mz_cli_status, "status --wait"), 2);
    assert_int_equal(test->pool.evictions + test->pool.prefetches, 0);
    assert_int_equal(run(test, mz_cli_status, "status --help"), 0);
    assert_output_has(test, "usage: mzcache status");
    assert_int_equal(run(test, mz_cli_evict, "evict --help"), 0);
    assert_output_has(test, "usage: mzcache evict");
    assert_int_equal(run(test, mz_cli_prefetch, "prefetch -h"), 0);
    assert_output_has(test, "usage: mzcache prefetch");
}

static void no_process_is_a_failure(void **state)
{
    fixture *test = *state;
    assert_int_equal(run(test, mz_cli_status, "status --pid 2147483647"), 1);
    assert_int_equal(run(test, mz_cli_evict, "evict 1G --pid 2147483647"), 1);
    mz_control_stop(test->control);
    test->control = NULL;
    assert_int_equal(run(test, mz_cli_status, "status"), 1);
    assert_output_has(test, "no process");
    assert_int_equal(run(test, mz_cli_evict, "evict 1G"), 1);
    assert_int_equal(run(test, mz_cli_prefetch, "prefetch"), 1);
}

static void several_processes_need_a_choice(void **state)
{
    fixture *test = *state;
    struct sockaddr_un address;
    mz_error error = MZ_ERROR_INIT;
    int other = (int)getppid();
    assert_int_equal(mz_control_socket_address(test->directory, other, &address, &error), MZ_OK);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 8), 0);
    char number[20];
    assert_int_equal(run(test, mz_cli_evict, "evict 1G"), 2);
    snprintf(number, sizeof number, " %d", other);
    assert_output_has(test, number);
    snprintf(number, sizeof number, " %d", (int)getpid());
    assert_output_has(test, number);
    assert_int_equal(run(test, mz_cli_prefetch, "prefetch"), 2);
    assert_int_equal(test->pool.evictions + test->pool.prefetches, 0);
    char words[60];
    snprintf(words, sizeof words, "evict 1G --pid %d", (int)getpid());
    assert_int_equal(run(test, mz_cli_evict, words), 0);
    assert_int_equal(test->pool.evictions, 1);
    close(fd);
    unlink(address.sun_path);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(evict_asks_and_tells),
        CASE(exit_codes_tell_partial_from_failed),
        CASE(prefetch_waits_on_request),
        CASE(status_is_a_table_or_a_list),
        CASE(wrong_usage_reaches_nobody),
        CASE(no_process_is_a_failure),
        CASE(several_processes_need_a_choice),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * Goal: a pool without a profile has the machine measured by another process after its first
 * eviction, plans the later ones with what was measured, and the host never notices the process.
 * Method: the real command, in an empty cache directory. Beside the evictions a thread asks for any
 * child as a host may, and SIGCHLD is counted. The rates are compared with those in the record,
 * read by the JSON library. Older records are made from that one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pool/fixture.h"
#include "pool/internal.h"

#define PATIENCE_S 120 /* a measurement on a busy machine, under a sanitizer */

static char cache[64];
static atomic_int signals;

static void count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

static int make_cache(void **state)
{
    (void)state;
    strcpy(cache, "/tmp/mz-first-test-XXXXXX");
    struct sigaction action = {.sa_handler = count_signal};
    return mkdtemp(cache) == NULL || setenv("XDG_CACHE_HOME", cache, 1) != 0 ||
           sigaction(SIGCHLD, &action, NULL) != 0;
}

static int remove_cache(void **state)
{
    (void)state;
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/mzcache/*", cache);
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            unlink(found.gl_pathv[i]);
        }
        globfree(&found);
    }
    snprintf(pattern, sizeof pattern, "%s/mzcache", cache);
    rmdir(pattern);
    return rmdir(cache);
}

/* Number of records in the cache directory, and the path of the first one. */
static size_t find_records(char *path, size_t capacity)
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/mzcache/profile-*.json", cache);
    if (glob(pattern, 0, NULL, &found) != 0) {
        return 0;
    }
    size_t count = found.gl_pathc;
    snprintf(path, capacity, "%s", found.gl_pathv[0]);
    globfree(&found);
    return count;
}

typedef struct waiter {
    atomic_bool stop;
    atomic_uint seen, asked;
} waiter;

/* A host that waits for any child of its own: there must be none. */
static void *wait_for_any(void *argument)
{
    waiter *w = argument;
    while (!atomic_load(&w->stop)) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        atomic_fetch_add(&w->seen, pid != -1 || errno != ECHILD ? 1 : 0);
        atomic_fetch_add(&w->asked, 1);
    }
    return NULL;
}

/* Evict a part of what is brought back before. */
static void evict_some(toy_model *toy)
{
    uint64_t freed = 0;
    assert_true(toy_is_right(toy));
    assert_int_equal(mz_evict(toy->pool, 1u << 20, &freed), MZ_OK);
}

static mz_pool_status status_of(toy_model *toy)
{
    mz_pool_status status;
    assert_int_equal(mz_status_get(toy->pool, &status), MZ_OK);
    return status;
}

/* Best rate of an array of the record; `codec` NULL: of all rows. */
static double best_rate(json_t *array, const char *field, const char *codec)
{
    double best = 0;
    for (size_t i = 0; i < json_array_size(array); i++) {
        json_t *row = json_array_get(array, i);
        const char *name = json_string_value(json_object_get(row, "codec"));
        double rate = json_number_value(json_object_get(row, field));
        if ((codec == NULL || strcmp(name, codec) == 0) && rate > best) {
            best = rate;
        }
    }
    return best;
}

static void await_record(char *path, size_t capacity)
{
    for (int i = 0; i < PATIENCE_S * 20 && find_records(path, capacity) == 0; i++) {
        usleep(50000);
    }
    assert_int_equal(find_records(path, capacity), 1);
}

static void the_second_eviction_plans_with_what_was_measured(void **state)
{
    (void)state;
    char path[512];
    toy_model toy;
    waiter w = {.stop = false};
    pthread_t thread;
    toy_open_profiled(&toy, "lossless", MZ_TEST_COMMAND);
    toy_write_kv(&toy, 256);
    assert_string_equal(status_of(&toy).rates, "assumed");
    assert_int_equal(find_records(path, sizeof path), 0);

    assert_int_equal(pthread_create(&thread, NULL, wait_for_any, &w), 0);
    evict_some(&toy);
    assert_string_equal(status_of(&toy).rates, "assumed");
    await_record(path, sizeof path);
    atomic_store(&w.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&w.asked) > 0);
    assert_int_equal(atomic_load(&w.seen), 0);
    assert_int_equal(atomic_load(&signals), 0);

    evict_some(&toy);
    mz_pool_status status = status_of(&toy);
    assert_string_equal(status.rates, "quick");
    assert_string_equal(status.rates_note, "");
    json_t *record = json_load_file(path, 0, NULL);
    assert_non_null(record);
    double read = best_rate(json_object_get(record, "reads"), "bytes_per_s", NULL);
    double decode = best_rate(json_object_get(record, "codecs"), "decode_bytes_per_s", "lossless");
    assert_true(read > 0 && decode > 0);
    assert_int_equal(status.plan_read_bytes_per_s, (uint64_t)read);
    assert_int_equal(status.plan_decode_bytes_per_s, (uint64_t)decode);
    json_decref(record);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

/* The record of the test before is found at once, and nothing is measured again. */
static void a_pool_with_a_record_measures_nothing(void **state)
{
    (void)state;
    toy_model toy;
    toy_open_profiled(&toy, "lossless", "/nowhere/mzcache");
    toy_write_kv(&toy, 256);
    assert_string_equal(status_of(&toy).rates, "quick");
    evict_some(&toy);
    assert_string_equal(status_of(&toy).rates_note, ""); /* the command was not looked for */
    toy_close(&toy);
}

/* Change the record of the tests before. */
static void set_in_record(const char *path, const char *name, json_t *value)
{
    json_t *record = json_load_file(path, 0, NULL);
    assert_non_null(record);
    assert_int_equal(json_object_set_new(record, name, value), 0);
    assert_int_equal(json_dump_file(record, path, 0), 0);
    json_decref(record);
}

static json_int_t measured_s(const char *path)
{
    json_t *record = json_load_file(path, 0, NULL);
    json_int_t when = json_integer_value(json_object_get(record, "measured_s"));
    json_decref(record);
    return when;
}

/* What was measured yesterday on a busy machine is measured again, what is better in it stays. */
static void a_quick_record_of_yesterday_is_made_better(void **state)
{
    (void)state;
    char path[512];
    toy_model toy;
    assert_int_equal(find_records(path, sizeof path), 1);
    const json_int_t yesterday = time(NULL) - 25 * 60 * 60;
    json_t *slow =
        json_pack("[{s:i, s:i, s:f}]", "request_bytes", 2 << 20, "depth", 8, "bytes_per_s", 1.0);
    set_in_record(path, "reads", slow);
    set_in_record(path, "write_bytes_per_s", json_real(1e15));
    set_in_record(path, "measured_s", json_integer(yesterday));
    toy_open_profiled(&toy, "lossless", MZ_TEST_COMMAND);
    toy_write_kv(&toy, 256);
    assert_int_equal(status_of(&toy).plan_read_bytes_per_s, 1);
    evict_some(&toy);
    for (int i = 0; i < PATIENCE_S * 20 && measured_s(path) == yesterday; i++) {
        usleep(50000);
    }
    assert_true(measured_s(path) > yesterday);
    evict_some(&toy);
    assert_true(status_of(&toy).plan_read_bytes_per_s > 1);
    assert_string_equal(status_of(&toy).rates, "quick");
    json_t *record = json_load_file(path, 0, NULL);
    assert_true(json_number_value(json_object_get(record, "write_bytes_per_s")) == 1e15);
    json_decref(record);
    toy_close(&toy);
}

/* One measured in full is neither measured again nor replaced by a quick one, however old. */
static void a_full_record_stays(void **state)
{
    (void)state;
    char path[512], arguments[1024];
    toy_model toy;
    assert_int_equal(find_records(path, sizeof path), 1);
    toy_open_profiled(&toy, "lossless", "/nowhere/mzcache");
    toy_write_kv(&toy, 256);
    assert_string_equal(status_of(&toy).rates, "quick");
    set_in_record(path, "quick", json_false());
    set_in_record(path, "measured_s", json_integer(1700000000));
    evict_some(&toy);
    assert_string_equal(status_of(&toy).rates, "measured"); /* found by the next eviction */
    evict_some(&toy);
    assert_string_equal(status_of(&toy).rates_note, "");
    snprintf(arguments, sizeof arguments,
             MZ_TEST_COMMAND " profile --quick --store %s >%s/out 2>&1",
             mz_store_directory(toy.pool->store), cache);
    assert_int_equal(system(arguments), 0);
    assert_int_equal(measured_s(path), 1700000000);
    snprintf(arguments, sizeof arguments, "%s/out", cache);
    unlink(arguments);
    toy_close(&toy);
}

static void without_a_command_evictions_go_on(void **state)
{
    (void)state;
    char path[512];
    toy_model toy;
    assert_int_equal(find_records(path, sizeof path), 1);
    assert_int_equal(unlink(path), 0);
    toy_open_profiled(&toy, "lossless", "/nowhere/mzcache");
    toy_write_kv(&toy, 256);
    evict_some(&toy);
    mz_pool_status status = status_of(&toy);
    assert_string_equal(status.rates, "assumed");
    assert_non_null(strstr(status.rates_note, "/nowhere/mzcache"));
    evict_some(&toy);
    assert_true(toy_is_right(&toy));
    toy_close(&toy);
}

static void a_pool_that_must_not_measure_does_not(void **state)
{
    (void)state;
    char path[512];
    toy_model toy;
    toy_open(&toy, "lossless", false);
    toy_write_kv(&toy, 256);
    evict_some(&toy);
    evict_some(&toy);
    mz_pool_status status = status_of(&toy);
    assert_string_equal(status.rates, "assumed");
    assert_non_null(strstr(status.rates_note, "mzcache profile"));
    assert_int_equal(find_records(path, sizeof path), 0);
    toy_close(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_eviction_plans_with_what_was_measured),
        cmocka_unit_test(a_pool_with_a_record_measures_nothing),
        cmocka_unit_test(a_quick_record_of_yesterday_is_made_better),
        cmocka_unit_test(a_full_record_stays),
        cmocka_unit_test(without_a_command_evictions_go_on),
        cmocka_unit_test(a_pool_that_must_not_measure_does_not),
    };
    return cmocka_run_group_tests(tests, make_cache, remove_cache);
}

/* SPDX-License-Identifier: MIT */
/* Makes a trace for trace_test.py: trace_maker FILE restore|overflow|again. Prints what to
 * expect. */
#include "pool/fixture.h"
#include "pool/internal.h"

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void restore(mz_trace *trace)
{
    toy_model toy;
    mz_error error = MZ_ERROR_INIT;
    toy_open(&toy, "q8", false);
    toy.pool->restore.trace = trace; /* before anything is evicted or restored */
    toy_write_kv(&toy, 256);
    for (int round = 0; round < 2; round++) {
        uint64_t bytes = round == 0 ? TOY_WEIGHT_BYTES + TOY_KV_BYTES / 2 : UINT64_MAX;
        (void)mz_evict(toy.pool, bytes, NULL);
        assert_int_equal(toy_restore(&toy, &error), MZ_OK);
    }
    mz_pool_status status;
    assert_int_equal(mz_status_get(toy.pool, &status), MZ_OK);
    printf("{\"pid\": %ld, \"read_bytes\": %llu, \"restores\": %llu}\n", (long)getpid(),
           (unsigned long long)status.read_bytes, (unsigned long long)status.restores);
    toy_close(&toy);
}

static void add(mz_trace *trace, const char *name)
{
    mz_trace_add(trace, mz_trace_start(trace), &(mz_trace_what){.name = name, .category = "test"});
}

static void overflow(mz_trace *trace)
{
    for (unsigned i = 0; i < MZ_TRACE_EVENTS + 5; i++) {
        add(trace, "x");
    }
    printf("{\"noted\": %u}\n", MZ_TRACE_EVENTS + 5);
}

static void again(mz_trace *trace)
{
    mz_error error = MZ_ERROR_INIT;
    add(trace, "a");
    assert_int_equal(mz_trace_write(trace, &error), MZ_OK);
    pid_t child = fork();
    if (child == 0) {
        add(trace, "of the child");
        _exit(mz_trace_write(trace, &error));
    }
    waitpid(child, NULL, 0);
    add(trace, "b");
    printf("{\"names\": [\"a\", \"b\"]}\n");
}

int main(int argc, char **argv)
{
    mz_trace *trace = NULL;
    mz_error error = MZ_ERROR_INIT;
    if (argc != 3 || mz_trace_create(argv[1], &trace, &error) != MZ_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    void (*make)(mz_trace *) = strcmp(argv[2], "restore") == 0    ? restore
                               : strcmp(argv[2], "overflow") == 0 ? overflow
                                                                  : again;
    make(trace);
    mz_status status = mz_trace_write(trace, &error);
    mz_trace_destroy(trace);
    return status == MZ_OK ? 0 : 1;
}

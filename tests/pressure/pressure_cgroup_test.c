/* SPDX-License-Identifier: MIT */
/*
 * Goal: in a real memory cgroup a process with a pool gives memory back by itself when another one
 * needs it. Method: a cgroup of version 1 with a limit of 512 MiB and without its killer, in which
 * a process holds a pool of 256 MiB of weights and a hog takes 400. Whoever needs memory above the
 * limit sleeps there until some is free: so the hog gets to its end only if the pool gave way.
 * Without a monitor it has to get stuck, which is waited for first, or the test would prove nothing.
 *
 * How long it took is printed as JSON and decides nothing. With a number as argument it is done so
 * often, for docs/pressure.md. Skipped where no such cgroup can be made.
 */
#include "os/scratch.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "os/memory.h"
#include "os/process.h"
#include "pool/pool.h"
#include "pressure/monitor.h"

#define MIB ((uint64_t)1 << 20)
#define LIMIT_BYTES (512 * MIB)
#define UNIT_BYTES (8 * MIB)
#define UNITS 32u
#define HOG_BYTES (400 * MIB)
#define HOG_PAUSE_NS 1000000 /* after each MiB: at most 1 GB/s */

typedef struct scene {
    char group[512]; /* the cgroup's folder */
    char directory[256], weights[300];
} scene;

typedef struct hog_report {
    uint64_t total_ns, worst_ns; /* in all, and for one MiB */
} hog_report;

static scene here;
static pid_t running[2]; /* processes of ours that have not been waited for; 0: none */

static bool write_text(const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", here.group, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return written;
}

static bool is_stuck(void)
{
    char path[600], text[256] = "";
    snprintf(path, sizeof path, "%s/memory.oom_control", here.group);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    return bytes > 0 && strstr(text, "under_oom 1") != NULL;
}

/* Make the cgroup. Returns why that is not possible, or NULL. */
static const char *make_group(void)
{
#ifdef __SANITIZE_THREAD__
    return "the thread sanitizer takes more memory than the cgroup would have";
#endif
    char procs[400], limit[32];
    mz_error error = MZ_ERROR_INIT;
    if (mz_machine_cgroup_file("", 1, "cgroup.procs", procs, sizeof procs, &error) != MZ_OK) {
        return "this process is in no memory cgroup of version 1";
    }
    *strrchr(procs, '/') = '\0';
    snprintf(here.group, sizeof here.group, "%s/mzcache-test-%d", procs, (int)getpid());
    if (mkdir(here.group, 0700) != 0) {
        return "no cgroup may be made here";
    }
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)LIMIT_BYTES);
    if (!write_text("memory.limit_in_bytes", limit) || !write_text("memory.oom_control", "1")) {
        rmdir(here.group);
        return "the cgroup takes no limit, or its killer can't be switched off";
    }
    return NULL;
}

/* A process of ours that ends with us, inside the cgroup. Returns its pid, 0 inside it. */
static pid_t fork_inside(void)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!write_text("cgroup.procs", "0")) {
            _exit(3);
        }
        return 0;
    }
    running[running[0] == 0 ? 0 : 1] = pid;
    return pid;
}

static void hog_main(int out)
{
    uint8_t *memory = mmap(NULL, HOG_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    hog_report report = {0, 0};
    uint64_t start_ns = mz_now_ns();
    for (uint64_t at = 0; at < HOG_BYTES; at += MIB) {
        uint64_t before_ns = mz_now_ns();
        memset(memory + at, 1, MIB);
        uint64_t taken_ns = mz_now_ns() - before_ns;
        report.worst_ns = taken_ns > report.worst_ns ? taken_ns : report.worst_ns;
        nanosleep(&(struct timespec){.tv_nsec = HOG_PAUSE_NS}, NULL);
    }
    report.total_ns = mz_now_ns() - start_ns;
    _exit(write(out, &report, sizeof report) == sizeof report ? 0 : 1);
}

static void must(bool is_true, const char *what)
{
    if (!is_true) {
        fprintf(stderr, "in the process with the pool: %s failed\n", what);
        _exit(2);
    }
}

static void restore_all(mz_pool *pool)
{
    must(mz_prefetch(pool) == MZ_OK && mz_prefetch_wait(pool) == MZ_OK, "restoring");
}

static mz_pool *make_pool(void)
{
    mz_error error = MZ_ERROR_INIT;
    mz_pool *pool = NULL;
    void *memory = NULL;
    int32_t source = -1;
    mz_pool_options options = {.store_dir = here.directory};
    must(mz_pool_create(&options, &pool, &error) == MZ_OK, "making a pool");
    must(mz_memory_reserve(mz_os_linux(), UNITS * UNIT_BYTES, MZ_HUGE_BYTES, &memory, &error) ==
             MZ_OK,
         "reserving memory");
    must(mz_pool_add_source(pool, here.weights, &source, &error) == MZ_OK, "opening the weights");
    for (uint32_t i = 0; i < UNITS; i++) {
        mz_unit_desc unit = {.tag = MZ_TAG_WEIGHTS, .layer = i, .span_count = 1, .stored = true};
        unit.spans[0] = (mz_span){(uint8_t *)memory + i * UNIT_BYTES, UNIT_BYTES,     source,
                                  i * UNIT_BYTES,                     MZ_ELEM_OPAQUE, 0};
        must(mz_pool_add_unit(pool, &unit, &error) == MZ_OK, "adding a unit");
    }
    restore_all(pool);
    return pool;
}

static mz_pressure_status pressure_of(mz_pool *pool)
{
    mz_pool_status status;
    must(mz_status_get(pool, &status) == MZ_OK, "asking for the status");
    return status.pressure;
}

/* Make a pool, say so, wait for a word and answer with what the monitor did. */
static void pool_main(int in, int out, bool watched)
{
    mz_error error = MZ_ERROR_INIT;
    mz_pressure_monitor *monitor = NULL;
    mz_pool *pool = make_pool();
    char word = '!';
    if (watched) {
        mz_pressure_options options = {.policy = mz_pressure_policy_default(),
                                       .config = {.root = ""}};
        options.policy.grace_ns = 0;
        must(mz_pressure_start(pool, &options, &monitor, &error) == MZ_OK, "starting a monitor");
        /* What a first eviction touches for the first time (its tables) is in place afterwards. */
        must(mz_simulate_pressure(pool, MZ_PRESSURE_LOW) == MZ_OK, "simulating pressure");
        while (pressure_of(pool).evictions == 0) {
            sched_yield();
        }
        restore_all(pool);
    }
    mz_pressure_status first = pressure_of(pool);
    must(write(out, &first, sizeof first) == sizeof first, "telling");
    must(read(in, &word, 1) == 1, "listening");
    mz_pressure_status last = pressure_of(pool);
    must(write(out, &last, sizeof last) == sizeof last, "telling");
    mz_pressure_stop(monitor);
    mz_pool_destroy(pool);
    _exit(0);
}

static void expect_end(pid_t pid, int code)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    running[running[0] == pid ? 0 : 1] = 0;
    if (code < 0) {
        assert_true(WIFSIGNALED(status));
    } else {
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), code);
    }
}

typedef struct cast {
    pid_t pool, hog;
    int to_pool[2], from_pool[2], from_hog[2];
    mz_pressure_status before;
} cast;

static void begin(cast *c, bool watched)
{
    assert_int_equal(pipe(c->to_pool) | pipe(c->from_pool) | pipe(c->from_hog), 0);
    c->pool = fork_inside();
    if (c->pool == 0) {
        pool_main(c->to_pool[0], c->from_pool[1], watched);
    }
    close(c->from_pool[1]); /* so that an end of the process is an end of the pipe */
    assert_int_equal(read(c->from_pool[0], &c->before, sizeof c->before), sizeof c->before);
    c->hog = fork_inside();
    if (c->hog == 0) {
        hog_main(c->from_hog[1]);
    }
    close(c->from_hog[1]);
}

static void end(cast *c)
{
    close(c->to_pool[0]);
    close(c->to_pool[1]);
    close(c->from_pool[0]);
    close(c->from_hog[0]);
}

static void without_a_monitor_the_hog_is_stuck(void **state)
{
    (void)state;
    cast c;
    begin(&c, false);
    while (!is_stuck()) {
        usleep(10000);
    }
    kill(c.hog, SIGKILL);
    expect_end(c.hog, -1);
    kill(c.pool, SIGKILL);
    expect_end(c.pool, -1);
    end(&c);
}

static int rounds = 1;

static void the_pool_gives_way_to_the_hog(void **state)
{
    (void)state;
    for (int round = 0; round < rounds; round++) {
        cast c;
        hog_report report;
        mz_pressure_status after;
        begin(&c, true);
        assert_int_equal(read(c.from_hog[0], &report, sizeof report), sizeof report);
        expect_end(c.hog, 0);
        assert_int_equal(write(c.to_pool[1], "?", 1), 1);
        assert_int_equal(read(c.from_pool[0], &after, sizeof after), sizeof after);
        expect_end(c.pool, 0);
        uint64_t freed = after.freed_bytes - c.before.freed_bytes;
        /* Both have 656 MiB in 512. */
        assert_true(freed >= HOG_BYTES + UNITS * UNIT_BYTES - LIMIT_BYTES);
        printf("{\"round\": %d, \"freed_mib\": %.0f, \"evictions\": %llu, \"signals\": %llu, "
               "\"last_reaction_ms\": %.2f, \"hog_worst_stall_ms\": %.1f, \"hog_ms\": %.0f, "
               "\"reason\": \"%s\"}\n",
               round, (double)freed / (double)MIB,
               (unsigned long long)(after.evictions - c.before.evictions),
               (unsigned long long)(after.signals - c.before.signals),
               (double)after.last_reaction_ns / 1e6, (double)report.worst_ns / 1e6,
               (double)report.total_ns / 1e6, after.reason);
        end(&c);
    }
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? atoi(argv[1]) : 1;
    const char *why = make_group();
    if (why != NULL) {
        printf("skipped: %s\n", why);
        return 77;
    }
    scratch_make_directory(here.directory, sizeof here.directory);
    snprintf(here.weights, sizeof here.weights, "%s/weights", here.directory);
    scratch_make_file(here.weights, UNITS * UNIT_BYTES);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_monitor_the_hog_is_stuck),
        cmocka_unit_test(the_pool_gives_way_to_the_hog),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        if (running[i] > 0) { /* left by a test that failed */
            kill(running[i], SIGKILL);
            waitpid(running[i], NULL, 0);
        }
    }
    unlink(here.weights);
    rmdir(here.directory);
    /* Processes that were killed leave the cgroup a moment later. */
    for (int i = 0; i < 100 && rmdir(here.group) != 0 && errno == EBUSY; i++) {
        usleep(10000);
    }
    return failed;
}

/* SPDX-License-Identifier: MIT */
/*
 * Goal: every source opens what it should, says why it can't, reads its events right, and leaks
 * nothing whichever system call fails. Method: a tree of fake files (a FIFO stands for a file that
 * takes a trigger, so that what was written can be read back), the Base64 of coreutils for
 * systemd's protocol, and the n-th call failing for every n.
 */
#include "os/scratch.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "os/fault_os.h"
#include "pressure/source.h"

typedef struct fixture {
    char root[256];
    mz_fault_os fault;
    mz_pressure_config config;
    mz_pressure_sources sources;
} fixture;

static void path_of(const fixture *f, const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", f->root, name);
    for (char *slash = path + strlen(f->root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}

static void add_text(const fixture *f, const char *name, const char *text)
{
    char path[512];
    path_of(f, name, path);
    scratch_make_text(path, text);
}

static void add_fifo(const fixture *f, const char *name)
{
    char path[512];
    path_of(f, name, path);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    scratch_make_directory(f->root, sizeof f->root);
    mz_fault_os_init(&f->fault);
    f->config = (mz_pressure_config){.os = &f->fault.os, .root = f->root};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    char command[300];
    snprintf(command, sizeof command, "rm -r '%s'", f->root);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

/* The n-th source of a name, counted from 0; NULL if there is none. */
static mz_pressure_source *find(fixture *f, const char *name, int nth)
{
    for (size_t i = 0; i < f->sources.count; i++) {
        if (strcmp(f->sources.list[i].name, name) == 0 && nth-- == 0) {
            return &f->sources.list[i];
        }
    }
    return NULL;
}

static const char meminfo[] = "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\n";

static void version_two(const fixture *f)
{
    add_text(f, "proc/meminfo", meminfo);
    add_text(f, "proc/self/cgroup", "0::/user/one\n");
    add_fifo(f, "proc/pressure/memory");
    add_fifo(f, "sys/fs/cgroup/user/one/memory.pressure");
    add_text(f, "sys/fs/cgroup/user/one/memory.events",
             "low 0\nhigh 5\nmax 2\noom 0\noom_kill 0\n");
}

static void version_one(const fixture *f, const char *limit)
{
    add_text(f, "proc/meminfo", meminfo);
    add_text(f, "proc/self/cgroup", "4:memory:/box\n0::/\n");
    add_text(f, "sys/fs/cgroup/memory/box/memory.pressure_level", "");
    add_text(f, "sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1000\n");
    add_text(f, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", limit);
    add_text(f, "sys/fs/cgroup/memory/box/memory.stat", "total_inactive_file 0\n");
    add_text(f, "sys/fs/cgroup/memory/box/cgroup.event_control", "");
}

static void triggers_are_written_with_their_zero(void **state)
{
    fixture *f = *state;
    version_two(f);
    mz_pressure_sources_open(&f->sources, &f->config);
    static const char wanted[] = "some 100000 1000000\0full 50000 1000000";
    static const char *const names[] = {"psi", "cgroup psi"};
    for (int i = 0; i < 2; i++) {
        mz_pressure_source *some = find(f, names[i], 0), *full = find(f, names[i], 1);
        assert_true(some->fd >= 0 && full->fd >= 0);
        assert_int_equal(some->events, POLLPRI);
        char line[128];
        assert_int_equal(read(some->fd, line, sizeof line), sizeof wanted);
        assert_memory_equal(line, wanted, sizeof wanted);
        assert_int_equal(mz_pressure_source_read(some, &f->config, POLLPRI), MZ_PRESSURE_MEDIUM);
        assert_int_equal(mz_pressure_source_read(full, &f->config, POLLPRI), MZ_PRESSURE_CRITICAL);
        assert_int_equal(mz_pressure_source_read(full, &f->config, 0), MZ_PRESSURE_NONE);
    }
    mz_pressure_sources_close(&f->sources, &f->config);
}

static void without_privileges_the_window_is_two_seconds(void **state)
{
    fixture *f = *state;
    version_two(f);
    mz_fault_os_fail(&f->fault, MZ_FAULT_WRITE, 1, 1, EINVAL);
    mz_pressure_sources_open(&f->sources, &f->config);
    char line[128];
    static const char wanted[] = "some 200000 2000000\0full 50000 1000000";
    assert_int_equal(read(find(f, "psi", 0)->fd, line, sizeof line), sizeof wanted);
    assert_memory_equal(line, wanted, sizeof wanted);
    mz_pressure_sources_close(&f->sources, &f->config);
}

static void a_removed_cgroup_ends_its_trigger(void **state)
{
    fixture *f = *state;
    version_two(f);
    mz_pressure_sources_open(&f->sources, &f->config);
    mz_pressure_source *source = find(f, "cgroup psi", 0);
    assert_int_equal(mz_pressure_source_read(source, &f->config, POLLPRI | POLLERR),
                     MZ_PRESSURE_NONE);
    assert_int_equal(source->fd, -1);
    assert_string_not_equal(source->why.text, "");
    mz_pressure_sources_close(&f->sources, &f->config);
}

static void events_are_what_grew(void **state)
{
    fixture *f = *state;
    version_two(f);
    mz_pressure_sources_open(&f->sources, &f->config);
    mz_pressure_source *source = find(f, "cgroup events", 0);
    static const struct {
        const char *text;
        mz_pressure_level level;
    } rows[] = {
        {"low 0\nhigh 5\nmax 2\noom 0\n", MZ_PRESSURE_NONE},
        {"low 9\nhigh 5\nmax 2\noom 0\n", MZ_PRESSURE_NONE},
        {"low 9\nhigh 6\nmax 2\noom 0\n", MZ_PRESSURE_MEDIUM},
        {"low 9\nhigh 7\nmax 3\noom 0\n", MZ_PRESSURE_CRITICAL},
        {"low 9\nhigh 7\nmax 3\noom 1\n", MZ_PRESSURE_CRITICAL},
        {"low 9\nhigh 7\nmax 3\noom 1\noom_kill 4\noom_group_kill 3\n", MZ_PRESSURE_NONE},
        {"", MZ_PRESSURE_NONE},
        {"high 1\nmax 1\noom 0\n", MZ_PRESSURE_CRITICAL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        add_text(f, "sys/fs/cgroup/user/one/memory.events", rows[i].text);
        assert_int_equal(mz_pressure_source_read(source, &f->config, POLLPRI | POLLERR),
                         rows[i].level);
    }
    mz_fault_os_fail(&f->fault, MZ_FAULT_PREAD, 1, 1, ENODEV);
    assert_int_equal(mz_pressure_source_read(source, &f->config, POLLPRI), MZ_PRESSURE_NONE);
    assert_int_equal(source->fd, -1);
    mz_pressure_sources_close(&f->sources, &f->config);
}

/* What version 1 was asked for: pressure levels always, usage only below a limit. */
static void version_one_is_asked_for_events(void **state)
{
    fixture *f = *state;
    version_one(f, "1000000000\n");
    mz_pressure_sources_open(&f->sources, &f->config);
    mz_pressure_source *medium = find(f, "cgroup events", 0);
    mz_pressure_source *critical = find(f, "cgroup events", 1);
    mz_pressure_source *usage = find(f, "cgroup usage", 0);
    assert_true(medium->fd >= 0 && critical->fd >= 0 && usage->fd >= 0);
    /* Each registration overwrites the file from its beginning; the longest is the last one. */
    char path[512], line[128] = "", words[32] = "";
    int event = -1;
    path_of(f, "sys/fs/cgroup/memory/box/cgroup.event_control", path);
    FILE *stream = fopen(path, "r");
    assert_non_null(fgets(line, sizeof line, stream));
    fclose(stream);
    assert_int_equal(sscanf(line, "%d %*d %31s", &event, words), 2);
    assert_int_equal(event, usage->fd);
    assert_string_equal(words, "900000000");

    uint64_t one = 1;
    assert_int_equal(mz_pressure_source_read(critical, &f->config, POLLIN), MZ_PRESSURE_NONE);
    assert_int_equal(write(critical->fd, &one, sizeof one), sizeof one);
    assert_int_equal(mz_pressure_source_read(critical, &f->config, POLLIN), MZ_PRESSURE_CRITICAL);
    assert_int_equal(mz_pressure_source_read(critical, &f->config, POLLIN), MZ_PRESSURE_NONE);

    /* 1000 bytes in use of 10^9, then 95 %, then 99 %, then 95 % of which 90 are page cache. */
    static const struct {
        const char *usage, *stat;
        mz_pressure_level level;
    } rows[] = {
        {"1000\n", "total_inactive_file 0\n", MZ_PRESSURE_NONE},
        {"950000000\n", "total_inactive_file 0\n", MZ_PRESSURE_MEDIUM},
        {"990000000\n", "total_inactive_file 0\n", MZ_PRESSURE_CRITICAL},
        {"950000000\n", "total_inactive_file 900000000\n", MZ_PRESSURE_NONE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        add_text(f, "sys/fs/cgroup/memory/box/memory.usage_in_bytes", rows[i].usage);
        add_text(f, "sys/fs/cgroup/memory/box/memory.stat", rows[i].stat);
        assert_int_equal(write(usage->fd, &one, sizeof one), sizeof one);
        assert_int_equal(mz_pressure_source_read(usage, &f->config, POLLIN), rows[i].level);
    }
    mz_pressure_sources_close(&f->sources, &f->config);

    add_text(f, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
    mz_pressure_sources_open(&f->sources, &f->config);
    assert_non_null(find(f, "cgroup events", 1));
    assert_null(find(f, "cgroup usage", 0));
    mz_pressure_sources_close(&f->sources, &f->config);
}

static void each_missing_source_is_named_once(void **state)
{
    fixture *f = *state;
    mz_pressure_sources_open(&f->sources, &f->config);
    static const char *const names[] = {"psi", "cgroup psi", "cgroup events", "systemd"};
    assert_int_equal(f->sources.count, 4);
    for (int i = 0; i < 4; i++) {
        mz_pressure_source *source = find(f, names[i], 0);
        assert_non_null(source);
        assert_int_equal(source->fd, -1);
        assert_true(source->why.status != MZ_OK && source->why.text[0] != '\0');
    }
    mz_pressure_sources_close(&f->sources, &f->config);
}

static void systemd_replaces_psi(void **state)
{
    fixture *f = *state;
    version_two(f);
    add_fifo(f, "watched");
    char path[512], line[128];
    path_of(f, "watched", path);
    f->config.watch = path;
    /* printf 'some 150000 2000000\0' | base64 */
    f->config.write = "c29tZSAxNTAwMDAgMjAwMDAwMAA=";
    mz_pressure_sources_open(&f->sources, &f->config);
    assert_null(find(f, "psi", 0));
    assert_null(find(f, "cgroup psi", 0));
    assert_true(find(f, "cgroup events", 0)->fd >= 0);
    mz_pressure_source *source = find(f, "systemd", 0);
    assert_true(source->fd >= 0);
    assert_int_equal(source->events, POLLIN);
    assert_int_equal(read(source->fd, line, sizeof line), 20);
    assert_memory_equal(line, "some 150000 2000000", 20);
    assert_int_equal(mz_pressure_source_read(source, &f->config, POLLIN), MZ_PRESSURE_NONE);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(write(source->fd, "xyz", 3), 3);
    }
    assert_int_equal(mz_pressure_source_read(source, &f->config, POLLIN), MZ_PRESSURE_MEDIUM);
    assert_int_equal(read(source->fd, line, sizeof line), -1); /* all was taken */
    mz_pressure_sources_close(&f->sources, &f->config);
}

static void systemd_may_name_a_file_or_nothing(void **state)
{
    fixture *f = *state;
    version_two(f);
    add_text(f, "plain", "");
    char path[512], text[64] = "";
    path_of(f, "plain", path);
    f->config.watch = path;
    static const struct {
        const char *base64, *plain;
    } rows[] = {{"Zm9vYmFy", "foobar"}, {"Zm9vYmE=", "fooba"}, {"Zm9vYg", "foob"}, {"", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        scratch_make_text(path, "");
        f->config.write = rows[i].base64;
        mz_pressure_sources_open(&f->sources, &f->config);
        assert_int_equal(find(f, "systemd", 0)->events, POLLPRI);
        mz_pressure_sources_close(&f->sources, &f->config);
        FILE *stream = fopen(path, "r");
        size_t bytes = fread(text, 1, sizeof text - 1, stream);
        fclose(stream);
        assert_int_equal(bytes, strlen(rows[i].plain));
        assert_memory_equal(text, rows[i].plain, bytes);
    }
    static const char *const wrong[] = {"Z", "Zm9v!", "Zm9vY", "=a=="};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        f->config.write = wrong[i];
        mz_pressure_sources_open(&f->sources, &f->config);
        assert_int_equal(find(f, "systemd", 0)->fd, -1);
        mz_pressure_sources_close(&f->sources, &f->config);
    }
    f->config.watch = "/dev/null";
    mz_pressure_sources_open(&f->sources, &f->config);
    assert_int_equal(f->sources.count, 1);
    assert_int_equal(f->sources.list[0].fd, -1);
    mz_pressure_sources_close(&f->sources, &f->config);
}

static void systemd_may_name_a_socket(void **state)
{
    fixture *f = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[512];
    path_of(f, "socket", path);
    f->config.watch = path;
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    mz_pressure_sources_open(&f->sources, &f->config);
    mz_pressure_source *source = find(f, "systemd", 0);
    assert_true(source->fd >= 0);
    int peer = accept(listener, NULL, NULL);
    assert_int_equal(write(peer, "!", 1), 1);
    assert_int_equal(mz_pressure_source_read(source, &f->config, POLLIN), MZ_PRESSURE_MEDIUM);
    close(peer);
    assert_int_equal(mz_pressure_source_read(source, &f->config, POLLIN | POLLHUP),
                     MZ_PRESSURE_NONE);
    assert_int_equal(source->fd, -1);
    mz_pressure_sources_close(&f->sources, &f->config);
    close(listener);
}

/* Fail each call in turn: nothing crashes, no descriptor stays, and something is always named. */
static void fail_every_call(fixture *f)
{
    int before = scratch_count_entries("/proc/self/fd");
    uint64_t calls = mz_fault_os_count(&f->fault, MZ_FAULT_ANY);
    mz_pressure_sources_open(&f->sources, &f->config);
    mz_pressure_sources_close(&f->sources, &f->config);
    calls = mz_fault_os_count(&f->fault, MZ_FAULT_ANY) - calls;
    assert_true(calls > 5);
    for (uint64_t n = 1; n <= calls; n++) {
        mz_fault_os_fail(&f->fault, MZ_FAULT_ANY, n, 1, EIO);
        mz_pressure_sources_open(&f->sources, &f->config);
        for (size_t i = 0; i < f->sources.count; i++) {
            const mz_pressure_source *source = &f->sources.list[i];
            assert_true((source->fd >= 0) == (source->why.status == MZ_OK));
        }
        mz_pressure_sources_close(&f->sources, &f->config);
    }
    mz_fault_os_clear(&f->fault);
    assert_int_equal(scratch_count_entries("/proc/self/fd"), before);
}

static void no_failure_leaks(void **state)
{
    fixture *f = *state;
    version_two(f);
    fail_every_call(f);
    add_fifo(f, "watched");
    char path[512];
    path_of(f, "watched", path);
    f->config.watch = path;
    f->config.write = "Zm9v";
    fail_every_call(f);
}

static void no_failure_leaks_in_version_one(void **state)
{
    fixture *f = *state;
    version_one(f, "1000000000\n");
    fail_every_call(f);
}

/* The real files of this machine, as far as it has them. */
static void the_machine_is_named_completely(void **state)
{
    fixture *f = *state;
    f->config.root = "";
    mz_pressure_sources_open(&f->sources, &f->config);
    for (size_t i = 0; i < f->sources.count; i++) {
        const mz_pressure_source *source = &f->sources.list[i];
        print_message("%s: %s\n", source->name, source->fd >= 0 ? "watched" : source->why.text);
        assert_true((source->fd >= 0) == (source->why.status == MZ_OK));
    }
    mz_pressure_sources_close(&f->sources, &f->config);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(triggers_are_written_with_their_zero),
        CASE(without_privileges_the_window_is_two_seconds),
        CASE(a_removed_cgroup_ends_its_trigger),
        CASE(events_are_what_grew),
        CASE(version_one_is_asked_for_events),
        CASE(each_missing_source_is_named_once),
        CASE(systemd_replaces_psi),
        CASE(systemd_may_name_a_file_or_nothing),
        CASE(systemd_may_name_a_socket),
        CASE(no_failure_leaks),
        CASE(no_failure_leaks_in_version_one),
        CASE(the_machine_is_named_completely),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}

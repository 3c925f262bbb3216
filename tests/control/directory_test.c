/* SPDX-License-Identifier: MIT */
/*
 * Goal: only its user reaches a control socket, no socket outlives its process for long, and
 * clients see live processes only.
 * Method: directories in every state that they can be in; modes and owners are read by stat.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "control/server.h"
#include "fake_pool.h"

typedef struct fixture {
    mz_pool pool;
    scratch directory;
    mz_error error;
} fixture;

static int setup(void **state)
{
    fixture *test = calloc(1, sizeof *test);
    fake_pool_init(&test->pool);
    scratch_make(&test->directory);
    *state = test;
    return 0;
}

static int teardown(void **state)
{
    fixture *test = *state;
    unsetenv("XDG_RUNTIME_DIR");
    scratch_remove(&test->directory);
    free(test);
    return 0;
}

static mz_status start(fixture *test, const char *directory, mz_control **control)
{
    test->error = (mz_error)MZ_ERROR_INIT;
    *control = NULL;
    return mz_control_start(&test->pool, directory, control, &test->error);
}

/* The pid of a process that has ended. */
static int dead_pid(void)
{
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return (int)child;
}

/* Bind a socket named after `pid`. Listening or not; the caller closes it. */
static int bind_socket(const char *directory, int pid, bool listening)
{
    struct sockaddr_un address;
    mz_error error = MZ_ERROR_INIT;
    assert_int_equal(mz_control_socket_address(directory, pid, &address, &error), MZ_OK);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    if (listening) {
        assert_int_equal(listen(fd, 4), 0);
    }
    return fd;
}

static bool socket_exists(const char *directory, int pid)
{
    char path[200];
    struct stat info;
    snprintf(path, sizeof path, "%s/%d.sock", directory, pid);
    return lstat(path, &info) == 0;
}

static void modes_are_private(void **state)
{
    fixture *test = *state;
    char directory[100];
    mz_control *control;
    struct stat info;
    snprintf(directory, sizeof directory, "%s/new", test->directory.path);
    mode_t before = umask(0);
    assert_int_equal(start(test, directory, &control), MZ_OK);
    umask(before);
    assert_int_equal(stat(directory, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    char right[200];
    snprintf(right, sizeof right, "%s/%d.sock", directory, (int)getpid());
    assert_string_equal(mz_control_path(control), right);
    assert_int_equal(lstat(right, &info), 0);
    assert_true(S_ISSOCK(info.st_mode));
    assert_int_equal(info.st_mode & 07777, 0600);
    mz_control_stop(control);
    assert_int_equal(lstat(right, &info), -1);
    assert_int_equal(rmdir(directory), 0);
}

static void the_directory_follows_the_environment(void **state)
{
    fixture *test = *state;
    char chosen[MZ_CONTROL_PATH_BYTES];
    char right[100];
    snprintf(right, sizeof right, "%s/mzcache", test->directory.path);
    setenv("XDG_RUNTIME_DIR", test->directory.path, 1);
    assert_int_equal(mz_control_directory_default(chosen, sizeof chosen, &test->error), MZ_OK);
    assert_string_equal(chosen, right);
    snprintf(right, sizeof right, "/tmp/mzcache-%lu", (unsigned long)geteuid());
    static const char *const useless[] = {"", "relative", "/nonexistent/directory", "/dev/null"};
    for (size_t i = 0; i < sizeof useless / sizeof useless[0]; i++) {
        setenv("XDG_RUNTIME_DIR", useless[i], 1);
        assert_int_equal(mz_control_directory_default(chosen, sizeof chosen, &test->error), MZ_OK);
        assert_string_equal(chosen, right);
    }
    unsetenv("XDG_RUNTIME_DIR");
    assert_int_equal(mz_control_directory_default(chosen, sizeof chosen, &test->error), MZ_OK);
    assert_string_equal(chosen, right);
}

static void a_default_start_is_found_by_clients(void **state)
{
    fixture *test = *state;
    mz_control *control;
    mz_control_socket *processes;
    size_t count;
    setenv("XDG_RUNTIME_DIR", test->directory.path, 1);
    assert_int_equal(mz_control_list(NULL, &processes, &count, &test->error), MZ_OK);
    assert_int_equal(count, 0);
    assert_int_equal(start(test, NULL, &control), MZ_OK);
    assert_int_equal(mz_control_list(NULL, &processes, &count, &test->error), MZ_OK);
    assert_int_equal(count, 1);
    assert_int_equal(processes[0].pid, getpid());
    assert_string_equal(processes[0].path, mz_control_path(control));
    free(processes);
    mz_control_stop(control);
}

static void links_are_refused(void **state)
{
    fixture *test = *state;
    mz_control *control;
    mz_control_socket *processes;
    size_t count;
    char target[100];
    char link[100];
    snprintf(target, sizeof target, "%s/target", test->directory.path);
    snprintf(link, sizeof link, "%s/link", test->directory.path);
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(start(test, link, &control), MZ_E_PERM);
    assert_null(control);
    assert_int_equal(mz_control_list(link, &processes, &count, &test->error), MZ_E_PERM);
    assert_false(socket_exists(target, (int)getpid()));
}

static void others_directories_are_refused(void **state)
{
    fixture *test = *state;
    mz_control *control;
    const char *directory = test->directory.path;
    if (geteuid() == 0) {
        assert_int_equal(chown(directory, 65534, 65534), 0);
    } else {
        directory = "/usr"; /* belongs to root */
    }
    assert_int_equal(start(test, directory, &control), MZ_E_PERM);
    assert_non_null(strstr(test->error.text, "belongs to user"));
    if (geteuid() == 0) {
        assert_int_equal(chown(directory, 0, 0), 0);
    }
}

static void open_directories_and_files_are_refused(void **state)
{
    fixture *test = *state;
    mz_control *control;
    static const mode_t modes[] = {0777, 0770, 0755, 0701};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(chmod(test->directory.path, modes[i]), 0);
        assert_int_equal(start(test, test->directory.path, &control), MZ_E_PERM);
    }
    assert_int_equal(chmod(test->directory.path, 0700), 0);
    char path[100];
    snprintf(path, sizeof path, "%s/file", test->directory.path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(start(test, path, &control), MZ_E_PERM);
    snprintf(path, sizeof path, "%s/no/parent", test->directory.path);
    assert_int_equal(start(test, path, &control), MZ_E_NOTFOUND);
    assert_int_equal(mz_control_start(NULL, test->directory.path, &control, &test->error),
                     MZ_E_INVALID);
}

/* sun_path has 108 bytes with its 0: "/<pid>.sock" must fit behind the directory. */
static void long_paths_are_refused(void **state)
{
    fixture *test = *state;
    mz_control *control;
    char name[30];
    snprintf(name, sizeof name, "/%d.sock", (int)getpid());
    size_t room = 107 - strlen(name);
    char directory[200];
    memset(directory, 'd', sizeof directory);
    size_t used = strlen(test->directory.path);
    memcpy(directory, test->directory.path, used);
    directory[used] = '/';
    directory[room + 1] = 0;
    assert_int_equal(start(test, directory, &control), MZ_E_INVALID);
    assert_int_equal(access(directory, F_OK), -1);
    directory[room] = 0;
    assert_int_equal(start(test, directory, &control), MZ_OK);
    assert_int_equal(strlen(mz_control_path(control)), 107);
    mz_control_stop(control);
    char runtime[200];
    snprintf(runtime, sizeof runtime, "%s", directory);
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    assert_int_equal(start(test, NULL, &control), MZ_E_INVALID);
    assert_int_equal(rmdir(directory), 0);
}

static void stale_sockets_are_ignored_and_removed(void **state)
{
    fixture *test = *state;
    const char *directory = test->directory.path;
    int gone = dead_pid();
    mz_control_socket *processes;
    size_t count;
    mz_control *control;
    close(bind_socket(directory, gone, true));
    close(bind_socket(directory, (int)getpid(), true)); /* an earlier process had our pid */
    int starting = bind_socket(directory, (int)getppid(), false); /* bound, not yet listening */
    char other[100];
    snprintf(other, sizeof other, "%s/12.sock", directory); /* not a socket: none of our business */
    FILE *file = fopen(other, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(mz_control_list(directory, &processes, &count, &test->error), MZ_OK);
    assert_int_equal(count, 0);
    assert_null(processes);
    assert_int_equal(start(test, directory, &control), MZ_OK);
    assert_false(socket_exists(directory, gone));
    assert_true(socket_exists(directory, (int)getppid()));
    assert_int_equal(access(other, F_OK), 0);
    assert_int_equal(mz_control_list(directory, &processes, &count, &test->error), MZ_OK);
    assert_int_equal(count, 1);
    assert_int_equal(processes[0].pid, getpid());
    free(processes);
    close(starting);
    mz_control_stop(control);
}

/* A live socket of a pid that is not in our pid namespace belongs to another container. */
static void live_sockets_stay(void **state)
{
    fixture *test = *state;
    const char *directory = test->directory.path;
    int gone = dead_pid();
    int fd = bind_socket(directory, gone, true);
    mz_control *control;
    mz_control *second;
    assert_int_equal(start(test, directory, &control), MZ_OK);
    assert_true(socket_exists(directory, gone));
    assert_int_equal(start(test, directory, &second), MZ_E_BUSY);
    assert_null(second);
    assert_true(socket_exists(directory, (int)getpid()));
    mz_control_stop(control);
    close(fd);
}

static void odd_names_are_no_sockets(void **state)
{
    fixture *test = *state;
    static const char *const names[] = {"0.sock",  "-1.sock",          "1.sockx",    "x.sock",
                                        "+1.sock", "99999999999.sock", "1.sock.sock"};
    int fds[7];
    for (size_t i = 0; i < 7; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof address.sun_path, "%.50s/%.20s", test->directory.path,
                 names[i]);
        fds[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(bind(fds[i], (const struct sockaddr *)&address, sizeof address), 0);
        assert_int_equal(listen(fds[i], 1), 0);
    }
    mz_control_socket *processes;
    size_t count;
    assert_int_equal(mz_control_list(test->directory.path, &processes, &count, &test->error),
                     MZ_OK);
    assert_int_equal(count, 0);
    for (size_t i = 0; i < 7; i++) {
        close(fds[i]);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(modes_are_private),
        CASE(the_directory_follows_the_environment),
        CASE(a_default_start_is_found_by_clients),
        CASE(links_are_refused),
        CASE(others_directories_are_refused),
        CASE(open_directories_and_files_are_refused),
        CASE(long_paths_are_refused),
        CASE(stale_sockets_are_ignored_and_removed),
        CASE(live_sockets_stay),
        CASE(odd_names_are_no_sockets),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}

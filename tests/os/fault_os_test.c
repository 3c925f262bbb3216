/* SPDX-License-Identifier: MIT */
/*
 * Goal: the fault-injecting table changes exactly the calls that the rule names, from any number
 * of threads. Method: calls on /dev/zero, whose answers are known.
 */
#include "os/scratch.h"

#include <errno.h>
#include <pthread.h>

#include "os/fault_os.h"

#define THREADS 4
#define CALLS_PER_THREAD 1000

static void test_nth_call(void **state)
{
    (void)state;
    mz_fault_os fault;
    char data[8];
    mz_fault_os_init(&fault);
    const mz_os *os = &fault.os;
    int fd = os->open(os->context, "/dev/zero", O_RDONLY, 0);
    assert_true(fd >= 0);
    mz_fault_os_fail(&fault, MZ_FAULT_PREAD, 2, 1, EIO);
    assert_int_equal(os->pread(os->context, fd, data, 8, 0), 8);
    assert_int_equal(os->pread(os->context, fd, data, 8, 0), -1);
    assert_int_equal(errno, EIO);
    assert_int_equal(os->pread(os->context, fd, data, 8, 0), 8);
    assert_int_equal(mz_fault_os_hits(&fault), 1);
    mz_fault_os_shorten(&fault, MZ_FAULT_PREAD, 1, MZ_FAULT_FOREVER, 3);
    assert_int_equal(os->pread(os->context, fd, data, 8, 0), 3);
    assert_int_equal(os->pread(os->context, fd, data, 8, 0), 3);
    mz_fault_os_clear(&fault);
    assert_int_equal(os->pread(os->context, fd, data, 8, 0), 8);
    mz_fault_os_fail(&fault, MZ_FAULT_ANY, 2, 1, ENOMEM);
    assert_int_equal(os->pread(os->context, fd, data, 8, 0), 8);
    assert_int_equal(os->madvise(os->context, data, 8, 4), -1);
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(os->close(os->context, fd), 0);
    assert_int_equal(mz_fault_os_count(&fault, MZ_FAULT_PREAD), 7);
    assert_int_equal(mz_fault_os_count(&fault, MZ_FAULT_ANY), 10);
}

static void *read_many(void *argument)
{
    mz_fault_os *fault = argument;
    const mz_os *os = &fault->os;
    int fd = mz_os_linux()->open(NULL, "/dev/zero", O_RDONLY, 0);
    char byte = 0;
    for (int i = 0; i < CALLS_PER_THREAD; i++) {
        (void)os->pread(os->context, fd, &byte, 1, 0);
    }
    mz_os_linux()->close(NULL, fd);
    return NULL;
}

static void test_threads_share_a_rule(void **state)
{
    (void)state;
    mz_fault_os fault;
    pthread_t threads[THREADS];
    mz_fault_os_init(&fault);
    mz_fault_os_fail(&fault, MZ_FAULT_PREAD, 100, 1500, EINTR);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_many, &fault), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(mz_fault_os_count(&fault, MZ_FAULT_PREAD), THREADS * CALLS_PER_THREAD);
    assert_int_equal(mz_fault_os_hits(&fault), 1500);
}

/* The calls that watching for pressure makes. */
static void test_event_calls(void **state)
{
    (void)state;
    mz_fault_os fault;
    uint64_t one = 1, got = 0;
    mz_fault_os_init(&fault);
    const mz_os *os = &fault.os;
    mz_fault_os_fail(&fault, MZ_FAULT_EVENTFD, 1, 1, EMFILE);
    assert_int_equal(os->eventfd(os->context, 0, 0), -1);
    assert_int_equal(errno, EMFILE);
    int fd = os->eventfd(os->context, 0, 0);
    assert_true(fd >= 0);
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    assert_int_equal(os->poll(os->context, &polled, 1, 0), 0);
    mz_fault_os_fail(&fault, MZ_FAULT_WRITE, 1, 1, EINVAL);
    assert_int_equal(os->write(os->context, fd, &one, sizeof one), -1);
    assert_int_equal(os->write(os->context, fd, &one, sizeof one), sizeof one);
    assert_int_equal(os->poll(os->context, &polled, 1, 0), 1);
    mz_fault_os_fail(&fault, MZ_FAULT_POLL, 1, 1, EINTR);
    assert_int_equal(os->poll(os->context, &polled, 1, 0), -1);
    mz_fault_os_fail(&fault, MZ_FAULT_READ, 1, 1, EIO);
    assert_int_equal(os->read(os->context, fd, &got, sizeof got), -1);
    assert_int_equal(os->read(os->context, fd, &got, sizeof got), sizeof got);
    assert_int_equal(got, 1);
    mz_fault_os_fail(&fault, MZ_FAULT_CONNECT, 1, 1, EPERM);
    assert_int_equal(os->connect(os->context, "/nowhere"), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(os->connect(os->context, "/nowhere"), -1);
    assert_int_equal(errno, ENOENT);
    char name[200];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(os->connect(os->context, name), -1);
    assert_int_equal(errno, ENAMETOOLONG);
    assert_int_equal(os->close(os->context, fd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nth_call),
        cmocka_unit_test(test_threads_share_a_rule),
        cmocka_unit_test(test_event_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

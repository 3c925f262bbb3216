/* SPDX-License-Identifier: MIT */
/*
 * Goal: the machine's memory is that of /proc/meminfo, lowered by whichever memory cgroup holds
 * least, in version 1 and 2. Method: trees written for the test with figures worked out by hand;
 * the real machine is compared with sysinfo and sched_setaffinity.
 */
#include "os/scratch.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include "os/process.h"

#define GIB ((uint64_t)1 << 30)
/* 16 GiB in all, 12 GiB available. */
#define MEMINFO "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   12582912 kB\n"
#define MAX_FILES 16

typedef struct fixture {
    char root[256];
    char *files[MAX_FILES];
    int file_count;
    mz_error error;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    scratch_make_directory(f->root, sizeof f->root);
    *state = f;
    return 0;
}

/* Write root/name, and the directories that it needs. */
static void add_file(fixture *f, const char *name, const char *text)
{
    assert_true(f->file_count < MAX_FILES);
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->root, name);
    f->files[f->file_count++] = strdup(path);
    for (char *slash = path + strlen(f->root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    scratch_make_text(path, text);
}

static int teardown(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < f->file_count; i++) {
        unlink(f->files[i]);
    }
    /* Directories go once they are empty, whichever file made them. */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < f->file_count; i++) {
            char path[512];
            snprintf(path, sizeof path, "%s", f->files[i]);
            for (char *slash; (slash = strrchr(path, '/')) > path + strlen(f->root);) {
                *slash = '\0';
                (void)rmdir(path);
            }
        }
    }
    for (int i = 0; i < f->file_count; i++) {
        free(f->files[i]);
    }
    assert_int_equal(rmdir(f->root), 0);
    free(f);
    return 0;
}

static void assert_memory(fixture *f, uint64_t total, uint64_t available)
{
    uint64_t total_seen = 0;
    uint64_t available_seen = 0;
    assert_int_equal(mz_machine_memory_at(f->root, &total_seen, &available_seen, &f->error), MZ_OK);
    assert_int_equal(total_seen, total);
    assert_int_equal(available_seen, available);
}

static void test_no_cgroup(void **state)
{
    fixture *f = *state;
    add_file(f, "proc/meminfo", MEMINFO);
    assert_memory(f, 16 * GIB, 12 * GIB);
    add_file(f, "proc/self/cgroup", "0::/\n");
    assert_memory(f, 16 * GIB, 12 * GIB);
}

static void test_version_2(void **state)
{
    fixture *f = *state;
    add_file(f, "proc/meminfo", MEMINFO);
    add_file(f, "proc/self/cgroup", "0::/user/app\n");
    add_file(f, "sys/fs/cgroup/user/app/memory.max", "max\n");
    add_file(f, "sys/fs/cgroup/user/app/memory.current", "1\n");
    assert_memory(f, 16 * GIB, 12 * GIB);
    /* The parent: 4 GiB, of which 3 are used, of which 1 is idle page cache: 2 are left. */
    add_file(f, "sys/fs/cgroup/user/memory.max", "4294967296\n");
    add_file(f, "sys/fs/cgroup/user/memory.current", "3221225472\n");
    add_file(f, "sys/fs/cgroup/user/memory.stat", "anon 5\ninactive_file 1073741824\nslab 3\n");
    assert_memory(f, 4 * GIB, 2 * GIB);
}

static void test_version_2_parent_is_fuller(void **state)
{
    fixture *f = *state;
    add_file(f, "proc/meminfo", MEMINFO);
    add_file(f, "proc/self/cgroup", "0::/a/b\n");
    add_file(f, "sys/fs/cgroup/a/b/memory.max", "2147483648\n");
    add_file(f, "sys/fs/cgroup/a/b/memory.current", "0\n");
    add_file(f, "sys/fs/cgroup/a/memory.max", "8589934592\n");
    add_file(f, "sys/fs/cgroup/a/memory.current", "7516192768\n");
    assert_memory(f, 2 * GIB, 1 * GIB);
}

static void test_version_1(void **state)
{
    fixture *f = *state;
    add_file(f, "proc/meminfo", MEMINFO);
    add_file(f, "proc/self/cgroup",
             "5:cpu,cpuacct:/x\n4:hugetlb,memory:/job\n1:name=memory:/y\n0::/\n");
    add_file(f, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    add_file(f, "sys/fs/cgroup/memory/memory.usage_in_bytes", "3221225472\n");
    assert_memory(f, 16 * GIB, 12 * GIB);
    add_file(f, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3221225472\n");
    add_file(f, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "2147483648\n");
    add_file(f, "sys/fs/cgroup/memory/job/memory.stat",
             "inactive_file 7\ntotal_inactive_file 536870912\n");
    assert_memory(f, 3 * GIB, GIB + GIB / 2);
}

static void test_container_sees_its_own_mount(void **state)
{
    fixture *f = *state;
    add_file(f, "proc/meminfo", MEMINFO);
    add_file(f, "proc/self/cgroup", "4:memory:/not/visible/here\n");
    add_file(f, "sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    add_file(f, "sys/fs/cgroup/memory/memory.usage_in_bytes", "2147483648\n");
    assert_memory(f, GIB, 0);
}

static void assert_cgroup_file(fixture *f, int version, const char *file, const char *wanted)
{
    char path[512] = "", full[600];
    mz_status status = mz_machine_cgroup_file(f->root, version, file, path, sizeof path, &f->error);
    if (wanted == NULL) {
        assert_int_equal(status, MZ_E_NOTFOUND);
        return;
    }
    assert_int_equal(status, MZ_OK);
    snprintf(full, sizeof full, "%s/sys/fs/cgroup%s", f->root, wanted);
    assert_string_equal(path, full);
}

static void test_files_of_the_cgroup(void **state)
{
    fixture *f = *state;
    assert_cgroup_file(f, 2, "memory.events", NULL);
    add_file(f, "proc/self/cgroup", "5:cpu,memory:/a/b\n1:memorial:/x\n0::/c\n");
    assert_cgroup_file(f, 2, "memory.events", NULL);
    add_file(f, "sys/fs/cgroup/unified/memory.events", "");
    assert_cgroup_file(f, 2, "memory.events", "/unified/memory.events");
    add_file(f, "sys/fs/cgroup/unified/c/memory.events", "");
    assert_cgroup_file(f, 2, "memory.events", "/unified/c/memory.events");
    add_file(f, "sys/fs/cgroup/c/memory.events", "");
    assert_cgroup_file(f, 2, "memory.events", "/c/memory.events");
    add_file(f, "sys/fs/cgroup/memory/cgroup.event_control", "");
    assert_cgroup_file(f, 1, "cgroup.event_control", "/memory/cgroup.event_control");
    add_file(f, "sys/fs/cgroup/memory/a/b/cgroup.event_control", "");
    assert_cgroup_file(f, 1, "cgroup.event_control", "/memory/a/b/cgroup.event_control");
    char tiny[20];
    assert_int_equal(mz_machine_cgroup_file(f->root, 1, "cgroup.event_control", tiny, sizeof tiny,
                                            &f->error),
                     MZ_E_INVALID);
}

static void test_no_meminfo(void **state)
{
    fixture *f = *state;
    uint64_t total = 7;
    uint64_t available = 8;
    assert_int_equal(mz_machine_memory_at(f->root, &total, &available, &f->error), MZ_E_NOTFOUND);
    add_file(f, "proc/meminfo", "MemTotal: 5 kB\n");
    assert_int_equal(mz_machine_memory_at(f->root, &total, &available, &f->error),
                     MZ_E_UNSUPPORTED);
    assert_int_equal(total, 7);
    assert_int_equal(available, 8);
}

static void test_this_machine(void **state)
{
    fixture *f = *state;
    struct sysinfo info;
    uint64_t total = 0;
    uint64_t available = 0;
    assert_int_equal(sysinfo(&info), 0);
    assert_int_equal(mz_machine_memory(&total, &available, &f->error), MZ_OK);
    assert_in_range(total, 1, (uint64_t)info.totalram * info.mem_unit);
    assert_in_range(available, 0, total);
    char name[128] = "";
    mz_machine_cpu_name(name, sizeof name);
    assert_int_not_equal(name[0], '\0');
    assert_int_not_equal(name[0], ' ');
    char cut[4];
    mz_machine_cpu_name(cut, sizeof cut);
    assert_int_equal(strncmp(cut, name, 3), 0);
}

static void test_cores_follow_affinity(void **state)
{
    (void)state;
    cpu_set_t all;
    cpu_set_t one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(mz_machine_cores(), CPU_COUNT(&all));
    int cpu = 0;
    while (!CPU_ISSET((size_t)cpu, &all)) {
        cpu++;
    }
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(mz_machine_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

#define MACHINE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(test_no_cgroup),
        MACHINE_TEST(test_version_2),
        MACHINE_TEST(test_version_2_parent_is_fuller),
        MACHINE_TEST(test_version_1),
        MACHINE_TEST(test_container_sees_its_own_mount),
        MACHINE_TEST(test_files_of_the_cgroup),
        MACHINE_TEST(test_no_meminfo),
        MACHINE_TEST(test_this_machine),
        MACHINE_TEST(test_cores_follow_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

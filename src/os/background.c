/* SPDX-License-Identifier: MIT */
/*
 * A program that is not the host's child; see background.h.
 *
 * A helper process is cloned without an exit signal, which is what hides it from SIGCHLD and from
 * waitpid without __WCLONE (wait(2), "clone children"). It spawns the program and ends, so that the
 * program is inherited by init. The helper shares our memory and we are suspended meanwhile
 * (CLONE_VM | CLONE_VFORK), so no page table of a host with gigabytes is copied. Its descriptors
 * and priorities are its own. All signals are blocked, or a handler of the host might run twice in
 * one memory.
 *
 * Rejected: fork and fork (copies page tables, and waitpid(-1) of another thread sees the first
 * child); posix_spawn alone (the program would be the host's child).
 */
#include "os/background.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_BYTES (128u << 10) /* of the helper; posix_spawn takes a few KB of it */
#define DESCRIPTORS_MOST 65536   /* closed one by one on kernels without close_range */
#define IDLE_NICE 19
/* ioprio_set(2) has no header: IOPRIO_WHO_PROCESS, and IOPRIO_CLASS_IDLE above 13 bits of level. */
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_IDLE (3 << 13)

extern char **environ;

#ifdef __SANITIZE_THREAD__
/* The sanitizer takes any clone for a fork and, as memory is shared, us for the child. */
int __clone(int (*function)(void *), void *stack, int flags, void *argument, ...);
#define clone __clone
#endif

typedef struct launch {
    const char *path;
    char *const *arguments;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int failure; /* errno of the start; written by the helper before we go on */
} launch;

static void close_descriptors(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 0u, ~0u, 0u) == 0) {
        return;
    }
#endif
    long most = sysconf(_SC_OPEN_MAX);
    most = most < 0 || most > DESCRIPTORS_MOST ? DESCRIPTORS_MOST : most;
    for (int fd = 0; fd < most; fd++) {
        (void)syscall(SYS_close, fd);
    }
}

/*
 * The helper process. The program's priority is lowered once it runs and not before: at nice 19 the
 * start itself, for which the host waits, takes seconds on a busy machine. One that can't be
 * lowered is no reason not to start.
 */
static int helper_main(void *argument)
{
    launch *l = argument;
    pid_t pid;
    close_descriptors();
    l->failure = posix_spawn(&pid, l->path, &l->actions, &l->attributes, l->arguments, environ);
    if (l->failure == 0) {
        (void)setpriority(PRIO_PROCESS, (id_t)pid, IDLE_NICE);
        (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, pid, IOPRIO_IDLE);
    }
    return 0;
}

/* What the program starts with. Returns an errno. */
static int prepare(launch *l)
{
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    const short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | (short)POSIX_SPAWN_SETSID;
    int failure = posix_spawnattr_setflags(&l->attributes, flags);
    failure = failure != 0 ? failure : posix_spawnattr_setsigdefault(&l->attributes, &all);
    failure = failure != 0 ? failure : posix_spawnattr_setsigmask(&l->attributes, &none);
    for (int fd = 0; fd < 3 && failure == 0; fd++) {
        failure = posix_spawn_file_actions_addopen(&l->actions, fd, "/dev/null", O_RDWR, 0);
    }
    return failure;
}

/* Run the helper on a stack of its own. Returns an errno. */
static int run_helper(launch *l)
{
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        return errno;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    /* Stacks grow downwards on every processor that mzCache has kernels for. */
    pid_t pid = clone(helper_main, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK, l);
    int failure = pid < 0 ? errno : 0;
    while (pid > 0 && waitpid(pid, NULL, (int)__WCLONE) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)munmap(stack, STACK_BYTES);
    return failure != 0 ? failure : l->failure;
}

mz_status mz_background_start(const char *path, char *const arguments[], mz_error *error)
{
    launch l = {.path = path, .arguments = arguments};
    int failure = posix_spawnattr_init(&l.attributes);
    if (failure == 0) {
        failure = posix_spawn_file_actions_init(&l.actions);
        if (failure == 0) {
            failure = prepare(&l);
            failure = failure != 0 ? failure : run_helper(&l);
            posix_spawn_file_actions_destroy(&l.actions);
        }
        posix_spawnattr_destroy(&l.attributes);
    }
    if (failure != 0) {
        return mz_error_set(error, mz_status_from_errno(failure), failure, "cannot start %s", path);
    }
    return MZ_OK;
}

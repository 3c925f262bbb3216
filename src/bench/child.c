/* SPDX-License-Identifier: MIT */
/*
 * Result and message come back through memory that both processes share. The child leaves by exit,
 * at which the plug-in writes its trace; nothing was left in stdio's buffers to be flushed twice.
 */
#include "bench/child.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE_BYTES 512

typedef struct shared {
    char message[MESSAGE_BYTES];
    _Alignas(64) unsigned char result[];
} shared;

bool mz_bench_child(mz_bench_work work, const void *input, void *result, size_t result_bytes)
{
    size_t bytes = sizeof(shared) + result_bytes;
    shared *s = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) {
        fprintf(stderr, "mzcache bench: no memory for a result: %s\n", strerror(errno));
        return false;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        exit(work(input, s->result, s->message, MESSAGE_BYTES) ? 0 : 1);
    }
    int status = -1;
    bool ended = child > 0 && waitpid(child, &status, 0) == child;
    bool is_done = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (is_done) {
        memcpy(result, s->result, result_bytes);
    } else if (ended && WIFSIGNALED(status)) {
        fprintf(stderr, "mzcache bench: a run was ended by signal %d\n", WTERMSIG(status));
    } else {
        fprintf(stderr, "mzcache bench: %s\n", ended ? s->message : "can't start a process");
    }
    munmap(s, bytes);
    return is_done;
}

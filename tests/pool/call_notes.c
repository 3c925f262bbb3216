/* SPDX-License-Identifier: MIT */
/* See call_notes.h. */
#include "pool/call_notes.h"

#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

call_notes calls = {.lock = PTHREAD_MUTEX_INITIALIZER, .open = PTHREAD_COND_INITIALIZER};

static ssize_t note_read(void *context, int fd, void *data, size_t bytes, off_t offset)
{
    (void)context;
    pthread_mutex_lock(&calls.lock);
    calls.waiting++;
    pthread_cond_broadcast(&calls.open);
    while (calls.held) {
        pthread_cond_wait(&calls.open, &calls.lock);
    }
    calls.waiting--;
    pthread_mutex_unlock(&calls.lock);
    ssize_t moved = mz_os_linux()->pread(NULL, fd, data, bytes, offset);
    pthread_mutex_lock(&calls.lock);
    calls.reads++;
    pthread_mutex_unlock(&calls.lock);
    return moved;
}

static int note_advice(void *context, void *address, size_t bytes, int advice)
{
    (void)context;
    if (advice == MADV_POPULATE_WRITE) {
        pthread_mutex_lock(&calls.lock);
        calls.commits++;
        calls.reads_before_last_commit = calls.reads;
        if (address == calls.watched) {
            calls.reads_before_watched = calls.reads;
        }
        pthread_mutex_unlock(&calls.lock);
    }
    return mz_os_linux()->madvise(NULL, address, bytes, advice);
}

void calls_hold_reads(bool held)
{
    pthread_mutex_lock(&calls.lock);
    calls.held = held;
    pthread_cond_broadcast(&calls.open);
    pthread_mutex_unlock(&calls.lock);
}

void calls_wait_for_held_read(void)
{
    pthread_mutex_lock(&calls.lock);
    while (calls.waiting == 0) {
        pthread_cond_wait(&calls.open, &calls.lock);
    }
    pthread_mutex_unlock(&calls.lock);
}

void calls_note(mz_os *os)
{
    os->pread = note_read;
    os->madvise = note_advice;
    calls.commits = calls.reads = calls.reads_before_last_commit = 0;
    calls.watched = NULL;
}

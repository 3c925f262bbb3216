/* SPDX-License-Identifier: MIT */
/*
 * See trace.h. Each event takes its place by one atomic add and is published by a flag, so a writer
 * that comes in the middle leaves out at most what is being noted at that moment.
 */
#include "base/trace.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

typedef struct event {
    mz_trace_what what;
    uint64_t start_ns, end_ns;
    int thread;
    atomic_bool done; /* release when filled; acquire before reading */
} event;

struct mz_trace {
    FILE *file;
    pid_t process;
    atomic_uint_fast64_t taken; /* events noted, those that found no place included; relaxed */
    event events[MZ_TRACE_EVENTS];
};

mz_status mz_trace_create(const char *path, mz_trace **trace, mz_error *error)
{
    mz_trace *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a trace");
    }
    made->file = fopen(path, "we");
    if (made->file == NULL) {
        mz_error_set(error, mz_status_from_errno(errno), errno, "cannot write a trace to %.150s",
                     path);
        free(made);
        return error->status;
    }
    made->process = getpid();
    *trace = made;
    return MZ_OK;
}

void mz_trace_destroy(mz_trace *trace)
{
    if (trace != NULL) {
        fclose(trace->file);
        free(trace);
    }
}

uint64_t mz_trace_start(const mz_trace *trace)
{
    return trace != NULL ? mz_now_ns() : 0;
}

void mz_trace_add(mz_trace *trace, uint64_t start_ns, const mz_trace_what *what)
{
    if (trace == NULL) {
        return;
    }
    uint64_t place = atomic_fetch_add_explicit(&trace->taken, 1, memory_order_relaxed);
    if (place >= MZ_TRACE_EVENTS) {
        return;
    }
    event *made = &trace->events[place];
    made->what = *what;
    made->end_ns = mz_now_ns();
    made->start_ns = start_ns != 0 ? start_ns : made->end_ns;
    made->thread = gettid();
    atomic_store_explicit(&made->done, true, memory_order_release);
}

static void write_event(const mz_trace *trace, const event *noted, const char *separator)
{
    /* Microseconds with three digits: the format's unit, the clock's resolution. */
    uint64_t length = noted->end_ns - noted->start_ns;
    fprintf(trace->file,
            "%s{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%ld,\"tid\":%d,"
            "\"ts\":%llu.%03llu,\"dur\":%llu.%03llu,\"args\":{",
            separator, noted->what.name, noted->what.category, (long)trace->process, noted->thread,
            (unsigned long long)noted->start_ns / 1000, (unsigned long long)noted->start_ns % 1000,
            (unsigned long long)length / 1000, (unsigned long long)length % 1000);
    const char *comma = "";
    for (int i = 0; i < MZ_TRACE_VALUES; i++) {
        if (noted->what.keys[i] != NULL) {
            fprintf(trace->file, "%s\"%s\":%llu", comma, noted->what.keys[i],
                    (unsigned long long)noted->what.values[i]);
            comma = ",";
        }
    }
    fputs("}}", trace->file);
}

mz_status mz_trace_write(mz_trace *trace, mz_error *error)
{
    if (trace == NULL || getpid() != trace->process) {
        return MZ_OK;
    }
    rewind(trace->file);
    uint64_t taken = atomic_load_explicit(&trace->taken, memory_order_relaxed);
    uint64_t held = taken < MZ_TRACE_EVENTS ? taken : MZ_TRACE_EVENTS;
    fputc('[', trace->file);
    const char *separator = "\n";
    for (uint64_t i = 0; i < held; i++) {
        const event *noted = &trace->events[i];
        if (atomic_load_explicit(&noted->done, memory_order_acquire)) {
            write_event(trace, noted, separator);
            separator = ",\n";
        }
    }
    if (taken > held) {
        fprintf(trace->file,
                "%s{\"name\":\"events dropped\",\"cat\":\"trace\",\"ph\":\"X\",\"pid\":%ld,"
                "\"tid\":0,\"ts\":0,\"dur\":0,\"args\":{\"count\":%llu}}",
                separator, (long)trace->process, (unsigned long long)(taken - held));
    }
    fputs("\n]\n", trace->file);
    if (fflush(trace->file) != 0 || ftruncate(fileno(trace->file), ftell(trace->file)) != 0) {
        return mz_error_set(error, mz_status_from_errno(errno), errno, "cannot write the trace");
    }
    return MZ_OK;
}

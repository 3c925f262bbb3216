/* SPDX-License-Identifier: MIT */
/*
 * Log lines go to one callback that the owner of a pool sets; the library itself never prints.
 * A sink is a plain value that is copied into whatever logs, so there is no mutable global.
 */
#ifndef MZ_BASE_LOG_H
#define MZ_BASE_LOG_H

typedef enum mz_log_level {
    MZ_LOG_ERROR = 0,
    MZ_LOG_WARN = 1,
    MZ_LOG_INFO = 2,
    MZ_LOG_DEBUG = 3
} mz_log_level;

typedef struct mz_log_sink {
    void (*write)(void *context, mz_log_level level,
                  const char *line); /* NULL: silent; line has no newline */
    void *context;
    mz_log_level level; /* lines above this level are dropped */
} mz_log_sink;

void mz_log(const mz_log_sink *sink, mz_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A sink that writes "mzcache: line" to stderr; for the command and the plug-in's MZCACHE_LOG. */
mz_log_sink mz_log_stderr(mz_log_level level);

#endif

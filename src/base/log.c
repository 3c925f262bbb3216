/* SPDX-License-Identifier: MIT */
/* Formatting of log lines; see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void mz_log(const mz_log_sink *sink, mz_log_level level, const char *format, ...)
{
    if (sink->write == NULL || level > sink->level) {
        return;
    }
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    sink->write(sink->context, level, line);
}

static void write_stderr(void *context, mz_log_level level, const char *line)
{
    (void)context;
    (void)level;
    fprintf(stderr, "mzcache: %s\n", line);
}

mz_log_sink mz_log_stderr(mz_log_level level)
{
    mz_log_sink sink = {write_stderr, NULL, level};
    return sink;
}

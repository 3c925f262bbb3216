/* SPDX-License-Identifier: MIT */
/* Status names and the error that carries a message; see error.h and mzcache/status.h. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *mz_status_name(mz_status status)
{
    switch (status) {
#define MZ_STATUS_CASE(id, value, text)                                                            \
    case id:                                                                                       \
        return #id;
        MZ_STATUS_LIST(MZ_STATUS_CASE)
#undef MZ_STATUS_CASE
    default:
        return "MZ_E_?";
    }
}

const char *mz_status_text(mz_status status)
{
    switch (status) {
#define MZ_STATUS_CASE(id, value, text)                                                            \
    case id:                                                                                       \
        return text;
        MZ_STATUS_LIST(MZ_STATUS_CASE)
#undef MZ_STATUS_CASE
    default:
        return "unknown status";
    }
}

mz_status mz_error_set(mz_error *error, mz_status status, int sys_errno, const char *format, ...)
{
    error->status = status;
    error->sys_errno = sys_errno;
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    if (sys_errno != 0 && used >= 0 && (size_t)used + 3 < sizeof error->text) {
        char reason[96];
        /* The XSI variant would need another feature set; GNU's returns the text it means. */
        const char *words = strerror_r(sys_errno, reason, sizeof reason);
        snprintf(error->text + used, sizeof error->text - (size_t)used, ": %s", words);
    }
    return status;
}

void mz_error_prefix(mz_error *error, const char *format, ...)
{
    char before[103]; /* at most 100 bytes, and what follows them */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(before, sizeof before - 2, format, arguments);
    va_end(arguments);
    size_t used = strlen(before);
    memcpy(before + used, ": ", 3);
    used += 2;
    size_t kept = strnlen(error->text, sizeof error->text - used - 1);
    memmove(error->text + used, error->text, kept);
    memcpy(error->text, before, used);
    error->text[used + kept] = '\0';
}

mz_status mz_status_from_errno(int sys_errno)
{
    switch (sys_errno) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return MZ_E_NOSPC;
    case EACCES:
    case EPERM:
    case EROFS:
        return MZ_E_PERM;
    case ENOENT:
    case ENOTDIR:
        return MZ_E_NOTFOUND;
    case ENOMEM:
        return MZ_E_NOMEM;
    default:
        return MZ_E_IO;
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * An error on its way up: a status, the errno behind it and one sentence that says what to do.
 *
 * A function that can fail takes an `mz_error *` last (never NULL inside the library) and returns
 * the status. It fills the error once, where the failure happened; callers pass it on and may
 * prefix it by mz_error_prefix.
 */
#ifndef MZ_BASE_ERROR_H
#define MZ_BASE_ERROR_H

#include "mzcache/status.h"

typedef struct mz_error {
    mz_status status; /* MZ_OK while nothing failed */
    int sys_errno;    /* errno of the call that failed, 0 if none */
    char text[480];   /* what failed and what to do, "" while nothing failed */
} mz_error;

#define MZ_ERROR_INIT {MZ_OK, 0, ""}

/* Fill the error and return `status`. `sys_errno` != 0 appends its strerror. */
mz_status mz_error_set(mz_error *error, mz_status status, int sys_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Put "prefix: " before the text. Of a long prefix the first 100 bytes: the reason stands last. */
void mz_error_prefix(mz_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The status that stands for an errno of an I/O call: ENOSPC, EACCES, ENOENT, ENOMEM, else
 * MZ_E_IO. */
mz_status mz_status_from_errno(int sys_errno);

#endif

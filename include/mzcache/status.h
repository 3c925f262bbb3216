/* SPDX-License-Identifier: MIT */
/*
 * Status codes of every mzCache call.
 *
 * 0 is success, failures are negative and stable: a code, once released, keeps its number. One list
 * makes the enum, the names and the messages, so they cannot drift apart.
 */
#ifndef MZCACHE_STATUS_H
#define MZCACHE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MZ_API __attribute__((visibility("default")))
#else
#define MZ_API
#endif

/* X(identifier, value, what it means to a user) */
#define MZ_STATUS_LIST(X)                                                                          \
    X(MZ_OK, 0, "success")                                                                         \
    X(MZ_E_INVALID, -1, "invalid argument")                                                        \
    X(MZ_E_NOMEM, -2, "out of memory")                                                             \
    X(MZ_E_IO, -3, "input/output error")                                                           \
    X(MZ_E_NOSPC, -4, "no space left for the store")                                               \
    X(MZ_E_CORRUPT, -5, "stored bytes do not match their checksum or format")                      \
    X(MZ_E_CHANGED, -6, "the model file changed after it was loaded")                              \
    X(MZ_E_NOTFOUND, -7, "not found")                                                              \
    X(MZ_E_UNSUPPORTED, -8, "not supported here")                                                  \
    X(MZ_E_BUSY, -9, "busy")                                                                       \
    X(MZ_E_PARTIAL, -10, "less memory was freed than asked for")                                   \
    X(MZ_E_LOST, -11, "the contents are lost and must be recomputed")                              \
    X(MZ_E_ENGINE, -12, "llama.cpp reported an error")                                             \
    X(MZ_E_HOST, -13, "the host's ggml version is not one this plug-in was checked against")       \
    X(MZ_E_PERM, -14, "permission denied")                                                         \
    X(MZ_E_CANCELLED, -15, "cancelled")

typedef enum mz_status {
#define MZ_STATUS_ENUM(id, value, text) id = value,
    MZ_STATUS_LIST(MZ_STATUS_ENUM)
#undef MZ_STATUS_ENUM
} mz_status;

/* Identifier of a status, such as "MZ_E_IO"; "MZ_E_?" for a number that is none. Any thread. */
MZ_API const char *mz_status_name(mz_status status);

/* One short sentence for a status. Static storage. Any thread. */
MZ_API const char *mz_status_text(mz_status status);

#ifdef __cplusplus
}
#endif
#endif

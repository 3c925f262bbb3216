/* SPDX-License-Identifier: MIT */
/*
 * What a service manager tells: MEMORY_PRESSURE_WATCH and MEMORY_PRESSURE_WRITE of the environment.
 *
 * The first names a file to poll: of the kernel's PSI (then the second holds, in Base64, the
 * trigger to write into it), a FIFO or a Unix socket (readable is pressure, and what comes is
 * thrown away). /dev/null means that this process is not to watch for pressure. Who started the
 * service knows better than we do which thresholds it should have, so its word replaces ours.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "pressure/source.h"

#define WRITE_BYTES 256u /* a trigger is much shorter */

static int base64_value(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c != '\0' ? strchr(digits, c) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

/* Decode into data[WRITE_BYTES]. Returns the bytes, or -1 for what is no Base64 or too long. */
static int decode_base64(const char *text, uint8_t data[WRITE_BYTES])
{
    size_t length = strlen(text), bytes = 0;
    while (length > 0 && text[length - 1] == '=') {
        length--;
    }
    if (length % 4 == 1 || length / 4 * 3 + 2 > WRITE_BYTES) {
        return -1;
    }
    uint32_t bits = 0;
    for (size_t i = 0; i < length; i++) {
        int value = base64_value(text[i]);
        if (value < 0) {
            return -1;
        }
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 != 0) {
            data[bytes++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
        }
    }
    return (int)bytes;
}

/* A FIFO or socket: throw away what came. The last writer of a socket gone: it ended. */
static bool read_stream(mz_pressure_source *source, const mz_pressure_config *config,
                        mz_pressure_level *level)
{
    const mz_os *os = config->os;
    char thrown[256];
    bool came = false;
    ssize_t bytes;
    do {
        bytes = os->read(os->context, source->fd, thrown, sizeof thrown);
        came = came || bytes > 0;
    } while (bytes == (ssize_t)sizeof thrown || (bytes < 0 && errno == EINTR));
    *level = came ? source->level : MZ_PRESSURE_NONE;
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN)) {
        mz_error_set(&source->why, MZ_E_IO, bytes < 0 ? errno : 0,
                     "what MEMORY_PRESSURE_WATCH names was closed");
        return false;
    }
    return true;
}

/* Open the file or connect to the socket. Returns the descriptor, or -1 and errno. */
static int open_watch(const mz_pressure_config *config, bool writes)
{
    const mz_os *os = config->os;
    int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = os->open(os->context, config->watch, flags | O_RDWR, 0);
    if (fd < 0 && errno == ENXIO) {
        return os->connect(os->context, config->watch);
    }
    if (fd < 0 && (errno == EACCES || errno == EROFS) && !writes) {
        fd = os->open(os->context, config->watch, flags | O_RDONLY, 0);
    }
    return fd;
}

/* Write what the manager wants written. Returns 0 or an errno. */
static int write_wanted(const mz_os *os, int fd, const char *text)
{
    uint8_t data[WRITE_BYTES];
    int bytes = text != NULL ? decode_base64(text, data) : 0;
    if (bytes < 0) {
        return EINVAL;
    }
    ssize_t written = bytes > 0 ? os->write(os->context, fd, data, (size_t)bytes) : 0;
    return written == bytes ? 0 : written < 0 ? errno : EIO;
}

void mz_pressure_open_systemd(mz_pressure_source *source, const mz_pressure_config *config)
{
    const mz_os *os = config->os;
    source->level = MZ_PRESSURE_MEDIUM;
    if (config->watch == NULL) {
        mz_error_set(&source->why, MZ_E_NOTFOUND, 0,
                     "no service manager set MEMORY_PRESSURE_WATCH");
        return;
    }
    if (strcmp(config->watch, "/dev/null") == 0) {
        mz_error_set(&source->why, MZ_E_CANCELLED, 0,
                     "MEMORY_PRESSURE_WATCH=/dev/null: the service manager wants no watch");
        return;
    }
    source->fd = open_watch(config, config->write != NULL);
    int failure = source->fd >= 0 ? 0 : errno;
    struct stat kind;
    if (failure == 0 && os->fstat(os->context, source->fd, &kind) != 0) {
        failure = errno;
    }
    if (failure == 0) {
        failure = write_wanted(os, source->fd, config->write);
    }
    if (failure != 0) {
        mz_error_set(&source->why, mz_status_from_errno(failure), failure,
                     "cannot watch %.200s of MEMORY_PRESSURE_WATCH", config->watch);
        if (source->fd >= 0) {
            os->close(os->context, source->fd);
            source->fd = -1;
        }
        return;
    }
    bool is_stream = S_ISFIFO(kind.st_mode) || S_ISSOCK(kind.st_mode);
    source->events = is_stream ? POLLIN : POLLPRI;
    source->read = is_stream ? read_stream : NULL;
}

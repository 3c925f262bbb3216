/* SPDX-License-Identifier: MIT */
/*
 * Files for tests, made with plain C library calls so that the right bytes do not come from the
 * code under test. Byte i of every file is scratch_byte(i). The directory is made anew for each
 * program, under $TMPDIR or /tmp, and removed with what is in it.
 */
#ifndef MZ_TEST_SCRATCH_H
#define MZ_TEST_SCRATCH_H

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SCRATCH_PAGE ((size_t)4096)

/* Neither constant nor of a period that a page or a power of two hides. */
static inline uint8_t scratch_byte(uint64_t at)
{
    return (uint8_t)(at * 131 + at / 251 + 7);
}

static inline void scratch_make_directory(char *path, size_t capacity)
{
    const char *parent = getenv("TMPDIR");
    snprintf(path, capacity, "%s/mzcache-test-XXXXXX", parent != NULL ? parent : "/tmp");
    assert_non_null(mkdtemp(path));
}

static inline void scratch_make_file(const char *path, size_t bytes)
{
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    for (size_t at = 0; at < bytes; at++) {
        assert_int_not_equal(putc(scratch_byte(at), stream), EOF);
    }
    assert_int_equal(fclose(stream), 0);
}

static inline void scratch_make_text(const char *path, const char *text)
{
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

/* Page-aligned memory full of 0xA5; freed by free(). */
static inline uint8_t *scratch_buffer(size_t bytes)
{
    void *buffer = NULL;
    assert_int_equal(posix_memalign(&buffer, SCRATCH_PAGE, bytes), 0);
    memset(buffer, 0xA5, bytes);
    return buffer;
}

/* data[0..bytes) holds the file's bytes from `offset` on. */
static inline void scratch_assert_bytes(const uint8_t *data, size_t bytes, uint64_t offset)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != scratch_byte(offset + i)) {
            fail_msg("byte %zu behind offset %llu is wrong", i, (unsigned long long)offset);
        }
    }
}

static inline void scratch_assert_untouched(const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(data[i], 0xA5);
    }
}

/* Entries of a directory without "." and ".."; of /proc/self/fd: open descriptors, plus one. */
static inline int scratch_count_entries(const char *path)
{
    DIR *directory = opendir(path);
    assert_non_null(directory);
    int count = 0;
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            count++;
        }
    }
    closedir(directory);
    return count;
}

#endif

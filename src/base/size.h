/* SPDX-License-Identifier: MIT */
/* Sizes as people write them: 512M, 1.5G, 40%, 4096. */
#ifndef MZ_BASE_SIZE_H
#define MZ_BASE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mz_size {
    bool is_percent; /* value is a share of something, 0..100 */
    double percent;  /* valid if is_percent */
    uint64_t bytes;  /* valid otherwise */
} mz_size;

/*
 * Parse a size. Units K, M, G, T are powers of 1024, upper or lower case, with or without "B" or
 * "iB" behind; a bare number is bytes; "%" makes it a share. Returns false for anything else:
 * empty, negative, not finite, above 100 %, overflow, trailing text.
 */
bool mz_size_parse(const char *text, mz_size *size);

/* The bytes that a size means of `whole` bytes. */
uint64_t mz_size_of(mz_size size, uint64_t whole);

/* "1.5 GiB", "96.0 KiB", "12 B" into text[capacity]; returns text. */
const char *mz_size_format(uint64_t bytes, char *text, unsigned capacity);

#endif

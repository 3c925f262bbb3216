/* SPDX-License-Identifier: MIT */
/*
 * Sizes as people write them; see size.h.
 *
 * Problem: strtod and printf follow the host's locale, where "1.5G" may be a syntax error and
 * output may carry a comma. Approach: digits are read and written here, in integers; a fraction is
 * kept as a numerator over a power of ten. Invariant: what is accepted has one meaning, everything
 * else is refused, and no product wraps round.
 */
#include "base/size.h"

#include <stddef.h>
#include <stdio.h>

/* Digits of a fraction that count: 10^18 is the largest power of ten in 64 bits less a digit. */
#define MAX_FRACTION_DIGITS 18

/* A decimal number: whole + numerator / denominator. */
typedef struct decimal {
    uint64_t whole;
    uint64_t numerator;
    uint64_t denominator; /* a power of ten; 1: there was no point */
} decimal;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Read digits[.digits]. Returns what follows, NULL if there is no number or it is too large. */
static const char *parse_decimal(const char *text, decimal *number)
{
    *number = (decimal){0, 0, 1};
    if (!is_digit(*text)) {
        return NULL;
    }
    for (; is_digit(*text); text++) {
        unsigned digit = (unsigned)(*text - '0');
        if (number->whole > (UINT64_MAX - digit) / 10) {
            return NULL;
        }
        number->whole = number->whole * 10 + digit;
    }
    if (*text != '.') {
        return text;
    }
    text++;
    if (!is_digit(*text)) {
        return NULL;
    }
    for (int count = 0; is_digit(*text); text++, count++) {
        if (count < MAX_FRACTION_DIGITS) {
            number->numerator = number->numerator * 10 + (unsigned)(*text - '0');
            number->denominator *= 10;
        }
    }
    return text;
}

/* Read K, KB, KiB and so on in either case. Returns what follows; *shift is the power of two. */
static const char *parse_unit(const char *text, unsigned *shift)
{
    *shift = 0;
    switch (to_lower(*text)) {
    case 'k':
        *shift = 10;
        break;
    case 'm':
        *shift = 20;
        break;
    case 'g':
        *shift = 30;
        break;
    case 't':
        *shift = 40;
        break;
    default:
        return text;
    }
    text++;
    if (to_lower(text[0]) == 'b') {
        return text + 1;
    }
    if (to_lower(text[0]) == 'i' && to_lower(text[1]) == 'b') {
        return text + 2;
    }
    return text;
}

static bool make_percent(const decimal *number, mz_size *size)
{
    if (number->whole > 100 || (number->whole == 100 && number->numerator != 0)) {
        return false;
    }
    *size = (mz_size){.is_percent = true};
    size->percent = (double)number->whole + (double)number->numerator / (double)number->denominator;
    return true;
}

bool mz_size_parse(const char *text, mz_size *size)
{
    if (text == NULL) {
        return false;
    }
    decimal number;
    text = parse_decimal(text, &number);
    if (text == NULL) {
        return false;
    }
    if (text[0] == '%' && text[1] == '\0') {
        return make_percent(&number, size);
    }
    unsigned shift = 0;
    text = parse_unit(text, &shift);
    bool is_half_byte = shift == 0 && number.denominator != 1;
    if (*text != '\0' || is_half_byte || number.whole > (UINT64_MAX >> shift)) {
        return false;
    }
    /* A fraction is below one unit, also where the double rounds up: it fits into the free bits. */
    uint64_t unit = UINT64_C(1) << shift;
    double scaled = (double)number.numerator * (double)unit / (double)number.denominator;
    uint64_t part = (uint64_t)scaled < unit ? (uint64_t)scaled : unit - 1;
    *size = (mz_size){.is_percent = false, .bytes = (number.whole << shift) + part};
    return true;
}

uint64_t mz_size_of(mz_size size, uint64_t whole)
{
    if (!size.is_percent) {
        return size.bytes;
    }
    if (!(size.percent > 0.0)) {
        return 0;
    }
    if (size.percent >= 100.0) {
        return whole;
    }
    return (uint64_t)((long double)whole * (long double)size.percent / 100.0L);
}

const char *mz_size_format(uint64_t bytes, char *text, unsigned capacity)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(text, capacity, "%u B", (unsigned)bytes);
        return text;
    }
    size_t last = sizeof units / sizeof units[0] - 1;
    for (size_t i = 0;; i++) {
        uint64_t unit = UINT64_C(1) << (10 * (i + 1));
        /* Rounded to tenths; rest * 10 stays below 10 * 2^60 < 2^64. */
        uint64_t tenths = bytes / unit * 10 + (bytes % unit * 10 + unit / 2) / unit;
        if (tenths < 10240 || i == last) {
            snprintf(text, capacity, "%llu.%u %s", (unsigned long long)(tenths / 10),
                     (unsigned)(tenths % 10), units[i]);
            return text;
        }
    }
}

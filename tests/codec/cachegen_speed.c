/* SPDX-License-Identifier: MIT */
/*
 * Goal: say how much faster "cachegen" decodes than a straightforward scalar range decoder would.
 * Method: the same number of symbols with the same frequencies, on one thread, in time of the
 * processor: a range coder of the usual kind (32 bits, renormalized by bytes, one division and one
 * look-up for each symbol) gives symbols only, the codec gives f16. Prints a JSON line for each
 * variant; a benchmark, not a test: nothing passes or fails but wrong results.
 */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "codec/cachegen_model.h"
#include "codec/codec.h"
#include "kernels/f16.h"

#define CHUNKS 64u
#define ROWS 256u
#define WIDE 256u
#define SYMBOLS (CHUNKS * ROWS * WIDE)
#define ROUNDS 9

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* --- the reference: a range coder --- */

typedef struct table {
    uint32_t freq[256], start[256];
    uint8_t of_slot[1024]; /* symbol + 128 */
} table;

typedef struct range_encoder {
    uint64_t low;
    uint32_t range;
    uint8_t *out, held; /* held: a byte that a carry may still change */
    size_t pending;     /* 0xff bytes behind it */
    bool has_held;
} range_encoder;

static void shift_low(range_encoder *to)
{
    if (to->low < 0xff000000u || to->low >> 32 != 0) {
        uint8_t carry = (uint8_t)(to->low >> 32);
        if (to->has_held) {
            *to->out++ = (uint8_t)(to->held + carry);
        }
        for (; to->pending > 0; to->pending--) {
            *to->out++ = (uint8_t)(0xff + carry);
        }
        to->held = (uint8_t)(to->low >> 24);
        to->has_held = true;
    } else {
        to->pending++;
    }
    to->low = (to->low & 0x00ffffffu) << 8;
}

static size_t range_encode(const table *by, const uint8_t *symbols, size_t count, uint8_t *out)
{
    range_encoder to = {.range = UINT32_MAX, .out = out};
    for (size_t i = 0; i < count; i++) {
        to.range >>= 10;
        to.low += (uint64_t)by->start[symbols[i]] * to.range;
        to.range *= by->freq[symbols[i]];
        for (; to.range < 1u << 24; to.range <<= 8) {
            shift_low(&to);
        }
    }
    for (int i = 0; i < 5; i++) {
        shift_low(&to);
    }
    return (size_t)(to.out - out);
}

static void range_decode(const table *by, const uint8_t *in, uint8_t *symbols, size_t count)
{
    uint32_t range = UINT32_MAX, code = 0;
    for (int i = 0; i < 4; i++) {
        code = code << 8 | *in++;
    }
    for (size_t i = 0; i < count; i++) {
        range >>= 10;
        uint32_t slot = code / range;
        uint8_t symbol = by->of_slot[slot < 1024 ? slot : 1023];
        code -= by->start[symbol] * range;
        range *= by->freq[symbol];
        for (; range < 1u << 24; range <<= 8) {
            code = code << 8 | *in++;
        }
        symbols[i] = symbol;
    }
}

/* --- data --- */

static double gaussian(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        sum += ldexp((double)(random_next(state) >> 40), -24);
    }
    return sum;
}

static void make_table(table *by, const uint8_t *symbols, size_t count)
{
    uint32_t counts[MZ_CG_COUNTS] = {0}, beyond, entries[MZ_CG_SYMBOLS], slots[MZ_CG_SLOTS];
    for (size_t i = 0; i < count; i++) {
        counts[abs((int)symbols[i] - 128)]++;
    }
    mz_cg_model model = mz_cg_model_of(counts, &beyond);
    mz_cg_model_symbols(&model, entries);
    mz_cg_model_slots(&model, slots);
    for (size_t i = 0; i < 256; i++) {
        by->freq[i] = entries[i] & 0xffff;
        by->start[i] = entries[i] >> 16;
    }
    for (size_t i = 0; i < 1024; i++) {
        by->of_slot[i] = (uint8_t)((int8_t)(slots[i] >> 24) + 128);
    }
}

/* Values of a spread that makes residuals like those of KV: about 4 bits. */
static void make_data(uint16_t *values, uint8_t *symbols)
{
    uint64_t state = 91;
    for (size_t i = 0; i < SYMBOLS; i++) {
        double value = gaussian(&state);
        values[i] = mz_f16_from_f32((float)value);
        double scaled = nearbyint(value * 5);
        symbols[i] = (uint8_t)(128 + (int)fmin(fmax(scaled, -15), 15)); /* all get slots */
    }
}

static double measure_reference(const uint8_t *symbols, double *bits)
{
    static table by;
    make_table(&by, symbols, SYMBOLS);
    uint8_t *coded = malloc(SYMBOLS * 2), *back = malloc(SYMBOLS);
    assert_true(coded != NULL && back != NULL);
    *bits = 8.0 * (double)range_encode(&by, symbols, SYMBOLS, coded) / SYMBOLS;
    double best = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = seconds();
        range_decode(&by, coded, back, SYMBOLS);
        best = fmin(best, seconds() - begin);
    }
    assert_memory_equal(back, symbols, SYMBOLS);
    free(coded);
    free(back);
    return SYMBOLS / best;
}

static double measure_codec(const uint16_t *values, double *bits)
{
    const mz_codec *codec = mz_codec_find("cachegen");
    const mz_codec_shape shape = {MZ_ELEM_F16, WIDE * 2, ROWS};
    size_t room = codec->bound(&shape), total = 0, bytes[CHUNKS];
    uint8_t *coded = malloc(room * CHUNKS);
    uint16_t *back = calloc(SYMBOLS, sizeof *back);
    assert_true(coded != NULL && back != NULL);
    for (size_t i = 0; i < CHUNKS; i++) {
        assert_int_equal(
            codec->encode(&shape, values + i * ROWS * WIDE, coded + i * room, &bytes[i]), MZ_OK);
        total += bytes[i];
    }
    *bits = 8.0 * (double)total / SYMBOLS;
    double best = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = seconds();
        for (size_t i = 0; i < CHUNKS; i++) {
            assert_int_equal(
                codec->decode(&shape, coded + i * room, bytes[i], back + i * ROWS * WIDE), MZ_OK);
        }
        best = fmin(best, seconds() - begin);
    }
    free(coded);
    free(back);
    return SYMBOLS / best;
}

static void test_speed(void **unused)
{
    (void)unused;
    uint16_t *values = malloc(SYMBOLS * sizeof *values);
    uint8_t *symbols = malloc(SYMBOLS);
    double range_bits, bits;
    assert_true(values != NULL && symbols != NULL);
    make_data(values, symbols);
    double reference = measure_reference(symbols, &range_bits);
    for (size_t i = 0; mz_kernels_at(i) != NULL; i++) {
        mz_kernels_use(mz_kernels_at(i));
        double rate = measure_codec(values, &bits);
        printf("{\"codec\":\"cachegen\",\"variant\":\"%s\",\"bits\":%.2f,\"decode_melements\":%.0f,"
               "\"range_coder_bits\":%.2f,\"range_coder_msymbols\":%.0f,\"ratio\":%.1f}\n",
               mz_kernels_at(i)->name, bits, rate / 1e6, range_bits, reference / 1e6,
               rate / reference);
    }
    mz_kernels_use(NULL);
    free(values);
    free(symbols);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_speed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

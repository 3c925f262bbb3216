/* SPDX-License-Identifier: MIT */
/*
 * Goal: the codec "cachegen" keeps what its format promises: values within half a step of the grid
 * that it states, the same bytes in every cycle, rows exact where coding doesn't pay, nothing where
 * all is zero; and whatever stands in a payload, decoding stays within its buffers and gives finite
 * values.
 * Method: data like KV and data that is not, in blocks of every width and many numbers of rows; a
 * decoder written here from the format's description alone; every flip of a payload under a right
 * checksum.
 */
#include "fixture.h"

#include <stdlib.h>
#include <xxhash.h>

#include "codec/codec.h"

#define HEADER 32u

typedef enum kind {
    KIND_KV,       /* channels that spread and drift by different amounts, around different means */
    KIND_GROUPS,   /* of fixture.h: every magnitude side by side */
    KIND_ANY,      /* any finite f16 */
    KIND_LARGE,    /* close below 65504, where rounding up would leave f16 */
    KIND_DENORMAL, /* below 2^-14, zeros of both signs */
    KIND_CONSTANT, /* one value for each channel */
    KIND_OUTLIER,  /* small values and a few large ones */
    KINDS,
} kind;

static uint16_t half_of(double value)
{
    uint16_t best = 0;
    for (int bit = 14; bit >= 0; bit--) { /* f16s are ordered as their bits */
        uint16_t next = (uint16_t)(best | 1u << bit);
        best = next < 0x7c00 && f16_value(next) <= fabs(value) ? next : best;
    }
    return (uint16_t)(best | (value < 0 ? 0x8000 : 0));
}

static void fill(uint16_t *data, size_t rows, size_t wide, kind of, uint64_t *state)
{
    if (of == KIND_GROUPS) {
        fill_groups(data, rows * wide / 32, state);
        return;
    }
    for (size_t channel = 0; channel < wide; channel++) {
        double spread = ldexp(1, (int)(random_next(state) >> 40) % 6 - 3), value = 0;
        double mean = spread * (double)((int)(random_next(state) >> 40) % 9 - 4);
        for (size_t row = 0; row < rows; row++) {
            uint64_t bits = random_next(state);
            double noise = ldexp((double)(bits >> 32), -32) + ldexp((double)(bits & 0xffff), -16);
            value = value * 0.5 + (noise - 1) * spread;
            uint16_t sign = (uint16_t)(bits >> 63 << 15);
            uint16_t *to = &data[row * wide + channel];
            switch (of) {
            case KIND_ANY:
                *to = (uint16_t)((bits >> 20) % 0x7c00 | sign);
                break;
            case KIND_LARGE:
                *to = (uint16_t)((0x7bff - (bits >> 20) % 40) | sign);
                break;
            case KIND_DENORMAL:
                *to = (uint16_t)((bits >> 20) % 0x400 % (1 + channel * 7) | sign);
                break;
            case KIND_CONSTANT:
                *to = (uint16_t)(0x3000 + channel * 31);
                break;
            case KIND_OUTLIER:
                *to = (bits >> 20) % 97 == 0 ? (uint16_t)(0x6400 | sign) : half_of(mean + value);
                break;
            default:
                *to = half_of(mean + value);
            }
        }
    }
}

/* --- the format, decoded slowly from its description --- */

typedef struct slow {
    const uint8_t *at;
    size_t rows, lanes;  /* of the block */
    int exponent;
    size_t corrections;
    uint64_t state[32];
    unsigned class[256], slope[256];
    int center[256];
    int top[16], freq[16][128];
} slow;

static unsigned take(slow *in, int bytes)
{
    unsigned value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (unsigned)*in->at++ << (8 * i);
    }
    return value;
}

static unsigned take_number(slow *in)
{
    unsigned value = 0, byte = 0x80;
    for (int shift = 0; byte >= 0x80; shift += 7) {
        byte = *in->at++;
        value |= (byte & 0x7f) << shift;
    }
    return value;
}

static void take_head(slow *in)
{
    in->exponent = (int)take(in, 1) - 24;
    unsigned in_use = take(in, 2);
    in->corrections = take(in, 2);
    assert_int_equal(take(in, 2), 0);
    for (int lane = 0; lane < 32; lane++) {
        in->state[lane] = take(in, 4);
    }
    for (size_t i = 0; i < in->lanes; i++) {
        unsigned byte = take(in, 1);
        in->class[i] = byte & 15;
        in->slope[i] = byte >> 4;
        assert_true((in_use >> in->class[i] & 1) == 1 && in->slope[i] < 8);
    }
    for (size_t i = 0; i < in->lanes; i++) {
        unsigned number = take_number(in);
        in->center[i] = number % 2 == 1 ? -(int)(number / 2) - 1 : (int)(number / 2);
    }
    for (int class = 0; class < 16; class++) {
        int sum = 0;
        in->top[class] = (in_use >> class & 1) == 1 ? (int)take(in, 1) : -1;
        for (int i = 0; i <= in->top[class]; i++) {
            in->freq[class][i] = (int)take_number(in);
            sum += in->freq[class][i] * (i == 0 ? 1 : 2);
        }
        assert_true(in->top[class] < 0 || sum == 1024);
    }
}

/* The next symbol of a lane: the one whose slots hold the state's lowest ten bits. */
static int next_symbol(slow *in, unsigned class, uint64_t *x)
{
    int slot = (int)(*x % 1024), start = 0;
    for (int symbol = -in->top[class];; symbol++) {
        int freq = in->freq[class][abs(symbol)];
        if (slot < start + freq) {
            *x = (uint64_t)freq * (*x / 1024) + (uint64_t)(slot - start);
            *x = *x < 65536 ? *x * 65536 + take(in, 2) : *x;
            return symbol;
        }
        start += freq;
    }
}

/* Decode a coded block of so many bytes; *step is its grid's. */
static void decode_slowly(slow *in, size_t bytes, double *values, double *step)
{
    const uint8_t *end = in->at + bytes;
    assert_int_equal(take(in, 1), 2);
    take_head(in);
    const uint8_t *list = in->at, *list_end = list + in->corrections * 4;
    in->at = list_end;
    *step = ldexp(1, in->exponent);
    for (size_t strip = 0; strip < in->lanes / 32; strip++) {
        double last[32] = {0};
        for (size_t row = 0; row < in->rows; row++) {
            for (size_t lane = 0; lane < 32; lane++) {
                size_t channel = strip * 32 + lane;
                int residual = next_symbol(in, in->class[channel], &in->state[lane]);
                size_t place = (strip * in->rows + row) * 32 + lane;
                if (list < list_end && place == (size_t)(list[0] | list[1] << 8)) {
                    residual += (int16_t)(list[2] | list[3] << 8);
                    list += 4;
                }
                double predicted = floor((last[lane] * in->slope[channel] + 4) / 8);
                last[lane] = residual + predicted;
                last[lane] -= 65536 * floor((last[lane] + 32768) / 65536);
                values[row * in->lanes + channel] = (last[lane] + in->center[channel]) * *step;
            }
        }
    }
    assert_ptr_equal(list, list_end);
    assert_ptr_equal(in->at, end);
    for (int lane = 0; lane < 32; lane++) {
        assert_int_equal(in->state[lane], 65536);
    }
}

/* Compare a block's values: as decoded slowly, and within half a step of the source. */
static void check_block(const uint8_t *at, size_t bytes, size_t rows, size_t lanes, size_t stride,
                        const uint16_t *source, const uint16_t *back)
{
    double *values = calloc(rows * lanes, sizeof *values), step = 0;
    slow in = {.at = at, .rows = rows, .lanes = lanes};
    assert_non_null(values);
    if (*at == 2) {
        decode_slowly(&in, bytes, values, &step);
        assert_true(bytes < 1 + rows * lanes * 2);
    }
    for (size_t row = 0; row < rows; row++) {
        for (size_t lane = 0; lane < lanes; lane++) {
            uint16_t from = source[row * stride + lane], to = back[row * stride + lane];
            if (*at == 1) {
                assert_int_equal(from, to);
                continue;
            }
            assert_true(f16_value(to) == values[row * lanes + lane]);
            double away = fabs(f16_value(from) - f16_value(to));
            double most = fabs(f16_value(from)) + step / 2 > 65504 ? step : step / 2;
            /* A block of zeros has no step: its values were below half of one, or are zero. */
            assert_true(*at == 0 || away <= most);
        }
    }
    free(values);
}

static void check_payload(const mz_codec_shape *shape, const uint8_t *packed, size_t bytes,
                          const uint16_t *source, const uint16_t *back)
{
    size_t stride = shape->row_bytes / 2, columns = (stride + 255) / 256;
    size_t blocks = (shape->rows + 255) / 256 * columns;
    const uint8_t *table = packed + HEADER, *at = table + blocks * 4;
    for (size_t i = 0; i < blocks; i++) {
        size_t row = i / columns * 256, channel = i % columns * 256, kept = 0;
        for (size_t j = 0; j < 4; j++) {
            kept |= (size_t)table[i * 4 + j] << (8 * j);
        }
        size_t rows = shape->rows - row < 256 ? shape->rows - row : 256;
        size_t lanes = stride - channel < 256 ? stride - channel : 256;
        size_t offset = row * stride + channel;
        check_block(at, kept, rows, lanes, stride, source + offset, back + offset);
        at += kept;
    }
    assert_ptr_equal(at, packed + bytes);
}

static void check_cycles(const mz_codec_shape *shape, kind of, uint64_t *state)
{
    const mz_codec *codec = mz_codec_find("cachegen");
    size_t total = (size_t)shape->rows * shape->row_bytes, bound = codec->bound(shape), bytes = 0;
    guarded data = guarded_new(total), once = guarded_new(total), other = guarded_new(bound);
    guarded room = guarded_new(bound);
    uint16_t *values = (uint16_t *)(void *)data.data, *back = (uint16_t *)(void *)once.data;
    fill(values, shape->rows, shape->row_bytes / 2, of, state);
    assert_int_equal(codec->encode(shape, values, room.data, &bytes), MZ_OK);
    assert_true(bytes <= bound);
    guarded first = guarded_new(bytes); /* reading behind what was written faults */
    memcpy(first.data, room.data, bytes);
    assert_int_equal(mz_codec_decode(shape, first.data, bytes, back), MZ_OK);
    check_payload(shape, first.data, bytes, values, back);
    for (size_t i = 0; mz_kernels_at(i) != NULL; i++) {
        size_t again = 0;
        mz_kernels_use(mz_kernels_at(i));
        assert_int_equal(codec->encode(shape, values, other.data, &again), MZ_OK);
        assert_int_equal(again, bytes);
        assert_memory_equal(other.data, first.data, bytes);
        assert_int_equal(codec->encode(shape, back, other.data, &again), MZ_OK);
        assert_int_equal(again, bytes);
        assert_memory_equal(other.data, first.data, bytes);
        guarded target = guarded_new(total);
        assert_int_equal(codec->decode(shape, first.data, bytes, target.data), MZ_OK);
        assert_memory_equal(target.data, back, total);
        guarded_free(&target);
    }
    mz_kernels_use(NULL);
    guarded *all[] = {&data, &once, &other, &room, &first};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        guarded_free(all[i]);
    }
}

static void test_cycles(void **unused)
{
    (void)unused;
    static const uint32_t widths[] = {64, 128, 384, 512, 576, 1088};
    static const uint32_t rows[] = {0, 1, 2, 3, 7, 16, 33, 100, 256, 257, 300};
    uint64_t state = 81;
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            for (int of = 0; of < KINDS; of++) {
                const mz_codec_shape shape = {MZ_ELEM_F16, widths[w], rows[r]};
                check_cycles(&shape, (kind)of, &state);
            }
        }
    }
}

/* Grids that change by a binade from one cycle to the next would show here: many scales. */
static void test_cycles_of_every_scale(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("cachegen");
    const mz_codec_shape shape = {MZ_ELEM_F16, 64, 24};
    uint64_t state = 82;
    uint16_t source[24 * 32], back[24 * 32];
    uint8_t packed[4096], again[4096];
    assert_true(codec->bound(&shape) <= sizeof packed);
    for (size_t round = 0; round < 20000; round++) {
        double scale = ldexp(1 + (double)(round % 64) / 64, (int)(round / 64 % 37) - 22);
        int values = 1 + (int)(random_next(&state) >> 40) % 9;
        for (size_t i = 0; i < 24 * 32; i++) {
            int value = (int)(random_next(&state) >> 40) % (2 * values + 1) - values;
            double rough = value * scale + (round % 3 == 0 ? 7 * scale : 0);
            source[i] = half_of(fmin(fmax(rough, -65504), 65504));
        }
        size_t bytes = 0, other = 0;
        memset(back, 0, sizeof back);
        assert_int_equal(codec->encode(&shape, source, packed, &bytes), MZ_OK);
        assert_int_equal(codec->decode(&shape, packed, bytes, back), MZ_OK);
        assert_int_equal(codec->encode(&shape, back, again, &other), MZ_OK);
        assert_int_equal(other, bytes);
        assert_memory_equal(again, packed, bytes);
    }
}

/* By hand: 32 channels that step by 1 and stay: a grid of 1/4 would do, but all is on that of 1. */
static void test_known_values(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("cachegen");
    const mz_codec_shape shape = {MZ_ELEM_F16, 64, 64};
    static uint16_t source[64 * 32], back[64 * 32];
    static uint8_t packed[64 * 64 + 64];
    size_t bytes = 0;
    for (size_t i = 0; i < 64 * 32; i++) {
        source[i] = i / 32 % 2 == 0 ? 0x3c00 : 0xc000; /* 1, -2 */
    }
    assert_int_equal(codec->encode(&shape, source, packed, &bytes), MZ_OK);
    /* Mean difference 3, a quarter of it 0.75, so the grid would be 1/2; all lies on the finer one
     * of 1/4; the coarsest grid with all of it is 1. */
    assert_int_equal(packed[HEADER + 4], 2);
    assert_int_equal(packed[HEADER + 5], 24);
    /* Center: the mean -0.5, halves up: 0. Then y is 1, -2; no slope fits a negative relation. */
    assert_int_equal(packed[HEADER + 4 + 136] >> 4, 0);
    assert_int_equal(packed[HEADER + 4 + 136 + 32], 0);
    assert_int_equal(codec->decode(&shape, packed, bytes, back), MZ_OK);
    assert_memory_equal(back, source, sizeof source);
    memset(source, 0, sizeof source);
    source[77] = 0x8000;
    assert_int_equal(codec->encode(&shape, source, packed, &bytes), MZ_OK);
    assert_int_equal(bytes, HEADER + 4 + 1);
}

static void test_savings(void **unused)
{
    (void)unused;
    const mz_codec *codec = mz_codec_find("cachegen");
    const mz_codec_shape shape = {MZ_ELEM_F16, 512, 256};
    size_t total = (size_t)shape.rows * shape.row_bytes, bytes = 0;
    uint64_t state = 83;
    uint16_t *source = malloc(total);
    uint8_t *packed = malloc(codec->bound(&shape));
    assert_true(source != NULL && packed != NULL);
    fill(source, shape.rows, shape.row_bytes / 2, KIND_KV, &state);
    assert_int_equal(codec->encode(&shape, source, packed, &bytes), MZ_OK);
    assert_true(bytes < total * 35 / 100);
    assert_true(codec->expected(&shape) > total / 4 && codec->expected(&shape) < total * 35 / 100);
    free(source);
    free(packed);
}

static void test_refusals(void **unused)
{
    (void)unused;
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xfe00, 0xffff};
    const mz_codec *codec = mz_codec_find("cachegen");
    const mz_codec_shape shape = {MZ_ELEM_F16, 128, 5};
    const mz_codec_shape others[] = {{MZ_ELEM_BF16, 64, 9},
                                     {MZ_ELEM_F32, 64, 9},
                                     {MZ_ELEM_OPAQUE, 64, 9},
                                     {MZ_ELEM_F16, 0, 9},
                                     {MZ_ELEM_F16, 96, 6}};
    uint16_t source[5 * 64] = {0};
    uint8_t packed[2048];
    size_t bytes = 77;
    assert_false(codec->exact);
    assert_true(codec->takes(&shape));
    assert_true(codec->bound(&shape) <= sizeof packed);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_false(codec->takes(&others[i]));
        assert_int_equal(codec->encode(&others[i], source, packed, &bytes), MZ_E_UNSUPPORTED);
    }
    for (size_t v = 0; mz_kernels_at(v) != NULL; v++) {
        mz_kernels_use(mz_kernels_at(v));
        for (size_t i = 0; i < 5 * 64; i++) {
            source[i] = bad[i % 6];
            assert_int_equal(codec->encode(&shape, source, packed, &bytes), MZ_E_UNSUPPORTED);
            source[i] = 0;
        }
    }
    mz_kernels_use(NULL);
    assert_int_equal(bytes, 77);
}

static void seal(uint8_t *packed, size_t bytes)
{
    uint64_t fields = XXH3_64bits(packed, 24);
    uint64_t checksum = XXH3_64bits_withSeed(packed + HEADER, bytes - HEADER, fields);
    memcpy(packed + 24, &checksum, sizeof checksum);
}

/* Every flip under a right checksum: refused, or decoded to finite values, never out of bounds. */
static void check_forgeries(const mz_codec_shape *shape, kind of, size_t step, uint64_t *state)
{
    const mz_codec *codec = mz_codec_find("cachegen");
    size_t total = (size_t)shape->rows * shape->row_bytes, bytes = 0, refused = 0, tried = 0;
    guarded data = guarded_new(total), room = guarded_new(codec->bound(shape));
    guarded target = guarded_new(total);
    fill((uint16_t *)(void *)data.data, shape->rows, shape->row_bytes / 2, of, state);
    assert_int_equal(codec->encode(shape, data.data, room.data, &bytes), MZ_OK);
    guarded packed = guarded_new(bytes);
    memcpy(packed.data, room.data, bytes);
    for (size_t at = HEADER; at < bytes; at += at < HEADER + 256 ? 1 : step) {
        for (unsigned flip = 1; flip < 256; flip *= 2) {
            packed.data[at] = (uint8_t)(packed.data[at] ^ flip);
            seal(packed.data, bytes);
            mz_status status = codec->decode(shape, packed.data, bytes, target.data);
            assert_true(status == MZ_OK || status == MZ_E_CORRUPT);
            refused += status == MZ_E_CORRUPT;
            tried++;
            for (size_t i = 0; status == MZ_OK && i < total; i += 2) {
                assert_true((target.data[i + 1] & 0x7c) != 0x7c);
            }
            packed.data[at] = (uint8_t)(packed.data[at] ^ flip);
        }
    }
    /* In rows kept as they are, nearly every flip makes another value that is as good. */
    assert_true(refused > (of == KIND_ANY ? 0 : tried / 2));
    guarded *all[] = {&data, &room, &target, &packed};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        guarded_free(all[i]);
    }
}

static void test_forgeries(void **unused)
{
    (void)unused;
    uint64_t state = 84;
    for (size_t v = 0; mz_kernels_at(v) != NULL; v++) {
        mz_kernels_use(mz_kernels_at(v));
        check_forgeries(&(mz_codec_shape){MZ_ELEM_F16, 64, 40}, KIND_KV, 1, &state);
        check_forgeries(&(mz_codec_shape){MZ_ELEM_F16, 64, 3}, KIND_ANY, 1, &state); /* exact */
        check_forgeries(&(mz_codec_shape){MZ_ELEM_F16, 128, 60}, KIND_OUTLIER, 3, &state);
        check_forgeries(&(mz_codec_shape){MZ_ELEM_F16, 128, 256}, KIND_CONSTANT, 1, &state);
    }
    mz_kernels_use(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cycles),       cmocka_unit_test(test_cycles_of_every_scale),
        cmocka_unit_test(test_known_values), cmocka_unit_test(test_savings),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_forgeries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

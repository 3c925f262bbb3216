/* SPDX-License-Identifier: MIT */
/*
 * Goal: every variant of the steps of "cachegen" gives what the generic one gives, within its
 * buffers; what is packed is unpacked again; and the generic steps do what cg.h says.
 * Method: strips of many numbers of tokens with values of every magnitude; predictions, states and
 * f16s are worked out here by their definitions, in wide integers and double arithmetic; buffers
 * end right before an inaccessible page.
 */
#include "fixture.h"

#include <stdlib.h>

#include "kernels/cg.h"

#define LANES MZ_CG_LANES
#define STRIDE 40u
#define ELEMENTS (MZ_CG_ROWS * LANES)
#define FILLER 0x5a5a

static const mz_cg_kernels *cg_of(size_t i)
{
    const mz_kernels *kernels = mz_kernels_variant(variant_names[i]);
    return kernels != NULL ? kernels->cg : NULL;
}

static const size_t some_rows[] = {0, 1, 2, 3, 7, 8, 15, 31, 64, 100, 255, 256};
#define SOME_ROWS (sizeof some_rows / sizeof some_rows[0])

/* f16 of every magnitude below `most` (bits), both signs, denormals among them. */
static void fill_halves(uint16_t *data, size_t count, unsigned most, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_next(state);
        data[i] = (uint16_t)((bits >> 20) % most | (bits >> 63) << 15);
    }
}

static size_t elements_of(size_t rows)
{
    return rows > 0 ? (rows - 1) * STRIDE + LANES : 0;
}

static void test_measure_and_quantize(void **unused)
{
    (void)unused;
    uint64_t state = 71;
    for (size_t r = 0; r < SOME_ROWS; r++) {
        size_t rows = some_rows[r];
        guarded source = guarded_new(elements_of(rows) * 2);
        guarded made = guarded_new(rows * LANES * 2);
        uint16_t *x = (uint16_t *)(void *)source.data;
        int16_t *q = (int16_t *)(void *)made.data;
        fill_halves(x, elements_of(rows), 0x4c00, &state); /* below 16 */
        for (size_t i = 0; i < VARIANT_NAMES; i++) {
            const mz_cg_kernels *cg = cg_of(i);
            if (cg == NULL) {
                continue;
            }
            mz_cg_measure sums = {{1.0f}, {2}};
            cg->measure(x, STRIDE, rows, &sums);
            uint16_t any = cg->quantize(x, STRIDE, rows, 64.0f, 700, q), right_any = 0;
            for (size_t lane = 0; lane < LANES; lane++) {
                double moved = lane == 0 ? 1 : 0;
                unsigned largest = lane == 0 ? 2 : 0;
                for (size_t row = 0; row < rows; row++) {
                    double value = f16_value(x[row * STRIDE + lane]);
                    double right = fmin(fmax(nearbyint(value * 64), -700), 700);
                    assert_int_equal(q[row * LANES + lane], (int)right);
                    right_any = (uint16_t)(right_any | (uint16_t)(int)right);
                    unsigned magnitude = x[row * STRIDE + lane] & 0x7fff;
                    largest = magnitude > largest ? magnitude : largest;
                    moved += row > 0 ? fabs(value - f16_value(x[(row - 1) * STRIDE + lane])) : 0;
                }
                assert_int_equal(sums.largest[lane], largest);
                assert_true(fabs(sums.moved[lane] - moved) <= moved * 1e-4);
            }
            assert_int_equal(any, right_any);
        }
        guarded_free(&source);
        guarded_free(&made);
    }
}

/* Sums of floats depend on their order: all variants must take the same one. */
static void test_measures_are_equal_bits(void **unused)
{
    (void)unused;
    uint64_t state = 72;
    uint16_t source[MZ_CG_ROWS * LANES];
    fill_halves(source, ELEMENTS, 0x7c00, &state);
    mz_cg_measure right = {{0}, {0}};
    mz_kernels_variant("generic")->cg->measure(source, LANES, MZ_CG_ROWS, &right);
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        if (cg_of(i) != NULL) {
            mz_cg_measure sums = {{0}, {0}};
            cg_of(i)->measure(source, LANES, MZ_CG_ROWS, &sums);
            assert_memory_equal(&sums, &right, sizeof sums);
        }
    }
}

static void test_on_grid(void **unused)
{
    (void)unused;
    uint16_t source[3 * LANES];
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        for (size_t at = 0; cg_of(i) != NULL && at < 3 * LANES; at++) {
            for (size_t j = 0; j < 3 * LANES; j++) {
                source[j] = j % 3 == 0 ? 0x8000 : 0x4200; /* -0 and 3 */
            }
            assert_true(cg_of(i)->on_grid(source, LANES, 3, 1.0f));
            assert_true(at % 3 == 0 || !cg_of(i)->on_grid(source, LANES, 3, 0.5f));
            source[at] = 0x3800; /* 0.5 */
            assert_false(cg_of(i)->on_grid(source, LANES, 3, 1.0f));
            assert_true(cg_of(i)->on_grid(source, LANES, 3, 2.0f));
            source[at] = 0x0001; /* 2^-24 */
            assert_false(cg_of(i)->on_grid(source, LANES, 3, 2.0f));
            assert_true(cg_of(i)->on_grid(source, LANES, 0, 2.0f));
        }
    }
}

static int64_t floor_div(int64_t over, int64_t under)
{
    return over / under - (over % under != 0 && (over < 0) != (under < 0));
}

static int64_t within(int64_t value, int64_t most)
{
    return value > most ? most : value < -most ? -most : value;
}

/* sum, correlate and predict of one lane by their definitions; restore gives q back. */
static void check_prediction(const mz_cg_kernels *cg, size_t rows, uint64_t *state)
{
    guarded in = guarded_new(rows * LANES * 2), out = guarded_new(rows * LANES * 2);
    guarded back = guarded_new(elements_of(rows) * 2);
    int16_t *q = (int16_t *)(void *)in.data, *r = (int16_t *)(void *)out.data;
    uint16_t *target = (uint16_t *)(void *)back.data;
    int16_t center[LANES], slope[LANES];
    int32_t sums[LANES], squares[LANES], products[LANES];
    uint32_t sizes[LANES];
    int limit = 1 << (1 + random_next(state) % 14);
    for (size_t i = 0; i < rows * LANES; i++) {
        q[i] = (int16_t)((int)(random_next(state) >> 33) % limit * ((i & 1) != 0 ? 1 : -1));
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        center[lane] = (int16_t)((int)(random_next(state) >> 33) % limit);
        slope[lane] = (int16_t)(random_next(state) % 8);
    }
    for (size_t i = 0; i < elements_of(rows); i++) {
        target[i] = FILLER;
    }
    cg->sum(q, rows, sums);
    cg->correlate(q, rows, center, squares, products);
    cg->predict(q, rows, center, slope, r, sizes);
    assert_true(cg->restore(r, rows, center, slope, 0.0078125f, 16383, target, STRIDE));
    for (size_t lane = 0; lane < LANES; lane++) {
        int64_t sum = 0, square = 0, product = 0, size = 0, last = 0;
        for (size_t row = 0; row < rows; row++) {
            int64_t is = q[row * LANES + lane], y = is - center[lane];
            int16_t right = (int16_t)(y - floor_div(last * slope[lane] + 4, 8));
            assert_int_equal(r[row * LANES + lane], right);
            sum += is;
            square += within(last, 2047) * within(last, 2047);
            product += within(last, 2047) * within(y, 2047);
            size += llabs(within(right, 4095));
            last = y;
            if (llabs(is) < 2048) {
                assert_true(f16_value(target[row * STRIDE + lane]) == (double)is / 128);
            }
        }
        assert_int_equal(sums[lane], sum);
        assert_int_equal(squares[lane], square);
        assert_int_equal(products[lane], product);
        assert_int_equal(sizes[lane], size);
    }
    for (size_t i = 0; i < elements_of(rows); i++) {
        assert_true(i % STRIDE < LANES || target[i] == FILLER);
    }
    guarded_free(&in);
    guarded_free(&out);
    guarded_free(&back);
}

static void test_prediction(void **unused)
{
    (void)unused;
    uint64_t state = 73;
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        for (size_t round = 0; cg_of(i) != NULL && round < 20 * SOME_ROWS; round++) {
            check_prediction(cg_of(i), some_rows[round % SOME_ROWS], &state);
        }
    }
}

/* Any residuals, such as no encoder makes: the same f16s and the same verdict from all variants. */
static void test_restore_of_everything(void **unused)
{
    (void)unused;
    uint64_t state = 74;
    static int16_t residual[ELEMENTS];
    static uint16_t right[ELEMENTS], target[ELEMENTS];
    int16_t center[LANES], slope[LANES];
    for (size_t round = 0; round < 200; round++) {
        unsigned shift = (unsigned)(random_next(&state) % 16);
        for (size_t i = 0; i < ELEMENTS; i++) {
            residual[i] = (int16_t)((int16_t)(random_next(&state) >> 40) >> shift);
        }
        for (size_t lane = 0; lane < LANES; lane++) {
            center[lane] = (int16_t)(random_next(&state) >> 40);
            slope[lane] = (int16_t)(random_next(&state) % 8);
        }
        int16_t limit = (int16_t)(random_next(&state) % 16384);
        bool fits = mz_kernels_variant("generic")->cg->restore(
            residual, MZ_CG_ROWS, center, slope, 0.25f, limit, right, LANES);
        for (size_t i = 0; i < VARIANT_NAMES; i++) {
            if (cg_of(i) != NULL) {
                assert_int_equal(fits, cg_of(i)->restore(residual, MZ_CG_ROWS, center, slope, 0.25f,
                                                         limit, target, LANES));
                assert_true(!fits || memcmp(target, right, sizeof right) == 0);
            }
        }
    }
    /* One q too large, in every lane, is noticed. */
    memset(residual, 0, sizeof residual);
    memset(center, 0, sizeof center);
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        for (size_t lane = 0; cg_of(i) != NULL && lane < LANES; lane++) {
            for (int sign = -1; sign <= 1; sign += 2) {
                residual[5 * LANES + lane] = (int16_t)(sign * 101);
                memset(slope, 0, sizeof slope);
                assert_false(
                    cg_of(i)->restore(residual, 9, center, slope, 1.0f, 100, target, LANES));
                assert_true(
                    cg_of(i)->restore(residual, 9, center, slope, 1.0f, 101, target, LANES));
                residual[5 * LANES + lane] = 0;
            }
        }
    }
}

/* Two classes: symbols -1, 0, 1 with 12, 1000 and 12 slots, and -127 .. 127 with 4 (8 for 0). */
static void make_classes(uint32_t *symbols, uint32_t *slots)
{
    memset(symbols, 0, 2 * MZ_CG_SYMBOLS * sizeof *symbols);
    for (int class = 0; class < 2; class++) {
        uint32_t start = 0;
        for (int symbol = class == 0 ? -1 : -127; symbol <= (class == 0 ? 1 : 127); symbol++) {
            uint32_t freq = class == 0 ? (symbol == 0 ? 1000 : 12) : (symbol == 0 ? 8 : 4);
            symbols[class * 256 + symbol + 128] = freq | start << 16;
            for (uint32_t i = 0; i < freq; i++) {
                slots[(uint32_t)class * 1024 + start + i] =
                    freq | i << 11 | (uint32_t)symbol << 24;
            }
            start += freq;
        }
        assert_int_equal(start, 1024);
    }
}

/* Encode as cg.h says, one symbol after another from the last; words go into an array backwards. */
static size_t pack_by_definition(const int16_t *residual, size_t rows, const uint32_t *symbols,
                                 const uint32_t *base, uint64_t *state, uint16_t *words)
{
    size_t count = 0;
    for (size_t i = rows * LANES; i-- > 0;) {
        uint64_t *x = &state[i % LANES];
        uint64_t entry = symbols[base[i % LANES] + (uint32_t)(residual[i] + 128)];
        uint64_t freq = entry & 0xffff, start = entry >> 16;
        if (((*x / freq) * 1024 + *x % freq + start) >> 32 != 0) {
            words[count++] = (uint16_t)*x;
            *x /= 65536;
        }
        *x = (*x / freq) * 1024 + *x % freq + start;
    }
    return count;
}

static void check_coder(const mz_cg_kernels *cg, size_t rows, uint64_t *random)
{
    static uint32_t symbols[2 * MZ_CG_SYMBOLS], slots[2 * MZ_CG_SLOTS];
    static uint16_t words[ELEMENTS];
    uint32_t symbol_base[LANES], slot_base[LANES], state[LANES], last[LANES];
    uint64_t right[LANES];
    guarded in = guarded_new(rows * LANES * 2), out = guarded_new(rows * LANES * 2);
    int16_t *residual = (int16_t *)(void *)in.data, *back = (int16_t *)(void *)out.data;
    make_classes(symbols, slots);
    for (size_t lane = 0; lane < LANES; lane++) {
        uint32_t class = (uint32_t)(random_next(random) >> 20) % 2;
        symbol_base[lane] = class * MZ_CG_SYMBOLS;
        slot_base[lane] = class * MZ_CG_SLOTS;
        state[lane] = MZ_CG_LOW;
        right[lane] = MZ_CG_LOW;
        for (size_t row = 0; row < rows; row++) {
            int symbol = (int)((random_next(random) >> 20) % 255) - 127;
            residual[row * LANES + lane] = (int16_t)(class == 1 ? symbol : symbol / 127);
        }
    }
    size_t count = pack_by_definition(residual, rows, symbols, symbol_base, right, words);
    guarded stream = guarded_new(count * 2); /* packing must not touch what lies before or behind */
    uint8_t *end = stream.data + count * 2;
    cg->pack(residual, rows, symbols, symbol_base, state, &end);
    assert_ptr_equal(end, stream.data);
    for (size_t i = 0; i < count; i++) {
        uint16_t word;
        memcpy(&word, stream.data + i * 2, sizeof word);
        assert_int_equal(word, words[count - 1 - i]);
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        assert_int_equal(state[lane], right[lane]);
        last[lane] = state[lane];
    }
    /* With room behind, all come back; without, as many rows as surely can, and no more is read. */
    guarded roomy = guarded_new(count * 2 + MZ_CG_ROW_ROOM);
    memcpy(roomy.data, stream.data, count * 2);
    const uint8_t *at = roomy.data;
    assert_int_equal(cg->unpack(&at, roomy.data + count * 2 + MZ_CG_ROW_ROOM, rows, slots,
                                slot_base, state, back), rows);
    assert_ptr_equal(at, roomy.data + count * 2);
    assert_memory_equal(back, residual, rows * LANES * 2);
    for (size_t lane = 0; lane < LANES; lane++) {
        assert_int_equal(state[lane], MZ_CG_LOW);
    }
    memset(back, 0, rows * LANES * 2);
    at = stream.data;
    size_t done = cg->unpack(&at, stream.data + count * 2, rows, slots, slot_base, last, back);
    assert_true(done == rows || (size_t)(stream.data + count * 2 - at) < MZ_CG_ROW_ROOM);
    assert_memory_equal(back, residual, done * LANES * 2);
    guarded *all[] = {&in, &out, &stream, &roomy};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        guarded_free(all[i]);
    }
}

static void test_coder(void **unused)
{
    (void)unused;
    uint64_t state = 75;
    for (size_t i = 0; i < VARIANT_NAMES; i++) {
        for (size_t round = 0; cg_of(i) != NULL && round < 10 * SOME_ROWS; round++) {
            check_coder(cg_of(i), some_rows[round % SOME_ROWS], &state);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measure_and_quantize),
        cmocka_unit_test(test_measures_are_equal_bits),
        cmocka_unit_test(test_on_grid),
        cmocka_unit_test(test_prediction),
        cmocka_unit_test(test_restore_of_everything),
        cmocka_unit_test(test_coder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

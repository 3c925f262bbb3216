/* SPDX-License-Identifier: MIT */
/*
 * Encoding a block of "cachegen".
 *
 * All q of a block are made first, because the grid, the classes and the models depend on all of
 * them. They become residuals in place. Words are written from the end of a buffer, since rANS
 * decodes in the reverse order of encoding, and moved behind the head, whose length is known by
 * then. Both buffers are the thread's (library.h).
 */
#include "codec/cachegen_block.h"

#include "kernels/kernels.h"

#include <string.h>

/* The step against the mean difference of neighbours; below 1/2, as cachegen.c needs. By
 * measurement: mean KL below 0.01 with both models of docs/codecs.md. */
#define STRENGTH 0.25f

#define HEAD_MOST (MZ_CG_FIXED_BYTES + MZ_CG_BLOCK_CHANNELS * 4u + MZ_CG_CLASSES * MZ_CG_MODEL_MOST)

/* The exponent of the largest power of two that is at most `value`, which is positive. */
static int exponent_of(float value)
{
    return (int)(mz_bits_from_f32(value) >> 23) - 127;
}

/* c(x) of cachegen.c; INT32_MAX if all is zero; false if a value is not finite. */
static bool choose_exponent(const mz_cg_block *of, const uint16_t *source, int *exponent)
{
    mz_cg_measure sums = {0};
    for (uint32_t strip = 0; strip < of->strips; strip++) {
        mz_kernels_get()->cg->measure(source + strip * MZ_CG_LANES, of->stride, of->rows, &sums);
    }
    float moved = 0;
    uint16_t largest = 0;
    for (unsigned lane = 0; lane < MZ_CG_LANES; lane++) {
        moved += sums.moved[lane];
        largest = sums.largest[lane] > largest ? sums.largest[lane] : largest;
    }
    if (largest >= MZ_F16_INFINITY) {
        return false;
    }
    *exponent = INT32_MAX;
    if (largest > 0) {
        int chosen = exponent_of(mz_f32_from_f16(largest)) - 12;
        if (moved > 0) {
            float steps = (float)(of->rows - 1) * (float)(of->strips * MZ_CG_LANES);
            int suits = exponent_of(moved / steps * STRENGTH);
            chosen = suits > chosen ? suits : chosen;
        }
        *exponent = chosen > MZ_CG_LEAST_EXPONENT ? chosen : MZ_CG_LEAST_EXPONENT;
    }
    return true;
}

static bool lies_on_grid(const mz_cg_block *of, const uint16_t *source, int exponent)
{
    for (uint32_t strip = 0; strip < of->strips; strip++) {
        if (!mz_kernels_get()->cg->on_grid(source + strip * MZ_CG_LANES, of->stride, of->rows,
                                           mz_cg_power_of_two(-exponent))) {
            return false;
        }
    }
    return true;
}

/* q [strips][rows][lanes] of a block; *exponent is theirs. Returns whether any is not 0. */
static bool quantize(const mz_cg_block *of, const uint16_t *source, int *exponent, int16_t *q)
{
    int finer = *exponent > MZ_CG_LEAST_EXPONENT ? *exponent - 1 : *exponent;
    *exponent = lies_on_grid(of, source, finer) ? finer : *exponent;
    size_t strip_elements = (size_t)of->rows * MZ_CG_LANES;
    unsigned any = 0;
    for (uint32_t strip = 0; strip < of->strips; strip++) {
        any |= mz_kernels_get()->cg->quantize(
            source + strip * MZ_CG_LANES, of->stride, of->rows, mz_cg_power_of_two(-*exponent),
            mz_cg_most_q(*exponent), q + strip * strip_elements);
    }
    if (any == 0) {
        return false;
    }
    int shift = __builtin_ctz(any);
    *exponent += shift;
    for (size_t i = 0; shift > 0 && i < of->strips * strip_elements; i++) {
        q[i] = (int16_t)(q[i] >> shift);
    }
    return true;
}

/* sum / count, rounded to the nearest integer, halves up. */
static int16_t rounded_mean(int32_t sum, int32_t count)
{
    int32_t over = 2 * sum + count, under = 2 * count;
    return (int16_t)(over / under - (over % under < 0));
}

/* The slope nearest to product / square. */
static int16_t slope_of(int32_t product, int32_t square)
{
    if (product <= 0) {
        return 0; /* as is square == 0 */
    }
    int64_t slope = ((int64_t)product * MZ_CG_SLOPE_ONE + square / 2) / square;
    return (int16_t)(slope < MZ_CG_SLOPE_ONE ? slope : MZ_CG_SLOPE_ONE - 1);
}

/* Turn the q of one strip into residuals, in place, and say what its channels are like. */
static void predict_strip(uint32_t rows, int16_t *strip, int16_t *center, int16_t *slope,
                          uint8_t *class)
{
    const mz_cg_kernels *kernels = mz_kernels_get()->cg;
    int16_t q[MZ_CG_ROWS * MZ_CG_LANES];
    int32_t sums[MZ_CG_LANES], squares[MZ_CG_LANES];
    uint32_t sizes[MZ_CG_LANES];
    memcpy(q, strip, (size_t)rows * MZ_CG_LANES * sizeof *q);
    kernels->sum(q, rows, sums);
    for (unsigned lane = 0; lane < MZ_CG_LANES; lane++) {
        center[lane] = rounded_mean(sums[lane], (int32_t)rows);
    }
    kernels->correlate(q, rows, center, squares, sums);
    for (unsigned lane = 0; lane < MZ_CG_LANES; lane++) {
        slope[lane] = slope_of(sums[lane], squares[lane]);
    }
    kernels->predict(q, rows, center, slope, strip, sizes);
    for (unsigned lane = 0; lane < MZ_CG_LANES; lane++) {
        class[lane] = (uint8_t)mz_cg_class_of(sizes[lane], rows);
    }
}

/* Models of the classes in use, in order; which those are, and how many residuals lie beyond. */
static uint32_t make_models(const mz_cg_block *of, const int16_t *residual,
                            const mz_cg_channels *about, mz_cg_model *models, uint16_t *in_use)
{
    uint32_t counts[MZ_CG_CLASSES][MZ_CG_COUNTS] = {{0}};
    *in_use = 0;
    for (uint32_t strip = 0; strip < of->strips; strip++) {
        const uint8_t *class = about->class + strip * MZ_CG_LANES;
        for (uint32_t lane = 0; lane < MZ_CG_LANES; lane++) {
            *in_use = (uint16_t)(*in_use | 1u << class[lane]);
        }
        for (uint32_t row = 0; row < of->rows; row++) {
            for (uint32_t lane = 0; lane < MZ_CG_LANES; lane++) {
                int magnitude = *residual < 0 ? -*residual : *residual;
                counts[class[lane]][magnitude > MZ_CG_TOP ? MZ_CG_TOP + 1 : magnitude]++;
                residual++;
            }
        }
    }
    uint32_t corrections = 0;
    for (unsigned class = 0; class < MZ_CG_CLASSES; class++) {
        if ((*in_use >> class & 1) != 0) {
            uint32_t beyond;
            *models++ = mz_cg_model_of(counts[class], &beyond);
            corrections += beyond;
        }
    }
    return corrections;
}

/* Whether any residual of a row is larger than its lane's top; few rows have one. */
static bool row_lies_beyond(const int16_t *residual, const int16_t *tops)
{
    int beyond = 0;
    for (uint32_t lane = 0; lane < MZ_CG_LANES; lane++) {
        beyond |= (residual[lane] > tops[lane]) | (residual[lane] < -tops[lane]);
    }
    return beyond != 0;
}

/* Hold the residuals of a row within their tops. Returns the end of what was listed. */
static uint8_t *correct_row(int16_t *residual, uint32_t first, const int16_t *tops, uint8_t *out)
{
    for (uint32_t lane = 0; lane < MZ_CG_LANES; lane++) {
        int16_t is = residual[lane], top = tops[lane];
        int16_t held = is > top ? top : is < -top ? (int16_t)-top : is;
        if (held != is) {
            uint16_t place = (uint16_t)(first + lane);
            int16_t added = (int16_t)(is - held);
            memcpy(out, &place, sizeof place);
            memcpy(out + 2, &added, sizeof added);
            out += MZ_CG_CORRECTION_BYTES;
            residual[lane] = held;
        }
    }
    return out;
}

/* Hold residuals within their models, and list what that takes from them. */
static uint8_t *correct(const mz_cg_block *of, int16_t *residual, const mz_cg_channels *about,
                        const mz_cg_model *models, uint16_t in_use, uint8_t *out)
{
    uint32_t place = 0;
    for (uint32_t strip = 0; strip < of->strips; strip++) {
        int16_t tops[MZ_CG_LANES];
        for (uint32_t lane = 0; lane < MZ_CG_LANES; lane++) {
            unsigned class = about->class[strip * MZ_CG_LANES + lane];
            tops[lane] = models[mz_cg_model_number(in_use, class)].top;
        }
        for (uint32_t row = 0; row < of->rows; row++, place += MZ_CG_LANES) {
            if (row_lies_beyond(residual + place, tops)) {
                out = correct_row(residual + place, place, tops, out);
            }
        }
    }
    return out;
}

/* Encode all residuals; words end at `end`. Returns where they begin. */
static uint8_t *pack(const mz_cg_block *of, const int16_t *residual, const mz_cg_channels *about,
                     const mz_cg_model *models, uint16_t in_use, uint32_t *state, uint8_t *end)
{
    uint32_t symbols[MZ_CG_CLASSES * MZ_CG_SYMBOLS], bases[MZ_CG_LANES];
    for (int i = 0; i < __builtin_popcount(in_use); i++) {
        mz_cg_model_symbols(&models[i], symbols + i * (int)MZ_CG_SYMBOLS);
    }
    for (unsigned lane = 0; lane < MZ_CG_LANES; lane++) {
        state[lane] = MZ_CG_LOW;
    }
    for (uint32_t strip = of->strips; strip-- > 0;) {
        mz_cg_bases(about->class + strip * MZ_CG_LANES, in_use, MZ_CG_SYMBOLS, bases);
        mz_kernels_get()->cg->pack(residual + (size_t)strip * of->rows * MZ_CG_LANES, of->rows,
                                   symbols, bases, state, &end);
    }
    return end;
}

/* What stands between the states and the corrections. Returns its end. */
static uint8_t *write_channels(const mz_cg_block *of, const mz_cg_channels *about,
                               const mz_cg_model *models, uint16_t in_use, uint8_t *out)
{
    uint32_t count = of->strips * MZ_CG_LANES;
    for (uint32_t i = 0; i < count; i++) {
        *out++ = (uint8_t)(about->class[i] | about->slope[i] << 4);
    }
    for (uint32_t i = 0; i < count; i++) {
        int32_t center = about->center[i];
        out = mz_cg_number_write((uint32_t)(center < 0 ? -2 * center - 1 : 2 * center), out);
    }
    for (int i = 0; i < __builtin_popcount(in_use); i++) {
        out = mz_cg_model_write(&models[i], out);
    }
    return out;
}

/* Code q, which becomes residuals. Returns the end at `out`; NULL: no smaller than plain. */
static uint8_t *encode_coded(const mz_cg_block *of, int exponent, mz_codec_tools *tools, int16_t *q,
                             uint8_t *out)
{
    mz_cg_channels about;
    mz_cg_model models[MZ_CG_CLASSES];
    uint8_t head[HEAD_MOST] = {MZ_CG_KIND_CODED, (uint8_t)(exponent - MZ_CG_LEAST_EXPONENT)};
    uint16_t in_use;
    for (uint32_t strip = 0; strip < of->strips; strip++) {
        uint32_t first = strip * MZ_CG_LANES;
        predict_strip(of->rows, q + (size_t)strip * of->rows * MZ_CG_LANES, about.center + first,
                      about.slope + first, about.class + first);
    }
    uint32_t corrections = make_models(of, q, &about, models, &in_use);
    uint8_t *head_end = write_channels(of, &about, models, in_use, head + MZ_CG_FIXED_BYTES);
    size_t bytes = (size_t)(head_end - head) + (size_t)corrections * MZ_CG_CORRECTION_BYTES;
    if (bytes >= mz_cg_plain_bytes(of)) {
        return NULL;
    }
    uint8_t *list = out + (head_end - head);
    uint8_t *words = correct(of, q, &about, models, in_use, list);
    uint32_t state[MZ_CG_LANES];
    uint8_t *scratch_end = tools->scratch + sizeof tools->scratch;
    uint8_t *from = pack(of, q, &about, models, in_use, state, scratch_end);
    size_t word_bytes = (size_t)(scratch_end - from);
    if (bytes + word_bytes >= mz_cg_plain_bytes(of)) {
        return NULL;
    }
    uint16_t count = (uint16_t)corrections;
    memcpy(head + 2, &in_use, sizeof in_use);
    memcpy(head + 4, &count, sizeof count);
    memcpy(head + 8, state, sizeof state);
    memcpy(out, head, (size_t)(head_end - head));
    memcpy(words, from, word_bytes);
    return words + word_bytes;
}

/* Encode a block; *end: behind it. False if a value is not finite. */
bool mz_cg_encode_block(const mz_cg_block *of, const uint16_t *source, mz_codec_tools *tools,
                         uint8_t *out, uint8_t **end)
{
    int16_t *q = (int16_t *)(void *)tools->planes;
    int exponent;
    if (!choose_exponent(of, source, &exponent)) {
        return false;
    }
    if (exponent == INT32_MAX || !quantize(of, source, &exponent, q)) {
        *out = MZ_CG_KIND_ZEROS;
        *end = out + 1;
        return true;
    }
    *end = encode_coded(of, exponent, tools, q, out);
    if (*end == NULL) {
        *out++ = MZ_CG_KIND_EXACT;
        for (uint32_t row = 0; row < of->rows; row++, out += of->strips * MZ_CG_STRIP_BYTES) {
            memcpy(out, source + row * of->stride, of->strips * MZ_CG_STRIP_BYTES);
        }
        *end = out;
    }
    return true;
}

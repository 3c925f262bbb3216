/* SPDX-License-Identifier: MIT */
/*
 * Classes and models of "cachegen".
 *
 * Frequencies are rounded to 1024ths and then moved by the least harm until they fill 1024: a slot
 * goes to, or comes from, the magnitude whose code length it changes most, or least. That is
 * integer arithmetic, so every machine gives the same bytes.
 */
#include "codec/cachegen_model.h"

#include <string.h>

/* A correction takes 32 bits; keeping them rarer than this costs under 0.02 bits per element. */
#define RARE 2048u

unsigned mz_cg_class_of(uint32_t size, uint32_t rows)
{
    /* 256 * 2^(k/2 - 2): means of |r| from 1/4 to 32. */
    static const uint16_t limits[MZ_CG_CLASSES - 1] = {64,   91,   128,  181,  256,  362,  512, 724,
                                                       1024, 1448, 2048, 2896, 4096, 5793, 8192};
    unsigned class = 0;
    for (unsigned k = 0; k < MZ_CG_CLASSES - 1; k++) {
        class += (uint64_t)size * 256 > (uint64_t)rows * limits[k];
    }
    return class;
}

/* The slots in use. */
static uint32_t used(const mz_cg_model *model)
{
    uint32_t sum = model->freq[0];
    for (unsigned i = 1; i <= model->top; i++) {
        sum += 2u * model->freq[i];
    }
    return sum;
}

/*
 * What two slots more (or the two last ones) are worth to magnitude i, as a fraction: its count
 * times the change of log(freq), by the slope halfway. Both signs of a magnitude get one each.
 */
static void worth(const mz_cg_model *model, const uint32_t *counts, unsigned i, bool more,
                  uint64_t *over, uint64_t *under)
{
    uint32_t freq = model->freq[i];
    *over = (uint64_t)counts[i] * 2;
    *under = i == 0 ? (more ? freq + 1u : freq - 1u) : (more ? 2u * freq + 1u : 2u * freq - 1u);
}

/* Give two slots to a magnitude, or take two from one. */
static void move_two(mz_cg_model *model, const uint32_t *counts, bool more)
{
    unsigned best = 0;
    uint64_t best_over = 0, best_under = 1;
    bool found = false;
    for (unsigned i = 0; i <= model->top; i++) {
        if (!more && model->freq[i] <= (i == 0 ? 2u : 1u)) {
            continue; /* each keeps a slot */
        }
        uint64_t over, under;
        worth(model, counts, i, more, &over, &under);
        bool better = more ? over * best_under > best_over * under
                           : over * best_under < best_over * under;
        if (!found || better) {
            found = true;
            best = i;
            best_over = over;
            best_under = under;
        }
    }
    uint16_t step = best == 0 ? 2 : 1;
    model->freq[best] = (uint16_t)(more ? model->freq[best] + step : model->freq[best] - step);
}

mz_cg_model mz_cg_model_of(const uint32_t *counts, uint32_t *beyond)
{
    uint32_t total = 0;
    for (unsigned i = 0; i < MZ_CG_COUNTS; i++) {
        total += counts[i];
    }
    mz_cg_model model = {.top = MZ_CG_TOP};
    *beyond = counts[MZ_CG_TOP + 1];
    while (model.top > 0 && (*beyond + counts[model.top]) <= total / RARE) {
        *beyond += counts[model.top--];
    }
    uint32_t coded[MZ_CG_TOP + 1];
    memcpy(coded, counts, sizeof coded);
    coded[model.top] += *beyond;
    /* freq[0] is even, so that pairs fill the rest. */
    uint32_t share = (uint32_t)((uint64_t)coded[0] * MZ_CG_SLOTS / total);
    model.freq[0] = (uint16_t)(share < 2 ? 2 : share & ~1u);
    for (unsigned i = 1; i <= model.top; i++) {
        share = (uint32_t)(((uint64_t)coded[i] * MZ_CG_SLOTS + total) / (2 * (uint64_t)total));
        model.freq[i] = (uint16_t)(share < 1 ? 1 : share);
    }
    while (used(&model) != MZ_CG_SLOTS) {
        move_two(&model, coded, used(&model) < MZ_CG_SLOTS);
    }
    return model;
}

uint8_t *mz_cg_number_write(uint32_t number, uint8_t *out)
{
    for (; number > 0x7f; number >>= 7) {
        *out++ = (uint8_t)(number | 0x80);
    }
    *out++ = (uint8_t)number;
    return out;
}

bool mz_cg_number_read(const uint8_t **at, const uint8_t *end, uint32_t *number)
{
    uint32_t made = 0;
    for (unsigned shift = 0; shift < 21 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        made |= (uint32_t)(byte & 0x7f) << shift;
        if (byte <= 0x7f) {
            *number = made;
            return byte != 0 || shift == 0;
        }
    }
    return false;
}

uint8_t *mz_cg_model_write(const mz_cg_model *model, uint8_t *out)
{
    *out++ = model->top;
    for (unsigned i = 0; i <= model->top; i++) {
        out = mz_cg_number_write(model->freq[i], out);
    }
    return out;
}

bool mz_cg_model_read(const uint8_t **at, const uint8_t *end, mz_cg_model *model)
{
    if (*at == end || **at > MZ_CG_TOP) {
        return false;
    }
    model->top = *(*at)++;
    for (unsigned i = 0; i <= model->top; i++) {
        uint32_t freq;
        if (!mz_cg_number_read(at, end, &freq) || freq < 1 || freq > MZ_CG_SLOTS) {
            return false;
        }
        model->freq[i] = (uint16_t)freq;
    }
    return used(model) == MZ_CG_SLOTS;
}

void mz_cg_model_symbols(const mz_cg_model *model, uint32_t *symbols)
{
    memset(symbols, 0, MZ_CG_SYMBOLS * sizeof *symbols);
    uint32_t start = 0;
    for (int symbol = -model->top; symbol <= model->top; symbol++) {
        uint32_t freq = model->freq[symbol < 0 ? -symbol : symbol];
        symbols[symbol + (int)MZ_CG_SYMBOLS / 2] = freq | start << MZ_CG_START_SHIFT;
        start += freq;
    }
}

void mz_cg_model_slots(const mz_cg_model *model, uint32_t *slots)
{
    for (int symbol = -model->top; symbol <= model->top; symbol++) {
        uint32_t freq = model->freq[symbol < 0 ? -symbol : symbol];
        uint32_t entry = freq | (uint32_t)symbol << MZ_CG_SYMBOL_SHIFT;
        for (uint32_t i = 0; i < freq; i++) {
            *slots++ = entry | i << MZ_CG_BIAS_SHIFT;
        }
    }
}

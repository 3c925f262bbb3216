/* SPDX-License-Identifier: MIT */
/*
 * Decoding a block of "cachegen", strip by strip, so that residuals are still in the first-level
 * cache when they become f16.
 *
 * Nothing of a block is trusted: the header's checksum finds damage, and what is checked here keeps
 * even a forgery within its buffers and its values finite.
 */
#include "codec/cachegen_block.h"

#include "kernels/kernels.h"

#include <string.h>

/* The rest of a block's bytes, and at its end room to read a whole row from. */
typedef struct reader {
    const uint8_t *at, *end;
    bool in_tail;                        /* `at` is in tail; end is what is readable there */
    size_t tail_bytes;                   /* of words; zeros behind */
    uint8_t tail[2 * MZ_CG_ROW_ROOM];
} reader;

/* The head of a coded block, checked. */
typedef struct coded {
    int exponent;
    uint16_t in_use;
    uint32_t corrections;
    uint32_t state[MZ_CG_LANES];
    mz_cg_channels about;
    const uint8_t *list; /* [corrections] */
    const uint8_t *words, *end;
} coded;

static bool read_channels(const uint8_t **at, const uint8_t *end, uint32_t count, coded *head)
{
    for (uint32_t i = 0; i < count; i++, (*at)++) {
        if (*at == end || **at > 0x7f || (head->in_use >> (**at & 15) & 1) == 0) {
            return false;
        }
        head->about.class[i] = **at & 15;
        head->about.slope[i] = **at >> 4;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number;
        if (!mz_cg_number_read(at, end, &number) || number > 2 * MZ_CG_MOST_Q) {
            return false;
        }
        int32_t half = (int32_t)(number / 2);
        head->about.center[i] = (int16_t)(number % 2 != 0 ? -half - 1 : half);
    }
    return true;
}

/* Whether places rise and stay within the block, and every entry adds something. */
static bool list_is_valid(const uint8_t *list, uint32_t count, uint32_t elements)
{
    uint32_t least = 0;
    for (uint32_t i = 0; i < count; i++, list += MZ_CG_CORRECTION_BYTES) {
        uint16_t place, added;
        memcpy(&place, list, sizeof place);
        memcpy(&added, list + 2, sizeof added);
        if (place < least || place >= elements || added == 0) {
            return false;
        }
        least = place + 1u;
    }
    return true;
}

/* Read all before the words of a coded block; the slots of its models go to `slots`. */
static bool read_head(const mz_cg_block *of, const uint8_t *at, size_t bytes, uint32_t *slots,
                      coded *head)
{
    const uint8_t *end = at + bytes;
    uint16_t corrections, zero;
    if (bytes < MZ_CG_FIXED_BYTES || at[1] > MZ_CG_MOST_EXPONENT - MZ_CG_LEAST_EXPONENT) {
        return false;
    }
    head->exponent = at[1] + MZ_CG_LEAST_EXPONENT;
    memcpy(&head->in_use, at + 2, sizeof head->in_use);
    memcpy(&corrections, at + 4, sizeof corrections);
    memcpy(&zero, at + 6, sizeof zero);
    memcpy(head->state, at + 8, sizeof head->state);
    for (unsigned lane = 0; lane < MZ_CG_LANES; lane++) {
        if (head->state[lane] < MZ_CG_LOW) {
            return false;
        }
    }
    at += MZ_CG_FIXED_BYTES;
    if (zero != 0 || !read_channels(&at, end, of->strips * MZ_CG_LANES, head)) {
        return false;
    }
    for (int i = 0; i < __builtin_popcount(head->in_use); i++, slots += MZ_CG_SLOTS) {
        mz_cg_model model;
        if (!mz_cg_model_read(&at, end, &model)) {
            return false;
        }
        mz_cg_model_slots(&model, slots);
    }
    head->corrections = corrections;
    head->list = at;
    if ((size_t)(end - at) < (size_t)corrections * MZ_CG_CORRECTION_BYTES) {
        return false;
    }
    head->words = at + (size_t)corrections * MZ_CG_CORRECTION_BYTES;
    head->end = end;
    return (end - head->words) % 2 == 0 &&
           list_is_valid(at, corrections, of->rows * of->strips * MZ_CG_LANES);
}

/* Decode the residuals of a strip. False if the words end too early. */
static bool unpack_strip(reader *from, uint32_t rows, const uint32_t *slots, const uint32_t *bases,
                         uint32_t *state, int16_t *residual)
{
    size_t done = 0;
    while (done < rows) {
        done += mz_kernels_get()->cg->unpack(&from->at, from->end, rows - done, slots, bases, state,
                                             residual + done * MZ_CG_LANES);
        if (done < rows) {
            if (from->in_tail) {
                return false; /* more than MZ_CG_ROW_ROOM bytes taken, and there were fewer */
            }
            from->in_tail = true;
            from->tail_bytes = (size_t)(from->end - from->at);
            memset(from->tail, 0, sizeof from->tail);
            memcpy(from->tail, from->at, from->tail_bytes);
            from->at = from->tail;
            from->end = from->tail + sizeof from->tail;
        }
    }
    return true;
}

/* Whether exactly all words were taken and all states are where encoding began. */
static bool is_at_end(const reader *from, const uint32_t *state)
{
    uint32_t wrong = 0;
    for (unsigned lane = 0; lane < MZ_CG_LANES; lane++) {
        wrong |= state[lane] ^ MZ_CG_LOW;
    }
    const uint8_t *end = from->in_tail ? from->tail + from->tail_bytes : from->end;
    return wrong == 0 && from->at == end;
}

static bool decode_coded(const mz_cg_block *of, const uint8_t *source, size_t bytes,
                         mz_codec_tools *tools, uint16_t *target)
{
    uint32_t *slots = (uint32_t *)(void *)tools->scratch, bases[MZ_CG_LANES];
    int16_t *residual = (int16_t *)(void *)tools->planes;
    coded head;
    if (!read_head(of, source, bytes, slots, &head)) {
        return false;
    }
    reader from = {.at = head.words, .end = head.end};
    const uint8_t *list = head.list;
    uint32_t elements = of->rows * MZ_CG_LANES;
    for (uint32_t strip = 0; strip < of->strips; strip++) {
        const uint32_t first = strip * MZ_CG_LANES;
        mz_cg_bases(head.about.class + first, head.in_use, MZ_CG_SLOTS, bases);
        if (!unpack_strip(&from, of->rows, slots, bases, head.state, residual)) {
            return false;
        }
        for (; list < head.words; list += MZ_CG_CORRECTION_BYTES) {
            uint16_t place, added;
            memcpy(&place, list, sizeof place);
            memcpy(&added, list + 2, sizeof added);
            if (place >= (strip + 1) * elements) {
                break;
            }
            int16_t *corrected = &residual[place - strip * elements];
            *corrected = (int16_t)(*corrected + (int16_t)added);
        }
        if (!mz_kernels_get()->cg->restore(
                residual, of->rows, head.about.center + first, head.about.slope + first,
                mz_cg_power_of_two(head.exponent), mz_cg_most_q(head.exponent), target + first,
                of->stride)) {
            return false;
        }
    }
    return is_at_end(&from, head.state);
}

/* Rows as they are; false if a value is not finite. */
static bool copy_rows(const mz_cg_block *of, const uint8_t *source, uint16_t *target)
{
    const size_t count = (size_t)of->strips * MZ_CG_LANES;
    int wrong = 0;
    for (uint32_t row = 0; row < of->rows; row++, source += count * sizeof *target) {
        uint16_t *to = target + row * of->stride;
        memcpy(to, source, count * sizeof *to);
        for (size_t i = 0; i < count; i++) {
            wrong |= (to[i] & MZ_F16_MAGNITUDE) >= MZ_F16_INFINITY;
        }
    }
    return wrong == 0;
}

bool mz_cg_decode_block(const mz_cg_block *of, const uint8_t *source, size_t bytes,
                         mz_codec_tools *tools, uint16_t *target)
{
    if (bytes > 1 && *source == MZ_CG_KIND_CODED) {
        return decode_coded(of, source, bytes, tools, target);
    }
    if (bytes == 1 + mz_cg_plain_bytes(of) && *source == MZ_CG_KIND_EXACT) {
        return copy_rows(of, source + 1, target);
    }
    return bytes == 1 && *source == MZ_CG_KIND_ZEROS;
}

/* SPDX-License-Identifier: MIT */
/* Computing or inventing KV; see sample.h. */
#include "bench/sample.h"

#include <stdlib.h>
#include <string.h>

#include "bench/scenario.h"
#include "kernels/f16.h"
#include "os/memory.h"
#include "pool/pool.h"

#define CHUNK_ROWS 256u
#define ROW_BYTES 2048u
#define CHANNELS (ROW_BYTES / 2)
#define ALIGN 64u

/* Memory with huge pages where there are any: what is measured is not the page table. */
static mz_status room_make(mz_kv_sample *sample, uint64_t room, size_t count, mz_error *error)
{
    const mz_os *os = mz_os_linux();
    void *memory = NULL;
    room = mz_page_ceil(room);
    sample->pieces = calloc(count, sizeof *sample->pieces);
    if (sample->pieces == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a sample of KV");
    }
    mz_status status = mz_memory_reserve(os, room, MZ_HUGE_BYTES, &memory, error);
    if (status != MZ_OK) {
        return status;
    }
    sample->memory = memory;
    sample->room = room;
    mz_memory_want_huge(os, memory, room);
    return mz_memory_populate(os, memory, room, error);
}

void mz_kv_sample_free(mz_kv_sample *sample)
{
    if (sample->memory != NULL) {
        mz_memory_release(mz_os_linux(), sample->memory, sample->room);
    }
    free(sample->pieces);
    *sample = (mz_kv_sample){0};
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The next piece, whose bytes the caller fills in. */
static uint8_t *add_piece(mz_kv_sample *sample, const mz_codec_shape *shape, uint64_t *end)
{
    uint64_t bytes = (uint64_t)shape->row_bytes * shape->rows;
    sample->pieces[sample->count++] = (mz_kv_piece){*shape, *end, bytes};
    uint8_t *place = sample->memory + *end;
    *end += padded(bytes);
    sample->bytes += bytes;
    return place;
}

/* --- invented --- */

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Near enough to a normal distribution of spread 1: four uniform numbers of 16 bits. */
static float normal(uint64_t *state)
{
    uint64_t bits = next(state);
    uint32_t sum = (uint32_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) +
                              (bits >> 48));
    return ((float)sum - 131070.0f) / 37837.0f;
}

typedef struct channel {
    float mean, spread, value;
} channel;

static void invent_channels(channel *channels, uint64_t *state)
{
    for (size_t i = 0; i < CHANNELS; i++) {
        float size = next(state) % 32 == 0 ? 8.0f : 1.0f;
        channels[i] = (channel){size * normal(state), 0.25f + 0.25f * (float)(next(state) % 4), 0};
    }
}

/* Half of a token's departure from the mean is its neighbour's. */
static void invent_rows(channel *channels, uint32_t rows, uint16_t *halves, uint64_t *state)
{
    for (uint32_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < CHANNELS; i++) {
            channel *c = &channels[i];
            c->value = 0.5f * c->value + 0.866f * normal(state);
            halves[row * CHANNELS + i] = mz_f16_from_f32(c->mean + c->spread * c->value);
        }
    }
}

mz_status mz_kv_sample_invent(uint32_t tokens, mz_kv_sample *sample, mz_error *error)
{
    *sample = (mz_kv_sample){0};
    uint32_t chunks = (tokens + CHUNK_ROWS - 1) / CHUNK_ROWS;
    channel *channels = malloc(2 * CHANNELS * sizeof *channels);
    mz_status status =
        channels != NULL
            ? room_make(sample, 2ull * tokens * ROW_BYTES, 2 * (size_t)chunks, error)
            : mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a sample of KV");
    if (status == MZ_OK) {
        uint64_t state = 88172645463325252u, end = 0;
        invent_channels(channels, &state);
        invent_channels(channels + CHANNELS, &state);
        for (uint32_t done = 0; done < tokens; done += CHUNK_ROWS) {
            uint32_t rows = tokens - done < CHUNK_ROWS ? tokens - done : CHUNK_ROWS;
            mz_codec_shape shape = {MZ_ELEM_F16, ROW_BYTES, rows};
            for (size_t which = 0; which < 2; which++) {
                void *place = add_piece(sample, &shape, &end);
                invent_rows(channels + which * CHANNELS, rows, place, &state);
            }
        }
    }
    free(channels);
    return status;
}

/* --- computed --- */

typedef struct copying {
    mz_kv_sample *sample;
    uint64_t end; /* of what was counted or copied, in the sample */
    size_t count;
} copying;

static bool count_span(void *context, const mz_codec_shape *shape, const void *bytes)
{
    copying *c = context;
    (void)bytes;
    c->end += padded((uint64_t)shape->row_bytes * shape->rows);
    c->count++;
    return true;
}

static bool copy_span(void *context, const mz_codec_shape *shape, const void *bytes)
{
    copying *c = context;
    memcpy(add_piece(c->sample, shape, &c->end), bytes, (size_t)shape->row_bytes * shape->rows);
    return true;
}

/* The KV of a model that has computed it. Nothing computes meanwhile. */
static mz_status copy_kv(mz_llm *llm, mz_kv_sample *sample, mz_error *error)
{
    copying counted = {0}, copied = {.sample = sample};
    mz_pool *pool = mz_llm_pool(llm);
    mz_pool_visit_kv(pool, count_span, &counted);
    if (counted.count == 0) {
        return mz_error_set(error, MZ_E_UNSUPPORTED, 0, "this model has no KV that can be evicted");
    }
    mz_status status = room_make(sample, counted.end, counted.count, error);
    if (status == MZ_OK) {
        mz_pool_visit_kv(pool, copy_span, &copied);
    }
    return status;
}

static mz_status compute(mz_llm *llm, const char *text, uint32_t tokens, mz_error *error)
{
    /* What does not fit is not cut off: the array is no use then. */
    long all = mz_llm_tokenize(llm, text, true, NULL, 0);
    int32_t *ids = all > 0 ? malloc((size_t)all * sizeof *ids) : NULL;
    mz_status status = MZ_E_INVALID;
    if (ids != NULL && mz_llm_tokenize(llm, text, true, ids, (size_t)all) == all) {
        size_t count = all < (long)tokens ? (size_t)all : tokens;
        status = mz_llm_restore_generate(llm, ids, count, 0, NULL, NULL, NULL);
    }
    free(ids);
    return status == MZ_OK ? MZ_OK
                           : mz_error_set(error, status, 0, "the text can't be read by this model");
}

mz_status mz_kv_sample_compute(const mz_bench_options *options, const char *model, uint32_t tokens,
                               mz_kv_sample *sample, mz_error *error)
{
    mz_llm *llm = NULL;
    char message[300] = "";
    mz_llm_options with = mz_scenario_options(options, model, tokens + 64);
    with.codec = "raw"; /* nothing is evicted */
    *sample = (mz_kv_sample){0};
    mz_scenario_calm();
    mz_status status = mz_llm_open(&with, &llm, message, sizeof message);
    if (status != MZ_OK) {
        return mz_error_set(error, status, 0, "%s", message);
    }
    status = compute(llm, options->text, tokens, error);
    status = status == MZ_OK ? copy_kv(llm, sample, error) : status;
    mz_llm_close(llm);
    return status;
}

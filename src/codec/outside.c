/* SPDX-License-Identifier: MIT */
/*
 * The wrapper around codecs from outside.
 *
 * Such a codec was tested by somebody else, and what it gets wrong would show long after the chunk
 * is gone. So the proof is made while the chunk is still there: what was encoded is decoded into a
 * scratch buffer and looked at. That costs a decode and the memory of one span for each encode,
 * which our own codecs, tested here, need not pay. A restore then compares a checksum.
 *
 * Our interface has no place for the codec's own data, so each codec that can be added has a slot
 * with functions of its own, made by SLOT. The alternative, another argument to every function of
 * every codec, would serve nothing else.
 */
#include "codec/outside.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "codec/header.h"
#include "os/library.h"

#define NAME_MOST 15u    /* records of rates and statuses have room for so many */
#define PREFIX_BYTES 64u /* our header, the checksum of what decode gave, padding */
#define SLACK_BYTES 256u /* behind what a codec may write: must stay as it was */
#define SLACK_VALUE 0xa5

typedef struct slot {
    mz_codec_table table;
    mz_codec codec;
    char name[NAME_MOST + 1];
} slot;

/* Filled under the lock, then counted; what is counted never changes. */
static slot slots[MZ_CODEC_OUTSIDE_MOST];
static atomic_size_t slot_count; /* release in mz_outside_add, acquire in mz_outside_at */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* --- the wrapped functions --- */

/* Bytes that encode may write; 0: what it says can't be. */
static size_t inner_bound(const mz_codec_table *table, const mz_codec_shape *shape)
{
    size_t bytes = table->bound(shape);
    return bytes <= 2 * mz_codec_shape_bytes(shape) ? bytes : 0;
}

static bool outside_takes(const mz_codec_table *table, const mz_codec_shape *shape)
{
    return mz_codec_shape_bytes(shape) <= MZ_CODEC_OUTSIDE_BYTES && table->takes(shape) &&
           inner_bound(table, shape) > 0;
}

static size_t outside_bound(const mz_codec_table *table, const mz_codec_shape *shape)
{
    return PREFIX_BYTES + inner_bound(table, shape) + SLACK_BYTES;
}

static size_t outside_expected(const mz_codec_table *table, const mz_codec_shape *shape)
{
    size_t most = inner_bound(table, shape);
    size_t expected = table->expected != NULL ? table->expected(shape) : most;
    return PREFIX_BYTES + (expected < most ? expected : most);
}

static bool slack_is_intact(const uint8_t *slack)
{
    for (size_t i = 0; i < SLACK_BYTES; i++) {
        if (slack[i] != SLACK_VALUE) {
            return false;
        }
    }
    return true;
}

/* Whether an element of this type, at `data`, is neither infinite nor NaN. */
static bool is_finite(mz_elem elem, const uint8_t *data)
{
    uint16_t upper; /* of f32: the half with the exponent */
    memcpy(&upper, data + (elem == MZ_ELEM_F32 ? 2 : 0), sizeof upper);
    unsigned exponent = elem == MZ_ELEM_F16 ? 0x7c00u : 0x7f80u;
    return (upper & exponent) != exponent;
}

/* Whether values that were finite are finite still. Opaque bytes are no values. */
static bool values_are_sane(const mz_codec_shape *shape, const uint8_t *plain, const uint8_t *back)
{
    size_t total = (size_t)mz_codec_shape_bytes(shape);
    size_t width = shape->elem == MZ_ELEM_F32 ? 4 : 2;
    if (shape->elem == MZ_ELEM_OPAQUE) {
        return true;
    }
    for (size_t at = 0; at + width <= total; at += width) {
        if (!is_finite(shape->elem, back + at) && is_finite(shape->elem, plain + at)) {
            return false;
        }
    }
    return true;
}

/*
 * Decode what was just encoded and hold it against what it was made from; *hash is of the result.
 * Errors: MZ_E_CORRUPT if it is wrong, MZ_E_UNSUPPORTED without memory to try it.
 */
static mz_status prove(const mz_codec_table *table, const mz_codec_shape *shape, const void *plain,
                       const void *encoded, size_t bytes, uint64_t *hash)
{
    size_t total = (size_t)mz_codec_shape_bytes(shape);
    uint8_t *back = calloc(1, total + SLACK_BYTES);
    if (back == NULL) {
        return MZ_E_UNSUPPORTED;
    }
    memset(back + total, SLACK_VALUE, SLACK_BYTES);
    mz_status status = table->decode(shape, encoded, bytes, back);
    bool intact = slack_is_intact(back + total);
    if (status == MZ_E_NOMEM && intact) {
        free(back);
        return MZ_E_UNSUPPORTED;
    }
    bool good = status == MZ_OK && intact &&
                (table->exact ? memcmp(plain, back, total) == 0
                              : values_are_sane(shape, plain, back));
    *hash = XXH3_64bits(back, total);
    free(back);
    return good ? MZ_OK : MZ_E_CORRUPT;
}

static mz_status outside_encode(const mz_codec_table *table, const mz_codec_shape *shape,
                                const void *source, void *target, size_t *bytes)
{
    if (!outside_takes(table, shape)) {
        return MZ_E_UNSUPPORTED;
    }
    size_t room = inner_bound(table, shape), written = 0;
    uint8_t *inner = (uint8_t *)target + PREFIX_BYTES;
    memset(inner + room, SLACK_VALUE, SLACK_BYTES);
    mz_status status = table->encode(shape, source, inner, room, &written);
    if (!slack_is_intact(inner + room) || (status == MZ_OK && written > room)) {
        return MZ_E_CORRUPT;
    }
    if (status != MZ_OK) {
        return MZ_E_UNSUPPORTED;
    }
    uint64_t hash = 0;
    status = prove(table, shape, source, inner, written, &hash);
    if (status != MZ_OK) {
        return status;
    }
    uint8_t *prefix = (uint8_t *)target + sizeof(mz_codec_header);
    memset(prefix, 0, PREFIX_BYTES - sizeof(mz_codec_header));
    memcpy(prefix, &hash, sizeof hash);
    *bytes = mz_codec_header_write(table->id, shape, target,
                                   PREFIX_BYTES - sizeof(mz_codec_header) + written);
    return MZ_OK;
}

static mz_status outside_decode(const mz_codec_table *table, const mz_codec_shape *shape,
                                const void *source, size_t bytes, void *target)
{
    size_t payload_bytes;
    mz_status status = mz_codec_header_check(table->id, shape, source, bytes, &payload_bytes);
    if (status != MZ_OK) {
        return status;
    }
    if (bytes < PREFIX_BYTES || !outside_takes(table, shape) ||
        bytes - PREFIX_BYTES > inner_bound(table, shape)) {
        return MZ_E_CORRUPT;
    }
    uint64_t hash;
    size_t total = (size_t)mz_codec_shape_bytes(shape);
    memcpy(&hash, (const uint8_t *)source + sizeof(mz_codec_header), sizeof hash);
    status = table->decode(shape, (const uint8_t *)source + PREFIX_BYTES, bytes - PREFIX_BYTES,
                           target);
    if (status == MZ_OK && XXH3_64bits(target, total) == hash) {
        return MZ_OK;
    }
    memset(target, 0, total); /* as it was, so that decoding may be tried again */
    return status == MZ_E_NOMEM ? MZ_E_NOMEM : MZ_E_CORRUPT;
}

/* The functions of slot n: as those above, with its table. */
#define SLOT(n)                                                                                    \
    static bool takes_##n(const mz_codec_shape *shape)                                             \
    {                                                                                              \
        return outside_takes(&slots[n].table, shape);                                              \
    }                                                                                              \
    static size_t bound_##n(const mz_codec_shape *shape)                                           \
    {                                                                                              \
        return outside_bound(&slots[n].table, shape);                                              \
    }                                                                                              \
    static size_t expected_##n(const mz_codec_shape *shape)                                        \
    {                                                                                              \
        return outside_expected(&slots[n].table, shape);                                           \
    }                                                                                              \
    static mz_status encode_##n(const mz_codec_shape *shape, const void *source, void *target,     \
                                size_t *bytes)                                                     \
    {                                                                                              \
        return outside_encode(&slots[n].table, shape, source, target, bytes);                      \
    }                                                                                              \
    static mz_status decode_##n(const mz_codec_shape *shape, const void *source, size_t bytes,     \
                                void *target)                                                      \
    {                                                                                              \
        return outside_decode(&slots[n].table, shape, source, bytes, target);                      \
    }
SLOT(0)
SLOT(1)
SLOT(2)
SLOT(3)
#define SLOT_CODEC(n)                                                                              \
    {                                                                                              \
        .takes = takes_##n, .bound = bound_##n, .expected = expected_##n, .encode = encode_##n,    \
        .decode = decode_##n                                                                       \
    }

static const mz_codec slot_codecs[MZ_CODEC_OUTSIDE_MOST] = {SLOT_CODEC(0), SLOT_CODEC(1),
                                                            SLOT_CODEC(2), SLOT_CODEC(3)};

/* --- the list --- */

const mz_codec *mz_outside_at(size_t index)
{
    size_t count = atomic_load_explicit(&slot_count, memory_order_acquire);
    return index < count ? &slots[index].codec : NULL;
}

bool mz_outside_has_id(uint16_t id)
{
    return id >= MZ_CODEC_ID_OUTSIDE_FIRST && id <= MZ_CODEC_ID_OUTSIDE_LAST;
}

static bool name_is_valid(const char *name)
{
    size_t length = name != NULL ? strnlen(name, NAME_MOST + 1) : 0;
    return length > 0 && length <= NAME_MOST &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == length;
}

/* Whether what the table says is allowed, whatever else there is. */
static mz_status check_table(const mz_codec_table *table, mz_error *error)
{
    if (table == NULL) {
        return mz_error_set(error, MZ_E_INVALID, 0, "there is no table of a codec");
    }
    if (table->abi != MZ_CODEC_ABI || table->table_bytes < sizeof *table) {
        return mz_error_set(error, MZ_E_UNSUPPORTED, 0,
                            "a codec was built for version %u of mzcache/codec.h (%u bytes), this "
                            "is version %u (%zu bytes); build it again",
                            table->abi, table->table_bytes, MZ_CODEC_ABI, sizeof *table);
    }
    if (!name_is_valid(table->name)) {
        return mz_error_set(error, MZ_E_INVALID, 0,
                            "the name of a codec is 1 to %u of a-z, 0-9, \"_\" and \"-\"",
                            NAME_MOST);
    }
    if (!mz_outside_has_id(table->id)) {
        return mz_error_set(error, MZ_E_INVALID, 0,
                            "the codec \"%s\" has the id %u; ids from outside are %u to %u",
                            table->name, table->id, MZ_CODEC_ID_OUTSIDE_FIRST,
                            MZ_CODEC_ID_OUTSIDE_LAST);
    }
    if (table->takes == NULL || table->bound == NULL || table->encode == NULL ||
        table->decode == NULL) {
        return mz_error_set(error, MZ_E_INVALID, 0, "the codec \"%s\" lacks a function",
                            table->name);
    }
    return MZ_OK;
}

static bool is_same(const mz_codec_table *a, const mz_codec_table *b)
{
    return strcmp(a->name, b->name) == 0 && a->id == b->id && a->exact == b->exact &&
           a->takes == b->takes && a->bound == b->bound && a->expected == b->expected &&
           a->encode == b->encode && a->decode == b->decode;
}

/* Put a checked table into the next slot. Under the lock. */
static mz_status add(const mz_codec_table *table, mz_error *error)
{
    size_t count = atomic_load_explicit(&slot_count, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        if (is_same(&slots[i].table, table)) {
            return MZ_OK;
        }
    }
    if (strcmp(table->name, "raw") == 0 || mz_codec_find(table->name) != NULL) {
        return mz_error_set(error, MZ_E_BUSY, 0,
                            "there is a codec \"%s\" already; give the other one another name",
                            table->name);
    }
    const mz_codec *other = mz_codec_by_id(table->id);
    if (other != NULL) {
        return mz_error_set(error, MZ_E_BUSY, 0,
                            "the codecs \"%s\" and \"%s\" have the same id %u; give one of them "
                            "another",
                            table->name, other->name, table->id);
    }
    if (count == MZ_CODEC_OUTSIDE_MOST) {
        return mz_error_set(error, MZ_E_BUSY, 0,
                            "the codec \"%s\" is one too many: %d can come from outside",
                            table->name, MZ_CODEC_OUTSIDE_MOST);
    }
    slot *made = &slots[count];
    made->table = *table;
    snprintf(made->name, sizeof made->name, "%s", table->name);
    made->table.name = made->name;
    made->codec = slot_codecs[count];
    made->codec.name = made->name;
    made->codec.id = table->id;
    made->codec.exact = table->exact;
    atomic_store_explicit(&slot_count, count + 1, memory_order_release);
    return MZ_OK;
}

mz_status mz_outside_add(const mz_codec_table *table, mz_error *error)
{
    mz_status status = check_table(table, error);
    if (status != MZ_OK) {
        return status;
    }
    pthread_mutex_lock(&lock);
    status = add(table, error);
    pthread_mutex_unlock(&lock);
    return status;
}

/* --- the library --- */

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static mz_error load_error; /* written under load_once, read-only afterwards */

static void load(void)
{
    const char *path = secure_getenv("MZCACHE_CODEC_LIBRARY");
    void *address = NULL;
    if (path == NULL || path[0] == '\0' ||
        mz_library_symbol(path, MZ_CODEC_LIBRARY_SYMBOL, &address, &load_error) != MZ_OK) {
        return;
    }
    mz_codec_library_fn library;
    memcpy(&library, &address, sizeof library); /* ISO C has no cast from one to the other */
    const mz_codec_table *table;
    uint32_t count = 0;
    for (; load_error.status == MZ_OK && (table = library(count)) != NULL; count++) {
        (void)mz_outside_add(table, &load_error); /* the status is in the error */
    }
    if (count == 0) {
        mz_error_set(&load_error, MZ_E_INVALID, 0, "the library %s has no codec", path);
    }
}

mz_status mz_outside_load(mz_error *error)
{
    pthread_once(&load_once, load);
    if (load_error.status != MZ_OK) {
        *error = load_error;
        mz_error_prefix(error, "MZCACHE_CODEC_LIBRARY");
    }
    return load_error.status;
}

/* SPDX-License-Identifier: MIT */
/*
 * A model in miniature for tests of the pool: a weight file with random bytes, one weight unit per
 * layer taken from it, KV chunks of f16 rows, one opaque KV unit with holes. The truth about every
 * byte is a shadow copy that the pool knows nothing of.
 */
#ifndef MZ_TEST_POOL_FIXTURE_H
#define MZ_TEST_POOL_FIXTURE_H

#include "os/fault_os.h"
#include "pool/pool.h"

#define TOY_LAYERS 4u
#define TOY_CHUNKS 3u
#define TOY_ROW_BYTES 384u                     /* 192 elements of f16 */
#define TOY_CHUNK_BYTES (256u * TOY_ROW_BYTES) /* one of K, one of V */
#define TOY_WEIGHT_BYTES (5u * (1u << 20) + 3u * MZ_PAGE_BYTES)
#define TOY_OPAQUE_BYTES (256u * MZ_PAGE_BYTES)

typedef struct toy_model {
    mz_fault_os fault;
    mz_pool *pool;
    char directory[64]; /* removed by toy_close */
    char file[96];      /* the weight file */
    uint8_t *weights;   /* [TOY_LAYERS][TOY_WEIGHT_BYTES + gap to 2 MB] */
    uint8_t *kv;        /* [layer][chunk][K, V][TOY_CHUNK_BYTES] */
    uint8_t *opaque;    /* [TOY_OPAQUE_BYTES] */
    uint8_t *weights_shadow, *kv_shadow, *opaque_shadow;
    unsigned long long seed;
} toy_model;

#define TOY_WEIGHT_STRIDE (6u << 20)
#define TOY_KV_BYTES (TOY_LAYERS * TOY_CHUNKS * 2u * TOY_CHUNK_BYTES)

/* How pools that are opened from now on read; MZ_IO_AUTO, or MZ_IO_THREADS if the environment has
 * MZ_TEST_IO=threads. */
extern mz_restore_io toy_io;

/* What opening a ring fails with for pools that are opened from now on; 0: it is tried. */
extern int toy_ring_errno;

/* codec: "raw" or "q8". guard: evicted ranges fault. Asserts that everything works. */
void toy_open(toy_model *toy, const char *codec, bool guard);
/* toy_open of a pool that has the machine measured, by this command. */
void toy_open_profiled(toy_model *toy, const char *codec, const char *command);
void toy_close(toy_model *toy);

/* Fill rows [0, rows) of every chunk and some pages of the opaque unit with new values. */
void toy_write_kv(toy_model *toy, uint32_t rows);

/* Fill rows of one chunk only. */
void toy_write_chunk(toy_model *toy, uint32_t layer, uint32_t chunk, uint32_t rows);

/* Say that rows [0, rows) of every chunk were written, without changing them. */
void toy_dirty_kv(toy_model *toy, uint32_t rows);

/* Ask for everything in a step and compare it with the shadow; true if every byte is right. */
bool toy_is_right(toy_model *toy);

/* Bring everything back; MZ_OK or the first failure. */
mz_status toy_restore(toy_model *toy, mz_error *error);

/* Take what is in memory now as the truth (after a lossy cycle). */
void toy_accept(toy_model *toy);

/* The walkers of stack, store and units. */
bool toy_check(toy_model *toy);

uint8_t *toy_chunk(toy_model *toy, uint32_t layer, uint32_t chunk, uint32_t which);

#endif

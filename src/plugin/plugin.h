/* SPDX-License-Identifier: MIT */
/*
 * What the files of the plug-in share: its one state, and the arena behind each ggml buffer.
 *
 * A *plug-in* is one registry entry with one device and one buffer type, bound to one host and one
 * pool. An *arena* is what stands behind one ggml buffer: the address range that the host sees, the
 * reservation that holds the bytes, and the list of tensors that are, or are going to be, units of
 * the pool.
 *
 * Units are registered late ("sealed"): only when the first graph is computed is it known which
 * tensors of a file are used at all, which buffers hold weights, and whether V is transposed.
 * Until then the tensors are ordinary memory that can't be evicted.
 *
 * Locks: `lock` guards the list of arenas and all records. A step may be opened while it is held,
 * it is never taken inside a step: an eviction waits for steps, never for this lock.
 */
#ifndef MZ_PLUGIN_PLUGIN_H
#define MZ_PLUGIN_PLUGIN_H

#include <pthread.h>
#include <stdatomic.h>

#include "os/memory.h"
#include "plugin/host.h"
#include "pool/pool.h"
#include "pressure/monitor.h"

typedef struct mz_arena mz_arena;

typedef struct mz_plugin {
    mz_host host;
    const mz_os *os;
    mz_pool *pool;
    mz_log_sink log;
    mz_trace *trace;                     /* NULL: none is wanted */
    mz_pressure_monitor *pressure;       /* NULL: nothing is evicted by itself */
    pthread_mutex_t lock;                /* see above */
    mz_arena *arenas;                    /* guarded by lock */
    _Atomic(ggml_backend_dev_t) cpu;     /* the host's CPU device, found at first use; relaxed */
    bool repack_wanted;                  /* use the CPU backend's repacked weights */
    bool repack_tried;                   /* repack_buffer was asked for; guarded by lock */
    ggml_backend_buffer_t repack_buffer; /* see repack.c; NULL: none; guarded by lock */
    atomic_bool filling;                 /* graphs fill K and V instead of computing; relaxed */
    struct ggml_backend_reg reg;
    struct ggml_backend_device device;
    union {
        mz_abi2_buffer_type v2;
        mz_abi3_buffer_type v3;
    } type; /* the one that fits host.api */
} mz_plugin;

typedef enum mz_arena_kind {
    MZ_ARENA_PLAIN,  /* allocated for the host; tensors stand where the host put them */
    MZ_ARENA_MAPPED, /* stands for a mapped model file; tensors are moved to our reservation */
    MZ_ARENA_FOREIGN /* host memory that we can't tell apart; served in place, never evicted */
} mz_arena_kind;

/* What a tensor is, as its name says. */
typedef enum mz_record_kind {
    MZ_RECORD_WEIGHT,
    MZ_RECORD_K,
    MZ_RECORD_V,
    MZ_RECORD_STATE
} mz_record_kind;

/* A tensor of a plain arena that becomes units. */
typedef struct mz_record {
    mz_record_kind kind;
    uint32_t layer;     /* from the name; UINT32_MAX: behind all layers of its arena */
    uint8_t *address;   /* page aligned, the alignment of our buffer type */
    uint64_t bytes;     /* ggml_nbytes */
    uint64_t row_bytes; /* K, V: one token */
    uint64_t rows;      /* K, V: tokens per stream */
    uint64_t streams;   /* K, V: sequences kept apart */
    enum ggml_type type;
    uint64_t written_bytes; /* end of what was set before it was sealed */
    uint32_t touched;       /* K, V: graphs that used it unsealed */
    bool seen;              /* K, V: a SET_ROWS was seen, `by_rows` holds */
    bool by_rows;           /* K, V: whole tokens are written */
    bool sealed;            /* its units are in the pool */
} mz_record;

/* Where the tensors of a mapped file go; weights.c. */
typedef struct mz_weight_map mz_weight_map;

struct mz_arena {
    mz_plugin *plugin;
    mz_arena *next;
    ggml_backend_buffer_t buffer;
    mz_arena_kind kind;
    uint8_t *base;   /* what the host sees */
    uint64_t bytes;  /* of that */
    uint8_t *memory; /* our reservation; equals base in a plain arena, NULL in a foreign one */
    uint64_t memory_bytes; /* whole pages */
    mz_record *records;    /* plain: guarded by plugin->lock */
    size_t record_count, record_capacity;
    size_t unsealed_count; /* records not sealed yet; guarded by plugin->lock */
    mz_weight_map *map;    /* mapped only */
    bool huge_wanted;      /* compute memory: huge pages were asked for */
};

/* The host's CPU device; NULL while it has none. */
ggml_backend_dev_t mz_plugin_cpu(mz_plugin *plugin);

/* device.c: fill the device and the registry's view of it. */
void mz_device_init(mz_plugin *plugin);

/* backend.c: a stream of work on our device. NULL when the host has no CPU backend. */
ggml_backend_t mz_backend_create(mz_plugin *plugin);
void mz_backend_set_threads(ggml_backend_t backend, int threads);
void mz_backend_set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback,
                                   void *data);

#endif

/* SPDX-License-Identifier: MIT */
/* Write a GGUF file of a shape with random weights. */
#ifndef MZ_MKMODEL_WRITER_H
#define MZ_MKMODEL_WRITER_H

#include "base/error.h"
#include "ggml.h"
#include "mkmodel/shape.h"

typedef struct mz_writer_options {
    mz_shape shape;      /* layers and vocabulary may differ from the published ones */
    enum ggml_type type; /* of matrices: F16, Q8_0 or Q4_0; norms are F32 */
    uint64_t seed;       /* the same seed gives the same bytes */
    /* Called after each block written; may be NULL. */
    void (*progress)(void *context, uint64_t done_bytes, uint64_t all_bytes);
    void *context;
} mz_writer_options;

/*
 * Write `path`; *bytes is the size of the file. The file appears when it is whole: until then it is
 * called `path`.partial, which is removed on failure.
 * Errors: MZ_E_NOSPC, MZ_E_PERM, MZ_E_NOTFOUND (no such folder), MZ_E_IO, MZ_E_NOMEM.
 */
mz_status mz_writer_run(const mz_writer_options *options, const char *path, uint64_t *bytes,
                        mz_error *error);

#endif

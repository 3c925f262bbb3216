/* SPDX-License-Identifier: MIT */
/* The engine (libllama, ggml) and our plug-in in it. */
#ifndef MZ_LLM_ENGINE_H
#define MZ_LLM_ENGINE_H

#include "base/error.h"
#include "ggml-backend.h"
#include "mzcache/llm.h"

/* What llama.cpp complained about first; later lines mostly repeat it in vaguer words. */
typedef struct mz_engine_complaint {
    char text[400]; /* "" if it did not */
} mz_engine_complaint;

/* Send llama.cpp's log to `complaint` until mz_engine_hush. */
void mz_engine_listen(mz_engine_complaint *complaint);

/* Drop llama.cpp's log from now on. */
void mz_engine_hush(void);

/* Where the plug-in lies: `path` if given, else beside this library, else its bare name. */
void mz_engine_find_plugin(const char *path, char *found, size_t capacity);

/*
 * The mzCache registry of this engine; loads the plug-in if nobody did.
 * Errors: MZ_E_NOTFOUND (no such file), MZ_E_HOST (it refused, or the engine refused it).
 */
mz_status mz_engine_load_plugin(const mz_llm_options *options, ggml_backend_reg_t *reg,
                                mz_error *error);

#endif

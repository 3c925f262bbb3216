/* SPDX-License-Identifier: MIT */
/*
 * restore_generate over stock libllama: tokens in, tokens out.
 *
 * A *mz_llm* is one model and one conversation (one llama.cpp context) whose memory is elastic. It
 * loads the mzCache plug-in into the libllama that it is linked with. Greedy sampling only: the
 * same tokens in give the same tokens out, evicted or not.
 *
 * One thread at a time may use one mz_llm; mz_evict and mz_status_get on its pool may come from
 * any thread meanwhile. mz_llm_open takes over llama.cpp's one log callback (what it says in a
 * failed open becomes `message`, everything else is dropped), so two of them must not run at once;
 * a program that wants llama.cpp's lines sets its own callback afterwards.
 */
#ifndef MZCACHE_LLM_H
#define MZCACHE_LLM_H

#include "mzcache/mzcache.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mz_llm mz_llm;

typedef struct mz_llm_options {
    const char *model_path; /* GGUF file; required */
    /* libggml-mzcache.so; NULL: beside this library, then the loader's path. */
    const char *plugin_path;
    const char *codec; /* "raw" (default), "q8", "q4", "cachegen", "lossless" */
    /* Directory of the store; NULL: $XDG_CACHE_HOME/mzcache or ~/.cache/mzcache. */
    const char *store_dir;
    uint32_t context_tokens; /* size of the KV cache in tokens; 0: the model's own */
    uint32_t batch_tokens;   /* tokens per prefill step; 0: 512 */
    int threads;             /* compute threads; 0: one per core */
    int restore_depth;       /* reads under way in a restore; 0: chosen by the library */
    const char *kv_type;     /* "f16" (default), "q8_0", "f32", "bf16" */
    int flash_attention;     /* 1 on, 0 off, -1 llama.cpp decides */
    /* What to take away of the pipeline, to compare; NULL: nothing. The words are README's. */
    const char *order, *overlap, *paths;
    /* Evicting by itself: "auto" (default) or "off", and the words of --keep, --max, --evict-step
     * and --idle-evict; NULL: the default. */
    const char *pressure, *keep, *max, *evict_step, *idle_evict;
    const char *trace; /* file for a trace of all events, written at exit; NULL: none */
    bool no_mmap;      /* load weights by read instead of mmap */
    bool stock;        /* do not use the mzCache device: the bare engine, to compare with */
} mz_llm_options;

/* Set every field to its default. */
MZ_API void mz_llm_options_default(mz_llm_options *options);

/*
 * Load a model. The first open of a process loads the plug-in too; it has one pool per process, so
 * codec, store_dir, restore_depth, order, overlap, paths, trace and what is about evicting by
 * itself count in that open only (they are handed over as MZCACHE_CODEC, MZCACHE_STORE and so on; a
 * NULL or 0 leaves what the environment says).
 * Owner: the caller frees *llm by mz_llm_close.
 * message: receives one sentence on failure, at most message_bytes including its 0; may be NULL.
 * Errors: MZ_E_NOTFOUND (model or plug-in), MZ_E_ENGINE (llama.cpp refused the file), MZ_E_HOST.
 */
MZ_API mz_status mz_llm_open(const mz_llm_options *options, mz_llm **llm, char *message,
                             size_t message_bytes);
MZ_API void mz_llm_close(mz_llm *llm);

/* The pool behind this model; NULL for a stock one. Owned by the plug-in. */
MZ_API mz_pool *mz_llm_pool(mz_llm *llm);

/* Called for each new token; return false to stop. text is the token's piece, not 0-terminated. */
typedef bool (*mz_on_token)(void *context, int32_t token, const char *text, size_t text_bytes);

/* What one call of mz_llm_restore_generate took. */
typedef struct mz_llm_timing {
    uint64_t ttft_ns;        /* from the call to the first token */
    uint64_t stall_ns;       /* of that, waited at the gate for units */
    uint64_t total_ns;       /* the whole call */
    uint32_t input_tokens;   /* tokens prefilled */
    uint32_t output_tokens;  /* tokens generated */
    uint32_t context_tokens; /* tokens in the KV cache afterwards */
} mz_llm_timing;

/*
 * Append `count` tokens to the conversation (0 only to go on after a generated token) and generate
 * up to `max_new` more, greedily, while what was evicted is restored in the background. Stops at
 * an end-of-generation token (reported to on_token too, with no text). The generated tokens become
 * part of the conversation.
 * Errors: MZ_E_INVALID (context full, no tokens, bad token id), MZ_E_ENGINE (decode failed; what
 *   failed stands in mz_pool_status.last_error; the conversation is as before the failed step),
 *   MZ_E_LOST (the same, but this model's memory can't be rolled back: the conversation is empty).
 */
MZ_API mz_status mz_llm_restore_generate(mz_llm *llm, const int32_t *tokens, size_t count,
                                         size_t max_new, mz_on_token on_token, void *context,
                                         mz_llm_timing *timing);

/* Forget the conversation; the model stays loaded. */
MZ_API void mz_llm_reset(mz_llm *llm);

/*
 * Forget all but the first `tokens` tokens of the conversation.
 * Errors: MZ_E_INVALID (it has fewer), MZ_E_UNSUPPORTED (this model's memory has no past to go back
 *   to; nothing changed).
 */
MZ_API mz_status mz_llm_rewind(mz_llm *llm, size_t tokens);

/* A conversation as it was at one moment, with a copy of its KV in ordinary memory. */
typedef struct mz_llm_copy mz_llm_copy;

/*
 * Copy the conversation; what is evicted is restored for it. Owner: the caller frees *copy by
 * mz_llm_copy_free. Errors: MZ_E_NOMEM, MZ_E_ENGINE.
 */
MZ_API mz_status mz_llm_copy_make(mz_llm *llm, mz_llm_copy **copy);

/*
 * Put a conversation of the same model and context size in place of the present one; the copy
 * stays. There are no logits until the next step.
 * Errors: MZ_E_ENGINE (the conversation is then empty).
 */
MZ_API mz_status mz_llm_copy_restore(mz_llm *llm, const mz_llm_copy *copy);

MZ_API void mz_llm_copy_free(mz_llm_copy *copy);

/* Tokens in the conversation so far. */
MZ_API size_t mz_llm_context_tokens(const mz_llm *llm);

/*
 * Turn text into tokens. Returns the count, also when it is larger than `capacity` (then nothing
 * beyond capacity was written), or a negative mz_status.
 */
MZ_API long mz_llm_tokenize(const mz_llm *llm, const char *text, bool add_special, int32_t *tokens,
                            size_t capacity);

/*
 * The logits that came last, [vocabulary] f32, owned by llm until its next call; NULL if there are
 * none. After a call that generated, they are those that its last token was chosen from.
 */
MZ_API const float *mz_llm_logits(const mz_llm *llm, size_t *vocabulary);

/*
 * Wrap one message into the model's own chat template, as the text that continues the conversation
 * and asks for an answer; tokenize it with add_special false unless the conversation is empty.
 * Returns the bytes without the 0, also when that is more than fits (then `out` holds none of it),
 * or a negative mz_status: MZ_E_UNSUPPORTED if the model has no template that llama.cpp knows.
 */
MZ_API long mz_llm_chat_format(const mz_llm *llm, const char *role, const char *text, char *out,
                               size_t capacity);

/* Where the plug-in of this library lies: beside it, else its bare name, for the loader to find. */
MZ_API void mz_llm_plugin_path(char *path, size_t capacity);

/* What engine this library runs on, and whether the plug-in loads into it. */
typedef struct mz_llm_engine {
    char version[32];      /* ggml's version, such as "0.25.3" */
    char plugin_path[512]; /* the plug-in that was tried */
    bool plugin_loaded;    /* it is registered with the engine */
    char message[256];     /* why not, "" if it is */
} mz_llm_engine;

/* Load the plug-in as mz_llm_open does and report; plugin_path as in mz_llm_options. */
MZ_API void mz_llm_engine_probe(const char *plugin_path, mz_llm_engine *engine);

#ifdef __cplusplus
}
#endif
#endif

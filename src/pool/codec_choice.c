/* SPDX-License-Identifier: MIT */
/*
 * Which codec a pool uses, and that one which ruins some models is used with none that it was not
 * measured with (profile/gate.h).
 *
 * The choice changes by a thread that queues as evicting threads do, so no eviction sees two. What
 * is kept names its codec and is read as before.
 */
#include <stdio.h>
#include <string.h>

#include "codec/outside.h"
#include "pool/internal.h"
#include "profile/gate.h"

/* What is used where the gate refuses. */
#define CODEC_INSTEAD "q8"

mz_status mz_pool_find_codec(const char *name, const mz_codec **codec, mz_error *error)
{
    mz_status status = mz_outside_load(error);
    if (status != MZ_OK) {
        return status;
    }
    if (name == NULL || name[0] == '\0' || strcmp(name, "raw") == 0) {
        *codec = NULL;
        return MZ_OK;
    }
    const mz_codec *found = mz_codec_find(name);
    if (found == NULL) {
        return mz_error_set(error, MZ_E_INVALID, 0,
                            "there is no codec \"%s\"; use raw, q8, q4, cachegen or lossless, or "
                            "one from a library that MZCACHE_CODEC_LIBRARY names",
                            name);
    }
    *codec = found;
    return MZ_OK;
}

mz_status mz_codec_add(const mz_codec_table *table, char *message, size_t message_bytes)
{
    mz_error error = MZ_ERROR_INIT;
    mz_status status = mz_outside_add(table, &error);
    if (message != NULL && message_bytes > 0 && status != MZ_OK) {
        snprintf(message, message_bytes, "%s", error.text);
    }
    return status;
}

mz_status mz_pool_set_codec(mz_pool *pool, const char *name, mz_error *error)
{
    const mz_codec *codec = NULL;
    mz_status status = mz_pool_find_codec(name, &codec, error);
    if (status != MZ_OK) {
        return status;
    }
    pthread_mutex_lock(&pool->restore.lock);
    if (mz_pool_in_step(pool)) {
        pthread_mutex_unlock(&pool->restore.lock);
        return mz_error_set(error, MZ_E_BUSY, 0, "a codec can't be chosen inside a step");
    }
    while (pool->evict_busy) {
        pthread_cond_wait(&pool->restore.change, &pool->restore.lock);
    }
    pool->evict_busy = true;
    pool->codec = codec;
    pool->codec_broke = false;
    mz_pool_profile_again(pool);
    pool->evict_busy = false;
    pthread_cond_broadcast(&pool->restore.change);
    pthread_mutex_unlock(&pool->restore.lock);
    return MZ_OK;
}

/* Why a codec is not used with a model, in one sentence; false if it may be used. */
static bool refuses(const mz_codec *codec, const char *model, char *text, size_t capacity)
{
    mz_error error = MZ_ERROR_INIT;
    bool passed = false;
    if (model == NULL) {
        snprintf(text, capacity,
                 "%s is used only with models that passed its gate, and this one has no file that "
                 "could be looked up: %s is used",
                 codec->name, CODEC_INSTEAD);
        return true;
    }
    mz_gate_record record = {.scored_tokens = 0};
    if (mz_gate_passed(model, codec, &passed, &record, &error) != MZ_OK) {
        snprintf(text, capacity, "whether %s passed the gate of %s can't be told, %s is used: %s",
                 model, codec->name, CODEC_INSTEAD, error.text);
        return true;
    }
    if (record.scored_tokens > 0) {
        snprintf(text, capacity,
                 "%s did not pass the gate of %s (mean KL %.4f, at most %.2f is let through): %s "
                 "is used",
                 model, codec->name, record.mean_kl, MZ_GATE_KL, CODEC_INSTEAD);
    } else {
        snprintf(text, capacity,
                 "%s was not measured with %s, %s is used; mzcache eval --gate --codec %s measures "
                 "it",
                 model, codec->name, CODEC_INSTEAD, codec->name);
    }
    return !passed;
}

void mz_pool_pass_gate(mz_pool *pool, const char *model)
{
    pthread_mutex_lock(&pool->restore.lock);
    const mz_codec *codec = pool->codec;
    bool asks = codec != NULL && codec->needs_gate && (model != NULL || !pool->gate_asked);
    pool->gate_asked = true;
    pthread_mutex_unlock(&pool->restore.lock);
    char text[640];
    if (!asks || !refuses(codec, model, text, sizeof text)) {
        return;
    }
    mz_error error = MZ_ERROR_INIT;
    mz_log(&pool->log, MZ_LOG_WARN, "%s", text);
    if (mz_pool_set_codec(pool, CODEC_INSTEAD, &error) != MZ_OK) {
        mz_pool_report(pool, &error);
    }
}

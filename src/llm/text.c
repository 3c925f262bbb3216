/* SPDX-License-Identifier: MIT */
/*
 * Text to tokens, and messages to the text of the model's chat template.
 *
 * A template formats a whole conversation, but ours is already in the KV cache, and what follows
 * it must be appended as it stands. So a later message is formatted behind a stand-in exchange,
 * and what comes behind the stand-in answer is cut out: that is the end of the answer's turn, then
 * the message. If the model ended its turn itself, that token is in the cache and is not said
 * twice.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/state.h"

#define STAND_IN "mzcache-stand-in-answer"

long mz_llm_tokenize(const mz_llm *llm, const char *text, bool add_special, int32_t *tokens,
                     size_t capacity)
{
    if (llm == NULL || text == NULL || (tokens == NULL && capacity > 0)) {
        return MZ_E_INVALID;
    }
    size_t bytes = strlen(text);
    if (bytes > INT32_MAX) {
        return MZ_E_INVALID;
    }
    int32_t room = capacity > INT32_MAX ? INT32_MAX : (int32_t)capacity;
    int32_t count =
        llama_tokenize(llm->vocab, text, (int32_t)bytes, tokens, room, add_special, true);
    if (count == INT32_MIN) {
        return MZ_E_INVALID;
    }
    return count < 0 ? -(long)count : (long)count; /* negative: how many there would be */
}

/* The formatted conversation, to be freed; NULL with *status set. */
static char *apply_template(const char *template_text, const struct llama_chat_message *messages,
                            size_t count, mz_status *status)
{
    int32_t bytes = llama_chat_apply_template(template_text, messages, count, true, NULL, 0);
    if (bytes < 0) {
        *status = MZ_E_UNSUPPORTED;
        return NULL;
    }
    char *text = malloc((size_t)bytes + 1);
    if (text == NULL) {
        *status = MZ_E_NOMEM;
        return NULL;
    }
    llama_chat_apply_template(template_text, messages, count, true, text, bytes);
    text[bytes] = '\0';
    return text;
}

/* Behind the token that ended the conversation, if the text begins with it. */
static const char *skip_end(const mz_llm *llm, const char *text)
{
    char piece[64];
    if (!llm->ended) {
        return text;
    }
    llama_token last = llm->has_pending ? llm->pending : LLAMA_TOKEN_NULL;
    if (last == LLAMA_TOKEN_NULL) {
        return text;
    }
    int32_t bytes = llama_token_to_piece(llm->vocab, last, piece, (int32_t)sizeof piece, 0, true);
    if (bytes > 0 && strncmp(text, piece, (size_t)bytes) == 0) {
        return text + bytes;
    }
    return text;
}

long mz_llm_chat_format(const mz_llm *llm, const char *role, const char *text, char *out,
                        size_t capacity)
{
    if (llm == NULL || role == NULL || text == NULL || (out == NULL && capacity > 0)) {
        return MZ_E_INVALID;
    }
    const char *template_text = llama_model_chat_template(llm->model, NULL);
    if (template_text == NULL) {
        return MZ_E_UNSUPPORTED;
    }
    const struct llama_chat_message messages[3] = {
        {"user", "-"}, {"assistant", STAND_IN}, {role, text}};
    bool is_first = mz_llm_context_tokens(llm) == 0;
    mz_status status = MZ_OK;
    char *whole = apply_template(template_text, is_first ? messages + 2 : messages,
                                 is_first ? 1 : 3, &status);
    if (whole == NULL) {
        return status;
    }
    const char *next = whole;
    if (!is_first) {
        const char *answer = strstr(whole, STAND_IN);
        next = answer != NULL ? skip_end(llm, answer + strlen(STAND_IN)) : whole;
    }
    size_t bytes = strlen(next);
    if (bytes < capacity) {
        memcpy(out, next, bytes + 1);
    }
    free(whole);
    return (long)bytes;
}

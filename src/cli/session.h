/* SPDX-License-Identifier: MIT */
/*
 * One conversation as a command has it: a model, its answers, what an eviction did.
 *
 * Every command that talks to a model goes through here, so that prefill shows its progress,
 * failures read the same everywhere, and figures are taken in the same way.
 */
#ifndef MZ_CLI_SESSION_H
#define MZ_CLI_SESSION_H

#include <stdio.h>

#include "base/size.h"
#include "cli/options.h"
#include "cli/output.h"

typedef struct mz_cli_answer {
    char *text; /* what was generated, 0-terminated; may hold half a character at its end */
    size_t text_bytes;
    int32_t *tokens; /* [token_count] */
    size_t token_count;
    mz_llm_timing timing; /* of the whole: prefill in steps counts as one call */
} mz_cli_answer;

typedef struct mz_cli_session {
    const char *command; /* for messages */
    mz_llm *llm;
    uint32_t batch_tokens;
    bool print;       /* tokens go to stdout as they come */
    uint64_t open_ns; /* time that loading took */
    mz_cli_progress progress;
} mz_cli_session;

typedef struct mz_cli_eviction {
    mz_status status; /* MZ_OK or MZ_E_PARTIAL or what failed */
    uint64_t asked_bytes;
    uint64_t freed_bytes;
    uint64_t taken_ns;
    uint64_t pss_before, pss_after; /* bytes, of the process */
    char reason[512];               /* if status is not MZ_OK */
} mz_cli_eviction;

/* Load the model. Returns an exit code, having said why on stderr if it is not 0. */
int mz_cli_session_open(mz_cli_session *session, const char *command, const mz_cli_model *model);
void mz_cli_session_close(mz_cli_session *session);

/* Text to tokens; the array is the caller's to free. NULL, having said why, on failure. */
int32_t *mz_cli_session_tokenize(mz_cli_session *session, const char *text, bool add_special,
                                 size_t *count);

/*
 * A user's message in the model's template (bare, if it has none) to tokens; with the special
 * tokens that begin a conversation if it is the first. As mz_cli_session_tokenize.
 */
int32_t *mz_cli_session_message(mz_cli_session *session, const char *text, size_t *count);

/*
 * Append tokens and generate at most `max_new`. `answer` is filled in any case and is the caller's
 * to release. Returns an exit code, having said why on stderr if it is not 0.
 */
int mz_cli_session_ask(mz_cli_session *session, const int32_t *tokens, size_t count, size_t max_new,
                       mz_cli_answer *answer);
void mz_cli_answer_release(mz_cli_answer *answer);

/* Evict; a percentage is of what is resident. */
void mz_cli_session_evict(mz_cli_session *session, mz_size size, mz_cli_eviction *eviction);

/* The exit code that an eviction stands for. */
int mz_cli_eviction_exit(const mz_cli_eviction *eviction);

/* One sentence about it, on `out`. */
void mz_cli_eviction_print(const mz_cli_eviction *eviction, FILE *out);

#endif

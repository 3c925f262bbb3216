/* SPDX-License-Identifier: MIT */
/*
 * The gate: which codecs this user's models were measured to bear.
 *
 * A codec that says needs_gate ruins some models. `mzcache eval --gate` measures one with one model
 * and keeps the result here, one small file for each pair in the cache directory; whoever is about
 * to use the codec asks. A model is known by its identity, not by its name: its size and samples of
 * its bytes, so that a copy is the same model and another model of that name is not. The record
 * holds the codec's id too, which changes with its format.
 */
#ifndef MZ_PROFILE_GATE_H
#define MZ_PROFILE_GATE_H

#include <stdbool.h>

#include "codec/codec.h"

/* Mean divergence from f16 KV that passes, nats per token: above it texts differ visibly. */
#define MZ_GATE_KL 0.01

typedef struct mz_gate_record {
    double mean_kl; /* nats per token */
    long context_tokens, scored_tokens;
} mz_gate_record;

/*
 * Keep what was measured with a codec and the model file at `path`; passed or not follows from
 * mean_kl. Errors: those of opening and reading the model, and of writing the record.
 */
mz_status mz_gate_save(const char *path, const mz_codec *codec, const mz_gate_record *record,
                       mz_error *error);

/* Whether the model passed with this codec; *record, unless NULL, is set if it was measured. */
mz_status mz_gate_passed(const char *path, const mz_codec *codec, bool *passed,
                         mz_gate_record *record, mz_error *error);

#endif

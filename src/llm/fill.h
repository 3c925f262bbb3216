/* SPDX-License-Identifier: MIT */
/* A conversation that was never computed, for benchmarks; see pool/fill.h. */
#ifndef MZ_LLM_FILL_H
#define MZ_LLM_FILL_H

#include "mzcache/llm.h"

/*
 * Append `count` tokens whose K and V are invented. Nothing that is generated afterwards means
 * anything; how long it takes does.
 * Errors: MZ_E_INVALID (stock engine, a generated token is pending, more than the context holds),
 *   MZ_E_HOST (the plug-in can't), MZ_E_ENGINE (K and V are not f16).
 */
MZ_API mz_status mz_llm_fill(mz_llm *llm, size_t count);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * How a benchmark asks the plug-in to fill a KV cache without computing it.
 *
 * Speed depends on how many tokens of K and V there are, not on what they say, and computing 32768
 * of them takes minutes. While filling, a graph computes nothing: its writes into f16 K and V get
 * seeded plausible values. What is generated from them means nothing, so this is no setting that
 * a host could find in its environment: only who looks this function up can turn it on.
 */
#ifndef MZ_POOL_FILL_H
#define MZ_POOL_FILL_H

#include <stdbool.h>

/* Name for ggml_backend_reg_get_proc_address, and the type of what it gives. */
#define MZ_PLUGIN_FILL_PROC "mz_plugin_fill"
typedef void (*mz_plugin_fill_fn)(bool fill);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Invented K and V.
 *
 * Codecs save as much of them as of real ones only roughly, but every byte is there: values of
 * both signs between 2^-5 and 4, drawn by a hash of where they stand. The pool is told as by a
 * graph that is computed, so that units become live and dirty in the same way.
 */
#include "plugin/fill.h"

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Sign and mantissa as drawn, exponent -5 to 1 by three further bits. */
static uint16_t half_of(uint64_t bits)
{
    return (uint16_t)((bits & 0x83ffu) | ((10u + (bits >> 10) % 8u % 7u) << 10));
}

static void fill_halves(uint16_t *target, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i += 4) {
        uint64_t bits = mix(seed + i * 0x9e3779b97f4a7c15u);
        for (uint64_t k = i; k < i + 4 && k < count; k++) {
            target[k] = half_of(bits);
            bits >>= 16;
        }
    }
}

mz_status mz_fill_writes(mz_plugin *plugin, const mz_graph_uses *uses,
                         const struct ggml_cgraph *graph, mz_error *error)
{
    for (size_t i = 0; i < uses->count; i++) {
        const struct ggml_tensor *node = graph->nodes[uses->nodes[i]];
        const mz_range *range = &uses->ranges[i];
        if (!uses->writes[i]) {
            continue;
        }
        if (node->type != GGML_TYPE_F16) {
            return mz_error_set(error, MZ_E_UNSUPPORTED, 0, "only f16 K and V can be filled");
        }
        mz_status status = mz_pool_need(plugin->pool, range->address, range->bytes, error);
        if (status != MZ_OK) {
            return status;
        }
        mz_pool_wrote(plugin->pool, range->address, range->bytes);
        uint8_t *base = node->data;
        uint64_t place = (uint64_t)((const uint8_t *)range->address - base);
        fill_halves((uint16_t *)(void *)(base + place), range->bytes / sizeof(uint16_t),
                    mix((uint64_t)uses->nodes[i]) + place);
    }
    return MZ_OK;
}

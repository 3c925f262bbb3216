/* SPDX-License-Identifier: MIT */
/*
 * Goal: opening a context for many tokens commits no page of its KV cache, and neither does
 * emptying it; a decoded token commits its own chunk's pages and no more.
 * Method: the growth of Pss, as the kernel reports it, against the size of the cache by hand:
 * SmolLM2-135M has 30 layers with 3 KV heads of 64 elements each for K and V, in f16. A quarter of
 * that is allowed: the host's own mapping of the model file, 98 MB, is part of the growth.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine.h"

#define TOKENS 32768u
#define KV_BYTES (30ull * 2 * 3 * 64 * 2 * TOKENS) /* 720 MB */

static uint64_t pss_bytes(void)
{
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "Pss: %llu kB", &kilobytes) == 1) {
            break;
        }
    }
    fclose(file);
    assert_true(kilobytes > 0);
    return kilobytes * 1024;
}

static void test_no_kv_page_is_committed(void **state)
{
    static engine_session session;
    static llama_token tokens[8];
    engine_setting how = {.model = ENGINE_SMOL,
                          .device = true,
                          .context_tokens = TOKENS,
                          .step_tokens = 64,
                          .sequences = 1,
                          .flash_attention = true};
    uint64_t before = pss_bytes();
    engine_open(&session, &how, *state);
    uint64_t opened = pss_bytes();
    print_message("KV %llu MB, opening took %llu MB\n", KV_BYTES >> 20,
                  (unsigned long long)(opened > before ? opened - before : 0) >> 20);
    assert_true(opened < before + KV_BYTES / 4);
    llama_memory_clear(llama_get_memory(session.context), true);
    assert_true(pss_bytes() < before + KV_BYTES / 4);
    engine_text(&session, 0, tokens, 8);
    engine_prefill(&session, 0, tokens, 8);
    mz_pool_status status;
    assert_int_equal(mz_status_get(*state, &status), MZ_OK);
    /* 8 tokens of 384 bytes are one page of each K and V. */
    assert_int_equal(status.kv_cache.resident_bytes, 30 * 2 * 4096);
    llama_memory_clear(llama_get_memory(session.context), true);
    assert_int_equal(mz_status_get(*state, &status), MZ_OK);
    assert_int_equal(status.kv_cache.resident_bytes, 0);
    engine_close(&session);
}

static int load(void **state)
{
    *state = engine_load_plugin("raw");
    return *state == NULL;
}

int main(void)
{
    if (!engine_has_models()) {
        return ENGINE_SKIP;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_kv_page_is_committed)};
    return cmocka_run_group_tests(tests, load, NULL);
}

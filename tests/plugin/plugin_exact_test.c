/* SPDX-License-Identifier: MIT */
/*
 * Goal: with the exact codec every logit is bit for bit that of stock llama.cpp, whatever is
 * evicted between any two calls and whatever the host does with its sequences meanwhile.
 * Method: each script runs on the stock CPU engine and on our device, there with 1 byte, 25, 50, 75
 * or 100 % evicted before every call in seeded random order; a thread that evicts all the time; a
 * host that computes node by node. Gemma 3 has a sliding window of 512 tokens, so two KV caches, of
 * which one wraps in a conversation of more than 768 tokens, and an output tied to its embeddings.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine.h"

typedef void (*script)(engine_session *session);

static mz_pool *pool;

/* Run a script both ways and compare. */
static void check(engine_setting how, script run, uint64_t seed)
{
    static engine_session right, ours;
    how.device = false;
    engine_open(&right, &how, pool);
    run(&right);
    engine_close(&right);
    how.device = true;
    engine_open(&ours, &how, pool);
    ours.seed = seed;
    run(&ours);
    engine_close(&ours);
    assert_true(right.trace.count > 0);
    engine_assert_same(&ours.trace, &right.trace);
}

/* Beyond the window: the sliding cache has 512 + 128 cells, rounded up to 768. */
static void long_conversation(engine_session *session)
{
    llama_token tokens[1100];
    engine_text(session, 0, tokens, 1100);
    engine_prefill(session, 0, tokens, 700);
    engine_generate(session, 1, 12);
    engine_prefill(session, 0, tokens + 700, 400);
    engine_generate(session, 1, 20);
}

static void test_gemma_beyond_its_window(void **state)
{
    (void)state;
    check((engine_setting){.model = ENGINE_GEMMA,
                           .context_tokens = 1536,
                           .step_tokens = 128,
                           .sequences = 1,
                           .flash_attention = true},
          long_conversation, 1);
}

static void test_gemma_without_flash_attention(void **state)
{
    (void)state;
    check(
        (engine_setting){
            .model = ENGINE_GEMMA, .context_tokens = 1536, .step_tokens = 128, .sequences = 1},
        long_conversation, 2);
}

static void test_smol_without_flash_attention(void **state)
{
    (void)state;
    check(
        (engine_setting){
            .model = ENGINE_SMOL, .context_tokens = 1536, .step_tokens = 128, .sequences = 1},
        long_conversation, 3);
}

/* Everything that a host can do to its sequences, each with evictions before and after it. */
static void sequences(engine_session *session)
{
    llama_memory_t memory = llama_get_memory(session->context);
    llama_token tokens[700];
    engine_text(session, 1, tokens, 300);
    engine_text(session, 2, tokens + 300, 280);
    engine_text(session, 3, tokens + 580, 120);
    engine_prefill(session, 0, tokens, 300);
    engine_evict(session);
    llama_memory_seq_cp(memory, 0, 1, -1, -1);
    engine_evict(session);
    engine_prefill(session, 2, tokens + 300, 280);
    engine_prefill(session, 1, tokens + 580, 7);
    engine_prefill(session, 0, tokens + 590, 5);
    engine_generate(session, 3, 8);
    /* The tail of one goes and another text takes its rows. */
    assert_true(llama_memory_seq_rm(memory, 1, 250, -1));
    engine_evict(session);
    engine_prefill(session, 1, tokens + 580, 60);
    engine_generate(session, 3, 4);
    if (llama_memory_can_shift(memory)) {
        assert_true(llama_memory_seq_rm(memory, 2, 10, 60));
        engine_evict(session);
        llama_memory_seq_add(memory, 2, 60, -1, -50);
        engine_generate(session, 3, 6);
    }
    assert_true(llama_memory_seq_rm(memory, 0, -1, -1));
    engine_evict(session);
    engine_prefill(session, 0, tokens + 580, 120);
    engine_generate(session, 3, 4);
    llama_memory_clear(memory, true);
    engine_evict(session);
    engine_prefill(session, 1, tokens + 580, 120);
    llama_memory_clear(memory, false);
    engine_prefill(session, 0, tokens + 300, 100);
    engine_generate(session, 1, 4);
}

static void check_sequences(const char *model, bool unified, bool flash_attention, uint64_t seed)
{
    check((engine_setting){.model = model,
                           .context_tokens = unified ? 2048 : 3 * 768,
                           .step_tokens = 128,
                           .sequences = 3,
                           .unified = unified,
                           .flash_attention = flash_attention},
          sequences, seed);
}

static void test_sequences_in_one_stream(void **state)
{
    (void)state;
    check_sequences(ENGINE_SMOL, true, true, 4);
    check_sequences(ENGINE_GEMMA, true, true, 5);
}

static void test_sequences_in_streams_of_their_own(void **state)
{
    (void)state;
    check_sequences(ENGINE_SMOL, false, true, 6);
    check_sequences(ENGINE_GEMMA, false, true, 7);
}

static void test_sequences_with_transposed_v(void **state)
{
    (void)state;
    check_sequences(ENGINE_SMOL, true, false, 8);
    check_sequences(ENGINE_SMOL, false, false, 9);
}

static bool every_node(struct ggml_tensor *node, bool ask, void *data)
{
    (void)node;
    (void)ask;
    (void)data;
    return true;
}

static void short_conversation(engine_session *session)
{
    llama_token tokens[300];
    engine_text(session, 4, tokens, 300);
    engine_prefill(session, 0, tokens, 300);
    engine_generate(session, 1, 6);
}

static void test_host_that_computes_node_by_node(void **state)
{
    (void)state;
    for (int flash = 0; flash < 2; flash++) {
        check((engine_setting){.model = ENGINE_SMOL,
                               .context_tokens = 512,
                               .step_tokens = 128,
                               .sequences = 1,
                               .flash_attention = flash != 0,
                               .on_node = every_node},
              short_conversation, 10);
    }
}

typedef struct evicting_thread {
    pthread_t thread;
    atomic_bool stop;
    unsigned evictions;
} evicting_thread;

static void *evict_all_the_time(void *argument)
{
    evicting_thread *self = argument;
    uint64_t seed = 77;
    while (!atomic_load(&self->stop)) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t bytes = (seed >> 33) % (96u << 20) + 1;
        unsigned tags = (unsigned)(seed >> 40) % 3 + 1;
        uint64_t freed = 0;
        (void)mz_evict_tagged(pool, bytes, tags, &freed);
        self->evictions += freed > 0;
        usleep((useconds_t)(seed >> 50) % 4000); /* let inference get some work done */
    }
    return NULL;
}

/* Two models at once: the second is opened and registered while the first is being evicted. */
static void test_thread_that_evicts_during_inference(void **state)
{
    (void)state;
    static engine_session right[2], ours[2];
    static const engine_setting how[2] = {{.model = ENGINE_SMOL,
                                           .context_tokens = 1024,
                                           .step_tokens = 64,
                                           .sequences = 1,
                                           .flash_attention = true},
                                          {.model = ENGINE_GEMMA,
                                           .context_tokens = 1024,
                                           .step_tokens = 64,
                                           .sequences = 1,
                                           .flash_attention = true}};
    evicting_thread evicting = {.evictions = 0};
    atomic_init(&evicting.stop, false);
    for (int i = 0; i < 2; i++) {
        engine_open(&right[i], &how[i], pool);
        short_conversation(&right[i]);
        engine_generate(&right[i], 1, 20);
        engine_close(&right[i]);
    }
    assert_int_equal(pthread_create(&evicting.thread, NULL, evict_all_the_time, &evicting), 0);
    for (int i = 0; i < 2; i++) {
        engine_setting device = how[i];
        device.device = true;
        engine_open(&ours[i], &device, pool);
        short_conversation(&ours[i]);
    }
    for (int i = 0; i < 40; i++) {
        engine_generate(&ours[i % 2], 1, 1);
        usleep(2000); /* else the next step mostly comes first, and little is evicted */
    }
    atomic_store(&evicting.stop, true);
    pthread_join(evicting.thread, NULL);
    for (int i = 0; i < 2; i++) {
        engine_close(&ours[i]);
        engine_assert_same(&ours[i].trace, &right[i].trace);
    }
    print_message("%u evictions\n", evicting.evictions);
    assert_true(evicting.evictions > 0);
}

static int load(void **state)
{
    (void)state;
    pool = engine_load_plugin("raw");
    return pool == NULL;
}

int main(void)
{
    if (!engine_has_models()) {
        return ENGINE_SKIP;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemma_beyond_its_window),
        cmocka_unit_test(test_gemma_without_flash_attention),
        cmocka_unit_test(test_smol_without_flash_attention),
        cmocka_unit_test(test_sequences_in_one_stream),
        cmocka_unit_test(test_sequences_in_streams_of_their_own),
        cmocka_unit_test(test_sequences_with_transposed_v),
        cmocka_unit_test(test_host_that_computes_node_by_node),
        cmocka_unit_test(test_thread_that_evicts_during_inference),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}

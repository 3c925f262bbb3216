/* SPDX-License-Identifier: MIT */
/*
 * Goal: an unmodified ggml loads the plug-in, believes its structures, and computes on its device.
 * Method: the real libggml loads the built shared object by ggml_backend_load; every call goes
 * through the host's public functions, so a member at the wrong place shows as a wrong answer or a
 * crash. Right values: bytes that were written, and the same graph on the host's CPU backend.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include "mzcache/mzcache.h"

/* Sizes of the test graph: uneven on purpose, and more than one page of weights. */
#define WIDTH 96
#define ROWS 70
#define COLUMNS 5

static ggml_backend_reg_t registry;

static ggml_backend_dev_t device(void)
{
    return ggml_backend_reg_dev_get(registry, 0);
}

static int load_plugin(void **state)
{
    (void)state;
    setenv("MZCACHE_STORE", MZ_TEST_STORE, 1);
    setenv("MZCACHE_GUARD", "1", 1);
    registry = ggml_backend_load(MZ_TEST_PLUGIN);
    return registry == NULL;
}

static void test_device_is_registered(void **state)
{
    (void)state;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    struct ggml_backend_dev_props props;
    assert_int_equal(ggml_backend_reg_dev_count(registry), 1);
    assert_ptr_equal(ggml_backend_dev_by_name("MZ0"), device());
    assert_ptr_equal(ggml_backend_dev_backend_reg(device()), registry);
    assert_int_equal(ggml_backend_dev_type(device()), GGML_BACKEND_DEVICE_TYPE_GPU);
    ggml_backend_dev_memory(device(), &free_bytes, &total_bytes);
    assert_true(total_bytes > 0 && free_bytes <= total_bytes);
    ggml_backend_dev_get_props(device(), &props);
    assert_string_equal(props.name, "MZ0");
    assert_true(props.caps.buffer_from_host_ptr && props.caps.mmap_support);
    assert_false(props.caps.async || props.caps.events || props.caps.host_buffer);
    assert_ptr_equal(ggml_backend_load(MZ_TEST_PLUGIN), registry);
}

static void test_functions_are_found(void **state)
{
    (void)state;
    mz_plugin_pool_fn pool =
        (mz_plugin_pool_fn)ggml_backend_reg_get_proc_address(registry, MZ_PLUGIN_POOL_PROC);
    mz_pool_status status;
    assert_non_null(pool);
    assert_non_null(pool());
    assert_int_equal(mz_status_get(pool(), &status), MZ_OK);
    assert_string_equal(status.store_dir, MZ_TEST_STORE);
    assert_non_null(ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads"));
    assert_non_null(ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_abort_callback"));
    assert_null(ggml_backend_reg_get_proc_address(registry, "no_such_function"));
}

static void test_buffer_type(void **state)
{
    (void)state;
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(device());
    assert_string_equal(ggml_backend_buft_name(type), "MZ");
    assert_false(ggml_backend_buft_is_host(type));
    assert_int_equal(ggml_backend_buft_get_alignment(type), 4096);
    assert_int_equal(ggml_backend_buft_get_max_size(type), SIZE_MAX);
    assert_ptr_equal(ggml_backend_buft_get_device(type), device());
    assert_true(ggml_backend_dev_supports_buft(device(), type));
    assert_true(ggml_backend_dev_supports_buft(device(), ggml_backend_cpu_buffer_type()));
    ggml_backend_buffer_t empty = ggml_backend_buft_alloc_buffer(type, 0);
    assert_non_null(empty);
    assert_int_equal(ggml_backend_buffer_get_size(empty), 0);
    ggml_backend_buffer_free(empty);
}

/* A context that holds only descriptions of tensors. */
static struct ggml_context *new_context(void)
{
    struct ggml_init_params params = {.mem_size =
                                          64 * ggml_tensor_overhead() + ggml_graph_overhead(),
                                      .mem_buffer = NULL,
                                      .no_alloc = true};
    return ggml_init(params);
}

static void test_tensor_bytes_come_back(void **state)
{
    (void)state;
    struct ggml_context *context = new_context();
    struct ggml_tensor *first = ggml_new_tensor_1d(context, GGML_TYPE_I8, 10001);
    struct ggml_tensor *second = ggml_new_tensor_1d(context, GGML_TYPE_I8, 10001);
    ggml_backend_buffer_t buffer =
        ggml_backend_alloc_ctx_tensors_from_buft(context, ggml_backend_dev_buffer_type(device()));
    uint8_t written[10001];
    uint8_t read[10001];
    assert_non_null(buffer);
    assert_int_equal((uintptr_t)second->data % 4096, 0);
    ggml_backend_buffer_clear(buffer, 0);
    for (size_t i = 0; i < sizeof written; i++) {
        written[i] = (uint8_t)(i * 7 + 1);
    }
    ggml_backend_tensor_set(first, written, 0, sizeof written);
    ggml_backend_tensor_memset(first, 0xAB, 100, 50);
    memset(written + 100, 0xAB, 50);
    ggml_backend_tensor_get(first, read, 0, sizeof read);
    assert_memory_equal(read, written, sizeof read);
    ggml_backend_tensor_get(second, read, 0, sizeof read);
    for (size_t i = 0; i < sizeof read; i++) {
        assert_int_equal(read[i], 0);
    }
    ggml_backend_tensor_copy(first, second);
    ggml_backend_tensor_get(second, read, 1, sizeof read - 1);
    assert_memory_equal(read, written + 1, sizeof read - 1);
    ggml_backend_buffer_clear(buffer, 0x5A);
    ggml_backend_tensor_get(first, read, 10000, 1);
    assert_int_equal(read[0], 0x5A);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

/* (weight * input) + bias on a backend; result [COLUMNS][ROWS]. */
static void compute_on(ggml_backend_t backend, float *result)
{
    struct ggml_context *context = new_context();
    struct ggml_tensor *weight = ggml_new_tensor_2d(context, GGML_TYPE_F16, WIDTH, ROWS);
    struct ggml_tensor *input = ggml_new_tensor_2d(context, GGML_TYPE_F32, WIDTH, COLUMNS);
    struct ggml_tensor *bias = ggml_new_tensor_1d(context, GGML_TYPE_F32, ROWS);
    struct ggml_tensor *sum = ggml_add(context, ggml_mul_mat(context, weight, input), bias);
    struct ggml_cgraph *graph = ggml_new_graph(context);
    float values[WIDTH * ROWS];
    ggml_fp16_t halves[WIDTH * ROWS];
    ggml_build_forward_expand(graph, sum);
    ggml_set_name(weight, "blk.0.test.weight");
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, backend);
    assert_non_null(buffer);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (int i = 0; i < WIDTH * ROWS; i++) {
        values[i] = (float)((i * 37) % 101 - 50) / 64.0f;
    }
    ggml_fp32_to_fp16_row(values, halves, WIDTH * ROWS);
    ggml_backend_tensor_set(weight, halves, 0, sizeof halves);
    ggml_backend_tensor_set(input, values, 0, WIDTH * COLUMNS * sizeof(float));
    ggml_backend_tensor_set(bias, values + 11, 0, ROWS * sizeof(float));
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(sum, result, 0, ROWS * COLUMNS * sizeof(float));
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

static void test_graph_equals_cpu(void **state)
{
    (void)state;
    float ours[ROWS * COLUMNS];
    float right[ROWS * COLUMNS];
    ggml_backend_t backend = ggml_backend_dev_init(device(), NULL);
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    assert_non_null(backend);
    ggml_backend_set_n_threads_t set_threads =
        (ggml_backend_set_n_threads_t)ggml_backend_reg_get_proc_address(
            registry, "ggml_backend_set_n_threads");
    set_threads(backend, 1);
    compute_on(backend, ours);
    compute_on(cpu, right);
    assert_memory_equal(ours, right, sizeof ours);
    ggml_backend_free(backend);
    ggml_backend_free(cpu);
}

static bool abort_at_once(void *data)
{
    *(int *)data += 1;
    return true;
}

static void test_abort_callback_is_forwarded(void **state)
{
    (void)state;
    int calls = 0;
    struct ggml_context *context = new_context();
    struct ggml_tensor *input = ggml_new_tensor_1d(context, GGML_TYPE_F32, 8);
    struct ggml_tensor *twice = ggml_add(context, input, input);
    struct ggml_cgraph *graph = ggml_new_graph(context);
    ggml_backend_t backend = ggml_backend_dev_init(device(), NULL);
    ggml_build_forward_expand(graph, ggml_add(context, twice, twice));
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, backend);
    ggml_backend_set_abort_callback_t set_abort =
        (ggml_backend_set_abort_callback_t)ggml_backend_reg_get_proc_address(
            registry, "ggml_backend_set_abort_callback");
    set_abort(backend, abort_at_once, &calls);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_ABORTED);
    assert_true(calls > 0);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(context);
}

static void test_supports_what_the_cpu_supports(void **state)
{
    (void)state;
    struct ggml_context *context = new_context();
    struct ggml_tensor *a = ggml_new_tensor_2d(context, GGML_TYPE_F32, 32, 4);
    struct ggml_tensor *half = ggml_new_tensor_2d(context, GGML_TYPE_F16, 32, 4);
    struct ggml_tensor *good = ggml_mul_mat(context, a, a);
    struct ggml_tensor *bad = ggml_mul_mat(context, a, half);
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    assert_true(ggml_backend_dev_supports_op(device(), good));
    assert_int_equal(ggml_backend_dev_supports_op(device(), bad),
                     ggml_backend_dev_supports_op(cpu, bad));
    assert_false(ggml_backend_dev_offload_op(device(), good));
    ggml_free(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_is_registered),
        cmocka_unit_test(test_functions_are_found),
        cmocka_unit_test(test_buffer_type),
        cmocka_unit_test(test_tensor_bytes_come_back),
        cmocka_unit_test(test_graph_equals_cpu),
        cmocka_unit_test(test_abort_callback_is_forwarded),
        cmocka_unit_test(test_supports_what_the_cpu_supports),
    };
    return cmocka_run_group_tests(tests, load_plugin, NULL);
}

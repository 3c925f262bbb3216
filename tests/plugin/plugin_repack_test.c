/* SPDX-License-Identifier: MIT */
/*
 * Goal: quantized weights of a mapped file are repacked as stock llama.cpp repacks them, once, and
 * every use of them is right: by the CPU's kernels, by other operations, and by a host that reads.
 * Method: a small GGUF file with a q4_0 matrix is mapped and given to the device. Right values: the
 * same graphs on the host's CPU backend, with the weight in the CPU's own repacking buffer for
 * products and in ordinary memory for all else; and the bytes of the file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <gguf.h>

#include "mzcache/mzcache.h"

#define WIDTH 256
#define ROWS 64
#define COLUMNS 5
#define VIEW_ROWS 24
#define NAME "blk.0.ffn_up.weight"

static ggml_backend_reg_t registry;
static char directory[] = "/tmp/mz-repack-XXXXXX";
static char model_path[64];

static mz_pool *pool(void)
{
    return ((mz_plugin_pool_fn)ggml_backend_reg_get_proc_address(registry, MZ_PLUGIN_POOL_PROC))();
}

static float value_at(uint32_t i)
{
    i = (i ^ 61u) * 0x45d9f3bu;
    i = (i ^ (i >> 16)) * 0x45d9f3bu;
    return (float)(i >> 8) / (float)(1u << 24) - 0.5f;
}

/* Write a model of one matrix; `seed` decides its values. */
static void write_model(uint32_t seed)
{
    float values[WIDTH * ROWS];
    for (uint32_t i = 0; i < WIDTH * ROWS; i++) {
        values[i] = value_at(seed * 100000u + i);
    }
    struct ggml_init_params params = {.mem_size = 1u << 20};
    struct ggml_context *context = ggml_init(params);
    struct ggml_tensor *weight = ggml_new_tensor_2d(context, GGML_TYPE_Q4_0, WIDTH, ROWS);
    ggml_set_name(weight, NAME);
    ggml_quantize_chunk(GGML_TYPE_Q4_0, values, weight->data, 0, ROWS, WIDTH, NULL);
    struct gguf_context *gguf = gguf_init_empty();
    gguf_add_tensor(gguf, weight);
    assert_true(gguf_write_to_file(gguf, model_path, false));
    gguf_free(gguf);
    ggml_free(context);
}

/* The model on the device, as llama.cpp places it there: mapped, from the first tensor on. */
typedef struct mapped {
    uint8_t *map;
    size_t bytes, data_offset;
    ggml_backend_buffer_t buffer;
    struct ggml_context *context;
    struct ggml_tensor *weight;
} mapped;

static struct ggml_context *new_context(void)
{
    struct ggml_init_params params = {
        .mem_size = 64 * ggml_tensor_overhead() + 2 * ggml_graph_overhead(), .no_alloc = true};
    return ggml_init(params);
}

static mapped load_model(void)
{
    mapped m = {0};
    struct stat info;
    int fd = open(model_path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    m.bytes = (size_t)info.st_size;
    m.map = mmap(NULL, m.bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(m.map, MAP_FAILED);
    close(fd);
    struct gguf_context *gguf =
        gguf_init_from_file(model_path, (struct gguf_init_params){.no_alloc = true});
    m.data_offset = gguf_get_data_offset(gguf) + gguf_get_tensor_offset(gguf, 0);
    gguf_free(gguf);
    m.buffer = ggml_backend_dev_buffer_from_host_ptr(ggml_backend_reg_dev_get(registry, 0),
                                                     m.map + m.data_offset, m.bytes - m.data_offset,
                                                     m.bytes - m.data_offset);
    assert_non_null(m.buffer);
    ggml_backend_buffer_set_usage(m.buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    m.context = new_context();
    m.weight = ggml_new_tensor_2d(m.context, GGML_TYPE_Q4_0, WIDTH, ROWS);
    ggml_set_name(m.weight, NAME);
    assert_int_equal(ggml_backend_tensor_alloc(m.buffer, m.weight, m.map + m.data_offset),
                     GGML_STATUS_SUCCESS);
    return m;
}

static void unload_model(mapped *m)
{
    ggml_backend_buffer_free(m->buffer);
    ggml_free(m->context);
    munmap(m->map, m->bytes);
}

/* Results of the three uses. */
typedef struct results {
    float product[ROWS * COLUMNS];
    float view_product[VIEW_ROWS * COLUMNS];
    float rows[WIDTH * COLUMNS];
} results;

/* Compute the uses of a weight on a backend: as a whole in a product, or all others. */
static void use_weight(ggml_backend_t backend, struct ggml_tensor *weight, bool product,
                       bool others, results *out)
{
    struct ggml_context *context = new_context();
    struct ggml_tensor *x = ggml_new_tensor_2d(context, GGML_TYPE_F32, WIDTH, COLUMNS);
    struct ggml_tensor *numbers = ggml_new_tensor_1d(context, GGML_TYPE_I32, COLUMNS);
    struct ggml_tensor *view =
        ggml_view_2d(context, weight, WIDTH, VIEW_ROWS, weight->nb[1], 8 * weight->nb[1]);
    struct ggml_tensor *a = ggml_mul_mat(context, weight, x);
    struct ggml_tensor *b = ggml_mul_mat(context, view, x);
    struct ggml_tensor *c = ggml_get_rows(context, weight, numbers);
    struct ggml_cgraph *graph = ggml_new_graph(context);
    if (product) {
        ggml_build_forward_expand(graph, a);
    }
    if (others) {
        ggml_build_forward_expand(graph, b);
        ggml_build_forward_expand(graph, c);
    }
    ggml_backend_buffer_t buffer =
        ggml_backend_alloc_ctx_tensors_from_buft(context, ggml_backend_cpu_buffer_type());
    assert_non_null(buffer);
    float input[WIDTH * COLUMNS];
    const int32_t wanted[COLUMNS] = {63, 0, 17, 8, 17};
    for (uint32_t i = 0; i < WIDTH * COLUMNS; i++) {
        input[i] = value_at(77777u + i);
    }
    ggml_backend_tensor_set(x, input, 0, sizeof input);
    ggml_backend_tensor_set(numbers, wanted, 0, sizeof wanted);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    if (product) {
        ggml_backend_tensor_get(a, out->product, 0, sizeof out->product);
    }
    if (others) {
        ggml_backend_tensor_get(b, out->view_product, 0, sizeof out->view_product);
        ggml_backend_tensor_get(c, out->rows, 0, sizeof out->rows);
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

static ggml_backend_buffer_type_t cpu_repack_type(void)
{
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_dev_get_extra_bufts_t get =
        (ggml_backend_dev_get_extra_bufts_t)ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts");
    for (ggml_backend_buffer_type_t *t = get(cpu); t != NULL && *t != NULL; t++) {
        if (strcmp(ggml_backend_buft_name(*t), "CPU_REPACK") == 0) {
            return *t;
        }
    }
    return NULL;
}

/* The stock answers: the weight in a buffer of `type` on the CPU backend. */
static void stock_results(const mapped *m, ggml_backend_buffer_type_t type, bool product,
                          bool others, results *out)
{
    struct ggml_context *context = new_context();
    struct ggml_tensor *weight = ggml_new_tensor_2d(context, GGML_TYPE_Q4_0, WIDTH, ROWS);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, type);
    assert_non_null(buffer);
    ggml_backend_tensor_set(weight, m->map + m->data_offset, 0, ggml_nbytes(weight));
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    use_weight(cpu, weight, product, others, out);
    ggml_backend_free(cpu);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

static void evict_everything(void)
{
    uint64_t freed = 0;
    assert_int_equal(mz_evict(pool(), UINT64_MAX, &freed), MZ_E_PARTIAL);
    assert_true(freed >= WIDTH * ROWS / 2);
}

static size_t count_images(char *path, struct stat *info)
{
    char pattern[64];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*", directory);
    size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    size_t images = 0;
    for (size_t i = 0; i < count; i++) {
        const char *end = strrchr(found.gl_pathv[i], '.');
        if (end != NULL && strcmp(end, ".image") == 0) {
            snprintf(path, 256, "%s", found.gl_pathv[i]);
            assert_int_equal(stat(path, info), 0);
            images++;
        } else {
            assert_null(strstr(found.gl_pathv[i], ".tmp"));
        }
    }
    if (count > 0) {
        globfree(&found);
    }
    return images;
}

static void check_uses(const mapped *m)
{
    results right = {0}, seen = {0};
    uint8_t bytes[WIDTH * ROWS];
    size_t total = ggml_nbytes(m->weight);
    stock_results(m, cpu_repack_type(), true, false, &right);
    stock_results(m, ggml_backend_cpu_buffer_type(), false, true, &right);
    ggml_backend_t backend = ggml_backend_dev_init(ggml_backend_reg_dev_get(registry, 0), NULL);
    assert_non_null(backend);
    for (int round = 0; round < 3; round++) {
        memset(&seen, 0, sizeof seen);
        use_weight(backend, m->weight, true, true, &seen);
        assert_memory_equal(&seen, &right, sizeof right);
        assert_true(total <= sizeof bytes);
        ggml_backend_tensor_get(m->weight, bytes, 0, total);
        assert_memory_equal(bytes, m->map + m->data_offset, total);
        evict_everything();
        ggml_backend_tensor_get(m->weight, bytes, 100, 500);
        assert_memory_equal(bytes, m->map + m->data_offset + 100, 500);
    }
    ggml_backend_free(backend);
}

static void test_uses_are_right_and_the_image_is_kept(void **state)
{
    (void)state;
    char path[256];
    struct stat first, second;
    write_model(1);
    mapped m = load_model();
    check_uses(&m);
    assert_int_equal(count_images(path, &first), 1);
    unload_model(&m);
    m = load_model();
    check_uses(&m);
    unload_model(&m);
    assert_int_equal(count_images(path, &second), 1);
    assert_int_equal(first.st_ino, second.st_ino);
    assert_int_equal(first.st_mtim.tv_nsec, second.st_mtim.tv_nsec);
}

static void test_another_model_at_the_path_gets_another_image(void **state)
{
    (void)state;
    char before[256], after[256];
    struct stat info, model;
    assert_int_equal(count_images(before, &info), 1);
    /* Same path, size and time: only the weights differ. */
    assert_int_equal(stat(model_path, &model), 0);
    write_model(2);
    struct timespec times[2] = {model.st_atim, model.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, model_path, times, 0), 0);
    mapped m = load_model();
    check_uses(&m);
    unload_model(&m);
    assert_int_equal(count_images(after, &info), 1);
    assert_string_not_equal(before, after);
}

static void test_a_cut_or_foreign_image_is_written_anew(void **state)
{
    (void)state;
    char path[256];
    struct stat info, again;
    assert_int_equal(count_images(path, &info), 1);
    assert_int_equal(truncate(path, info.st_size / 2), 0);
    mapped m = load_model();
    check_uses(&m);
    unload_model(&m);
    assert_int_equal(count_images(path, &again), 1);
    assert_int_equal(again.st_size, info.st_size);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 9), 1); /* into the identity */
    close(fd);
    m = load_model();
    check_uses(&m);
    unload_model(&m);
}

static void test_without_room_for_an_image_weights_stay_as_they_are(void **state)
{
    (void)state;
    char path[256];
    struct stat info;
    results right = {0}, seen = {0};
    write_model(3);
    /* Nothing can be created here any more, not even by root. */
    char command[128], blocked[64];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    assert_int_equal(system(command), 0);
    snprintf(blocked, sizeof blocked, "%s", directory);
    int fd = open(blocked, O_WRONLY | O_CREAT, 0600);
    close(fd);
    snprintf(model_path, sizeof model_path, "%s.gguf", directory);
    write_model(3);
    mapped m = load_model();
    stock_results(&m, ggml_backend_cpu_buffer_type(), true, true, &right);
    ggml_backend_t backend = ggml_backend_dev_init(ggml_backend_reg_dev_get(registry, 0), NULL);
    for (int round = 0; round < 2; round++) {
        use_weight(backend, m.weight, true, true, &seen);
        assert_memory_equal(&seen, &right, sizeof right);
        evict_everything();
    }
    ggml_backend_free(backend);
    unload_model(&m);
    unlink(model_path);
    unlink(blocked);
    assert_int_equal(count_images(path, &info), 0);
}

static int load_plugin(void **state)
{
    (void)state;
    if (mkdtemp(directory) == NULL) {
        return -1;
    }
    snprintf(model_path, sizeof model_path, "%s/model.gguf", directory);
    setenv("MZCACHE_STORE", directory, 1);
    setenv("MZCACHE_GUARD", "1", 1);
    registry = ggml_backend_load(MZ_TEST_PLUGIN);
    return registry == NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uses_are_right_and_the_image_is_kept),
        cmocka_unit_test(test_another_model_at_the_path_gets_another_image),
        cmocka_unit_test(test_a_cut_or_foreign_image_is_written_anew),
        cmocka_unit_test(test_without_room_for_an_image_weights_stay_as_they_are),
    };
    if (cpu_repack_type() == NULL) {
        fputs("this CPU backend repacks nothing\n", stderr);
        return 77;
    }
    return cmocka_run_group_tests(tests, load_plugin, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * The device "MZ0": the machine's own memory and cores, with elastic buffers.
 *
 * It calls itself a GPU because that is what makes a host put layers and KV caches on it. It
 * computes what the host's CPU device computes, reads every host buffer in place, and is never
 * offered work on weights that live elsewhere (no offload): such a copy would gain nothing.
 */
#include <string.h>

#include "os/process.h"
#include "plugin/buffer.h"
#include "plugin/plugin.h"

static mz_plugin *plugin_of(ggml_backend_dev_t device)
{
    return device->context;
}

ggml_backend_dev_t mz_plugin_cpu(mz_plugin *plugin)
{
    /* Looked up late: a host may load its CPU backend after us. */
    ggml_backend_dev_t cpu = atomic_load_explicit(&plugin->cpu, memory_order_relaxed);
    if (cpu == NULL) {
        cpu = plugin->host.ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        atomic_store_explicit(&plugin->cpu, cpu, memory_order_relaxed);
    }
    return cpu;
}

static const char *device_get_name(ggml_backend_dev_t device)
{
    (void)device;
    return "MZ0";
}

static const char *device_get_description(ggml_backend_dev_t device)
{
    (void)device;
    return "elastic host memory (mzCache)";
}

static void device_get_memory(ggml_backend_dev_t device, size_t *free_bytes, size_t *total_bytes)
{
    mz_error error = MZ_ERROR_INIT;
    uint64_t total = 0;
    uint64_t available = 0;
    if (mz_machine_memory(&total, &available, &error) != MZ_OK) {
        mz_pool_report(plugin_of(device)->pool, &error);
    }
    *free_bytes = available;
    *total_bytes = total;
}

static enum ggml_backend_dev_type device_get_type(ggml_backend_dev_t device)
{
    (void)device;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void device_get_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props)
{
    memset(props, 0, sizeof *props);
    props->name = device_get_name(device);
    props->description = device_get_description(device);
    props->type = device_get_type(device);
    device_get_memory(device, &props->memory_free, &props->memory_total);
    props->caps.buffer_from_host_ptr = true;
    props->caps.mmap_support = true;
}

static ggml_backend_t device_init_backend(ggml_backend_dev_t device, const char *params)
{
    (void)params;
    return mz_backend_create(plugin_of(device));
}

static ggml_backend_buffer_type_t device_get_buffer_type(ggml_backend_dev_t device)
{
    return mz_buffer_type(plugin_of(device));
}

static ggml_backend_buffer_t device_buffer_from_host_ptr(ggml_backend_dev_t device, void *address,
                                                         size_t bytes, size_t max_tensor_bytes)
{
    (void)max_tensor_bytes;
    return mz_buffer_from_host(plugin_of(device), address, bytes);
}

static bool device_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *node)
{
    mz_plugin *plugin = plugin_of(device);
    ggml_backend_dev_t cpu = mz_plugin_cpu(plugin);
    return cpu != NULL && plugin->host.ggml_backend_dev_supports_op(cpu, node);
}

static bool device_supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t type)
{
    mz_plugin *plugin = plugin_of(device);
    return type == mz_buffer_type(plugin) || plugin->host.ggml_backend_buft_is_host(type);
}

static bool device_offload_op(ggml_backend_dev_t device, const struct ggml_tensor *node)
{
    (void)device;
    (void)node;
    return false;
}

void mz_device_init(mz_plugin *plugin)
{
    plugin->device = (struct ggml_backend_device){
        .iface =
            {
                .get_name = device_get_name,
                .get_description = device_get_description,
                .get_memory = device_get_memory,
                .get_type = device_get_type,
                .get_props = device_get_props,
                .init_backend = device_init_backend,
                .get_buffer_type = device_get_buffer_type,
                .buffer_from_host_ptr = device_buffer_from_host_ptr,
                .supports_op = device_supports_op,
                .supports_buft = device_supports_buft,
                .offload_op = device_offload_op,
            },
        .reg = &plugin->reg,
        .context = plugin,
    };
    mz_buffer_type_init(plugin);
}

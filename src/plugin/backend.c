/* SPDX-License-Identifier: MIT */
/*
 * A stream of work on our device: a thin shell around a CPU backend of the host.
 *
 * All arithmetic is the host's own, so every architecture and every CPU kernel that the host has
 * works here at its speed. The shell adds the gate (graph.c) and forwards what a host sets on a CPU
 * backend: the number of threads and the abort callback. Everything is synchronous: there is no
 * queue, no event, and no copy between devices to overlap.
 */
#include <stdlib.h>

#include "os/process.h"
#include "plugin/graph.h"
#include "plugin/plugin.h"

typedef struct stream {
    mz_plugin *plugin;
    ggml_backend_t cpu;
    ggml_backend_set_n_threads_t set_threads;             /* of the CPU backend; NULL: has none */
    ggml_backend_set_abort_callback_t set_abort_callback; /* likewise */
    mz_graph_uses uses;
} stream;

static const char *backend_get_name(ggml_backend_t backend)
{
    (void)backend;
    return "MZ0";
}

static void backend_free(ggml_backend_t backend)
{
    stream *self = backend->context;
    self->plugin->host.ggml_backend_free(self->cpu);
    mz_graph_uses_free(&self->uses);
    free(self);
    free(backend);
}

static enum ggml_status backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    stream *self = backend->context;
    return mz_graph_compute(self->plugin, self->cpu, &self->uses, graph);
}

static ggml_guid_t backend_guid(void)
{
    static ggml_guid guid = {0x6d, 0x7a, 0x43, 0x61, 0x63, 0x68, 0x65, 0x00,
                             0x4e, 0x1b, 0x9c, 0x52, 0x8d, 0x07, 0x3f, 0xa1};
    return &guid;
}

/* Find the functions that a host looks up on a registry, on the CPU's registry. */
static void find_settings(stream *self, ggml_backend_dev_t cpu)
{
    const mz_host *host = &self->plugin->host;
    ggml_backend_reg_t reg = host->ggml_backend_dev_backend_reg(cpu);
    self->set_threads = (ggml_backend_set_n_threads_t)host->ggml_backend_reg_get_proc_address(
        reg, "ggml_backend_set_n_threads");
    self->set_abort_callback =
        (ggml_backend_set_abort_callback_t)host->ggml_backend_reg_get_proc_address(
            reg, "ggml_backend_set_abort_callback");
}

ggml_backend_t mz_backend_create(mz_plugin *plugin)
{
    ggml_backend_dev_t cpu = mz_plugin_cpu(plugin);
    stream *self = calloc(1, sizeof *self);
    ggml_backend_t backend = calloc(1, sizeof *backend);
    if (cpu == NULL || self == NULL || backend == NULL) {
        goto fail;
    }
    self->plugin = plugin;
    self->cpu = plugin->host.ggml_backend_dev_init(cpu, NULL);
    if (self->cpu == NULL) {
        goto fail;
    }
    find_settings(self, cpu);
    backend->guid = backend_guid();
    backend->device = &plugin->device;
    backend->context = self;
    backend->iface.get_name = backend_get_name;
    backend->iface.free = backend_free;
    backend->iface.graph_compute = backend_graph_compute;
    mz_backend_set_threads(backend, mz_machine_cores());
    return backend;
fail:
    free(backend);
    free(self);
    return NULL;
}

void mz_backend_set_threads(ggml_backend_t backend, int threads)
{
    stream *self = backend->context;
    if (self->set_threads != NULL) {
        self->set_threads(self->cpu, threads);
    }
}

void mz_backend_set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void *data)
{
    stream *self = backend->context;
    if (self->set_abort_callback != NULL) {
        self->set_abort_callback(self->cpu, callback, data);
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * The private side of ggml's backend interface, as far as a plug-in has to know it.
 *
 * ggml installs only its public headers, in which these structures are opaque, yet a loadable
 * backend must fill them in. So their layouts are declared here, member by member in the order in
 * which the host reads them. Two layouts exist among the versions we accept (host.h):
 *   API 2: ggml 0.25.x
 *   API 3: ggml 0.26.x; the buffer type has two more functions, all else is the same.
 * A layout that does not match makes the host jump through a wrong pointer: every change here has
 * to be checked against that version's own source, and tests/plugin runs against the real library.
 */
#ifndef MZ_PLUGIN_GGML_ABI_H
#define MZ_PLUGIN_GGML_ABI_H

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <gguf.h>

/* Version numbers that a registry entry carries; the host refuses any other than its own. */
#define MZ_GGML_API_2 2
#define MZ_GGML_API_3 3

/* What a kind of memory can do (API 2). NULL means the host's default where one is noted. */
typedef struct mz_abi2_buffer_type {
    const char *(*get_name)(ggml_backend_buffer_type_t type);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t type, size_t bytes);
    size_t (*get_alignment)(ggml_backend_buffer_type_t type);
    size_t (*get_max_size)(ggml_backend_buffer_type_t type); /* default: no limit */
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t type,
                             const struct ggml_tensor *tensor); /* default: ggml_nbytes */
    bool (*is_host)(ggml_backend_buffer_type_t type);           /* default: false */
    ggml_backend_dev_t device;
    void *context;
} mz_abi2_buffer_type;

/* The same for API 3. */
typedef struct mz_abi3_buffer_type {
    const char *(*get_name)(ggml_backend_buffer_type_t type);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t type, size_t bytes);
    ggml_backend_buffer_t (*alloc_buffer_n)(
        ggml_backend_buffer_type_t type, struct ggml_tensor **tensors,
        int count); /* default: alloc_buffer, tensors in a row */
    size_t (*get_alignment)(ggml_backend_buffer_type_t type);
    size_t (*get_max_size)(ggml_backend_buffer_type_t type);
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor);
    size_t (*get_alloc_size_n)(ggml_backend_buffer_type_t type, struct ggml_tensor **tensors,
                               int count); /* default: the sum of get_alloc_size */
    bool (*is_host)(ggml_backend_buffer_type_t type);
    ggml_backend_dev_t device;
    void *context;
} mz_abi3_buffer_type;

/* Access to one buffer. */
struct ggml_backend_buffer_i {
    void (*free_buffer)(ggml_backend_buffer_t buffer);
    void *(*get_base)(ggml_backend_buffer_t buffer);
    enum ggml_status (*init_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);
    void (*memset_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value,
                          size_t offset, size_t bytes);
    void (*set_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data,
                       size_t offset, size_t bytes);
    void (*get_tensor)(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data,
                       size_t offset, size_t bytes);
    /* Several rows at once; without these the host calls set_tensor and get_tensor per row. */
    void (*set_tensor_2d)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor,
                          const void *data, size_t offset, size_t bytes, size_t copies,
                          size_t tensor_stride, size_t data_stride);
    void (*get_tensor_2d)(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor,
                          void *data, size_t offset, size_t bytes, size_t copies,
                          size_t tensor_stride, size_t data_stride);
    bool (*cpy_tensor)(ggml_backend_buffer_t buffer, const struct ggml_tensor *source,
                       struct ggml_tensor *target); /* false: the host copies by get and set */
    void (*clear)(ggml_backend_buffer_t buffer, uint8_t value);
    void (*reset)(ggml_backend_buffer_t buffer); /* optional */
};

struct ggml_backend_buffer {
    struct ggml_backend_buffer_i iface;
    ggml_backend_buffer_type_t type;
    void *context;
    size_t bytes;
    enum ggml_backend_buffer_usage usage;
};

/* Exported by the host, declared in no public header. The host owns and deletes the result. */
ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t type,
                                               struct ggml_backend_buffer_i iface, void *context,
                                               size_t bytes);

/* Only its address is passed on; never called here. */
struct mz_abi_optimize_params;

/* One stream of work. All but get_name, free and graph_compute are optional. */
struct ggml_backend_i {
    const char *(*get_name)(ggml_backend_t backend);
    void (*free)(ggml_backend_t backend);
    void (*set_tensor_async)(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data,
                             size_t offset, size_t bytes);
    void (*get_tensor_async)(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data,
                             size_t offset, size_t bytes);
    void (*set_tensor_2d_async)(ggml_backend_t backend, struct ggml_tensor *tensor,
                                const void *data, size_t offset, size_t bytes, size_t copies,
                                size_t tensor_stride, size_t data_stride);
    void (*get_tensor_2d_async)(ggml_backend_t backend, const struct ggml_tensor *tensor,
                                void *data, size_t offset, size_t bytes, size_t copies,
                                size_t tensor_stride, size_t data_stride);
    bool (*cpy_tensor_async)(ggml_backend_t source_backend, ggml_backend_t target_backend,
                             const struct ggml_tensor *source, struct ggml_tensor *target);
    void (*synchronize)(ggml_backend_t backend);
    ggml_backend_graph_plan_t (*graph_plan_create)(ggml_backend_t backend,
                                                   const struct ggml_cgraph *graph);
    void (*graph_plan_free)(ggml_backend_t backend, ggml_backend_graph_plan_t plan);
    void (*graph_plan_update)(ggml_backend_t backend, ggml_backend_graph_plan_t plan,
                              const struct ggml_cgraph *graph);
    enum ggml_status (*graph_plan_compute)(ggml_backend_t backend, ggml_backend_graph_plan_t plan);
    enum ggml_status (*graph_compute)(ggml_backend_t backend, struct ggml_cgraph *graph);
    void (*event_record)(ggml_backend_t backend, ggml_backend_event_t event);
    void (*event_wait)(ggml_backend_t backend, ggml_backend_event_t event);
    void (*graph_optimize)(ggml_backend_t backend, struct ggml_cgraph *graph,
                           struct mz_abi_optimize_params *params);
};

struct ggml_backend {
    ggml_guid_t guid;
    struct ggml_backend_i iface;
    ggml_backend_dev_t device;
    void *context;
};

struct ggml_backend_device_i {
    const char *(*get_name)(ggml_backend_dev_t device);
    const char *(*get_description)(ggml_backend_dev_t device);
    void (*get_memory)(ggml_backend_dev_t device, size_t *free_bytes, size_t *total_bytes);
    enum ggml_backend_dev_type (*get_type)(ggml_backend_dev_t device);
    void (*get_props)(ggml_backend_dev_t device, struct ggml_backend_dev_props *props);
    ggml_backend_t (*init_backend)(ggml_backend_dev_t device, const char *params);
    ggml_backend_buffer_type_t (*get_buffer_type)(ggml_backend_dev_t device);
    ggml_backend_buffer_type_t (*get_host_buffer_type)(ggml_backend_dev_t device); /* optional */
    ggml_backend_buffer_t (*buffer_from_host_ptr)(ggml_backend_dev_t device, void *address,
                                                  size_t bytes, size_t max_tensor_bytes);
    bool (*supports_op)(ggml_backend_dev_t device, const struct ggml_tensor *node);
    bool (*supports_buft)(ggml_backend_dev_t device, ggml_backend_buffer_type_t type);
    bool (*offload_op)(ggml_backend_dev_t device, const struct ggml_tensor *node); /* optional */
    ggml_backend_event_t (*event_new)(ggml_backend_dev_t device);                  /* optional */
    void (*event_free)(ggml_backend_dev_t device, ggml_backend_event_t event);
    void (*event_synchronize)(ggml_backend_dev_t device, ggml_backend_event_t event);
};

struct ggml_backend_device {
    struct ggml_backend_device_i iface;
    ggml_backend_reg_t reg;
    void *context;
};

struct ggml_backend_reg_i {
    const char *(*get_name)(ggml_backend_reg_t reg);
    size_t (*get_device_count)(ggml_backend_reg_t reg);
    ggml_backend_dev_t (*get_device)(ggml_backend_reg_t reg, size_t index);
    void *(*get_proc_address)(ggml_backend_reg_t reg, const char *name); /* optional */
};

struct ggml_backend_reg {
    int api_version; /* MZ_GGML_API_* of the host */
    struct ggml_backend_reg_i iface;
    void *context;
};

/* A graph, by value: what ggml_graph_view returns. Only its nodes are looked at here. */
struct ggml_cgraph {
    int capacity;
    int n_nodes;
    int n_leafs;
    struct ggml_tensor **nodes;
    struct ggml_tensor **grads;
    struct ggml_tensor **grad_accs;
    struct ggml_tensor **leafs;
    int32_t *use_counts;
    struct {
        size_t slots;
        uint32_t *used;
        struct ggml_tensor **keys;
    } visited;
    int order; /* an enum there */
    uint64_t uid;
};

/* Nodes [first, end) of a graph; shares everything with it. Exported by the host. */
struct ggml_cgraph ggml_graph_view(struct ggml_cgraph *graph, int first, int end);

#endif

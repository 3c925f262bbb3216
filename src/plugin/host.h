/* SPDX-License-Identifier: MIT */
/*
 * The host: the very copy of ggml that loaded us, reached through a table of its functions.
 *
 * The plug-in links no ggml library. A process may hold several copies of ggml (Python wheels ship
 * each library under several names; a prebuilt host may keep it inside its own library), each with
 * its own registry and CPU backend, and a link-time dependency would bind us to the wrong one. So
 * mz_host_resolve looks every function up in the library whose code called ggml_backend_init, and
 * through what that library depends on.
 */
#ifndef MZ_PLUGIN_HOST_H
#define MZ_PLUGIN_HOST_H

#include "base/error.h"
#include "plugin/ggml_abi.h"

/* Every function of the host that is called here. */
#define MZ_HOST_FUNCTIONS(X)                                                                       \
    X(ggml_version)                                                                                \
    X(ggml_nbytes)                                                                                 \
    X(ggml_row_size)                                                                               \
    X(ggml_is_contiguous)                                                                          \
    X(ggml_is_quantized)                                                                           \
    X(ggml_n_dims)                                                                                 \
    X(ggml_backend_buft_alloc_buffer)                                                              \
    X(ggml_backend_buft_name)                                                                      \
    X(ggml_backend_buffer_init_tensor)                                                             \
    X(ggml_backend_tensor_set)                                                                     \
    X(ggml_graph_view)                                                                             \
    X(ggml_backend_buffer_init)                                                                    \
    X(ggml_backend_buft_is_host)                                                                   \
    X(ggml_backend_dev_by_type)                                                                    \
    X(ggml_backend_dev_init)                                                                       \
    X(ggml_backend_dev_backend_reg)                                                                \
    X(ggml_backend_dev_supports_op)                                                                \
    X(ggml_backend_reg_get_proc_address)                                                           \
    X(ggml_backend_graph_compute)                                                                  \
    X(ggml_backend_free)                                                                           \
    X(gguf_init_from_file)                                                                         \
    X(gguf_free)                                                                                   \
    X(gguf_get_data_offset)                                                                        \
    X(gguf_get_n_tensors)                                                                          \
    X(gguf_get_tensor_name)                                                                        \
    X(gguf_get_tensor_offset)                                                                      \
    X(gguf_get_tensor_size)

typedef struct mz_host {
    int api; /* MZ_GGML_API_* that fits its version */
#define MZ_HOST_MEMBER(name) __typeof__(name) *name;
    MZ_HOST_FUNCTIONS(MZ_HOST_MEMBER)
#undef MZ_HOST_MEMBER
} mz_host;

/*
 * Fill the table for the library that holds the code at `caller`.
 * Errors: MZ_E_HOST when a function is missing (named) or the version is not one that was checked.
 */
mz_status mz_host_resolve(mz_host *host, const void *caller, mz_error *error);

/* The MZ_GGML_API_* of a ggml version such as "0.25.3"; 0 for one that was not checked. */
int mz_host_api_of_version(const char *version);

#endif

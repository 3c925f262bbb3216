/* SPDX-License-Identifier: MIT */
/*
 * Find the host's functions at run time.
 *
 * dladdr on the return address of ggml_backend_init names the host's library; dlopen with
 * RTLD_NOLOAD gives its handle without loading anything, and dlsym on a handle searches the library
 * and then its dependencies: exactly the copy of ggml that this host uses. A host that links ggml
 * into its executable has no such handle under that path; then the global scope is searched.
 *
 * ggml's plug-in structures change without its API number changing with them, so the number alone
 * is not trusted: a version that nobody compared with ggml_abi.h is refused.
 */
#include "plugin/host.h"

#include <dlfcn.h>
#include <string.h>

/* Handle of the library around `caller`, or NULL. The caller closes it. */
static void *open_library_of(const void *caller)
{
    Dl_info info;
    if (dladdr(caller, &info) == 0 || info.dli_fname == NULL) {
        return NULL;
    }
    return dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
}

static void *find_symbol(void *library, const char *name)
{
    void *symbol = library != NULL ? dlsym(library, name) : NULL;
    return symbol != NULL ? symbol : dlsym(RTLD_DEFAULT, name);
}

int mz_host_api_of_version(const char *version)
{
    static const struct {
        const char *prefix;
        int api;
    } checked[] = {{"0.25.", MZ_GGML_API_2}, {"0.26.", MZ_GGML_API_3}};
    for (size_t i = 0; i < sizeof checked / sizeof checked[0]; i++) {
        if (strncmp(version, checked[i].prefix, strlen(checked[i].prefix)) == 0) {
            return checked[i].api;
        }
    }
    return 0;
}

mz_status mz_host_resolve(mz_host *host, const void *caller, mz_error *error)
{
    void *library = open_library_of(caller);
    const char *missing = NULL;
    void *symbol = NULL;
    /* ISO C has no conversion from object to function pointers; POSIX wants it through memcpy. */
#define MZ_HOST_FIND(name)                                                                         \
    symbol = find_symbol(library, #name);                                                          \
    memcpy(&host->name, &symbol, sizeof symbol);                                                   \
    if (symbol == NULL && missing == NULL) {                                                       \
        missing = #name;                                                                           \
    }
    MZ_HOST_FUNCTIONS(MZ_HOST_FIND)
#undef MZ_HOST_FIND
    if (library != NULL) {
        dlclose(library); /* only our reference; the host keeps its own */
    }
    if (missing != NULL) {
        return mz_error_set(error, MZ_E_HOST, 0, "the host's ggml does not export %s", missing);
    }
    host->api = mz_host_api_of_version(host->ggml_version());
    if (host->api == 0) {
        return mz_error_set(
            error, MZ_E_HOST, 0,
            "ggml %s is not a version this plug-in was checked against (0.25.x, 0.26.x)",
            host->ggml_version());
    }
    return MZ_OK;
}

/* SPDX-License-Identifier: MIT */
/*
 * Goal: the plug-in binds to the copy of ggml that called it, and refuses versions nobody checked.
 * Method: resolve from an address inside the real libggml and compare with what the linker bound;
 * right values for versions: the list of releases whose structures were compared (ggml_abi.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/host.h"

static void test_versions(void **state)
{
    (void)state;
    assert_int_equal(mz_host_api_of_version("0.25.3"), 2);
    assert_int_equal(mz_host_api_of_version("0.25.0"), 2);
    assert_int_equal(mz_host_api_of_version("0.26.0"), 3);
    assert_int_equal(mz_host_api_of_version("0.24.9"), 0);
    assert_int_equal(mz_host_api_of_version("0.27.0"), 0);
    assert_int_equal(mz_host_api_of_version("0.250.1"), 0);
    assert_int_equal(mz_host_api_of_version("1.25.0"), 0);
    assert_int_equal(mz_host_api_of_version(""), 0);
}

static void test_resolves_the_callers_copy(void **state)
{
    (void)state;
    mz_host host;
    mz_error error = MZ_ERROR_INIT;
    ggml_backend_reg_t (*load)(const char *) = ggml_backend_load;
    const void *caller = NULL;
    memcpy(&caller, &load, sizeof caller);
    assert_int_equal(mz_host_resolve(&host, caller, &error), MZ_OK);
    assert_true(host.ggml_nbytes == ggml_nbytes);
    assert_true(host.gguf_init_from_file == gguf_init_from_file);
    assert_true(host.ggml_backend_dev_by_type == ggml_backend_dev_by_type);
    assert_int_equal(host.api, mz_host_api_of_version(ggml_version()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_resolves_the_callers_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

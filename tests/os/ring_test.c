/* SPDX-License-Identifier: MIT */
/*
 * Goal: what a ring reads is what a plain read gives, whatever the kernel leaves undone.
 * Method: a file of known bytes, read by many requests at once with results cut short or failed,
 * compared with what is in the file.
 */
#include "os/ring.h"

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/fault_os.h"
#include "os/scratch.h"

#define DEPTH 8u
#define PIECE (64u << 10)
#define PIECES 32u
#define TAIL 1000u /* bytes behind the last whole page */
#define BYTES (PIECE * PIECES)

typedef struct bench {
    char path[256];
    mz_fault_os fault;
    mz_file file;
    mz_ring *ring;
    uint8_t *got; /* [BYTES + MZ_PAGE_BYTES] */
} bench;

static void bench_close(bench *b)
{
    mz_ring_close(b->ring);
    mz_file_close(&b->file);
    free(b->got);
    unlink(b->path);
    *strrchr(b->path, '/') = '\0';
    rmdir(b->path);
}

/* Skips the test where there is no io_uring or no direct I/O. */
static void bench_open(bench *b)
{
    mz_error error = MZ_ERROR_INIT;
    mz_fault_os_init(&b->fault);
    scratch_make_directory(b->path, sizeof b->path);
    strcat(b->path, "/file");
    scratch_make_file(b->path, BYTES + TAIL);
    assert_int_equal(mz_file_open(&b->file, &b->fault.os, b->path, &error), MZ_OK);
    b->got = scratch_buffer(BYTES + MZ_PAGE_BYTES);
    if (mz_ring_open(&b->fault.os, DEPTH, &b->ring, &error) != MZ_OK ||
        !mz_file_is_direct(&b->file)) {
        bench_close(b);
        skip();
    }
}

/* Read all pieces with as many under way as fit. Returns how many failed. */
static unsigned read_all(bench *b)
{
    unsigned failures = 0, ended = 0, begun = 0;
    bool seen[PIECES] = {false};
    memset(b->got, 0xA5, BYTES);
    while (ended < PIECES) {
        while (begun < PIECES && mz_ring_under_way(b->ring) < DEPTH) {
            assert_true(mz_ring_start(b->ring, &b->file, b->got + (size_t)begun * PIECE, PIECE,
                                      (uint64_t)begun * PIECE, begun));
            begun++;
        }
        uint32_t tag = UINT32_MAX;
        mz_status status = MZ_OK;
        mz_error error = MZ_ERROR_INIT;
        assert_true(mz_ring_wait(b->ring, true, &tag, &status, &error));
        assert_true(tag < PIECES && !seen[tag]);
        seen[tag] = true;
        failures += status != MZ_OK;
        ended++;
    }
    return failures;
}

static void every_byte_comes(void **state)
{
    (void)state;
    static const int failures[] = {0, EAGAIN, EINVAL, EIO};
    bench b = {0};
    bench_open(&b);
    assert_int_equal(read_all(&b), 0);
    scratch_assert_bytes(b.got, BYTES, 0);
    for (int i = 0; i < 4; i++) {
        for (uint64_t cut = 0; cut <= MZ_PAGE_BYTES + 512; cut += 512) {
            if (failures[i] != 0) {
                mz_fault_os_fail(&b.fault, MZ_FAULT_RING_READ, 3, 5, failures[i]);
            } else {
                mz_fault_os_shorten(&b.fault, MZ_FAULT_RING_READ, 3, 5, cut);
            }
            assert_int_equal(read_all(&b), 0);
            assert_int_equal(mz_fault_os_hits(&b.fault), 5);
            scratch_assert_bytes(b.got, BYTES, 0);
            mz_fault_os_clear(&b.fault);
        }
    }
    bench_close(&b);
}

static void what_fails_twice_is_said(void **state)
{
    (void)state;
    bench b = {0};
    bench_open(&b);
    uint32_t tag = 0;
    mz_status status = MZ_OK;
    mz_error error = MZ_ERROR_INIT;
    assert_true(mz_ring_start(b.ring, &b.file, b.got, PIECE, 0, 7));
    mz_fault_os_fail(&b.fault, MZ_FAULT_ANY, 1, MZ_FAULT_FOREVER, EIO);
    assert_true(mz_ring_wait(b.ring, true, &tag, &status, &error));
    assert_int_equal(tag, 7);
    assert_int_equal(status, MZ_E_IO);
    mz_fault_os_clear(&b.fault);
    bench_close(&b);
}

static void what_it_does_not_take_is_left_alone(void **state)
{
    (void)state;
    bench b = {0};
    bench_open(&b);
    uint32_t tag = 0;
    mz_status status = MZ_OK;
    mz_error error = MZ_ERROR_INIT;
    assert_false(mz_ring_wait(b.ring, true, &tag, &status, &error));
    assert_false(mz_ring_start(b.ring, &b.file, b.got + 1, PIECE, 0, 0));
    assert_false(mz_ring_start(b.ring, &b.file, b.got, PIECE, 512, 0));
    assert_false(mz_ring_start(b.ring, &b.file, b.got, PIECE - 1, 0, 0));
    assert_false(mz_ring_start(b.ring, &b.file, b.got, 0, 0, 0));
    assert_false(mz_ring_start(b.ring, &b.file, b.got, MZ_PAGE_BYTES, BYTES, 0));
    for (uint32_t i = 0; i < DEPTH; i++) {
        assert_true(mz_ring_start(b.ring, &b.file, b.got + (size_t)i * PIECE, PIECE, 0, i));
    }
    assert_false(mz_ring_start(b.ring, &b.file, b.got + (size_t)DEPTH * PIECE, PIECE, 0, 0));
    while (mz_ring_wait(b.ring, true, &tag, &status, &error)) {
        assert_int_equal(status, MZ_OK);
    }
    assert_int_equal(mz_ring_under_way(b.ring), 0);
    bench_close(&b);
}

static void a_refusal_is_said(void **state)
{
    (void)state;
    mz_fault_os fault;
    mz_ring *ring = NULL;
    mz_error error = MZ_ERROR_INIT;
    mz_fault_os_init(&fault);
    mz_fault_os_fail(&fault, MZ_FAULT_RING_OPEN, 1, MZ_FAULT_FOREVER, EPERM);
    assert_int_equal(mz_ring_open(&fault.os, DEPTH, &ring, &error), MZ_E_UNSUPPORTED);
    assert_non_null(strstr(error.text, "io_uring"));
    mz_fault_os_fail(&fault, MZ_FAULT_RING_OPEN, 1, MZ_FAULT_FOREVER, ENOMEM);
    assert_int_equal(mz_ring_open(&fault.os, DEPTH, &ring, &error), MZ_E_NOMEM);
    assert_int_equal(mz_ring_open(&fault.os, 0, &ring, &error), MZ_E_INVALID);
    assert_int_equal(mz_ring_open(&fault.os, 65, &ring, &error), MZ_E_INVALID);
    assert_null(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_comes),
        cmocka_unit_test(what_fails_twice_is_said),
        cmocka_unit_test(what_it_does_not_take_is_left_alone),
        cmocka_unit_test(a_refusal_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

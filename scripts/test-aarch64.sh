#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Compile the kernels and their tests for 64-bit ARM and run them under qemu's user-mode emulator.
#
# Only kernels know the processor, so only they are tried; that needs no library for ARM but libc.
# In place of cmocka the tests see tests/aarch64/cmocka.h. The programs are static, so the emulator
# needs no ARM root directory.
set -euo pipefail
cd "$(dirname "$0")/.."

COMPILER=aarch64-linux-gnu-gcc
OUT=build-aarch64
TESTS="kernels_test q4_kernels_test cachegen_kernels_test"
KERNELS="src/kernels/generic*.c src/kernels/dispatch.c src/kernels/neon/*.c"

emulator="$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)"
if ! command -v "$COMPILER" >/dev/null || [ -z "$emulator" ]; then
    echo "test-aarch64: skipped, the packages of scripts/packages-optional.txt are missing"
    exit 0
fi
mkdir -p "$OUT"
for test in $TESTS; do
    # $KERNELS is split and expanded on purpose.
    # shellcheck disable=SC2086
    "$COMPILER" -std=c11 -D_GNU_SOURCE -O2 -ffp-contract=off -static -pthread -Wall -Wextra -Wshadow \
        -Wconversion \
        -Wvla -Wcast-qual -Wmissing-prototypes -Wstrict-prototypes -Werror \
        -Itests/aarch64 -Iinclude -Isrc $KERNELS "tests/codec/$test.c" -o "$OUT/$test" -lm
    "$emulator" "$OUT/$test"
done

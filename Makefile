# SPDX-License-Identifier: MIT
#
# Thin front end: scripts/setup.sh prepares the checkout, CMake (CMakePresets.json) builds, ctest
# tests. Every target may be called first in a fresh clone.

PREFIX ?= /usr/local
# Where the engine's CMake packages are; expanded in recipes, when .venv is there.
ENGINE_PREFIX = $(shell .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
CONFIGURE = cmake -DCMAKE_PREFIX_PATH="$(ENGINE_PREFIX)" --preset
# The sanitizers run what does not need the engine: it is not built with them.
CORE_TESTS = -L core --no-tests=error

.DEFAULT_GOAL := all
.PHONY: all setup build models demo test test-asan test-tsan test-aarch64 bench install format clean distclean help

all: build ## prepare the checkout, then build mzCache into build/ (default)

setup: ## install packages and the pinned engine; does nothing when up to date
	@scripts/setup.sh

build: setup ## build into build/
	@$(CONFIGURE) release
	@cmake --build --preset release

models: setup ## put the small test models into models/
	@.venv/bin/python scripts/models.py models

demo: build models ## show eviction and restore on a real model
	@scripts/demo.sh

test: build models ## run all tests, then the core's tests under the sanitizers
	@$(MAKE) --no-print-directory test-asan
	@$(MAKE) --no-print-directory test-tsan
	@$(MAKE) --no-print-directory test-aarch64
	@ctest --preset release

test-asan: setup ## run the core's tests under the address and UB sanitizers
	@$(CONFIGURE) asan
	@cmake --build --preset asan
	@ctest --preset asan $(CORE_TESTS)

test-tsan: setup ## run the core's tests under the thread sanitizer
	@$(CONFIGURE) tsan
	@cmake --build --preset tsan
	@ctest --preset tsan $(CORE_TESTS)

test-aarch64: ## run the kernels' tests as 64-bit ARM programs, where compiler and emulator are there
	@scripts/test-aarch64.sh

REAL_MODELS = models/SmolLM2-135M-Instruct.Q4_1.gguf models/gemma-3-270m-q4_k_m.gguf
BENCH_MODELS = $(REAL_MODELS) models/qwen3-0.6b-f16.gguf
BENCH_TEXT = /usr/share/common-licenses/GPL-3
BENCH_SUITES = storage resident evict ttft bound overlap order hybrid

models/qwen3-0.6b-f16.gguf: | build models
	@build/bin/mzcache-mkmodel qwen3-0.6b $@

bench: build models models/qwen3-0.6b-f16.gguf ## run all benchmarks; results in docs/results/
	@mkdir -p docs/results
	@for suite in $(BENCH_SUITES); do build/bin/mzcache bench $$suite --seeds 10 --json \
	  $(BENCH_MODELS:%=-m %) >docs/results/$$suite.json && cat docs/results/$$suite.json || exit 1; done
	@build/bin/mzcache bench codec --json >docs/results/codec.json && cat docs/results/codec.json
	@build/bin/mzcache bench codecs --json -f $(BENCH_TEXT) $(REAL_MODELS:%=-m %) \
	  >docs/results/codecs.json && cat docs/results/codecs.json
	@build/bin/mzcache plot docs/results

install: build ## install into $(DESTDIR)$(PREFIX)
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

format: ## format all C files with clang-format
	@command -v clang-format >/dev/null || { echo "clang-format is not installed" >&2; exit 1; }
	@git ls-files -z -- '*.c' '*.h' | xargs -0 clang-format -i

clean: ## remove what was built from this tree
	@rm -rf build build-asan build-tsan build-dev build-aarch64

distclean: clean ## remove the engine, the stock server and the models too
	@rm -rf .venv .venv-server models

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

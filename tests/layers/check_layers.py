#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check the rules of the source tree that no compiler checks.

A part of src/ includes only itself and parts that stand before it; ggml and llama.cpp headers,
and intrinsics, stay in the parts that own them; every source says its licence; no file outgrows
what one can read. Usage: check_layers.py ROOT. Prints one line per violation, exits 1 if any.
"""

import pathlib
import re
import sys

# Parts of one line stand side by side: neither may include the other.
LAYERS = [
    ["base"],
    ["os"],
    ["kernels"],
    ["codec"],
    ["attention"],
    ["swap"],
    ["profile"],
    ["restore"],
    ["pool"],
    ["pressure"],
    ["control"],
    ["plugin", "llm", "mkmodel", "stockattn"],
    ["bench"],
    ["cli"],
]
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

# What a header's name looks like, and the folders that may include it. Tests of a folder are named
# like it; tests/host drives whole hosts. llama.h itself brings ggml's headers into src/llm.
OWNED_HEADERS = [
    (re.compile(r"(.*/)?(ggml|gguf)[^/]*\.h"),
     ["src/plugin", "src/llm", "src/mkmodel", "src/stockattn", "tests/plugin", "tests/llm", "tests/host"]),
    (re.compile(r"(.*/)?llama[^/]*\.h"), ["src/llm", "tests/llm", "tests/plugin", "tests/host"]),
    (re.compile(r"(\w*intrin|arm_(neon|sve|acle))\.h"), ["src/kernels"]),
]

MAX_LINES = 700
SPDX = "SPDX-License-Identifier: MIT"
SOURCE_FOLDERS = ["src", "include", "tests", "cmake", "scripts", "bench", "examples"]
SOURCE_SUFFIXES = {".c", ".h", ".cmake", ".in", ".py", ".sh"}
SOURCE_NAMES = {"CMakeLists.txt", "Makefile"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def source_files(root):
    """All sources as paths relative to root, in a fixed order."""
    found = [path for path in root.iterdir() if path.is_file()]
    for folder in SOURCE_FOLDERS:
        found += (root / folder).rglob("*")
    for path in sorted(found):
        if path.is_file() and (path.suffix in SOURCE_SUFFIXES or path.name in SOURCE_NAMES):
            yield path.relative_to(root)


def lies_in(path, folders):
    return any(path.as_posix().startswith(folder + "/") for folder in folders)


def layer_violation(path, quote, name):
    """Why a file of src/ may not include name, or None."""
    if quote == "<" or path.parts[0] != "src":
        return None
    part = path.parts[1]
    if part not in RANK:
        return f"src/{part} is not in the list of parts"
    if ".." in name.split("/"):
        return f'"{name}" climbs out of its folder; write "part/file.h"'
    target = name.split("/")[0]
    if "/" not in name or target in ("mzcache", part):
        return None
    if target not in RANK:
        return f'"{name}" belongs to no part'
    if RANK[target] >= RANK[part]:
        return f'"{name}": {part} must not include {target}'
    return None


def include_violations(path, lines):
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        # Our own headers may carry an engine's word in their name: plugin/ggml_abi.h.
        own = quote == '"' and name.split("/")[0] in RANK
        owners = [] if own else [f for pattern, f in OWNED_HEADERS if pattern.fullmatch(name)]
        for folders in owners:
            if not lies_in(path, folders):
                yield f"{path}:{number}: {name} may be included only in {', '.join(folders)}"
        reason = None if owners else layer_violation(path, quote, name)
        if reason:
            yield f"{path}:{number}: {reason}"


def violations(root):
    for path in source_files(root):
        lines = (root / path).read_text(encoding="utf-8", errors="replace").splitlines()
        # A script's first line is its interpreter.
        if not any(SPDX in line for line in lines[:2]):
            yield f"{path}:1: no line '{SPDX}' at the top"
        if len(lines) > MAX_LINES:
            yield f"{path}: {len(lines)} lines, {MAX_LINES} are allowed"
        if path.suffix in (".c", ".h"):
            yield from include_violations(path, lines)


def main():
    root = pathlib.Path(sys.argv[1])
    if not (root / "src").is_dir():
        sys.exit(f"{root} has no src folder")
    found = list(violations(root))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: what `make install` lays out is enough to build against, wherever the tree is moved.

Method: install into a temporary folder and rename it; build small programs by pkg-config and by
find_package; run them. Usage: install_test.py CMAKE BUILD COMPILER EXAMPLES.
"""

import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD, COMPILER, EXAMPLES = sys.argv[1:5]

CORE = r"""
#include <mzcache/mzcache.h>
#include <stdio.h>
int main(void) { puts(mz_version()); return 0; }
"""

LLM = r"""
#include <mzcache/llm.h>
#include <stdio.h>
int main(void)
{
    mz_llm_options options;
    mz_llm_options_default(&options);
    options.model_path = "/nowhere/model.gguf";
    mz_llm *llm = NULL;
    char message[256] = "";
    mz_status status = mz_llm_open(&options, &llm, message, sizeof message);
    puts(message);
    return status == MZ_OK;
}
"""

PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(app C)
find_package(mzcache 0.1 REQUIRED COMPONENTS llm)
add_executable(core core.c)
target_link_libraries(core mzcache::mzcache)
add_executable(llm llm.c)
target_link_libraries(llm mzcache::llm)
"""


def run(*command: str, **env: str) -> str:
    result = subprocess.run(command, text=True, capture_output=True, env=os.environ | env,
                            check=False)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.home = pathlib.Path(holder.name)
        run(CMAKE, "--install", BUILD, "--prefix", str(cls.home / "first"))
        cls.prefix = (cls.home / "first").rename(cls.home / "moved")
        cls.libraries = next(cls.prefix.rglob("libmzcache.so")).parent
        (cls.home / "core.c").write_text(CORE)
        (cls.home / "llm.c").write_text(LLM)
        (cls.home / "CMakeLists.txt").write_text(PROJECT)

    def check_runs(self, core: pathlib.Path, llm: pathlib.Path):
        environment = {"LD_LIBRARY_PATH": str(self.libraries)}
        version = run(str(self.prefix / "bin/mzcache"), "--version").split()[1]
        self.assertEqual(run(str(core), **environment), version + "\n")
        # It finds the plug-in beside the library, and then no model.
        self.assertIn("/nowhere/model.gguf", run(str(llm), **environment))

    def test_pkg_config(self):
        for name, package in (("core", "mzcache"), ("llm", "mzcache-llm")):
            flags = run("pkg-config", "--cflags", "--libs", package,
                        PKG_CONFIG_PATH=str(self.libraries / "pkgconfig"))
            run(COMPILER, str(self.home / f"{name}.c"), *shlex.split(flags), "-o",
                str(self.home / f"{name}-pc"))
        self.check_runs(self.home / "core-pc", self.home / "llm-pc")

    def test_example_codec(self):
        """Built as its comment says, against the installed headers only."""
        library = str(self.home / "libexample-codec.so")
        flags = run("pkg-config", "--cflags", "mzcache",
                    PKG_CONFIG_PATH=str(self.libraries / "pkgconfig"))
        run(COMPILER, "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library,
            f"{EXAMPLES}/codec/example_codec.c", *shlex.split(flags))
        # The codec is accepted, so that the missing model is what the command complains about.
        result = subprocess.run([str(self.prefix / "bin/mzcache"), "run", "-m", "/nowhere/x.gguf",
                                 "-p", "x", "--codec", "example"], text=True, capture_output=True,
                                env=os.environ | {"MZCACHE_CODEC_LIBRARY": library}, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("/nowhere/x.gguf", result.stderr)

    def test_find_package(self):
        build = self.home / "build"
        run(CMAKE, "-S", str(self.home), "-B", str(build), f"-DCMAKE_C_COMPILER={COMPILER}",
            f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run(CMAKE, "--build", str(build))
        self.check_runs(build / "core", build / "llm")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

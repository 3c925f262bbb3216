#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: a codec from a library that MZCACHE_CODEC_LIBRARY names is chosen by --codec and by
MZCACHE_CODEC like one of ours, and everything that can be wrong with it is said in a sentence.

Method: the built command with the built example of examples/codec. What it saves is known by hand
(an f16 in one byte). Usage: codec_library_test.py COMMAND MODEL LIBRARY.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMMAND, MODEL, LIBRARY = sys.argv[1:4]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("MZCACHE_")}
TEXT = " ".join(f"In the year {1200 + i} the town of number {i} was built." for i in range(60))
needs_model = unittest.skipUnless(pathlib.Path(MODEL).exists(), "no model")


def mzcache(*arguments, text=None, **environment):
    return subprocess.run([COMMAND, *arguments], input=text, text=True, capture_output=True,
                          env={**CLEAN, "MZCACHE_PROFILE": "off", "MZCACHE_PRESSURE": "off",
                               **environment}, timeout=300, check=False)


class CodecLibraryTest(unittest.TestCase):
    @needs_model
    def test_eval(self):
        result = mzcache("eval", "-m", MODEL, "-f", "-", "--codec", "example", "--context", "512",
                         "--score", "4", "--threads", "1", "--json", text=TEXT,
                         MZCACHE_CODEC_LIBRARY=LIBRARY)
        self.assertEqual(result.returncode, 0, result.stderr)
        line = json.loads(result.stdout.splitlines()[-1])
        self.assertEqual(line["codec"], "example")
        self.assertAlmostEqual(line["saved"], 0.5, delta=0.01)
        self.assertGreater(line["mean_kl"], 0)

    @needs_model
    def test_run(self):
        for arguments, environment in ((("--codec", "example"), {}),
                                       ((), {"MZCACHE_CODEC": "example"})):
            with tempfile.TemporaryDirectory(dir=pathlib.Path(COMMAND).parent) as store:
                result = mzcache("run", "-m", MODEL, "-c", "1024", "--store", store, "--json",
                                 "-p", TEXT[:1500], "-n", "4", "--evict", "100%", *arguments,
                                 MZCACHE_CODEC_LIBRARY=LIBRARY, **environment)
            self.assertIn(result.returncode, (0, 3), result.stderr)
            self.assertIn("event", json.loads(result.stdout.splitlines()[-1]))

    def test_plan_knows_it_only_with_the_library(self):
        arguments = ("plan", "-m", "/nowhere/x.gguf", "--evict", "1M", "--codec", "example")
        self.assertEqual(mzcache(*arguments).returncode, 2)
        self.assertEqual(mzcache(*arguments, MZCACHE_CODEC_LIBRARY=LIBRARY).returncode, 1)

    def test_codec_without_its_library(self):
        result = mzcache("run", "-m", "/nowhere/x.gguf", "-p", "x", "--codec", "example")
        self.assertEqual(result.returncode, 2)
        self.assertIn("example", result.stderr)

    def test_bad_libraries(self):
        other = str(pathlib.Path(LIBRARY).with_name("libmzcache.so"))
        for library, word in (("/nowhere/x.so", "/nowhere/x.so"), (other, "mz_codec_library"),
                              (COMMAND, "MZCACHE_CODEC_LIBRARY")):
            result = mzcache("run", "-m", "/nowhere/x.gguf", "-p", "x", "--codec", "example",
                             MZCACHE_CODEC_LIBRARY=library)
            self.assertEqual(result.returncode, 2)
            self.assertIn(word, result.stderr)

    @needs_model
    def test_host_is_told(self):
        """In a host that is not ours the sentence comes from the plug-in."""
        for environment, word in (({"MZCACHE_CODEC": "example"}, "example"),
                                  ({"MZCACHE_CODEC_LIBRARY": "/nowhere/x.so"}, "/nowhere/x.so")):
            result = mzcache("run", "-m", MODEL, "-c", "256", "-p", "x", "-n", "1", **environment)
            self.assertEqual(result.returncode, 1)
            self.assertIn(word, result.stderr)
            self.assertIn("MZCACHE_CODEC_LIBRARY", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

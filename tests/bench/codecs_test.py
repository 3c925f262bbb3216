#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: `mzcache bench codec` and `codecs` measure every codec there is, one from outside included,
and their figures fit together; no time is judged.

Method: small runs. What q8 and the example save is calculated by hand from their formats; ratios
from the other members. Usage: codecs_test.py COMMAND MODEL LIBRARY.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMMAND, MODEL, LIBRARY = sys.argv[1:4]
TEXT = " ".join(f"In the year {1200 + i} the town of number {i} was built." for i in range(60))
CODECS = {"sparse", "q8", "q4", "cachegen", "lossless", "lz4", "zstd", "example"}
COMPARED = {"sparse", "lz4", "zstd"}  # codecs that are not offered for use
needs_model = unittest.skipUnless(pathlib.Path(MODEL).exists(), "no model")


def bench(*arguments, text=None, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MZCACHE_")}
    return subprocess.run([COMMAND, "bench", *arguments], input=text, text=True, timeout=500,
                          capture_output=True, check=False,
                          env={**clean, "MZCACHE_CODEC_LIBRARY": LIBRARY, **environment})


class CodecsTest(unittest.TestCase):
    def lines(self, *arguments, **more):
        result = bench(*arguments, "--json", "--repeats", "1", **more)
        self.assertEqual(result.returncode, 0, result.stderr)
        found = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(found[0]["event"], "machine")
        return found[1:]

    def check_saved(self, line):
        expected = {
            "q8": 100 * (1 - 33 / 64),       # a scale of 1 byte for 32 values of 2
            "example": 50.0,                 # a byte for 2
        }.get(line["codec"])
        if expected is not None:
            self.assertAlmostEqual(line["saved_percent"], expected, delta=0.2)  # headers
        self.assertLess(line["saved_percent"], 100)

    def check_codec(self, lines):
        self.assertLessEqual(CODECS, {line["codec"] for line in lines})
        kinds = {(line["codec"], line["variant"], line["threads"], line["op"]) for line in lines}
        self.assertEqual(len(kinds), len(lines))
        variants = {line["variant"] for line in lines}
        threads = {line["threads"] for line in lines}
        self.assertIn("generic", variants)
        self.assertIn(1, threads)
        for codec in CODECS:
            for variant in variants:
                for count in threads:
                    self.assertIn((codec, variant, count, "encode"), kinds)
                    self.assertIn((codec, variant, count, "decode"), kinds)
        for line in lines:
            self.assertGreater(line["gbps"], 0)
            self.assertAlmostEqual(line["share"] * line["memcpy_gbps"] / line["gbps"], 1, delta=1e-3)
            self.check_saved(line)

    def test_codec_on_invented_kv(self):
        lines = self.lines("codec", "-c", "300")  # a whole chunk and a short one
        self.check_codec(lines)
        self.assertEqual({line["kv"] for line in lines}, {"invented"})

    @needs_model
    def test_codec_on_real_kv(self):
        lines = self.lines("codec", "-c", "256", "-m", MODEL, "-f", "-", text=TEXT)
        self.check_codec(lines)
        self.assertEqual({line["kv"] for line in lines}, {pathlib.Path(MODEL).name})

    @needs_model
    def test_codecs(self):
        with tempfile.TemporaryDirectory(dir=pathlib.Path(COMMAND).parent) as folder:
            scores = pathlib.Path(folder, "eval.json")
            scores.write_text('{"event": "eval", "codec": "q8", "f1": 0.1}\n'
                              f'{{"model": "/x/{pathlib.Path(MODEL).name}", "codec": "q8", "f1": 0.5}}\n'
                              '{"model": "other.gguf", "codec": "q8", "f1": 0.2}\n'
                              '{"codec": "raw", "f1": 1}\n{"codec": "lz4"}\n')
            lines = self.lines("codecs", "-c", "256", "-m", MODEL, "-f", "-", "--store", folder,
                               "--eval", str(scores), text=TEXT)
        by_codec = {line["codec"]: line for line in lines}
        self.assertEqual(len(by_codec), len(lines))
        self.assertLessEqual(CODECS | {"raw"}, set(by_codec))
        self.assertEqual(by_codec["raw"]["saved_percent"], 0)
        # SmolLM2-135M: 30 layers, K and V, 3 heads of 64, f16.
        self.assertAlmostEqual(by_codec["q8"]["kv_mib"] * 2**20, 256 * 30 * 2 * 3 * 64 * 2, delta=64)
        self.assertEqual((by_codec["q8"]["f1"], by_codec["raw"]["f1"], by_codec["q4"]["f1"]),
                         (0.5, 1, None))
        for line in lines:
            self.check_saved(line)
            for name in ("ttft_half_ms", "ttft_none_ms", "resident_ms"):
                self.assertEqual(name in line, line["codec"] not in COMPARED)
            for name in ("encode_gbps", "decode_gbps"):
                self.assertEqual(name in line, line["codec"] != "raw")

    def test_wrong_use(self):
        self.assertEqual(bench("codecs").returncode, 2)
        for arguments in (("codecs", "-m", "x.gguf"), ("codec", "-m", "x.gguf"),
                          ("codec", "-f", "/nowhere/text"),
                          ("codec", "-m", "/nowhere/x.gguf", "-f", "-")):
            result = bench(*arguments, text=TEXT)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertIn("mzcache bench", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

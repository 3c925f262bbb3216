#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: `mzcache plot` draws every figure that the results allow, as SVG and PNG, with the names and
numbers of the results; and says what is wrong with results that are none.

Method: results written by hand; the SVG is XML whose texts are read, the PNG's size stands in its
header, bars' heights are compared with each other. Usage: plot_test.py COMMAND.
"""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

COMMAND, = sys.argv[1:2]
MACHINE = {"suite": "codecs", "event": "machine", "cpu": "A <fast> one", "cores": 2, "disk": "/dev/x",
           "load": 0.5, "repeats": 5}


def line(model, codec, saved, half=None, none=None, **more):
    found = {"suite": "codecs", "model": model, "codec": codec, "context_tokens": 777,
             "saved_percent": saved, **more}
    if half is not None:
        found |= {"ttft_half_ms": half, "ttft_none_ms": none, "resident_ms": 100.0}
    return found


LINES = [MACHINE,
         line("a\"b_c.gguf", "raw", 0, 150, 300), line("a\"b_c.gguf", "q8", 48.4, 120, 260, f1=0.5),
         line("a\"b_c.gguf", "lz4", -0.1), line("a\"b_c.gguf", "zstd", 7.25),
         line("other.gguf", "raw", 0, 15, 30), line("other.gguf", "q8", 48.4, 12, 26)]


@unittest.skipUnless(shutil.which("gnuplot"), "no gnuplot")
class PlotTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def plot(self, text):
        if text is not None:
            (self.folder / "codecs.json").write_text(text)
        return subprocess.run([COMMAND, "plot", str(self.folder)], text=True, capture_output=True,
                              timeout=120, check=False)

    def texts(self, name):
        root = xml.etree.ElementTree.parse(self.folder / name).getroot()
        return ["".join(node.itertext()).strip() for node in root.iter()
                if node.tag.endswith("}text")]

    def test_figures(self):
        result = self.plot("\n".join(json.dumps(one) for one in LINES))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = [row.split() for row in result.stdout.splitlines()]
        self.assertIn(['a"b_c.gguf', "777", "-0.1", "7.2"], rows)
        self.assertFalse([row for row in rows if row[0] == "other.gguf"])  # no lz4, no row
        for stem, width, has_f1 in (("figure-14-a-b_c", 1080, True), ("figure-14-other", 760, False)):
            texts = self.texts(stem + ".svg")
            for word in ("raw", "q8", "50 % left", "0 % left", "resident", "ms"):
                self.assertIn(word, texts)
            self.assertEqual("F1" in texts, has_f1)
            self.assertFalse({"lz4", "zstd"} & set(texts))
            png = (self.folder / (stem + ".png")).read_bytes()
            self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(struct.unpack(">II", png[16:24]), (width, 340))
        page = (self.folder / "index.html").read_text()
        self.assertIn("A &lt;fast> one", page)
        self.assertIn("figure-14-a-b_c.svg", page)
        self.assertIn("figure-14-other.svg", page)
        self.assertNotIn("http", page)

    def test_no_results(self):
        result = self.plot(None)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no results", result.stderr)

    def test_damaged_results(self):
        for text in ("", "no json", '{"suite": "codecs"', "[1]\n"):
            result = self.plot(text)
            self.assertEqual(result.returncode, 1, text)
            self.assertIn("codecs.json", result.stderr)

    def test_missing_folder_and_gnuplot(self):
        result = subprocess.run([COMMAND, "plot", "/nowhere"], text=True, capture_output=True,
                                timeout=60, check=False)
        self.assertEqual(result.returncode, 1)
        (self.folder / "codecs.json").write_text("\n".join(json.dumps(one) for one in LINES))
        result = subprocess.run([COMMAND, "plot", str(self.folder)], text=True, capture_output=True,
                                timeout=60, check=False, env={"PATH": "/nowhere"})
        self.assertEqual(result.returncode, 1)
        self.assertIn("gnuplot", result.stderr)

    def test_wrong_use(self):
        for arguments in ([], ["a", "b"], ["--frob"]):
            result = subprocess.run([COMMAND, "plot", *arguments], text=True, capture_output=True,
                                    timeout=60, check=False)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("plot", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

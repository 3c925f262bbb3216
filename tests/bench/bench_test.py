#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: every suite of `mzcache bench` runs and says what docs/bench.md promises.

Method: each suite on a model of two layers, once or twice. Members, counts and what follows from
other members are checked (a ratio is one figure over another; what is read can't be more than what
was evicted needs); no time is. Usage: bench_test.py COMMAND MKMODEL.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

COMMAND, MKMODEL = sys.argv[1:3]
PICTURE = str(pathlib.Path(__file__).parents[2] / "scripts" / "trace-picture.py")
LAYERS, VOCABULARY, TOKENS = 2, 512, 512
# By hand, from the shape of Qwen3-0.6B: bytes of f16 K and V for each token, all layers.
KV_BYTES = LAYERS * 2 * 8 * 128 * 2
MIB = 1 << 20
MACHINE = {"suite", "event", "cpu", "cores", "kernel", "memory_bytes", "disk", "load", "codec",
           "threads", "repeats", "context_tokens", "version"}


class BenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Beside the command: /tmp may be memory, where nothing is read past the page cache.
        cls.folder = tempfile.TemporaryDirectory(dir=pathlib.Path(COMMAND).parent)
        cls.model = cls.folder.name + "/tiny.gguf"
        subprocess.run([MKMODEL, "qwen3-0.6b", cls.model, "--layers", str(LAYERS), "--vocab",
                        str(VOCABULARY)], check=True, stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def bench(self, suite, *options, code=0):
        result = subprocess.run([COMMAND, "bench", suite, "-m", self.model, "--store",
                                 self.folder.name, "-c", str(TOKENS), *options], text=True,
                                capture_output=True, timeout=300, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def lines(self, suite, *options):
        found = [json.loads(line) for line in
                 self.bench(suite, "--json", *options).stdout.splitlines()]
        self.assertEqual(set(found[0]), MACHINE)
        self.assertEqual(found[0]["event"], "machine")
        for line in found:
            self.assertEqual(line["suite"], suite)
        return found[1:]

    def check_members(self, line, members):
        self.assertLessEqual(set(members.split()), set(line))
        for name, value in line.items():
            if isinstance(value, (int, float)):
                self.assertGreaterEqual(value, 0, name)

    def test_resident(self):
        line, = self.lines("resident", "--repeats", "2")
        self.check_members(line, "model stock_prefill_tps prefill_tps prefill_ratio "
                                 "stock_decode_tps decode_tps decode_ratio")
        for kind in ("prefill", "decode"):
            ratio = line[f"{kind}_tps"] / line[f"stock_{kind}_tps"]
            self.assertAlmostEqual(line[f"{kind}_ratio"] / ratio, 1, delta=1e-3)

    def test_evict(self):
        lines = {line["what"]: line for line in self.lines("evict", "--repeats", "2")}
        weights = lines["clean weights dropped"]
        raw = lines["KV by raw, to flash"]
        q8 = lines["KV by q8, in memory and to flash"]
        self.assertEqual(len(lines), 4)
        for line in (weights, raw, q8):
            self.check_members(line, "model what context_tokens mib freed_mib written_mib ms gbps")
        self.assertEqual(weights["written_mib"], 0)
        kv_mib = TOKENS * KV_BYTES / MIB
        for line in (raw, q8):
            self.assertGreaterEqual(line["mib"], kv_mib)
            self.assertLess(line["mib"], 1.5 * kv_mib)
        self.assertGreaterEqual(raw["written_mib"], kv_mib)
        self.assertLess(q8["written_mib"], raw["written_mib"])
        self.assertGreater(lines["q8 encoder, one core"]["gbps"], 0)

    def check_shares(self, lines):
        self.assertEqual([line["evicted_percent"] for line in lines], [25, 50, 75, 100])
        for line in lines:
            self.assertEqual(line["context_tokens"], TOKENS)

    def test_ttft(self):
        lines = self.lines("ttft", "--repeats", "1")
        self.check_shares(lines)
        for line in lines:
            self.check_members(line, "model ttft_ms resident_ms cold_ms evict_ms freed_mib")

    def test_bound(self):
        weights = pathlib.Path(self.model).stat().st_size / MIB
        for codec in ("raw", "q8"):
            lines = self.lines("bound", "--repeats", "1", "--codec", codec)
            self.check_shares(lines)
            for line in lines:
                self.check_members(line, "model ttft_ms bound_ms ratio bound_by resident_ms "
                                         "stall_ms restore_ms read_mib read_gbps decoded_mib "
                                         "decode_gbps")
                self.assertAlmostEqual(line["ttft_ms"] / line["bound_ms"] / line["ratio"], 1,
                                       delta=1e-3)
                bounds = [line["resident_ms"], line["read_mib"] * MIB / line["read_gbps"] / 1e6]
                if codec == "q8":
                    bounds.append(line["decoded_mib"] * MIB / line["decode_gbps"] / 1e6)
                self.assertAlmostEqual(line["bound_ms"] / max(bounds), 1, delta=1e-3)
                self.assertLess(line["read_mib"], weights + 1.5 * TOKENS * KV_BYTES / MIB)
            everything = lines[-1]
            self.assertGreater(everything["read_mib"], LAYERS * 15 * 2)  # 15.7M weights a layer

    def check_variants(self, suite, names, *options):
        lines = self.lines(suite, "--repeats", "1", *options)
        self.assertEqual([line["variant"] for line in lines], [n for n in names for _ in range(4)])
        for at in range(0, len(lines), 4):
            self.check_shares(lines[at:at + 4])
        for line in lines:
            self.check_members(line, "model ttft_ms resident_ms stall_ms restore_ms read_mib "
                                     "decoded_mib")
        return lines

    def test_ablations(self):
        self.check_variants("overlap", ["none", "alloc-reload", "reload-prefill", "all"])
        self.check_variants("order", ["forward-out", "random-out", "backward-out"], "--seeds", "2")
        lines = self.check_variants("hybrid", ["flash only", "q8 one path after the other",
                                               "q8 both paths at once"])
        self.assertEqual(sum(line["decoded_mib"] for line in lines[:4]), 0)
        self.assertGreater(sum(line["decoded_mib"] for line in lines[4:8]), 0)
        self.assertGreater(sum(line["decoded_mib"] for line in lines[8:]), 0)

    def test_storage(self):
        for options, name in ((["-m", self.model], "tiny.gguf"), ([], "of its own")):
            result = subprocess.run([COMMAND, "bench", "storage", "--store", self.folder.name,
                                     "--repeats", "1", "--json", *options], text=True,
                                    capture_output=True, timeout=300, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = [json.loads(line) for line in result.stdout.splitlines()][1:]
            self.assertEqual({line["file"] for line in lines}, {name})
            for what in ("flash into a few pages", "flash into new pages"):
                mine = {(line["depth"], line["beside"]): line for line in lines
                        if line["what"] == what}
                self.assertEqual(set(mine), {(depth, beside) for depth in (8, 16, 32)
                                             for beside in ("nothing", "computing")})
            for line in lines:
                self.assertEqual("memory_gbps" in line, line["beside"] == "computing")
                self.assertEqual("gbps" in line, line["what"] != "memory read by all cores")
                for key in ("gbps", "memory_gbps"):
                    self.assertGreater(line.get(key, 1), 0)
            self.assertEqual(sum("clearing" in line["what"] for line in lines), 4)
        # Its file has no name, and is gone.
        self.assertLessEqual({p.name for p in pathlib.Path(self.folder.name).iterdir()
                              if p.stat().st_size == 512 * MIB}, set())

    def test_attention(self):
        lines = self.lines("attention", "--repeats", "1")
        kinds = [(line["shape"], line["rows"], line["kv"]) for line in lines]
        self.assertEqual(kinds, [(shape, rows, kv)
                                 for shape in ("Qwen3-0.6B", "SmolLM2-135M", "EXAONE-4.0-1.2B")
                                 for rows in (1, 8, 512) for kv in ("f16", "q8")])
        for line in lines:
            self.check_members(line, "ms stock_ms speedup read_share fma_share read_gbps fma_gflops")
            self.assertEqual(line["context_tokens"], TOKENS)
            self.assertAlmostEqual(line["stock_ms"] / line["ms"] / line["speedup"], 1, delta=1e-3)
            # Values are below 3.5. Stock rounds q to 11 bits, q8 K and V to 1/124 of a group's largest.
            self.assertLess(line["difference"], 0.05)
            self.assertGreater(line["difference"], 0)
        for tokens in ("300", "256"):
            result = subprocess.run([COMMAND, "bench", "attention", "-c", tokens], text=True,
                                    capture_output=True, timeout=60, check=False)
            self.assertEqual(result.returncode, 1)
            self.assertIn("chunks", result.stderr)

    def trace_events(self, name):
        with open(f"{self.folder.name}/{name}", encoding="utf-8") as file:
            return json.load(file)

    def test_trace(self):
        """Each row that has runs of its own has a file; the parts of a restore are in it."""
        lines = self.lines("hybrid", "--repeats", "1", "--trace", self.folder.name + "/t.json")
        bytes_read = {}
        for line in lines:
            bytes_read.setdefault(line["variant"], 0)
            bytes_read[line["variant"]] += line["read_mib"] * MIB
        for variant, expected in bytes_read.items():
            events = self.trace_events(f"t-tiny-{variant.replace(' ', '-')}.json")
            names = {event["name"] for event in events}
            self.assertLessEqual({"compute", "wait", "drop", "allocate", "read", "ready"}, names)
            self.assertEqual(variant == "flash only", "decode" not in names)
            self.assertEqual(len({event["pid"] for event in events}), 1)
            # Weights are read once more, when they are used for the first time.
            read = sum(e["args"]["bytes"] for e in events if e["name"] == "read")
            self.assertGreaterEqual(read, 0.99 * expected)
        self.check_picture("t-tiny-q8-both-paths-at-once.json")
        self.bench("bound", "--repeats", "1", "--trace", self.folder.name + "/u")
        self.assertTrue(self.trace_events("u-tiny"))

    def picture(self, trace, *options):
        return subprocess.run([sys.executable, PICTURE, f"{self.folder.name}/{trace}",
                               self.folder.name + "/p.svg", *options], text=True,
                              capture_output=True, timeout=60, check=False)

    def check_picture(self, trace):
        """A picture is XML with lanes for the threads, and restores are counted as evictions."""
        for number in ("1", "4", "-1", "-4"):
            self.assertEqual(self.picture(trace, "--restore", number).returncode, 0)
            svg = "{http://www.w3.org/2000/svg}"
            root = xml.etree.ElementTree.parse(self.folder.name + "/p.svg").getroot()
            texts = {text.text for text in root.iter(svg + "text")}
            self.assertLessEqual({"compute", "ms", "0", "read, until checked"}, texts)
            self.assertTrue(any(text.startswith("reader") for text in texts))
        result = self.picture(trace, "--restore", "5")
        self.assertEqual(result.returncode, 2)
        self.assertIn("has 4", result.stderr)

    def test_text(self):
        text = self.bench("bound", "--repeats", "1").stdout
        for word in ("cores", "TTFT ms", "bound ms", "ratio", "tiny.gguf"):
            self.assertIn(word, text)

    def test_help_lists_each_option_once(self):
        text = subprocess.run([COMMAND, "help", "bench"], text=True, capture_output=True,
                              timeout=60, check=True).stdout
        options = re.findall(r"^  (?:-\w, |    )--(\S+)", text, re.MULTILINE)
        letters = re.findall(r"^  -(\w), ", text, re.MULTILINE)
        self.assertEqual(len(options), len(set(options)), options)
        self.assertEqual(len(letters), len(set(letters)), letters)
        self.assertNotIn("stock", options)

    def test_failing_run(self):
        result = subprocess.run([COMMAND, "bench", "bound", "-m", "/nowhere/x.gguf"], text=True,
                                capture_output=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nowhere/x.gguf", result.stderr)

    def test_wrong_use(self):
        for arguments in (["frob", "-m", "x"], ["bound"], ["-m", "x"], ["bound", "ttft", "-m", "x"],
                          ["bound", "-m", "x", "--repeats", "0"], ["bound", "-m", "x", "--stock"],
                          ["order", "-m", "x", "--seeds", "0"]):
            result = subprocess.run([COMMAND, "bench", *arguments], text=True,
                                    capture_output=True, timeout=60, check=False)
            self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
            self.assertIn("mzcache bench", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

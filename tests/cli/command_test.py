#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: the command does what its help says: words, exit codes, JSON, streams.

Method: run the built command as a user would. Right answers come from the documentation of the
exit codes and, for tokens, from the bare engine (--stock). Usage: command_test.py COMMAND MODEL.
Tests that need the model are skipped if it is not there.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMMAND, MODEL = sys.argv[1:3]
COMMANDS = ["run", "chat", "demo", "exec", "status", "evict", "prefetch", "profile", "bench",
            "doctor"]
needs_model = unittest.skipUnless(pathlib.Path(MODEL).exists(), "no model")


# Settings of whoever runs the test must not become its own.
OWN = ("MZCACHE_", "LLAMA_ARG_", "GGML_BACKEND_PATH")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}


def mzcache(*arguments, text=None, env=None):
    return subprocess.run([COMMAND, *arguments], input=text, text=True, capture_output=True,
                          env={**CLEAN, **(env or {})}, timeout=300, check=False)


class HelpTest(unittest.TestCase):
    def test_overview_names_every_command_and_exit_code(self):
        result = mzcache("--help")
        self.assertEqual(result.returncode, 0)
        for word in COMMANDS + ["0 done", "1 failed", "2 wrong use", "3 partly", "127"]:
            self.assertIn(word, result.stdout)

    def test_every_command_has_a_page(self):
        for command in COMMANDS:
            for arguments in (("help", command), (command, "--help")):
                result = mzcache(*arguments)
                self.assertEqual(result.returncode, 0, arguments)
                self.assertIn(f"mzcache {command}", result.stdout)
                self.assertEqual(result.stderr, "")

    def test_version(self):
        result = mzcache("--version")
        self.assertEqual((result.returncode, result.stdout), (0, "mzcache 0.1.0\n"))


class WrongUseTest(unittest.TestCase):
    def check(self, word, *arguments):
        """Exit code 2, nothing on stdout, a sentence with the word on stderr."""
        result = mzcache(*arguments)
        self.assertEqual(result.returncode, 2, arguments)
        self.assertEqual(result.stdout, "")
        self.assertIn(word, result.stderr)

    def test_nothing(self):
        self.check("Usage")

    def test_unknown_command(self):
        self.check("frobnicate", "frobnicate")
        self.check("frobnicate", "help", "frobnicate")

    def test_unknown_option(self):
        for command in ("run", "chat", "demo", "doctor", "exec"):
            self.check("--frob", command, "--frob")

    def test_bad_values(self):
        run = ("run", "-m", "x", "-p", "y")
        for size in ("", "x", "12Q", "-1", "140%"):
            self.check("--evict", *run, "--evict", size)
        self.check("--ctx", *run, "--ctx", "many")
        self.check("--threads", *run, "--threads", "0")
        self.check("--codec", *run, "--codec", "zip")
        self.check("--kv-type", *run, "--kv-type", "f17")
        self.check("--flash-attn", *run, "--flash-attn", "perhaps")
        self.check("--log", "exec", "--log", "loud", "--", "true")
        self.check("random-out", *run, "--order", "sideways")
        self.check("--overlap", *run, "--overlap", "some")
        self.check("--paths", "exec", "--paths", "crooked", "--", "true")

    def test_missing_and_contradicting(self):
        self.check("-m", "run", "-p", "x")
        self.check("-p or -f", "run", "-m", "x")
        self.check("-p or -f", "run", "-m", "x", "-p", "y", "-f", "z")
        self.check("--stock", "run", "-m", "x", "-p", "y", "--stock", "--evict", "1M")
        self.check("too much", "run", "-m", "x", "-p", "y", "z")
        self.check("no host", "exec")


class FailureTest(unittest.TestCase):
    def test_missing_model(self):
        result = mzcache("run", "-m", "/nowhere/x.gguf", "-p", "y")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("/nowhere/x.gguf", result.stderr)

    def test_missing_prompt_file(self):
        result = mzcache("run", "-m", MODEL, "-f", "/nowhere/prompt")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nowhere/prompt", result.stderr)

    @needs_model
    def test_prompt_longer_than_the_context(self):
        result = mzcache("run", "-m", MODEL, "--stock", "-c", "256", "-f", "-", text="word " * 900)
        self.assertEqual(result.returncode, 1)
        self.assertIn("--ctx", result.stderr)


class ExecTest(unittest.TestCase):
    def test_missing_host(self):
        result = mzcache("exec", "--", "no-such-program-anywhere")
        self.assertEqual(result.returncode, 127)
        self.assertIn("no-such-program-anywhere", result.stderr)

    def test_missing_plugin(self):
        result = mzcache("exec", "--plugin", "/nowhere/p.so", "--", "true")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nowhere/p.so", result.stderr)

    def test_variables_and_exit_code_of_the_host(self):
        result = mzcache("exec", "--codec", "q8", "--store", "/tmp/s", "--restore-depth", "3",
                         "--log", "debug", "--guard", "--order", "random-out:3",
                         "--overlap", "none", "--paths", "sequential",
                         "--trace", "/tmp/t.json", "--pressure", "auto", "--keep", "20%",
                         "--max", "2G", "--evict-step", "25%", "--idle-evict", "5m", "--", "sh", "-c", "env; exit 7")
        self.assertEqual(result.returncode, 7)
        variables = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        plugin = variables["GGML_BACKEND_PATH"]
        self.assertTrue(os.path.isabs(plugin) and os.path.exists(plugin), plugin)
        self.assertEqual(os.path.basename(plugin), "libggml-mzcache.so")
        self.assertEqual(
            {name: variables[name] for name in variables
             if name.startswith("MZCACHE_") and name not in os.environ},
            {"MZCACHE_CODEC": "q8", "MZCACHE_STORE": "/tmp/s", "MZCACHE_RESTORE_DEPTH": "3",
             "MZCACHE_LOG": "debug", "MZCACHE_GUARD": "1", "MZCACHE_ORDER": "random-out:3",
             "MZCACHE_OVERLAP": "none", "MZCACHE_PATHS": "sequential",
             "MZCACHE_TRACE": "/tmp/t.json", "MZCACHE_KEEP": "20%", "MZCACHE_MAX": "2G",
             "MZCACHE_EVICT_STEP": "25%", "MZCACHE_IDLE_EVICT": "5m"}
            | ({} if "MZCACHE_PRESSURE" in os.environ else {"MZCACHE_PRESSURE": "auto"}))
        self.assertEqual(variables["MZCACHE_PRESSURE"], "auto")
        # No device is named, so that a host without the plug-in starts too (tests/host).
        self.assertNotIn("LLAMA_ARG_DEVICE", variables)

    def test_the_users_own_override_stays(self):
        result = mzcache("exec", "--", "sh", "-c", "echo $LLAMA_ARG_OVERRIDE_TENSOR",
                         env={"LLAMA_ARG_OVERRIDE_TENSOR": "exps=CPU"})
        self.assertEqual(result.stdout, "exps=CPU\n")


class DoctorTest(unittest.TestCase):
    def test_text(self):
        with tempfile.TemporaryDirectory() as store:
            result = mzcache("doctor", "--store", store)
        self.assertEqual(result.returncode, 0, result.stdout)
        for topic in ("processor", "memory", "store", "engine", "plug-in"):
            self.assertIn(topic, result.stdout)
        self.assertNotIn("!!", result.stdout)

    def test_json(self):
        with tempfile.NamedTemporaryFile() as plain:
            result = mzcache("doctor", "--json", "--store", plain.name + "/below")
        self.assertEqual(result.returncode, 1)
        checks = {line["check"]: line for line in map(json.loads, result.stdout.splitlines())}
        self.assertEqual(checks["store"]["state"], "bad")
        self.assertEqual(checks["plug-in"]["state"], "ok")


@needs_model
class EvalTest(unittest.TestCase):
    TEXT = " ".join(f"In the year {1200 + i} the town of number {i} was built." for i in range(60))

    def evaluate(self, codec, *more):
        return mzcache("eval", "-m", MODEL, "-f", "-", "--codec", codec, "--context", "256",
                       "--score", "4", "--threads", "1", "--json", *more, text=self.TEXT)

    def test_an_exact_codec_changes_nothing_and_a_lossy_one_something(self):
        for codec, saved in (("raw", 0), ("lossless", 0.15)):
            with tempfile.TemporaryDirectory(dir=pathlib.Path(COMMAND).parent) as store:
                exact = json.loads(self.evaluate(codec, "--gate", "--store", store,
                                                 "--questions", "2").stdout)
            self.assertEqual((exact["mean_kl"], exact["largest_kl"]), (0, 0), codec)
            self.assertEqual(exact["same_top"], 1, codec)
            self.assertEqual(exact["perplexity"], exact["perplexity_f16"], codec)
            self.assertEqual((exact["questions"], exact["f1"]), (2, exact["f1_f16"]), codec)
            self.assertAlmostEqual(exact["saved"], saved, delta=0.05)
        lossy = json.loads(self.evaluate("q8").stdout)
        self.assertGreater(lossy["mean_kl"], 0)
        self.assertAlmostEqual(lossy["saved"], 31 / 64, delta=0.01)

    def test_the_gate_decides_who_uses_q4(self):
        """A codec that needs the gate is used with a model that passed, q8 before and otherwise."""
        def run(*more):
            return mzcache("run", "-m", MODEL, "-p", "The town", "-n", "1", "--ctx", "64",
                           "--codec", "q4", *more, env={"XDG_CACHE_HOME": cache})
        with tempfile.TemporaryDirectory() as cache:
            for more in ((), ("--no-mmap",)):
                result = run(*more)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("q8 is used", result.stderr, more)
            result = mzcache("eval", "-m", MODEL, "-f", "-", "--gate", "--context", "256",
                             "--score", "4", "--threads", "1", "--json", text=self.TEXT,
                             env={"XDG_CACHE_HOME": cache})
            measured = json.loads(result.stdout)
            self.assertEqual(measured["codec"], "q4")
            passed = measured["mean_kl"] <= 0.01
            self.assertEqual(result.returncode, 0 if passed else 1)
            record, = pathlib.Path(cache, "mzcache").glob("gate-q4-*.json")
            kept = json.loads(record.read_text())
            self.assertEqual(kept["mean_kl"], measured["mean_kl"])
            for mean_kl in (0.001, 0.02):
                record.write_text(json.dumps({**kept, "mean_kl": mean_kl}))
                result = run()
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual("q8 is used" in result.stderr, mean_kl > 0.01, result.stderr)

    def test_wrong_use(self):
        for wrong in (["--score", "0"], ["--stock"], ["--codec", "q8,zip"], ["--questions", "321"]):
            result = mzcache("eval", "-m", MODEL, "-f", "-", *wrong, text=self.TEXT)
            self.assertEqual(result.returncode, 2, wrong)


class ProfileTest(unittest.TestCase):
    CODECS = {"sparse", "q8", "q4", "cachegen", "lossless", "lz4", "zstd"}  # those of docs/codecs.md, without raw

    def test_two_at_once_measure_once(self):
        with tempfile.TemporaryDirectory() as place:
            env = {**os.environ, "XDG_CACHE_HOME": place}
            call = [COMMAND, "profile", "--quick", "--if-missing", "--json", "--store", place]
            missing = mzcache("doctor", "--json", "--store", place, env=env)
            both = [subprocess.Popen(call, env=env, text=True, stdout=subprocess.PIPE)
                    for _ in range(2)]
            outputs = [process.communicate(timeout=300)[0] for process in both]
            self.assertEqual([process.returncode for process in both], [0, 0])
            self.assertEqual(sorted(output != "" for output in outputs), [False, True])
            again = subprocess.run(call, env=env, text=True, capture_output=True, check=True)
            self.assertEqual(again.stdout, "")
            found = mzcache("doctor", "--json", "--store", place, env=env)
        lines = [json.loads(line) for line in "".join(outputs).splitlines()]
        codecs = {line["codec"] for line in lines if line["measure"] == "codec"}
        self.assertGreaterEqual(codecs, self.CODECS)
        states = [line["state"] for result in (missing, found)
                  for line in map(json.loads, result.stdout.splitlines())
                  if line["check"] == "profile"]
        self.assertEqual(states, ["missing", "ok"])

    def test_older_record_is_measured_anew(self):
        with tempfile.TemporaryDirectory() as place:
            env = {**os.environ, "XDG_CACHE_HOME": place}
            call = [COMMAND, "profile", "--quick", "--if-missing", "--json", "--store", place]
            subprocess.run(call, env=env, capture_output=True, check=True, timeout=300)
            path, = pathlib.Path(place, "mzcache").glob("profile-*.json")
            record = json.loads(path.read_text(encoding="utf-8"))
            record["version"] = 1
            path.write_text(json.dumps(record), encoding="utf-8")
            again = subprocess.run(call, env=env, text=True, capture_output=True, check=True)
        self.assertIn("codec", again.stdout)


@needs_model
class ModelTest(unittest.TestCase):
    def run_json(self, *arguments, code=0):
        with tempfile.TemporaryDirectory(dir=pathlib.Path(COMMAND).parent) as store:
            result = mzcache("run", "-m", MODEL, "-c", "1024", "--store", store, "--json",
                             "-p", "The keeper of the light wrote", "-n", "12", *arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def test_json_is_the_text(self):
        events = self.run_json("--stock")
        text = mzcache("run", "-m", MODEL, "-c", "1024", "--stock", "-n", "12",
                       "-p", "The keeper of the light wrote").stdout
        self.assertEqual([event["event"] for event in events], ["answer"])
        self.assertEqual(events[0]["text"] + "\n", text)
        self.assertEqual(len(events[0]["tokens"]), 12)

    def test_evict_and_go_on(self):
        events = self.run_json("--evict", "100%", "--then", "Then he")
        never = self.run_json("--evict", "1", "--then", "Then he")
        stock = self.run_json("--stock")
        self.assertEqual([event["event"] for event in events], ["answer", "evict", "answer"])
        self.assertEqual(events[0]["tokens"], stock[0]["tokens"])
        self.assertEqual(events[2]["tokens"], never[2]["tokens"])
        evict = events[1]
        self.assertEqual(evict["status"], "MZ_OK")
        self.assertGreaterEqual(evict["freed_bytes"], evict["asked_bytes"])
        # The kernel's own count falls by about what is claimed (other pages come and go meanwhile).
        fallen = evict["pss_before_bytes"] - evict["pss_after_bytes"]
        self.assertGreater(fallen, 0.9 * evict["freed_bytes"])

    def test_more_than_there_is(self):
        events = self.run_json("--evict", "64G", code=3)
        self.assertEqual(events[1]["status"], "MZ_E_PARTIAL")

    def test_the_trace_of_a_demo_is_that_of_the_evicted_process(self):
        with tempfile.TemporaryDirectory() as directory:
            result = mzcache("demo", "-m", MODEL, "-t", "300", "-n", "8", "--json", "--store",
                             directory, "--trace", directory + "/t.json")
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(directory + "/t.json", encoding="utf-8") as file:
                events = json.load(file)
        # Only that one drops and reads.
        self.assertLessEqual({"compute", "drop", "read", "ready"}, {e["name"] for e in events})

    def test_chat(self):
        result = mzcache("chat", "-m", MODEL, "-c", "1024", "-n", "8", "--stock",
                         text="Say hello.\n/status\n/evict 1M\n/frob\n/quit\nnever read\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("tokens", result.stdout)
        self.assertIn("stock engine can't", result.stdout)
        self.assertIn("/prefetch", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

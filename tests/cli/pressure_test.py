#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: a model gives memory back by itself, says why, and answers as if nothing had been.

Method: `mzcache chat` as a user starts it, with no word about pressure; critical pressure simulated
by its socket between two messages; the right answers are those of a chat that nothing was taken
from. Usage: pressure_test.py COMMAND MODEL. Skipped without the model.
"""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND, MODEL = sys.argv[1:3]
OWN = ("MZCACHE_", "LLAMA_ARG_", "GGML_BACKEND_PATH")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
FIRST, SECOND = "Name three rivers.", "And three mountains?"


class Socket(http.client.HTTPConnection):
    """HTTP over the control socket of a process."""

    def __init__(self, path):
        super().__init__("x", timeout=60)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Chat:
    """A chat under way in a folder of its own."""

    def __init__(self, place, **environment):
        env = {**CLEAN, "MZCACHE_CONTROL_DIR": str(place), "MZCACHE_STORE": str(place),
               "MZCACHE_PROFILE": "off", **environment}
        self.place = place
        self.process = subprocess.Popen(
            [COMMAND, "chat", "-m", MODEL, "-c", "1024", "-n", "16", "--threads", "1"], env=env,
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def say(self, text):
        """The lines of the answer; /status shows where it ends."""
        self.process.stdin.write(text + "\n/status\n")
        self.process.stdin.flush()
        lines = []
        while not (line := self.process.stdout.readline()).startswith("  context "):
            if line == "":
                raise AssertionError("the chat ended")
            lines.append(line)
        for _ in range(2):  # weights, KV cache
            self.process.stdout.readline()
        return lines

    def ask(self, method, target):
        """HTTP status and object of the answer of its control socket."""
        path, = pathlib.Path(self.place).glob("*.sock")
        with contextlib.closing(Socket(path)) as connection:
            connection.request(method, target)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def folder():
    """Not below the build folder: the path of a socket could become too long."""
    return tempfile.TemporaryDirectory(prefix="mz-pressure-")


@unittest.skipUnless(pathlib.Path(MODEL).exists(), "no model")
class PressureTest(unittest.TestCase):
    def test_memory_goes_by_itself_and_comes_back(self):
        with folder() as place, Chat(place, MZCACHE_PRESSURE="off") as calm:
            right = [calm.say(FIRST), calm.say(SECOND)]
            self.assertEqual(calm.ask("POST", "/simulate-pressure?level=low")[0], 409)
            self.assertFalse(calm.ask("GET", "/status")[1]["pressure"]["watching"])
        with folder() as place, Chat(place) as chat:
            answers = [chat.say(FIRST)]
            code, _ = chat.ask("POST", "/simulate-pressure?level=critical")
            self.assertEqual(code, 200)
            status = chat.ask("GET", "/status")[1]
            while "critical pressure (simulated)" not in status["pressure"]["reason"]:
                time.sleep(0.05)
                status = chat.ask("GET", "/status")[1]
            weights = status["weights"]
            whole = weights["total_bytes"] + status["kv_cache"]["total_bytes"]
            self.assertGreaterEqual(status["pressure"]["freed_bytes"], 0.6 * whole)
            self.assertLess(weights["resident_bytes"], weights["total_bytes"] / 2)
            told = subprocess.run([COMMAND, "status"], text=True, capture_output=True, check=True,
                                  env={**CLEAN, "MZCACHE_CONTROL_DIR": place}).stdout
            self.assertIn("critical pressure (simulated)", told)
            answers.append(chat.say(SECOND))
        self.assertEqual(answers, right)

    def test_idle_time(self):
        with folder() as place, Chat(place, MZCACHE_IDLE_EVICT="1s", MZCACHE_KEEP="30%") as chat:
            chat.say(FIRST)
            status = chat.ask("GET", "/status")[1]
            while "idle time" not in status["pressure"]["reason"]:
                time.sleep(0.05)
                status = chat.ask("GET", "/status")[1]
            whole = status["weights"]["total_bytes"] + status["kv_cache"]["total_bytes"]
            left = status["weights"]["resident_bytes"] + status["kv_cache"]["resident_bytes"]
            self.assertLess(left, 0.31 * whole)
            self.assertGreater(left, 0.1 * whole)  # whole units: the last may be a large one


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

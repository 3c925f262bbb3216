#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: llama-cpp-python with the plug-in gives the tokens that it gives without, whatever another
process evicts in between.

Method: the same Python program twice, once with the three lines of the README in front. It stops
before each question until it is told to go on; in the meantime `mzcache evict` runs from outside.
"""

import json
import subprocess
import unittest

from hosts import PLUGIN, PYTHON, SMOLLM2, STORY, clean_environment, folder, mzcache

LOAD = """
import ctypes, os, llama_cpp
lib = os.path.join(os.path.dirname(llama_cpp.__file__), "lib")
ggml = ctypes.CDLL(os.path.join(lib, "libggml.so.0"))
ggml.ggml_backend_load.restype = ctypes.c_void_p
ggml.ggml_backend_load.argtypes = [ctypes.c_char_p]
assert ggml.ggml_backend_load(os.environ["PLUGIN"].encode())
"""

HOST = """
import json, llama_cpp, sys
llm = llama_cpp.Llama(sys.argv[1], n_gpu_layers=-1, n_ctx=1024, n_threads=1, n_threads_batch=1,
                      verbose=False)
tokens = llm.tokenize(sys.argv[2].encode())
for question in json.loads(sys.argv[3]):
    print("ready", flush=True)
    sys.stdin.readline()
    tokens += llm.tokenize(question.encode(), add_bos=False)
    answer = []
    for token in llm.generate(tokens, temp=0.0):
        answer.append(token)
        if len(answer) == 8:
            break
    tokens += answer
    print(json.dumps(answer), flush=True)
"""

QUESTIONS = [" Then the dog", " One night", " The ships", " In summer", " Nobody", " At last"]
SHARES = ("1", "25%", "50%", "75%", "100%")


def answers(program: str, between, **env: str) -> list[list[int]]:
    """What the program answers to each question; `between` is called before all but the
    first, with the number of evictions before."""
    command = [PYTHON, "-c", program, str(SMOLLM2), STORY, json.dumps(QUESTIONS)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=clean_environment(**env)) as host:
        try:
            seen = []
            for turn in range(len(QUESTIONS)):
                assert host.stdout.readline() == "ready\n", "the host ended"
                if turn > 0:  # before the first answer nothing is in memory
                    between(turn - 1)
                host.stdin.write("\n")
                host.stdin.flush()
                seen.append(json.loads(host.stdout.readline()))
        finally:
            host.kill()
    return seen


class PythonHostTest(unittest.TestCase):
    def test_tokens_after_evictions(self):
        right = answers(HOST, lambda turn: None)
        with folder(None) as sockets, folder() as store:
            freed = []

            def evict(turn: int) -> None:
                result = mzcache(sockets, "evict", SHARES[turn], "--json")
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                freed.append(json.loads(result.stdout)["freed_bytes"])

            seen = answers(LOAD + HOST, evict, PLUGIN=PLUGIN, MZCACHE_STORE=str(store),
                           MZCACHE_CONTROL_DIR=str(sockets), MZCACHE_PROFILE="off",
                           MZCACHE_PRESSURE="off")
        self.assertEqual(seen, right)
        self.assertGreater(freed[-1], 60 << 20)  # its layers lay in elastic memory


if __name__ == "__main__":
    unittest.main()

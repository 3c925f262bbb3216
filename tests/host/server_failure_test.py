#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: what goes wrong around llama-server costs an answer at most, never the host or a wrong
token.

Method: a stock server with mzCache meets a model file that changes while its weights are evicted, a
store that can't be used, a plug-in that can't be loaded, and a ggml whose version nobody checked
(the real library, with another version written into its copy). Right tokens are a stock server's.
"""

import os
import pathlib
import shutil
import unittest

from hosts import PLUGIN, SERVER, SMOLLM2, STORY, Server, folder

ARGUMENTS = ("-c", "512", "-np", "1")
PROMPT = STORY[:300]


def two_answers(server: Server, between=lambda: None) -> list[list[int]]:
    prompt = server.tokenize(PROMPT, first=True)
    answers = []
    for _turn in range(2):
        code, answer = server.complete(prompt, 8)
        assert code == 200, answer
        answers.append(answer["tokens"])
        prompt += answer["tokens"] + server.tokenize(" One night")
        between()
    return answers


class FailureTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Server(*ARGUMENTS) as stock:
            cls.right = two_answers(stock)

    def test_model_changed_while_evicted(self):
        with folder() as home:
            model = home / "model.gguf"
            shutil.copy(SMOLLM2, model)
            before = model.stat()
            with Server(*ARGUMENTS, model=model, exec_options=()) as server:
                self.assertEqual(two_answers(server), self.right)
                prompt = server.tokenize(PROMPT, first=True)
                server.evict("100%")
                os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
                code, answer = server.complete(prompt, 8)
                self.assertEqual(code, 500, answer)
                self.assertIn("error", answer)
                self.assertIn("changed", server.status()["last_error"])
                self.assertIn(str(model), server.log())
                self.assertIsNone(server.process.poll())
                # It was only touched. As it was, it is used again.
                os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
                self.assertEqual(two_answers(server, lambda: server.evict("100%")), self.right)

    def test_store_that_cannot_be_written(self):
        with folder() as home:
            (home / "file").write_text("not a folder")
            store = str(home / "file" / "store")
            with Server(*ARGUMENTS, exec_options=("--store", store)) as server:
                def evict_all():
                    result = server.mzcache("evict", "100%")
                    self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
                    self.assertIn(str(home / "file"), result.stdout + result.stderr)
                    self.assertIn("Not a directory", result.stdout + result.stderr)
                    status = server.status()
                    self.assertEqual(status["weights"]["resident_bytes"], 0)
                    kv_cache = status["kv_cache"]
                    self.assertGreater(kv_cache["total_bytes"], 0)
                    self.assertEqual(kv_cache["resident_bytes"], kv_cache["total_bytes"])

                self.assertEqual(two_answers(server, evict_all), self.right)

    def check_goes_on_without(self, sentence: str, *options: str, **env: str):
        """The host answers as a stock one, having said once why it is alone."""
        with Server(*ARGUMENTS, "-ngl", "99", exec_options=options, **env) as server:
            self.assertEqual(two_answers(server), self.right)
            said = [line for line in server.log().splitlines() if sentence in line]
            self.assertEqual(len(said), 1, server.log())
            self.assertEqual(server.mzcache("status").returncode, 1)
            return said[0]

    def test_ggml_of_unknown_version(self):
        library = pathlib.Path(SERVER).resolve().parent / "libggml-base.so.0"
        real = library.read_bytes()
        self.assertIn(b"\x000.26.0\x00", real)
        with folder() as home:
            (home / library.name).write_bytes(real.replace(b"\x000.26.0\x00", b"\x000.99.0\x00"))
            said = self.check_goes_on_without("mzcache:", LD_LIBRARY_PATH=str(home))
        self.assertIn("0.99.0", said)
        self.assertIn("goes on without it", said)

    def test_plugin_that_is_no_library(self):
        with folder() as home:
            (home / "plugin.so").write_text("no library")
            self.check_goes_on_without("plugin.so", "--plugin", str(home / "plugin.so"))

    def test_plugin_without_its_library(self):
        with folder() as home:
            shutil.copy(PLUGIN, home)
            alone = home / pathlib.Path(PLUGIN).name
            self.check_goes_on_without("libmzcache.so", "--plugin", str(alone))


if __name__ == "__main__":
    unittest.main()

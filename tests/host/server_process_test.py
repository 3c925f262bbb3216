#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: servers are told apart from outside, and each ends cleanly when asked to, evicted or not.

Method: two servers that share a folder of control sockets; `mzcache` with and without --pid;
SIGTERM. Right values: process ids that the kernel gives, and the stock server's exit code.
"""

import json
import unittest

from hosts import STORY, Server, folder, mzcache

ARGUMENTS = ("-c", "512", "-np", "1")


class ProcessTest(unittest.TestCase):
    def pids(self, sockets) -> set[int]:
        result = mzcache(sockets, "status", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return {process["pid"] for process in json.loads(result.stdout)}

    def test_two_servers(self):
        with Server(*ARGUMENTS) as stock:
            prompt = stock.tokenize(STORY[:200], first=True)
            _code, right = stock.complete(prompt, 8)
            stock_exit = stock.terminate()
        with folder(None) as sockets, Server(*ARGUMENTS, exec_options=(), sockets=sockets) as one:
            with Server(*ARGUMENTS, exec_options=(), sockets=sockets) as two:
                for server in (one, two):
                    self.assertEqual(server.complete(prompt, 8)[1]["tokens"], right["tokens"])
                self.assertEqual(self.pids(sockets), {one.pid, two.pid})
                one_before, two_before = one.resident_bytes(), two.resident_bytes()
                self.assertGreater(one_before, 0)
                one.evict("100%")
                self.assertEqual(one.resident_bytes(), 0)
                self.assertEqual(two.resident_bytes(), two_before)
                # With two to choose from, nobody is evicted by chance.
                self.assertNotEqual(mzcache(sockets, "evict", "1").returncode, 0)
                self.assertEqual(two.resident_bytes(), two_before)

                self.assertEqual(one.terminate(), stock_exit)
                self.assertEqual(self.pids(sockets), {two.pid})
                self.assertEqual(two.terminate(), stock_exit)
            # A process that was killed leaves its socket behind; these were not.
            self.assertEqual([path.name for path in sockets.glob("*.sock")], [])
            self.assertEqual(mzcache(sockets, "status").returncode, 1)


if __name__ == "__main__":
    unittest.main()

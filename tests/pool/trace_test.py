# SPDX-License-Identifier: MIT
"""Goal: the trace of an evict and a restore is JSON that a viewer takes, and tells the truth.

Method: trace_maker evicts and restores a toy model and prints what the pool counted; Python's own
json reads the trace, and its sums must be those counts.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

MAKER = sys.argv.pop(1)


def make_trace(*arguments: str) -> tuple[dict, list]:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.json")
        result = subprocess.run([MAKER, path, *arguments], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        with open(path, encoding="utf-8") as file:
            return json.loads(result.stdout), json.load(file)


class TraceTest(unittest.TestCase):
    def test_events_and_their_sums(self):
        counted, events = make_trace("restore")
        for event in events:
            self.assertEqual(event["ph"], "X")
            self.assertEqual(event["pid"], counted["pid"])
            self.assertGreaterEqual(event["dur"], 0)
            self.assertIn(event["cat"], ("weights", "kv"))
        names = {event["name"] for event in events}
        self.assertLessEqual({"allocate", "read", "decode", "ready", "wait", "drop", "encode",
                              "write"}, names)
        read = sum(e["args"]["bytes"] for e in events if e["name"] == "read")
        self.assertEqual(read, counted["read_bytes"])
        ready = sum(1 for e in events if e["name"] == "ready")
        self.assertEqual(ready, counted["restores"])

    def test_a_unit_is_ready_after_its_reads(self):
        _, events = make_trace("restore")
        last_ready: dict = {}
        for event in events:
            if event["name"] == "ready":
                key = (event["cat"], event["args"]["layer"], event["args"]["chunk"])
                last_ready[key] = max(event["ts"], last_ready.get(key, 0))
        reads = [e for e in events if e["name"] == "read"]
        self.assertTrue(reads)
        for event in reads:
            key = (event["cat"], event["args"]["layer"], event["args"]["chunk"])
            self.assertLessEqual(event["ts"] + event["dur"], last_ready[key] + 0.001)

    def test_what_does_not_fit_is_counted(self):
        counted, events = make_trace("overflow")
        self.assertEqual(events[-1]["name"], "events dropped")
        self.assertEqual(len(events) - 1 + events[-1]["args"]["count"], counted["noted"])

    def test_written_anew_and_not_by_a_fork(self):
        counted, events = make_trace("again")
        self.assertEqual([e["name"] for e in events], counted["names"])


if __name__ == "__main__":
    unittest.main()

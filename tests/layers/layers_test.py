#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: check_layers.py accepts a tree that keeps the rules and names each way of breaking one.

Method: every test writes a small tree into a temporary folder and runs the checker on it as ctest
does; the expected line is written by hand in the test.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).with_name("check_layers.py")
C_SPDX = "/* SPDX-License-Identifier: MIT */\n"


class LayersTest(unittest.TestCase):
    def check(self, files):
        """Run the checker on files {path: text}; returns (exit status, output)."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src").mkdir()
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, CHECKER, root], capture_output=True, text=True)
        return done.returncode, done.stdout

    def assert_good(self, files):
        self.assertEqual(self.check(files), (0, ""))

    def assert_bad(self, files, expected):
        code, output = self.check(files)
        self.assertEqual((code, output), (1, expected + "\n"))

    def test_good_tree(self):
        self.assert_good({
            "src/base/log.c": C_SPDX + '#include "base/log.h"\n#include "log_level.h"\n',
            "src/os/direct_io.c": C_SPDX + '#include "base/log.h"\n#include <stdio.h>\n',
            "src/kernels/avx2/q8.c": C_SPDX + "#include <immintrin.h>\n",
            "src/plugin/device.c": C_SPDX + '#include <ggml-backend.h>\n#include "ggml.h"\n'
                                            '#include "control/server.h"\n#include "pool/pool.h"\n',
            "src/plugin/buffer.c": C_SPDX + '#include "plugin/ggml_abi.h"\n',
            "src/llm/llm.c": C_SPDX + '#include "llama.h"\n#include "mzcache/llm.h"\n',
            "src/cli/main.c": C_SPDX + '#include "llm/llm.h"\n#include "plugin/device.h"\n',
            "tests/llm/llm_test.c": C_SPDX + "#include <llama.h>\n",
            "src/base/CMakeLists.txt": "# SPDX-License-Identifier: MIT\n",
            "scripts/run.sh": "#!/bin/sh\n# SPDX-License-Identifier: MIT\n",
        })

    def test_part_includes_later_part(self):
        self.assert_bad({"src/base/log.c": C_SPDX + '\n#include "os/os.h"\n'},
                        'src/base/log.c:3: "os/os.h": base must not include os')

    def test_every_order(self):
        # The order, written a second time.
        order = "base os kernels codec swap restore pool pressure control plugin bench cli".split()
        for low, part in enumerate(order):
            for high, other in enumerate(order):
                files = {f"src/{part}/a.c": C_SPDX + f'#include "{other}/b.h"\n'}
                with self.subTest(part=part, other=other):
                    self.assertEqual(self.check(files)[0], 1 if high > low else 0)

    def test_siblings(self):
        for part, other in (("plugin", "llm"), ("llm", "plugin"), ("llm", "mkmodel")):
            self.assert_bad({f"src/{part}/a.c": C_SPDX + f'#include "{other}/b.h"\n'},
                            f'src/{part}/a.c:2: "{other}/b.h": {part} must not include {other}')

    def test_include_with_spaces(self):
        self.assert_bad({"src/base/log.h": C_SPDX + '  #  include  "os/os.h"\n'},
                        'src/base/log.h:2: "os/os.h": base must not include os')

    def test_path_that_climbs(self):
        self.assert_bad({"src/base/log.c": C_SPDX + '#include "../os/os.h"\n'},
                        'src/base/log.c:2: "../os/os.h" climbs out of its folder; '
                        'write "part/file.h"')

    def test_unknown_part(self):
        self.assert_bad({"src/misc/a.c": C_SPDX + '#include "base/log.h"\n'},
                        "src/misc/a.c:2: src/misc is not in the list of parts")
        self.assert_bad({"src/os/a.c": C_SPDX + '#include "misc/a.h"\n'},
                        'src/os/a.c:2: "misc/a.h" belongs to no part')

    def test_ggml_outside_plugin(self):
        for line in ("#include <ggml.h>", '#include "ggml-backend.h"'):
            self.assert_bad({"src/pool/a.c": C_SPDX + line + "\n"},
                            f"src/pool/a.c:2: {line[10:-1]} may be included only in "
                            "src/plugin, src/llm, src/mkmodel, src/stockattn, tests/plugin, tests/llm, "
                            "tests/host")

    def test_llama_outside_llm(self):
        self.assert_bad({"src/plugin/a.c": C_SPDX + "#include <llama.h>\n"},
                        "src/plugin/a.c:2: llama.h may be included only in "
                        "src/llm, tests/llm, tests/plugin, tests/host")

    def test_intrinsics_outside_kernels(self):
        for header in ("immintrin.h", "arm_neon.h"):
            self.assert_bad({"src/codec/a.c": C_SPDX + f"#include <{header}>\n"},
                            f"src/codec/a.c:2: {header} may be included only in src/kernels")

    def test_licence_line(self):
        for name in ("src/base/a.c", "include/mzcache/a.h", "tests/CMakeLists.txt", "Makefile"):
            self.assert_bad({name: "int a;\n"},
                            f"{name}:1: no line 'SPDX-License-Identifier: MIT' at the top")

    def test_long_file(self):
        line = "int a;\n"
        self.assert_good({"src/base/a.c": C_SPDX + line * 699})
        self.assert_bad({"src/base/a.c": C_SPDX + line * 700},
                        "src/base/a.c: 701 lines, 700 are allowed")

    def test_root_without_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, CHECKER, folder], capture_output=True)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()

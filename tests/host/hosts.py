# SPDX-License-Identifier: MIT
"""Stock hosts for the tests: start llama-server with or without mzCache, talk to it, end it.

A Server is used in a `with` block, which ends it whatever happens. It has its own port of
127.0.0.1, store and folder of control sockets, so that tests never meet other processes. Prompts
are tokens, so that no conversation depends on how text is cut up again.
"""

import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

COMMAND = os.environ["MZ_TEST_COMMAND"]
PLUGIN = os.environ["MZ_TEST_PLUGIN"]
SERVER = os.environ["MZ_TEST_SERVER"]
PYTHON = os.environ["MZ_TEST_PYTHON"]
SCRATCH = pathlib.Path(os.environ["MZ_TEST_SCRATCH"])
MODELS = pathlib.Path(os.environ["MZ_TEST_MODELS"])
SMOLLM2 = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = MODELS / "gemma-3-270m-q4_k_m.gguf"
WAIT_S = 120  # for a start or an answer on a busy machine; only a hang takes as long

STORY = ("The keeper of the light wrote down the weather every evening, and the names of the ships "
         "that passed. In the first winter a storm took the boat and the small pier. He mended the "
         "lamp with wire from the fence, and read the same four books again. In spring a ship "
         "brought oil, flour, letters and a dog that nobody on board wanted any longer. ") * 4


def clean_environment(**more: str) -> dict[str, str]:
    """The caller's environment without settings of hosts or of mzCache."""
    settings = ("MZCACHE_", "LLAMA_ARG_", "GGML_")
    return {name: value for name, value in os.environ.items()
            if not name.startswith(settings)} | more


@contextlib.contextmanager
def folder(parent=SCRATCH):
    """A new folder that only this user can open, gone at the end."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="h", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def end_with_parent() -> None:
    """A host must not outlive a test that was killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A llama-server; with `exec_options` (a tuple) started by mzcache exec, else stock."""

    def __init__(self, *arguments: str, model=SMOLLM2, exec_options=None, sockets=None, **env: str):
        self._stack = contextlib.ExitStack()
        self._sockets = sockets
        self._exec = exec_options
        self._arguments = ["-m", str(model), "-t", "1", "--no-warmup", *arguments]
        self._env = env
        self.port = free_port()

    def __enter__(self) -> "Server":
        home = self._stack.enter_context(folder())
        # Below the build folder, the path of a socket could become too long.
        self.sockets = self._sockets or self._stack.enter_context(folder(None))
        self.log_path = home / "log"
        prefix = [] if self._exec is None else [COMMAND, "exec", *self._exec, "--"]
        # Without a profile being measured, which would take the cores meanwhile.
        env = {"MZCACHE_STORE": str(home / "store"), "MZCACHE_CONTROL_DIR": str(self.sockets),
               "MZCACHE_PROFILE": "off", "MZCACHE_PRESSURE": "off"}
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [*prefix, SERVER, *self._arguments, "--host", "127.0.0.1", "--port",
                 str(self.port)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=clean_environment(**(env | self._env)), preexec_fn=end_with_parent)
        self._stack.callback(self._kill)
        try:
            self._wait_until_ready()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error) -> None:
        self._stack.close()

    def _kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the host ended:\n{self.log()}")
            try:
                if self.request("GET", "/health")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"the host never became ready:\n{self.log()}")

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def terminate(self) -> int:
        """Ask it to end, as a service manager does; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def _open(self, method: str, path: str, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def request(self, method: str, path: str, body=None) -> tuple[int, dict]:
        connection, response = self._open(method, path, body)
        with contextlib.closing(connection):
            return response.status, json.loads(response.read())

    def tokenize(self, text: str, first: bool = False) -> list[int]:
        question = {"content": text, "add_special": first}
        return self.request("POST", "/tokenize", question)[1]["tokens"]

    def complete(self, prompt: list[int], count: int, **more) -> tuple[int, dict]:
        return self.request("POST", "/completion", self._question(prompt, count, **more))

    def stream(self, prompt: list[int], count: int, **more):
        """The tokens of an answer, one by one while they are made."""
        connection, response = self._open("POST", "/completion",
                                          self._question(prompt, count, stream=True, **more))
        with contextlib.closing(connection):
            for line in response:
                if line.startswith(b"data: "):
                    yield from json.loads(line[6:]).get("tokens", [])

    @staticmethod
    def _question(prompt: list[int], count: int, **more) -> dict:
        return {"prompt": prompt, "n_predict": count, "temperature": 0, "cache_prompt": True,
                "return_tokens": True, "ignore_eos": True, **more}

    # What other programs see and do

    def mzcache(self, command: str, *arguments: str) -> subprocess.CompletedProcess:
        return mzcache(self.sockets, command, "--pid", str(self.pid), *arguments)

    def status(self) -> dict:
        result = self.mzcache("status", "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)[0]

    def resident_bytes(self) -> int:
        status = self.status()
        return sum(status[tag]["resident_bytes"] for tag in ("weights", "kv_cache"))

    def evict(self, size: str) -> int:
        """Evict as much as asked; the bytes freed."""
        result = self.mzcache("evict", size, "--json")
        assert result.returncode == 0, result.stdout + result.stderr
        return json.loads(result.stdout)["freed_bytes"]

    def pss_bytes(self) -> int:
        for line in pathlib.Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel shows no PSS")

    def maps(self) -> str:
        return pathlib.Path(f"/proc/{self.pid}/maps").read_text()


def mzcache(sockets, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([COMMAND, *arguments], text=True, capture_output=True, timeout=WAIT_S,
                          env=clean_environment(MZCACHE_CONTROL_DIR=str(sockets)), check=False)

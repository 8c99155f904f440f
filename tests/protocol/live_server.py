# SPDX-License-Identifier: Apache-2.0
"""Starts the real server on free ports."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
START_TIMEOUT_S = float(os.environ.get("INFLIGHT_TEST_START_TIMEOUT_S", 60))  # longer under an emulator
DEVICE = os.environ.get("INFLIGHT_TEST_DEVICE", "cpu")  # cuda: the same tests on a machine with a GPU
DTYPE = {"cpu": "float32", "cuda": "bfloat16"}[DEVICE]
# A GPU answers alone what it answers among others when it is asked to; the CPU always does.
SAME_AMONG_OTHERS = {"cpu": (), "cuda": ("--deterministic",)}[DEVICE]
needs_gpu = pytest.mark.skipif(
    DEVICE != "cuda", reason="shows a GPU, which CI's machines do not have; run it on one with INFLIGHT_TEST_DEVICE=cuda"
)


@dataclasses.dataclass
class Server:
    """A running server; addresses are `host:port`."""

    process: subprocess.Popen
    log: pathlib.Path
    http: str
    grpc: str | None  # None where the build has none
    metrics: str
    model_dir: pathlib.Path

    def stop(self, timeout_s=60):
        """Ends it as a supervisor would; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def is_sanitized():
    cache = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]).parent / "CMakeCache.txt"
    return any(
        line.startswith("INFLIGHT_SANITIZERS:") and line.split("=", 1)[1].strip() for line in cache.read_text().splitlines()
    )


def ports_in(path):
    """{front end: port} of a --port-file, which is whole when its line ends; none before."""
    text = path.read_text() if path.exists() else ""
    return json.loads(text) if text.endswith("\n") else None


def start_server(work_dir, model_dir=DEMO, *options, max_kv_tokens=32768):
    """Serves `model_dir` (or a repository, by options) once it answers; its log is `work_dir`/log."""
    inflight = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    ports, log = work_dir / "ports.json", work_dir / "log"
    command = [
        inflight, "serve", *([model_dir] if model_dir else []), "--device", DEVICE, "--dtype", DTYPE,
        *(["--max-kv-tokens", max_kv_tokens] if max_kv_tokens else []),
        "--http-address", "127.0.0.1", "--grpc-address", "127.0.0.1",
        "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", "--port-file", ports, *options,
    ]  # fmt: skip
    with open(log, "wb") as out:
        process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + START_TIMEOUT_S
    while (used := ports_in(ports)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"the server did not start:\n{log.read_text()[-4000:]}")
        time.sleep(0.02)
    address = {name: f"127.0.0.1:{port}" if port else None for name, port in used.items()}
    return Server(process, log, address["http"], address["grpc"], address["metrics"], model_dir)


@contextlib.contextmanager
def serving(work_dir, repository, *options, **limits):
    """A server of the repository, which ends with status 0 on SIGTERM."""
    server = start_server(work_dir, None, "--model-repository", repository, *options, **limits)
    try:
        yield server
    finally:
        status = server.stop()
    assert status == 0, server.log.read_text()[-4000:]


def without_gpu(page):
    """A metrics page whose series do not name the GPU that a model is on."""
    return re.sub(r'gpu_uuid="[^"]*",?', "", page)


def start_error(command, **environment):
    """The last line of a start that fails; `environment` beside this process's."""
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]

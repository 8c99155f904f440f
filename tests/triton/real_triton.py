# SPDX-License-Identifier: Apache-2.0
"""Starts NVIDIA's Triton server with our plug-in as its backend `tensorrtllm`.

The server is that of the package nvidia-pytriton (tests/triton_server.txt), release 2.51.0. Its Python backend needs the stub
of this Python beside it.
"""

import dataclasses
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest
import requests
from free_ports import free_ports
from live_server import is_sanitized
from release_repositories import write_repository

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models/demo"
PYTHON_MODELS = ROOT / "compat/python_models"
SYSTEM_PYTHON = "/usr/bin/python3"
START_TIMEOUT_S = 60
RELEASE = 11
FILL = {
    "triton_max_batch_size": 64, "triton_backend": "tensorrtllm", "decoupled_mode": "true",
    "batching_strategy": "inflight_batching", "engine_dir": DEMO, "tokenizer_dir": DEMO, "max_queue_delay_microseconds": 0,
    "preprocessing_instance_count": 1, "postprocessing_instance_count": 1, "bls_instance_count": 4,
    "max_tokens_in_paged_kv_cache": 32768,
    # Of later releases, in places where the file has no text without them.
    "max_queue_size": 0, "logits_datatype": "TYPE_FP32", "encoder_input_features_data_type": "TYPE_FP16",
    "prompt_embedding_table_data_type": "TYPE_FP16",
}  # fmt: skip


def plugin():
    """The folder of backends that the build made."""
    return pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]).parent / "backends"


def wheel():
    """Where the package's server lies; None without."""
    found = importlib.util.find_spec("pytriton")
    if found is None:
        return None
    return pathlib.Path(found.origin).parent / "tritonserver"


def why_not():
    """Why the server cannot run here; empty where it can."""
    if is_sanitized():
        return "a plug-in with sanitizers needs a server with them; triton_plugin_test is one"
    if wheel() is None:
        return "this machine lacks nvidia-pytriton (scripts/install_deps.sh test)"
    if subprocess.run([SYSTEM_PYTHON, "-c", "import numpy"], capture_output=True, check=False).returncode != 0:
        return "this machine lacks python3-numpy (scripts/install_deps.sh test)"
    if not stub().exists():
        return f"this machine's Python {sys.version_info[0]}.{sys.version_info[1]} has no stub in nvidia-pytriton"
    if b"shared libraries" in subprocess.run([stub()], capture_output=True, check=False).stderr:
        return "this machine lacks the library of its Python (scripts/install_deps.sh test)"
    return ""


def stub():
    return wheel() / f"python_backend_stubs/{sys.version_info[0]}.{sys.version_info[1]}/triton_python_backend_stub"


def make_backends(directory):
    """A --backend-directory with our plug-in and the server's Python backend."""
    directory.mkdir()
    for name in ("tensorrtllm", "inflight"):
        (directory / name).symlink_to(plugin() / name)
    (directory / "python").mkdir()
    # Linked, since they find their libraries by where they really lie. The stub reads no PYTHONPATH, but this folder; its numpy
    # is the system's, for it knows none of numpy 2.
    tokenizers = pathlib.Path(importlib.util.find_spec("tokenizers").origin).parent
    for file in [*(wheel() / "backends/python").iterdir(), stub(), tokenizers]:
        (directory / "python" / file.name).symlink_to(file)
    return directory


def make_repository(directory, release=RELEASE, without=(), **fill):
    """The release's repository as its guides leave it, with our Python models in it."""
    write_repository(directory, release, without=without, **(FILL | fill))
    for source in PYTHON_MODELS.glob("*.py"):
        if (directory / source.stem).exists():
            shutil.copy(source, directory / source.stem / "1/model.py")
    return directory


@dataclasses.dataclass
class Triton:
    process: subprocess.Popen
    log: pathlib.Path
    http: str
    grpc: str
    metrics: str

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def command(work_dir, repository, ports, *options):
    binary = wheel() / "bin/tritonserver"
    http, grpc, metrics = ports
    backends = work_dir / "backends"
    if not backends.exists():
        make_backends(backends)
    return [
        binary, f"--model-repository={repository}", f"--backend-directory={backends}",
        f"--cache-directory={wheel() / 'caches'}", f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}",
        "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1",
        "--backend-config=tensorrtllm,device=cpu", "--backend-config=tensorrtllm,dtype=float32",
        f"--backend-config=python,shm-region-prefix-name=inflight_test_{http}_", *options,
    ]  # fmt: skip


def start_triton(work_dir, repository, *options):
    ports, log = free_ports(3), work_dir / "triton.log"
    words = [str(word) for word in command(work_dir, repository, ports, *options)]
    pathlib.Path(words[0]).chmod(0o755)
    # The stub takes its packages from beside the first python3 of PATH: the system's has numpy, a user's own may not.
    env = os.environ | {"PATH": f"{pathlib.Path(SYSTEM_PYTHON).parent}:{os.environ['PATH']}"}
    with open(log, "wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=env)
    http, grpc, metrics = (f"127.0.0.1:{port}" for port in ports)
    server = Triton(process, log, http, grpc, metrics)
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            if requests.get(f"http://{http}/v2/health/ready", timeout=5).status_code == 200:
                return server
        except requests.ConnectionError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"Triton did not start:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.1)

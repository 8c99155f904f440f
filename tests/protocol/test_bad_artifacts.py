# SPDX-License-Identifier: Apache-2.0
"""`serve` on what cannot be served ends with status 1 and says what is wrong with which file."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from live_server import DEMO

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"


def run(*args):
    return subprocess.run([INFLIGHT, *map(str, args)], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """The demo model as a checkpoint and as an engine."""
    work = tmp_path_factory.mktemp("artifacts")
    for command in (
        ("convert", "--model-dir", DEMO, "--output-dir", work / "checkpoint", "--dtype", "float32"),
        ("build", "--checkpoint-dir", work / "checkpoint", "--output-dir", work / "engine", "--max-seq-len", 256),
    ):
        done = run(*command)
        assert done.returncode == 0, done.stderr
    return work


def error_of_serve(directory):
    ports = [option for name in ("http", "grpc", "metrics") for option in (f"--{name}-port", "0")]
    done = run("serve", directory, *ports)
    assert done.returncode == 1, done.stderr
    return done.stderr


def damaged(path, copy, name, damage):
    shutil.copytree(path, copy)
    file = copy / name
    file.write_bytes(damage(file.read_bytes()))
    return copy


def test_truncated_engine(artifacts, tmp_path):
    error = error_of_serve(damaged(artifacts / "engine", tmp_path / "e", "rank0.engine", lambda data: data[:-4096]))
    assert "rank0.engine" in error and "truncated" in error and "inflight build" in error


def test_engine_of_another_version(artifacts, tmp_path):
    def of_version_99(data):
        return data[:16] + (99).to_bytes(4, "little") + data[20:]

    error = error_of_serve(damaged(artifacts / "engine", tmp_path / "e", "rank0.engine", of_version_99))
    assert "rank0.engine" in error and "version 99" in error and "inflight build" in error


def test_checkpoint_with_a_missing_tensor(artifacts, tmp_path):
    def without_final_norm(data):
        length = int.from_bytes(data[:8], "little")
        text = json.dumps(json.loads(data[8 : 8 + length]), separators=(",", ":"))
        assert "transformer.ln_f.weight" in text
        text = text.replace("transformer.ln_f.weight", "transformer.ln_x.weight")  # in place, so that offsets stay true
        return len(text).to_bytes(8, "little") + text.encode() + data[8 + length :]

    error = error_of_serve(damaged(artifacts / "checkpoint", tmp_path / "c", "rank0.safetensors", without_final_norm))
    assert "transformer.ln_f.weight" in error

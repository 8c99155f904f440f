# SPDX-License-Identifier: Apache-2.0
"""Files that the server writes, where somebody planted a link, and files that it has mapped, where somebody cut them short."""

import os
import pathlib
import subprocess

import pytest
import requests
from conformance_models import add_identity, infer_body
from live_server import DEMO, is_sanitized, start_error, start_server
from llm_client import wait_until

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_text("kept")
    return path


@pytest.fixture
def repository(tmp_path):
    models = tmp_path / "models"
    add_identity(models, "identity")
    return models


def mode(path):
    return oct(path.stat().st_mode & 0o777)


def test_a_link_is_no_log_file(tmp_path, victim, repository):
    link = tmp_path / "link"
    link.symlink_to(victim)
    error = start_error([INFLIGHT, "serve", "--model-repository", repository, "--log-file", link])
    assert error.startswith("inflight: --log-file: ") and f"{link}: is a link" in error, error
    assert victim.read_text() == "kept"


def test_a_link_is_no_trace_file_and_new_files_are_the_owners(tmp_path, victim, repository):
    link, log = tmp_path / "trace", tmp_path / "own.log"
    link.symlink_to(victim)
    words = ("triton,file=" + str(link), "rate=1", "level=TIMESTAMPS")
    server = start_server(
        tmp_path, None, "--model-repository", repository, "--log-file", log, *(f"--trace-config={word}" for word in words),
        max_kv_tokens=None,
    )  # fmt: skip
    infer = f"http://{server.http}/v2/models/identity/infer"
    assert requests.post(infer, json=infer_body([1, 2]), timeout=30).ok
    assert server.stop() == 0
    assert "trace file cannot be written" in log.read_text()
    assert victim.read_text() == "kept"
    assert mode(log) == "0o600"


@pytest.mark.skipif(is_sanitized(), reason="the sanitizers take the signal themselves; CI's release build runs it")
def test_an_engine_that_is_cut_short_ends_the_server_with_its_name(tmp_path):
    for command in (
        ("convert", "--model-dir", DEMO, "--output-dir", tmp_path / "checkpoint", "--dtype", "float32"),
        ("build", "--checkpoint-dir", tmp_path / "checkpoint", "--output-dir", tmp_path / "engine", "--max-seq-len", 256,
         "--target", "cpu"),
    ):  # fmt: skip
        subprocess.run([INFLIGHT, *map(str, command)], check=True, capture_output=True, timeout=120)
    engine = tmp_path / "engine" / "rank0.engine"
    server = start_server(tmp_path, tmp_path / "engine", "--device", "cpu", "--dtype", "auto")
    os.truncate(engine, 4096)
    body = {"text_input": "The fox", "max_tokens": 3}
    with pytest.raises(requests.ConnectionError):
        requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60)
    wait_until(lambda: server.process.poll() is not None)
    assert server.process.returncode == 1
    assert f"inflight: {engine}: was cut short while its weights were in use" in server.log.read_text()

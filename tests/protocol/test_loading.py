# SPDX-License-Identifier: Apache-2.0
"""A server whose models are not there yet: its ports answer, a port in use ends the start first, a signal ends it soon.

The configuration of the model is a pipe: the load waits until a test writes to it.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
import requests
import tritonclient.grpc
from conformance_models import add_identity
from live_server import START_TIMEOUT_S

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
from command import INFLIGHT


class Loading:
    """A server that waits for its model's configuration."""

    def __init__(self, folder, *options):
        self.config = folder / "models/m/config.pbtxt"
        add_identity(folder / "models", "m")
        self.config.rename(folder / "config.pbtxt")
        self.text = folder / "config.pbtxt"
        os.mkfifo(self.config)
        self.log = folder / "log"
        # Programs that are started in the background ignore SIGINT.
        program = ["env", "--default-signal=INT", INFLIGHT, "serve"]
        command = [*program, "--model-repository", folder / "models", "--device", "cpu", *options]
        ports = [] if options else ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen([*map(str, command), *ports], stdout=out, stderr=out)

    def wait_for(self, pattern):
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (found := re.search(pattern, self.log.read_text())):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        return found

    def wait_until_loading(self):
        found = self.wait_for(r"Listening, .*HTTP at ([0-9.:]+), gRPC at ([0-9.:]+)")
        self.http, self.grpc = f"http://{found.group(1)}", found.group(2)
        self.pipe = os.open(self.config, os.O_WRONLY)  # once somebody reads

    def finish(self):
        """From here on the configuration is an ordinary file."""
        os.replace(self.text, self.config)
        os.write(self.pipe, self.config.read_bytes())
        os.close(self.pipe)

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def loading(tmp_path):
    server = Loading(tmp_path)
    yield server
    server.end()


def test_ports_answer_before_models_are_there(loading):
    loading.wait_until_loading()
    assert requests.get(f"{loading.http}/v2/health/live", timeout=30).status_code == 200
    assert requests.get(f"{loading.http}/v2/health/ready", timeout=30).status_code == 400
    assert requests.get(f"{loading.http}/health", timeout=30).status_code == 503
    for method, path in (
        ("POST", "/v2/models/m/infer"), ("GET", "/v2/models/m"), ("GET", "/v2/models/stats"), ("POST", "/v2/repository/index"),
        ("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("POST", "/v2/repository/models/m/load"),
    ):  # fmt: skip
        refused = requests.request(method, loading.http + path, data="{}" if method == "POST" else None, timeout=30)
        assert refused.status_code == 503 and refused.headers["Retry-After"] == "1", (path, refused.text)
        assert "the server is loading its models, ask again later" in refused.text
    client = tritonclient.grpc.InferenceServerClient(loading.grpc)
    assert client.is_server_live() and not client.is_server_ready() and not client.is_model_ready("m")
    with pytest.raises(tritonclient.grpc.InferenceServerException, match="loading its models"):
        client.get_model_metadata("m")
    assert "Started HTTPService" not in loading.log.read_text()
    loading.finish()
    loading.wait_for("Started HTTPService")
    assert requests.get(f"{loading.http}/v2/health/ready", timeout=30).status_code == 200
    assert client.is_server_ready() and client.is_model_ready("m")
    loading.process.send_signal(signal.SIGTERM)
    assert loading.process.wait(START_TIMEOUT_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_start_whose_load_does_not_end(loading, number):
    loading.wait_until_loading()
    loading.process.send_signal(number)
    assert loading.process.wait(START_TIMEOUT_S) == 1
    log = loading.log.read_text().splitlines()
    assert log[-1] == "inflight: a signal ended the start before the models were loaded"


def test_a_port_in_use_ends_the_start_before_anything_is_loaded(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for flag in ("--http-port", "--grpc-port", "--metrics-port"):
            others = [f"{other}=0" for other in ("--http-port", "--grpc-port", "--metrics-port") if other != flag]
            (tmp_path / flag).mkdir()
            server = Loading(tmp_path / flag, f"{flag}={port}", *others)
            try:
                assert server.process.wait(START_TIMEOUT_S) == 1
                last = server.log.read_text().splitlines()[-1]
                assert last.startswith("inflight: ") and f"{port}" in last, last
            finally:
                server.end()

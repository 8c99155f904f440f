# SPDX-License-Identifier: Apache-2.0
"""`inflight serve --shadow-of URL`: clients of one port get another server's answers, which are compared with this one's."""

import contextlib
import json
import signal
import subprocess
import time

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from command import ROOT
from free_ports import free_port
from test_shadow import INFLIGHT, Server

DEMO = ROOT / "models/demo"
GENERATE = "/v2/models/ensemble/generate"
QUESTION = {"text_input": "Once upon a time", "max_tokens": 12}


def command(*options):
    words = [INFLIGHT, "serve", DEMO, "--device=cpu", "--max-kv-tokens=4096", "--metrics-port=0", *options]
    return [str(word) for word in words]


@contextlib.contextmanager
def shadowing(folder, url, *options):
    """Its ports by name, and a file of what it prints; it ends with status 0."""
    ports, out = folder / "ports.json", folder / "out"
    with open(out, "wb") as log:
        process = subprocess.Popen(
            command("--shadow-of", url, "--shadow-port=0", "--port-file", ports, *options), stdout=log, stderr=log
        )
    try:
        until = time.monotonic() + 60
        while not ports.exists() or not ports.read_text().endswith("\n"):
            assert process.poll() is None and time.monotonic() < until, out.read_text()[-3000:]
            time.sleep(0.02)
        yield json.loads(ports.read_text()), out
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_clients_get_the_other_server_s_answers(tmp_path):
    with Server({}) as old:
        report = tmp_path / "report"
        options = ("--http-port=0", "--allow-grpc=false", "--shadow-report", report, "--shadow-ignore=only_here")
        with shadowing(tmp_path, old.url, *options) as (ports, out):
            own = requests.post(f"http://127.0.0.1:{ports['http']}{GENERATE}", json=QUESTION, timeout=60)
            assert own.ok
            asked = f"http://127.0.0.1:{ports['shadow']}{GENERATE}"
            same = json.dumps({**own.json(), "only_here": 1})
            for answer in (same, json.dumps({**own.json(), "text_output": "something else"})):
                old.answers[GENERATE] = (200, "application/json", answer)
                assert requests.post(asked, json=QUESTION, timeout=60).text == answer
        text = out.read_text()
        assert "2 POST /v2/models/ensemble/generate: text text_output" in text
        assert "2 requests: 1 equal, 1 different (text 1), 0 without an answer" in text
        lines = [json.loads(line) for line in report.read_text().splitlines()]
        assert [len(line["differences"]) for line in lines] == [0, 1]
        old.shutdown()


def test_over_grpc(tmp_path):
    """A shadow of itself answers alike."""
    port = free_port()
    with shadowing(tmp_path, f"grpc://127.0.0.1:{port}", f"--grpc-port={port}", "--http-port=0") as (ports, out):
        inputs = []
        for name, datatype, value in (("text_input", "BYTES", b"Once upon a time"), ("max_tokens", "INT32", 6)):
            tensor = triton.InferInput(name, [1, 1], datatype)
            tensor.set_data_from_numpy(np.array([[value]], dtype=object if datatype == "BYTES" else np.int32))
            inputs.append(tensor)
        with triton.InferenceServerClient(f"127.0.0.1:{ports['shadow']}") as client:
            assert client.is_server_ready()
            assert client.infer("ensemble", inputs).as_numpy("text_output") is not None
    assert "2 requests: 2 equal, 0 different, 0 without an answer" in out.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shadow-of=http://a"], "--shadow-port: is needed with --shadow-of"),
        (["--shadow-port=0"], "--shadow-of: is needed with the other options of a shadow"),
        (["--shadow-of=a", "--shadow-port=0"], "--shadow-of: 'a' is no url"),
        (["--shadow-of=http://a", "--shadow-port=0", "--allow-http=false"], "--shadow-of: got 'http://a'"),
        (["--shadow-of=http://a", "--shadow-port=8000"], "cannot listen to HTTP requests and requests of a shadow"),
    ],
)
def test_what_is_wrong_is_said(options, message):
    done = subprocess.run(command(*options), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and message in done.stderr, done.stderr

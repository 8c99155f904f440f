# SPDX-License-Identifier: Apache-2.0
"""scripts/demo.sh with a program that is there: it serves the demo model by it, and each of its requests is answered."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest
import requests
from command import INFLIGHT, ROOT, run

SCRIPT = ROOT / "scripts/demo.sh"
USAGE = "usage: scripts/demo.sh [--once] [--build] [--model demo|gemma3] [--ports HTTP,GRPC,METRICS]"
FREE = ("--ports", "0,0,0")


def demo(*options, program=INFLIGHT, **kwargs):
    environment = {**os.environ, "INFLIGHT": str(program)}
    return subprocess.run([SCRIPT, *options], env=environment, capture_output=True, text=True, timeout=300, check=False, **kwargs)


def ports_in(text):
    """HTTP, gRPC and metrics, as the script says that they are open."""
    return re.search(r"^ready: HTTP (\d+), gRPC (\d+), metrics (\d+) ", text, re.MULTILINE).groups()


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def test_once_asks_the_program_that_is_there_and_ends(tmp_path):
    done = demo("--once", *FREE, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert f"no build: {INFLIGHT.resolve()} is there" in done.stdout
    assert run("--version").stdout in done.stdout
    expected = [
        case["expected"] for case in json.loads((ROOT / "models/demo/demo_requests.json").read_text()) if "expected" in case
    ]
    assert expected and all(answer.strip() in done.stdout for answer in expected)
    assert "all answers are as expected" in done.stdout and done.stdout.endswith("done\n")
    assert not any(map(is_open, ports_in(done.stdout)))


def test_otherwise_the_server_goes_on_running():
    done = demo(*FREE)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    (process,) = map(int, re.findall(r"^stop:  kill (\d+)$", done.stdout, re.MULTILINE))
    try:
        http, _, _ = ports_in(done.stdout)
        assert requests.get(f"http://127.0.0.1:{http}/v2/health/ready", timeout=30).status_code == 200
        assert f"try:   curl -X POST localhost:{http}/v2/models/ensemble/generate" in done.stdout
    finally:
        os.kill(process, signal.SIGTERM)
    until = time.monotonic() + 60
    while is_open(http) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_open(http)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--twice"], "unknown option '--twice'"),
        (["--once", "demo"], "unknown option 'demo'"),
        (["--model"], "--model: got '', must be demo or gemma3"),
        (["--model", "llama"], "--model: got 'llama', must be demo or gemma3"),
        (["--ports", "8000"], "--ports: got '8000', three numbers are needed"),
        (["--ports", "a,b,c"], "--ports: got 'a,b,c', three numbers are needed"),
        (["--ports"], "--ports: got '', three numbers are needed"),
    ],
)
def test_wrong_options_are_told_and_have_status_2(options, message):
    done = demo(*options)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"demo.sh: {message}; {USAGE}\n")


def test_a_program_that_is_not_there_is_told(tmp_path):
    done = demo("--once", *FREE, program=tmp_path / "inflight")
    assert (done.returncode, done.stderr) == (1, f"demo.sh: INFLIGHT: {tmp_path / 'inflight'} is no program\n")


def test_a_port_in_use_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = demo("--once", "--ports", f"{port},0,0")
    assert done.returncode == 1
    assert f"demo.sh: port {port} is in use; stop what listens there first, or choose others by --ports" in done.stderr

# SPDX-License-Identifier: Apache-2.0
"""A server that is started as people start vLLM or llama-server: the same names, the same effects."""

import pathlib

import pytest
import requests
from live_server import DEMO, start_server

KEY = "if-of-the-command-line"


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """Ends with status 0 on SIGTERM or the run fails."""
    flags = ("--api-key", KEY, "--api_key=other", "--ctx-size", "192", "-t", "3", "--served-model-name", "mine", "-tp", "1")
    running = start_server(tmp_path_factory.mktemp("named"), None, "--model", DEMO, *flags)
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def chat(server, key, **fields):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"model": "mine", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, **fields}
    return requests.post(f"http://{server.http}/v1/chat/completions", json=body, headers=headers, timeout=60)


def test_a_key_of_the_command_line_is_asked_for(named):
    assert chat(named, None).status_code == 401 and chat(named, "wrong").status_code == 401
    assert chat(named, KEY).status_code == 200 and chat(named, "other").status_code == 200
    listed = requests.get(f"http://{named.metrics}/metrics", headers={"Authorization": f"Bearer {KEY}"}, timeout=30)
    assert listed.status_code == 200


def test_the_list_of_processes_does_not_show_it(named):
    words = pathlib.Path(f"/proc/{named.process.pid}/cmdline").read_bytes().split(b"\0")
    assert KEY.encode() not in words and b"*" * len(KEY) in words and b"--api_key=*****" in words
    assert KEY not in named.log.read_text()


def test_the_length_is_the_one_that_is_given(named):
    models = requests.get(f"http://{named.http}/v1/models", headers={"Authorization": f"Bearer {KEY}"}, timeout=30).json()
    [mine] = [model for model in models["data"] if model["id"] == "mine"]
    assert mine["max_model_len"] == 192
    too_long = chat(named, KEY, messages=[{"role": "user", "content": "word " * 400}])
    assert too_long.status_code == 400 and "than the 191 that this model takes" in too_long.text


def test_the_threads_are_as_many_as_asked_for(named):
    threads = [path.read_text().strip() for path in pathlib.Path(f"/proc/{named.process.pid}/task").glob("*/comm")]
    assert threads.count("cpu-pool") == 2, threads  # and the one that asks them

# SPDX-License-Identifier: Apache-2.0
"""What clients can do to the log: neither forge lines of it, nor fill a disk with it."""

import re

import pytest
import requests
from conformance_models import add_identity, infer_body
from live_server import start_server
from llm_client import wait_until
from server_log import messages

FORGED = 'E1125 10:00:00.000000 1 load.cc:1] "forged"'
NOT_TEXT = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
BURST, PER_SECOND = 500, 10  # src/base/log_budget.h


@pytest.fixture
def server(tmp_path):
    models = tmp_path / "models"
    add_identity(models, "identity")
    running = start_server(
        tmp_path, None, "--model-repository", models, "--model-control-mode=explicit", "--load-model=identity",
        "--log-verbose=1", max_kv_tokens=None,
    )  # fmt: skip
    yield running
    assert running.stop() == 0


def load(server, name, session=requests):
    return session.post(f"http://{server.http}/v2/repository/models/{name}/load", timeout=30)


def test_names_and_ids_forge_no_lines(server):
    forged = f"x\n{FORGED}\r\n{FORGED}\x1b[2J\u009b2J\u0085{FORGED}"
    infer = f"http://{server.http}/v2/models/identity/infer"
    assert requests.post(infer, json=infer_body([1, 2], id=forged), timeout=30).ok
    encoded = requests.utils.quote(forged, safe="")
    assert not load(server, encoded).ok
    assert not load(server, encoded.replace("%0A", "%0D")).ok
    assert not requests.post(infer.replace("identity", encoded), json=infer_body([1], id=forged), timeout=30).ok
    config = {"parameters": {"config": '{"name": "' + "\\n".join(["identity", FORGED.replace('"', "'")]) + '"}'}}
    assert not requests.post(
        f"http://{server.http}/v2/repository/models/identity/load", json=config, timeout=30
    ).ok  # fmt: skip
    text = server.log.read_text()
    assert "model cannot be polled" in text  # with the name that the client sent
    assert not any(line.startswith("E1125 10:00") for line in text.splitlines()), text[-2000:]
    assert NOT_TEXT.search(text) is None, repr(NOT_TEXT.search(text))


def test_a_client_fills_no_disk(server):
    def failures():
        return sum("model cannot be polled" in message for message in messages(server.log.read_text()))

    with requests.Session() as session:
        sent = 0
        while sent < 2 * BURST:
            assert not load(server, "n" * 6_000 if sent == 0 else f"nobody-{sent}", session).ok
            sent += 1
    assert BURST <= failures() < sent
    assert "more bytes" in server.log.read_text() and max(map(len, server.log.read_text().splitlines())) < 20_000

    def told():
        load(server, "nobody")
        pattern = r"lines of the log were left out: (\d+) of repository_control\.cc:\d+"
        return [int(count) for count in re.findall(pattern, server.log.read_text())]

    wait_until(lambda: sum(told()) >= sent - failures() - 1)

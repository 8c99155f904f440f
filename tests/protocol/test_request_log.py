# SPDX-License-Identifier: Apache-2.0
"""The request log (docs/operations.md, "The request log"): one line for each request that has ended."""

import json
import re
import socket

import pytest
import requests
import tritonclient.grpc as triton
from live_server import DEMO, start_server
from llm_client import kv_blocks, wait_until, wait_until_idle
from server_log import messages

LINE = re.compile(
    r"request method=(?P<method>\S+) path=(?P<path>\S+) model=(?P<model>\S+) status=(?P<status>\d+) tokens_in=(?P<tokens_in>\d+) "
    r"tokens_out=(?P<tokens_out>\d+) first_token_ms=(?P<first_token_ms>\S+) total_ms=(?P<total_ms>\S+) client=(?P<client>\S+)"
)
BURST = 500  # src/base/log_budget.h


@pytest.fixture
def server(tmp_path):
    running = start_server(tmp_path, DEMO)
    yield running
    assert running.stop() == 0


def lines(server):
    return [match.groupdict() for text in messages(server.log.read_text()) if (match := LINE.fullmatch(text))]


def last_line(server, count):
    """Of `count`: a line is written behind the end of the answer."""
    wait_until(lambda: len(lines(server)) >= count)
    assert len(lines(server)) == count
    return lines(server)[-1]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_has_a_line_with_its_tokens_and_times(server, stream):
    before = len(lines(server))
    body = {"model": "demo", "messages": [{"role": "user", "content": "a secret"}], "max_tokens": 6, "stream": stream}
    body |= {"ignore_eos": True} | ({"stream_options": {"include_usage": True}} if stream else {})
    answer = requests.post(f"http://{server.http}/v1/chat/completions", json=body, timeout=60)
    assert answer.ok, answer.text
    line = last_line(server, before + 1)
    assert (line["method"], line["path"], line["model"], line["status"]) == ("POST", "/v1/chat/completions", "demo", "200")
    assert (line["tokens_out"], line["client"]) == ("6", "127.0.0.1")
    usage = re.search(r'"prompt_tokens":\s*(\d+)', answer.text)
    assert line["tokens_in"] == usage[1]
    assert 0 < float(line["first_token_ms"]) <= float(line["total_ms"])
    assert "secret" not in server.log.read_text()


def test_generate_and_grpc_have_lines_of_the_model_that_was_asked(server):
    before = len(lines(server))
    body = {"text_input": "what is", "max_tokens": 4, "ignore_eos": True}
    assert requests.post(f"http://{server.http}/v2/models/ensemble/generate?key=SECRET", json=body, timeout=60).ok
    line = last_line(server, before + 1)
    assert (line["path"], line["model"], line["status"]) == ("/v2/models/ensemble/generate", "ensemble", "200")
    assert int(line["tokens_out"]) > 0
    with triton.InferenceServerClient(server.grpc) as client:
        assert client.is_server_live()
    line = last_line(server, before + 2)
    assert (line["method"], line["path"], line["status"]) == ("gRPC", "/inference.GRPCInferenceService/ServerLive", "0")
    assert (line["model"], line["first_token_ms"]) == ("-", "-")
    assert "SECRET" not in server.log.read_text()


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_has_status_499(server, stream):
    before = len(lines(server))
    host, port = server.http.split(":")
    asked = {"model": "demo", "prompt": "a", "max_tokens": 900, "ignore_eos": True, "n": 8, "temperature": 1, "stream": stream}
    body = json.dumps(asked).encode()
    with socket.create_connection((host, int(port)), timeout=30) as peer:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        peer.sendall(head % len(body) + body)
        if stream:
            assert peer.recv(1)
        else:
            wait_until(lambda: kv_blocks(server) > 0)
    line = last_line(server, before + 1)
    assert line["status"] == "499" and int(line["tokens_out"]) < 8 * 900
    wait_until_idle(server)


def test_requests_that_no_model_answers_do_not_fill_the_log(server):
    with requests.Session() as session:
        for _ in range(BURST + 200):
            assert session.get(f"http://{server.http}/nothing", timeout=30).status_code == 404
    assert len(lines(server)) < BURST + 150  # the burst, and ten a second


@pytest.mark.parametrize("flag", ["--no-request-log", "--request-log=false"])
def test_it_can_be_turned_off(tmp_path, flag):
    running = start_server(tmp_path, DEMO, flag)
    assert requests.get(f"http://{running.http}/v2/health/live", timeout=30).ok
    assert running.stop() == 0
    assert "request method=" not in running.log.read_text()

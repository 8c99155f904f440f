# SPDX-License-Identifier: Apache-2.0
"""What a client may get wrong over HTTP: it is told what, nobody else notices, and the server goes on."""

import json
import pathlib
import socket

import numpy as np
import pytest
import requests
from llm_client import token_ids, wait_until_idle

PROMPT = "The little robot"


@pytest.fixture(autouse=True)
def server_goes_on(server):
    """Before and after each test the same request gets the same answer, and nothing stays behind."""
    before = post(server, "ensemble/generate", {"text_input": PROMPT, "max_tokens": 4}).json()["text_output"]
    yield
    after = post(server, "ensemble/generate", {"text_input": PROMPT, "max_tokens": 4})
    assert after.status_code == 200 and after.json()["text_output"] == before
    wait_until_idle(server)


def post(server, path, body, **kwargs):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return requests.post(f"http://{server.http}/v2/models/{path}", data=data, timeout=60, **kwargs)


def error_of(response, *statuses):
    assert response.status_code in statuses, (response.status_code, response.text)
    body = json.loads(response.content)
    assert list(body) == ["error"], body
    return body["error"]


def raw(server, request, shut=False):
    """Sends bytes as they are; what comes back until the server closes."""
    host, port = server.http.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as s:
        s.sendall(request)
        if shut:
            s.shutdown(socket.SHUT_WR)
        answer = b""
        while part := s.recv(65536):
            answer += part
    return answer


@pytest.mark.parametrize("body, message", [
    (b"hello", "failed to parse the request JSON buffer: Invalid value. at 0"),
    (b"", "failed to parse the request JSON buffer: The document is empty. at 0"),
    (b'{"text_input": "a"', "failed to parse the request JSON buffer: Missing a comma or '}' after an object member. at 18"),
    (b'{"text_input": "a"} x',
     "failed to parse the request JSON buffer: The document root must not be followed by other values. at 20"),
    (b"[1]", "attempt to get members for non-object"),
])  # fmt: skip
def test_malformed_json(server, body, message):
    for endpoint in ("generate", "generate_stream"):
        assert error_of(post(server, f"ensemble/{endpoint}", body), 500) == message


@pytest.mark.parametrize("values, message", [
    ({"text_input": 5}, "Unable to parse JSON bytes array: attempt to access JSON non-string as string"),
    ({"text_input": None}, "Unable to parse JSON bytes array: attempt to access JSON non-string as string"),
    ({"max_tokens": "7"}, "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
    ({"max_tokens": 7.5}, "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
    ({"temperature": "hot"}, "Unable to parse 'data': attempt to access JSON non-number as double"),
    ({"stream": 1}, "Unable to parse 'data': attempt to access JSON non-boolean as boolean"),
    ({"id": 5}, "Unable to parse 'id': attempt to access JSON non-string as string"),
])  # fmt: skip
def test_wrong_types(server, values, message):
    body = {"text_input": PROMPT, "max_tokens": 4} | values
    assert error_of(post(server, "ensemble/generate", body), 500) == message


def test_missing_tensor_is_named(server):
    message = error_of(post(server, "ensemble/generate", {}), 400)
    assert message == "in ensemble 'ensemble', QUERY is not present in the request; send text_input or messages"


def infer_body(*names):
    return {"inputs": [{"name": name, "datatype": "BYTES", "shape": [1, 1], "data": ["x"]} for name in names]}


def test_unknown_and_missing_tensors_of_infer_are_named(server):
    message = error_of(post(server, "preprocessing/infer", infer_body("QUERY")), 400)
    assert message == "REQUEST_OUTPUT_LEN is not present in the request"
    assert "missing required input(s) ['REQUEST_OUTPUT_LEN']" in error_of(post(server, "preprocessing/infer", infer_body()), 400)
    message = error_of(post(server, "preprocessing/infer", infer_body("QUERY", "NOPE")), 400)
    assert message == "unexpected inference input 'NOPE' for model 'preprocessing'"
    wrong = infer_body("QUERY", "REQUEST_OUTPUT_LEN")
    assert "data-type is 'BYTES', but model 'preprocessing' expects 'INT32'" in error_of(
        post(server, "preprocessing/infer", wrong), 400
    )


def test_scalars_of_unknown_names_are_parameters_but_objects_are_not(server):
    body = {"text_input": PROMPT, "max_tokens": 4, "no_such_tensor": {"a": 1}}
    assert error_of(post(server, "ensemble/generate", body), 400) == (
        "parameter 'no_such_tensor' has invalid type. It should be either 'int', 'bool', or 'string'."
    )


def test_prompt_too_long_is_told_its_bound(server):
    text = "fox " * 4000  # of fewer bytes than that many tokens could have
    message = error_of(post(server, "ensemble/generate", {"text_input": text, "max_tokens": 4}), 400)
    bound = json.loads((server.model_dir / "config.json").read_text())["max_position_embeddings"] - 1  # one is to be made
    length = len(token_ids(server, text))
    assert message == f"in ensemble 'ensemble', Prompt length ({length}) exceeds maximum input length ({bound})."


@pytest.mark.parametrize("name, value", [
    ("max_tokens", 0), ("max_tokens", -3),
    ("temperature", -1.0), ("temperature", float("nan")), ("temperature", float("inf")),
    ("top_p", 1.5), ("top_p", float("nan")), ("top_k", -1),
    ("repetition_penalty", 0.0), ("repetition_penalty", float("nan")),
    ("beam_width", 17), ("beam_width", 0), ("length_penalty", float("nan")),
])  # fmt: skip
@pytest.mark.parametrize("endpoint", ["generate", "generate_stream"])
def test_values_out_of_range_are_refused_by_name(server, name, value, endpoint):
    body = {"text_input": PROMPT, "max_tokens": 4, "stream": endpoint == "generate_stream"} | {name: value}
    response = post(server, f"ensemble/{endpoint}", body)
    # The model refuses, not the server: a stream has its error in the stream's form.
    is_event = endpoint == "generate_stream"
    assert response.headers["Content-Type"].startswith("text/event-stream" if is_event else "application/json")
    assert response.text.startswith("data: ") == is_event
    text = response.text.removeprefix("data: ").strip()
    assert response.status_code in (400, 501), response.text
    message = json.loads(text)["error"]
    aliases = {"max_tokens": ("max_tokens", "request_output_len"), "top_k": ("top_k",), "top_p": ("top_p",)}
    assert any(alias in message for alias in aliases.get(name, (name,))), message


def test_non_finite_values_of_binary_tensors_are_refused_too(server):
    def infer(temperature):
        inputs = [
            {"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "data": [PROMPT]},
            {"name": "max_tokens", "datatype": "INT32", "shape": [1, 1], "data": [4]},
            {"name": "temperature", "datatype": "FP32", "shape": [1, 1], "parameters": {"binary_data_size": 4}},
        ]
        head = json.dumps({"inputs": inputs}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        return post(server, "ensemble/infer", head + np.float32(temperature).tobytes(), headers=headers)

    assert infer("0.5").status_code == 200  # nothing else is wrong
    for temperature in ("nan", "inf"):
        message = error_of(infer(temperature), 400)
        assert message.startswith(f"in ensemble 'ensemble', temperature: got {temperature}"), message


@pytest.mark.parametrize("text", [b"\xff\xfe", b"abc\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
def test_invalid_utf8_is_refused(server, text):
    body = b'{"text_input": "' + text + b'", "max_tokens": 4}'
    message = error_of(post(server, "ensemble/generate", body), 400, 500)
    assert "UTF-8" in message


def test_lone_surrogates_are_refused(server):
    body = b'{"text_input": "\\ud800", "max_tokens": 4}'
    assert "The surrogate pair in string is invalid. at 16" in error_of(post(server, "ensemble/generate", body), 500)


@pytest.mark.parametrize("path", ["ensemble/generate", "ensemble/generate_stream", "preprocessing/infer"])
def test_a_gigabyte_is_refused_before_it_comes(server, path):
    request = f"POST /v2/models/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {1 << 30}\r\n\r\n".encode()
    answer = raw(server, request)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"1073741824" in answer and b"67108864" in answer and b"--http-max-input-size" in answer


def test_a_gigabyte_that_is_sent_anyway_is_not_kept(server):
    def megabytes():
        for _ in range(1024):
            yield bytes(1 << 20)

    try:
        response = post_stream(server, megabytes())
        assert response.status_code == 400 and "--http-max-input-size" in response.text
    except requests.exceptions.ConnectionError:
        pass  # the answer came and the connection closed while the client was still sending
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    resident_kb = int(status.split("VmRSS:")[1].split()[0])
    assert resident_kb < 2 << 20


def post_stream(server, chunks):
    return requests.post(f"http://{server.http}/v2/models/ensemble/generate", data=chunks, timeout=60)


def test_unknown_models_versions_and_paths(server):
    assert error_of(post(server, "nosuch/generate", {}), 404) == "Request for unknown model: 'nosuch' is not found"
    assert error_of(post(server, "ensemble/versions/9/generate", {}), 404) == (
        "Request for unknown model: 'ensemble' version 9 is not found"
    )
    assert "99999999999999999999" in error_of(post(server, "ensemble/versions/99999999999999999999/generate", {}), 400)
    assert error_of(post(server, "ensemble/nosuch", {}), 404) == "Not Found"
    assert error_of(requests.get(f"http://{server.http}/v2/models/ensemble/generate", timeout=10), 405) == "Method Not Allowed"


@pytest.mark.parametrize("garbage", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\0" * 5000, b"GET\r\n\r\n", b"GET /v2 HTTP/1.1\r\nno colon\r\n\r\n",
    b"POST /v2/repository/index HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v2/repository/index HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
], ids=["tls", "zeros", "short", "header", "chunk", "length", "long", "http2"])  # fmt: skip
def test_garbage_ends_only_its_connection(server, garbage):
    answer = raw(server, garbage, shut=True)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


def test_deep_nesting_is_no_problem(server):
    deep = b"[" * 250_000 + b"]" * 250_000
    response = requests.post(f"http://{server.http}/v2/repository/index", data=b'{"ready":' + deep + b"}", timeout=30)
    assert error_of(response, 400) == "Invalid value for 'ready': expected a boolean"
    message = error_of(post(server, "ensemble/generate", b'{"text_input":' + deep + b"}"), 400)
    assert message == "JSON nesting depth exceeds maximum allowed limit (100)"

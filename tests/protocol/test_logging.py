# SPDX-License-Identifier: Apache-2.0
"""The log of a running server, read and changed over HTTP and gRPC.

Bodies and errors are those recorded from a released server (tests/protocol/recorded: http/logging, grpc/log).
"""

import queue
import re

import pytest
import requests
import tritonclient.grpc as triton
from google.protobuf import json_format
from live_server import DEMO, start_server
from llm_client import Stream, kv_blocks, tensors, wait_until
from server_log import DEFAULT, ISO8601, messages, records
from tritonclient.grpc import service_pb2

FRESH = {
    "log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0, "log_format": "default",
}  # fmt: skip
NOT_BOOLEAN = "attempt to access JSON non-boolean as boolean"
NOT_UNSIGNED = "attempt to access JSON non-unsigned-integer as unsigned-integer"
NO_FILE = "log file location can not be updated through network protocol"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Of its own: others read theirs."""
    running = start_server(tmp_path_factory.mktemp("logging"), DEMO)
    yield running
    assert running.stop() == 0


@pytest.fixture(autouse=True)
def fresh(server):
    yield
    post(server, '{"log_info":true,"log_warning":true,"log_error":true,"log_verbose_level":0,"log_format":"default"}')
    assert settings(server) == FRESH


def post(server, body):
    return requests.post(f"http://{server.http}/v2/logging", data=body, timeout=30)


def settings(server):
    response = requests.get(f"http://{server.http}/v2/logging", timeout=30)
    assert response.headers["Content-Type"] == "application/json"
    return response.json()


def test_the_text_is_the_recorded_one(server):
    response = requests.get(f"http://{server.http}/v2/logging", timeout=30)
    assert response.text == (
        '{"log_file":"","log_info":true,"log_warning":true,"log_error":true,"log_verbose_level":0,"log_format":"default"}'
    )


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ("{}", {}),
        ("[]", {}),
        ('{"foo":1}', {}),
        ('{"log_file":null}', {}),
        ('{"log_format":null}', {}),
        ('{"log_info":false}', {"log_info": False}),
        ('{"log_warning":false}', {"log_warning": False}),
        ('{"log_verbose_level":1}', {"log_verbose_level": 1}),
        ('{"log_verbose_level":4294967296}', {"log_verbose_level": 0}),
        ('{"log_format":"ISO8601"}', {"log_format": "ISO8601"}),
    ],
)
def test_a_post_answers_with_what_it_changed(server, body, changed):
    response = post(server, body)
    assert (response.status_code, response.json()) == (200, FRESH | changed)
    assert settings(server) == FRESH | changed


@pytest.mark.parametrize(
    ("body", "status", "error", "changed"),
    [
        ("{", 500, "failed to parse the request JSON buffer: Missing a name for object member. at 1", {}),
        ('{"log_file":"x.log"}', 501, NO_FILE, {}),
        ('{"log_info":1}', 500, NOT_BOOLEAN, {}),
        ('{"log_info":"false"}', 500, NOT_BOOLEAN, {}),
        ('{"log_verbose_level":1.5}', 500, NOT_UNSIGNED, {}),
        ('{"log_verbose_level":-1}', 500, NOT_UNSIGNED, {}),
        ('{"log_format":"xyz"}', 503, "invalid argument for --log_format, got: xyz", {}),
        ('{"log_format":"iso8601"}', 503, "invalid argument for --log_format, got: iso8601", {}),
        ('{"log_info":false,"log_format":"bad"}', 503, "invalid argument for --log_format, got: bad", {"log_info": False}),
    ],
)
def test_errors_are_the_recorded_ones(server, body, status, error, changed):
    response = post(server, body)
    assert (response.status_code, response.json()) == (status, {"error": error})
    assert settings(server) == FRESH | changed


def test_other_methods_are_not_allowed(server):
    response = requests.put(f"http://{server.http}/v2/logging", data="{}", timeout=30)
    assert (response.status_code, response.json()) == (405, {"error": "Method Not Allowed"})


def test_extension_is_listed(server):
    assert "logging" in requests.get(f"http://{server.http}/v2", timeout=30).json()["extensions"]


# --- what it does ---


def iterations(server, form=None):
    """Messages with an iteration, which are verbose ones."""
    return [message for message in messages(server.log.read_text(), form) if '"Active Request Count"' in message]


def generate(server):
    body = {"text_input": "The fox", "max_tokens": 3}
    assert requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60).status_code == 200
    requests.get(f"http://{server.metrics}/metrics", timeout=30)  # records are taken before it is written


def test_verbose_lines_come_and_go(server):
    generate(server)
    assert iterations(server) == []
    post(server, '{"log_verbose_level":1}')
    generate(server)
    wait_until(lambda: iterations(server))
    post(server, '{"log_verbose_level":0}')
    generate(server)
    before = len(iterations(server))
    generate(server)
    assert len(iterations(server)) == before


def test_verbose_lines_of_calls_are_those_of_triton(server, client):
    """The texts were read in the log of a released server at --log-verbose=2."""
    before = len(messages(server.log.read_text()))
    post(server, '{"log_verbose_level":1}')
    requests.get(f"http://{server.http}/v2/health/live", timeout=30)
    requests.get(f"http://{server.http}/v2/nothing", timeout=30)
    client.is_server_live()
    client.is_server_live()
    lines = messages(server.log.read_text())[before:]
    assert "HTTP request: 0 /v2/health/live" in lines
    assert any(line.startswith("HTTP error: ") and line.endswith("/v2/nothing - 404") for line in lines), lines
    steps = [line for line in lines if re.fullmatch(r"Process for ServerLive, rpc_ok=1, \d+ step START", line)]
    assert len(set(steps)) == 2, lines  # each call has its number


def test_a_call_that_its_client_gives_up_has_a_line(server, client):
    post(server, '{"log_verbose_level":1}')

    def has_line(handler):
        line = f"Cancellation notification received for {handler}, rpc_ok=1, context 0, 0 step ISSUED"
        return line in messages(server.log.read_text())

    answers = queue.Queue()
    asked = tensors(text_input="The fox", max_tokens=900, end_id=-1, stream=False)
    call = client.async_infer("ensemble", asked, lambda result, error: answers.put(error))
    wait_until(lambda: kv_blocks(server) > 0)
    call.cancel()
    assert answers.get(timeout=30).status() == "StatusCode.CANCELLED"
    wait_until(lambda: has_line("ModelInferHandler"))
    stream = Stream(client)
    stream.send("", tensors(text_input="The fox", max_tokens=900, end_id=-1, stream=True))
    assert stream.receive()[1] is None
    client.stop_stream(cancel_requests=True)
    wait_until(lambda: has_line("ModelStreamInferHandler"))


@pytest.mark.parametrize(("level", "shown"), [("-2147483648", 0), ("-1", 0), ("2147483647", 2147483647)])
def test_any_integer_is_a_verbose_level(tmp_path, level, shown):
    started = start_server(tmp_path, None, "--model-repository", tmp_path, f"--log-verbose={level}", max_kv_tokens=None)
    assert settings(started)["log_verbose_level"] == shown
    assert started.stop() == 0


def test_format_changes_the_head_of_a_line(server):
    before = len(iterations(server, DEFAULT))
    post(server, '{"log_verbose_level":1,"log_format":"ISO8601"}')
    generate(server)
    wait_until(lambda: iterations(server, ISO8601))
    assert len(iterations(server, DEFAULT)) == before


def test_flags_of_serve_are_the_first_settings(tmp_path):
    flags = ("--log-info=false", "--log-warning=false", "--log-error=false", "--log-verbose=2", "--log-format=ISO8601")
    started = start_server(tmp_path, DEMO, *flags)
    assert settings(started) == FRESH | {
        "log_info": False, "log_warning": False, "log_error": False, "log_verbose_level": 2, "log_format": "ISO8601",
    }  # fmt: skip
    generate(started)
    assert started.stop() == 0
    lines = started.log.read_text().splitlines()
    assert lines and [severity for severity, _, _ in records("\n".join(lines), ISO8601)] == ["I"] * len(lines), lines[:3]


# --- gRPC ---


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.grpc) as c:
        yield c


def as_values(message):
    values = json_format.MessageToDict(message, preserving_proto_field_name=True)["settings"]
    return {name: next(iter(value.values())) for name, value in values.items()}


@pytest.mark.parametrize("changed", [
    {}, {"log_info": False}, {"log_warning": False}, {"log_verbose_level": 3}, {"log_format": "ISO8601"},
])  # fmt: skip
def test_grpc_reads_and_changes(server, client, changed):
    assert as_values(client.update_log_settings(changed)) == FRESH | changed
    assert as_values(client.get_log_settings()) == settings(server) == FRESH | changed


@pytest.mark.parametrize(
    ("name", "value", "code", "message"),
    [
        ("log_error", {"string_param": "x"}, "INVALID_ARGUMENT", "expect boolean for 'log_error'"),
        ("log_warning", {"uint32_param": 1}, "INVALID_ARGUMENT", "expect boolean for 'log_warning'"),
        ("log_verbose_level", {"string_param": "3"}, "INVALID_ARGUMENT", "expect int32 for 'log_verbose_level'"),
        ("log_format", {"string_param": "foo"}, "INVALID_ARGUMENT", "invalid argument for log_format, got: foo"),
        ("log_file", {"string_param": "x"}, "UNIMPLEMENTED", NO_FILE),
    ],
)
def test_grpc_errors_are_the_recorded_ones(server, client, name, value, code, message):
    request = json_format.ParseDict({"settings": {name: value}}, service_pb2.LogSettingsRequest())
    with pytest.raises(Exception) as error:
        client._client_stub.LogSettings(request, timeout=30)
    assert (error.value.code().name, error.value.details()) == (code, message)
    assert settings(server) == FRESH


def test_grpc_passes_over_what_it_does_not_know(client):
    request = json_format.ParseDict({"settings": {"foo": {"bool_param": True}}}, service_pb2.LogSettingsRequest())
    assert as_values(client._client_stub.LogSettings(request, timeout=30)) == FRESH

# SPDX-License-Identifier: Apache-2.0
"""The language model without weights: its texts, counts, pace and errors over HTTP and gRPC."""

import json
import queue
import socket

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from light_models import write_light_repository
from live_server import start_server

TEXT = "hello in-flight world"


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    path = tmp_path_factory.mktemp("mock_llm")
    server = start_server(path, None, "--model-repository", write_light_repository(path / "repository"), max_kv_tokens=None)
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def post(server, path, **body):
    return requests.post(f"http://{server.http}/v2/models/{path}", json=body, timeout=60)


def events(answer):
    parts = answer.text.split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def test_one_text_comes_back(light):
    answer = post(light, "mock_llm/generate", PROMPT=TEXT, STREAM=False)
    assert answer.status_code == 200
    assert answer.json() == {"model_name": "mock_llm", "model_version": "1", "TEXT": TEXT}


@pytest.mark.parametrize("count", [0, 1, 2, 250])
def test_a_stream_has_as_many_responses_as_asked_for(light, count):
    answer = post(light, "mock_llm/generate_stream", PROMPT=TEXT, STREAM=True, REPETITION=count)
    assert answer.status_code == 200
    assert [event["TEXT"] for event in events(answer)] == [TEXT] * count


@pytest.mark.parametrize("count", [0, 2])
def test_generate_wants_exactly_one_response(light, count):
    answer = post(light, "mock_llm/generate", PROMPT=TEXT, STREAM=True, REPETITION=count)
    assert answer.status_code == 200
    assert answer.json()["error"].startswith("generate expects model to produce exactly 1 response")


def test_the_last_response_may_be_an_error(light):
    first, second, last = events(post(light, "mock_llm/generate_stream", PROMPT=TEXT, STREAM=True, REPETITION=2, FAIL_LAST=True))
    assert first["TEXT"] == second["TEXT"] == TEXT
    assert last == {"error": "An Error Occurred"}


def test_a_text_may_have_no_element(light):
    answer = post(light, "mock_llm/generate", PROMPT=TEXT, STREAM=False, OUTPUT_0_DIM=True)
    assert answer.json()["TEXT"] == []


def test_without_streams_the_text_is_repeated_in_one_response(light):
    answer = post(light, "mock_llm_whole/generate", PROMPT=TEXT, STREAM=False, REPETITION=3)
    assert answer.json()["TEXT"] == [TEXT] * 3
    answer = post(light, "mock_llm_whole/generate", PROMPT=TEXT, STREAM=True)
    assert answer.json() == {"error": "STREAM only supported in decoupled mode"}


@pytest.mark.parametrize("parameters, message", [
    ({"REPETITION": -1}, "REPETITION: should be a number from 0 to 1000000"),
    ({"REPETITION": "many"}, "REPETITION: should be a number from 0 to 1000000"),
    ({"DELAY": 1e9}, "DELAY: should be a number from 0 to 3600"),
    ({"FAIL_LAST": 1}, "FAIL_LAST: should be true or false"),
])  # fmt: skip
def test_parameters_out_of_range_are_named(light, parameters, message):
    answer = post(light, "mock_llm/generate_stream", PROMPT=TEXT, STREAM=True, **parameters)
    assert answer.status_code == 400
    assert events(answer) == [{"error": message}]


def test_a_stream_that_waits_holds_up_no_other(light):
    body = json.dumps({"PROMPT": "slow", "STREAM": True, "REPETITION": 9, "DELAY": 3600})
    host, port = light.http.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as waiting:
        head = f"POST /v2/models/mock_llm/generate_stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        waiting.sendall((head + body).encode())
        answer = post(light, "mock_llm/generate_stream", PROMPT=TEXT, STREAM=True, REPETITION=3, DELAY=0.01)
        assert len(events(answer)) == 3


def test_grpc_streams_are_answered_in_full(light):
    num_requests, count = 8, 50
    results = queue.Queue()
    with triton.InferenceServerClient(light.grpc) as client:
        client.start_stream(lambda result, error: results.put((result, error)))
        prompt = triton.InferInput("PROMPT", [1, 1], "BYTES")
        stream = triton.InferInput("STREAM", [1, 1], "BOOL")
        stream.set_data_from_numpy(np.array([[True]]))
        for index in range(num_requests):
            prompt.set_data_from_numpy(np.array([[f"{index} {TEXT}".encode()]], dtype=object))
            client.async_stream_infer(
                "mock_llm", [prompt, stream], request_id=str(index), parameters={"REPETITION": count},
                enable_empty_final_response=True,
            )  # fmt: skip
        texts = {str(index): [] for index in range(num_requests)}
        num_final = 0
        while num_final < num_requests:
            result, error = results.get(timeout=60)
            assert error is None
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                num_final += 1
            else:
                texts[response.id].append(result.as_numpy("TEXT")[0, 0].decode())
        client.stop_stream()
    assert texts == {str(index): [f"{index} {TEXT}"] * count for index in range(num_requests)}

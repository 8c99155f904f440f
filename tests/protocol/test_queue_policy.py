# SPDX-License-Identifier: Apache-2.0
"""Time-outs of the LLM's queue as `default_queue_policy` sets them: the only slots are busy, a request waits behind them."""

import contextlib
import json
import threading

import pytest
import requests
import tritonclient.grpc as triton
from live_server import DEMO, start_server
from llm_client import Stream, events, tensors, wait_until_idle
from release_repositories import write_repository
from tritonclient.utils import InferenceServerException

NUM_SLOTS = 2
LONG = 800  # tokens of the requests that hold the slots
SHORT_US = 2_000  # what a request waits for a slot
HOUR_US = 3_600_000_000
EXPIRED = "Request timeout expired"


@contextlib.contextmanager
def serving(path, policy):
    """A repository whose LLM has the policy, with two slots."""
    repository = write_repository(
        path / "repository", 11, engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="True", exclude_input_in_output="True"
    )
    config = repository / "tensorrt_llm" / "config.pbtxt"
    text = config.read_text()
    assert text.count("dynamic_batching {") == 1
    config.write_text(text.replace("dynamic_batching {", f"dynamic_batching {{ default_queue_policy {{ {policy} }}"))
    server = start_server(path, None, "--model-repository", repository, "--max-batch-size", str(NUM_SLOTS))
    try:
        yield server
    finally:
        status = server.stop()
    assert status == 0, server.log.read_text()[-4000:]


@contextlib.contextmanager
def busy_slots(server):
    """All slots are taken by long requests; each of them has to come to its end."""
    body = {"text_input": "Once upon a time", "max_tokens": LONG, "end_id": -1, "stream": True}
    address = f"http://{server.http}/v2/models/ensemble/generate_stream"
    with contextlib.ExitStack() as stack:
        streams = [
            events(stack.enter_context(requests.post(address, json=body, stream=True, timeout=120))) for _ in range(NUM_SLOTS)
        ]
        firsts = [next(stream) for stream in streams]
        yield
        for first, stream in zip(firsts, streams, strict=True):
            chunks = [first, *stream]
            assert not any("error" in chunk for chunk in chunks)
            assert len(chunks) == LONG


def infer(server, model, **parameters):
    body = {
        "parameters": parameters,
        "inputs": [
            {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["The fox"]},
            {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [3]},
        ],
    }
    response = requests.post(f"http://{server.http}/v2/models/{model}/infer", json=body, timeout=120)
    return response.status_code, response.json()


def rejected(server):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    sample = 'nv_inference_request_failure{model="tensorrt_llm",reason="REJECTED",version="1"} '
    return next(float(line.removeprefix(sample)) for line in page.splitlines() if line.startswith(sample))


@pytest.fixture(scope="module")
def overriding(tmp_path_factory):
    policy = f"default_timeout_microseconds: {HOUR_US} allow_timeout_override: true"
    with serving(tmp_path_factory.mktemp("overriding"), policy) as server:
        yield server


def test_a_request_with_a_shorter_timeout_is_unavailable_and_the_others_finish(overriding):
    answers, before = [], rejected(overriding)
    with busy_slots(overriding):
        patient = threading.Thread(target=lambda: answers.append(infer(overriding, "ensemble")))
        patient.start()
        status, body = infer(overriding, "ensemble", timeout=SHORT_US)
        assert (status, body) == (503, {"error": f"in ensemble 'ensemble', {EXPIRED}"})
        assert infer(overriding, "tensorrt_llm_bls", timeout=SHORT_US) == (503, {"error": EXPIRED})
        assert rejected(overriding) == before + 2
    patient.join(timeout=120)
    assert [status for status, _ in answers] == [200]
    wait_until_idle(overriding)


def test_grpc_says_the_same(overriding):
    if overriding.grpc is None:
        pytest.skip("built without gRPC")
    inputs = tensors(text_input="The fox", max_tokens=3)
    with busy_slots(overriding), triton.InferenceServerClient(overriding.grpc) as client:
        with pytest.raises(InferenceServerException) as error:
            client.infer("tensorrt_llm_bls", inputs, timeout=SHORT_US)
        assert (error.value.status(), error.value.message()) == ("StatusCode.UNAVAILABLE", EXPIRED)
        with Stream(client) as stream:
            stream.send("r", inputs, timeout=SHORT_US)
            _, error = stream.receive()
            assert EXPIRED in error.message()


def test_a_timeout_of_zero_is_none(overriding):
    assert infer(overriding, "ensemble", timeout=0)[0] == 200


def test_without_the_policys_leave_a_request_waits(tmp_path):
    with serving(tmp_path, f"default_timeout_microseconds: {HOUR_US}") as server:
        answers = []
        with busy_slots(server):
            waiting = threading.Thread(target=lambda: answers.append(infer(server, "ensemble", timeout=SHORT_US)))
            waiting.start()
        waiting.join(timeout=120)
        assert [status for status, _ in answers] == [200]


def test_the_default_holds_for_requests_that_say_nothing(tmp_path):
    with serving(tmp_path, f"default_timeout_microseconds: {SHORT_US * 50}") as server, busy_slots(server):
        assert infer(server, "tensorrt_llm_bls") == (503, {"error": EXPIRED})
        body = {"text_input": "The fox", "max_tokens": 3}
        answer = requests.post(f"http://{server.http}/v2/models/tensorrt_llm_bls/generate", data=json.dumps(body), timeout=120)
        assert (answer.status_code, answer.json()) == (503, {"error": EXPIRED})

# SPDX-License-Identifier: Apache-2.0
"""Time-outs of the LLM's queue as `default_queue_policy` sets them.

What waits does so for others to start with it (`max_queue_delay_microseconds`), not for a machine that is busy: a lone
request waits as long as the test likes, and as many as there are slots start at once.
"""

import concurrent.futures
import contextlib
import json
import re
import time

import pytest
import requests
import tritonclient.grpc as triton
from live_server import DEMO, start_server
from llm_client import Stream, tensors, wait_until_idle
from release_repositories import write_repository
from tritonclient.utils import InferenceServerException

NUM_SLOTS = 4
SHORT_US = 2_000  # what a request waits for others
HOUR_US = 3_600_000_000
EXPIRED = "Request timeout expired"


@contextlib.contextmanager
def serving(path, policy):
    """A repository whose LLM has the policy, and where requests wait an hour for each other."""
    repository = write_repository(
        path / "repository", 11, engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="True", exclude_input_in_output="True"
    )
    config = repository / "tensorrt_llm" / "config.pbtxt"
    text = config.read_text()
    text, num_delays = re.subn(r"max_queue_delay_microseconds: \S+", f"max_queue_delay_microseconds: {HOUR_US}", text)
    text, num_batchings = re.subn(r"dynamic_batching {", f"dynamic_batching {{ default_queue_policy {{ {policy} }}", text)
    assert (num_delays, num_batchings) == (1, 1)
    config.write_text(text)
    server = start_server(path, None, "--model-repository", repository, "--max-batch-size", str(NUM_SLOTS))
    try:
        yield server
    finally:
        status = server.stop()
    assert status == 0, server.log.read_text()[-4000:]


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
    sample = r'^nv_inference_request_failure\{.*model="tensorrt_llm",reason="REJECTED",version="1"\} (\S+)$'
    return float(re.search(sample, page, re.MULTILINE)[1])


@contextlib.contextmanager
def waiting(server, **parameters):
    """A request that waits in the block; after it, others join it, and all are answered."""
    with concurrent.futures.ThreadPoolExecutor(NUM_SLOTS) as pool:
        answers = [pool.submit(infer, server, "ensemble", **parameters)]
        yield
        assert not answers[0].done()
        answers += [pool.submit(infer, server, "ensemble") for _ in range(NUM_SLOTS - 1)]
        assert [answer.result(timeout=120)[0] for answer in answers] == [200] * NUM_SLOTS
    wait_until_idle(server)


@pytest.fixture(scope="module")
def overriding(tmp_path_factory):
    policy = f"default_timeout_microseconds: {HOUR_US} allow_timeout_override: true"
    with serving(tmp_path_factory.mktemp("overriding"), policy) as server:
        yield server


def test_a_request_with_a_shorter_timeout_is_unavailable_and_the_others_finish(overriding):
    before = rejected(overriding)
    with waiting(overriding):
        status, body = infer(overriding, "ensemble", timeout=SHORT_US)
        assert (status, body) == (503, {"error": f"in ensemble 'ensemble', {EXPIRED}"})
        assert infer(overriding, "tensorrt_llm_bls", timeout=SHORT_US) == (503, {"error": EXPIRED})
        assert rejected(overriding) == before + 2


def test_grpc_says_the_same(overriding):
    inputs = tensors(text_input="The fox", max_tokens=3)
    with triton.InferenceServerClient(overriding.grpc) as client:
        with pytest.raises(InferenceServerException) as error:
            client.infer("tensorrt_llm_bls", inputs, timeout=SHORT_US)
        assert (error.value.status(), error.value.message()) == ("StatusCode.UNAVAILABLE", EXPIRED)
        with Stream(client) as stream:
            stream.send("r", inputs, timeout=SHORT_US)
            _, error = stream.receive()
            assert EXPIRED in error.message()


def test_a_timeout_of_zero_is_none(overriding):
    with waiting(overriding, timeout=0):
        time.sleep(10 * SHORT_US * 1e-6)


def test_without_the_policys_leave_a_request_waits(tmp_path):
    policy = f"default_timeout_microseconds: {HOUR_US}"
    with serving(tmp_path, policy) as server, waiting(server, timeout=SHORT_US):
        time.sleep(10 * SHORT_US * 1e-6)


def test_the_default_holds_for_requests_that_say_nothing(tmp_path):
    with serving(tmp_path, f"default_timeout_microseconds: {SHORT_US}") as server:
        assert infer(server, "tensorrt_llm_bls") == (503, {"error": EXPIRED})
        body = {"text_input": "The fox", "max_tokens": 3}
        answer = requests.post(f"http://{server.http}/v2/models/tensorrt_llm_bls/generate", data=json.dumps(body), timeout=120)
        assert (answer.status_code, answer.json()) == (503, {"error": EXPIRED})

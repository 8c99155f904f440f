# SPDX-License-Identifier: Apache-2.0
"""Flags of `serve` whose effect nothing else asks for, by what a client sees."""

import json
import os
import pathlib
import re
import socket
import struct
import threading

import grpc
import pytest
import requests
from conformance_models import add_model, io
from light_models import write_light_repository
from live_server import DEMO, start_server
from llm_client import wait_until
from server_log import messages
from tritonclient.grpc import service_pb2

IDENTITY = "/v2/models/identity/infer"
STREAM = "/v2/models/mock_llm/generate_stream"
PATIENCE_S = 60


def echo(text):
    return {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": [text]}]}


# --- front ends ---


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A server of models without weights, one of which does not load, with small limits."""
    folder = tmp_path_factory.mktemp("small")
    models = write_light_repository(folder / "models")
    add_model(models, "bad", "no such kind", io("input", "INPUT0", "[ 2 ]"), io("output", "OUTPUT0", "[ 2 ]"))
    server = start_server(
        folder, None, "--model-repository", models, "--exit-on-error=false", "--strict-readiness=false",
        "--http-max-connections=4", "--http-idle-timeout-ms=1000", "--http-write-timeout-ms=200", "--http-thread-count=3",
        "--http-max-stream-buffer-size=1000", "--metrics-failure-reasons=false", "--grpc-max-response-pool-size=5",
        max_kv_tokens=None,
    )  # fmt: skip
    server.num_descriptors = num_descriptors(server)
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def request_bytes(path, body):
    body = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Connection:
    """To the HTTP port, with little room for what is not read."""

    def __init__(self, server):
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE_S)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = server.http.split(":")
        self.socket.connect((host, int(port)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def post(self, path, body):
        self.socket.sendall(request_bytes(path, body))

    def read_until(self, words):
        data = b""
        while words not in data:
            part = self.socket.recv(65536)
            assert part, data
            data += part
        return data

    def read_to_end(self):
        data = b""
        try:
            while part := self.socket.recv(65536):
                data += part
        except ConnectionResetError:
            pass
        return data


def num_descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_http_idle_timeout_ms(small):
    with Connection(small) as connection:
        connection.post(IDENTITY, echo("a"))
        connection.read_until(b'["a"]')
        assert connection.read_to_end() == b""


def test_http_max_connections(small):
    waiting = {"PROMPT": "a", "STREAM": True, "REPETITION": 100_000, "DELAY": 0.05}
    running = [Connection(small) for _ in range(4)]
    for connection in running:
        connection.post(STREAM, waiting)
        connection.read_until(b'"TEXT":"a"')
    with Connection(small) as more:
        answer = more.read_to_end()
        assert answer.startswith(b"HTTP/1.1 503 ") and b"the limit is 4" in answer
    for connection in running:
        connection.socket.close()
    wait_until(lambda: num_descriptors(small) <= small.num_descriptors)
    assert requests.get(f"http://{small.http}/v2/health/live", timeout=30).ok


def test_http_write_timeout_ms(small):
    """The answer is larger than what sockets hold of it."""
    body = request_bytes(IDENTITY, echo("x" * 16_000_000))
    with Connection(small) as connection:
        connection.socket.sendall(body)
        wait_until(lambda: num_descriptors(small) <= small.num_descriptors)
        assert len(connection.read_to_end()) < len(body) // 2


def test_http_max_stream_buffer_size(small):
    """One response may be larger than the buffer; 40 MB of them come faster than the client reads."""
    with Connection(small) as connection:
        connection.post(STREAM, {"PROMPT": "x" * 2000, "STREAM": True, "REPETITION": 1})
        assert connection.read_until(b"0\r\n\r\n").count(b"data: ") == 1
        connection.post(STREAM, {"PROMPT": "x" * 2000, "STREAM": True, "REPETITION": 20_000})
        assert not connection.read_to_end().endswith(b"0\r\n\r\n")


def test_http_thread_count(small):
    names = [path.read_text().strip() for path in pathlib.Path(f"/proc/{small.process.pid}/task").glob("*/comm")]
    assert names.count("HTTP I/O") == 3


def test_strict_readiness(small):
    assert requests.get(f"http://{small.http}/v2/health/ready", timeout=30).status_code == 200
    assert requests.get(f"http://{small.http}/v2/models/bad/ready", timeout=30).status_code != 200


def test_metrics_failure_reasons(small):
    page = requests.get(f"http://{small.metrics}/metrics", timeout=30).text
    assert re.search(r'^nv_inference_request_failure\{model="identity",version="1"\} 0$', page, re.MULTILINE)
    assert not re.search(r"^nv_inference_request_failure\{.*reason=", page, re.MULTILINE)


def test_grpc_max_response_pool_size(small):
    message = service_pb2.ModelInferRequest(model_name="mock_llm")
    prompt = b"x" * 10_000
    for name, datatype, content in (("PROMPT", "BYTES", struct.pack("<I", len(prompt)) + prompt), ("STREAM", "BOOL", b"\1")):
        message.inputs.add(name=name, datatype=datatype, shape=[1, 1])
        message.raw_input_contents.append(content)
    message.parameters["REPETITION"].int64_param = 3_000  # more than what buffers on the way take

    def count(outcome):
        page = requests.get(f"http://{small.metrics}/metrics", timeout=30).text
        return int(re.search(rf'^nv_inference_request_{outcome}\{{model="mock_llm",version="1"\}} (\d+)$', page, re.MULTILINE)[1])

    failed, ended = count("failure"), count("success")
    with grpc.insecure_channel(small.grpc) as channel:
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        answers = call(iter([message.SerializeToString()]), timeout=PATIENCE_S)
        next(answers)
        assert count("success") == ended  # the model waits
        rest = [service_pb2.ModelStreamInferResponse.FromString(answer) for answer in answers]
    assert len(rest) == 2_999
    assert not any(answer.error_message for answer in rest)
    wait_until(lambda: count("success") > ended)
    assert count("failure") == failed


# --- the executor ---


def llm_body(prompts):
    rows, length = len(prompts), len(prompts[0])
    tensors = {"input_ids": (length, prompts), "input_lengths": (1, [[length]] * rows), "request_output_len": (1, [[2]] * rows)}
    return {
        "inputs": [
            {"name": name, "datatype": "INT32", "shape": [rows, width], "data": values}
            for name, (width, values) in tensors.items()
        ]
    }


def generate(server, *prompts):
    answer = requests.post(f"http://{server.http}/v2/models/tensorrt_llm/infer", json=llm_body(prompts), timeout=PATIENCE_S)
    assert answer.ok, answer.text


def prompt(first, length):
    return [first + i % 500 for i in range(length)]


def steps(server):
    """Of each step that has been logged: rows, rows with a prompt, tokens of prompts."""
    records = [json.loads(line) for line in messages(server.log.read_text()) if line.startswith('{"cpuMemUsage"')]
    stats = [record["inflightBatchingStats"] for record in records]
    return [
        (s["numScheduledRequests"], s["numContextRequests"], s["numCtxTokens"]) for s in stats if s["numScheduledRequests"] > 0
    ]


def prompt_steps(server, num_tokens):
    """Those since the log had so many tokens of prompts."""
    wait_until(lambda: sum(tokens for _, _, tokens in steps(server)) >= num_tokens)
    return [step for step in steps(server) if step[1] > 0]


@pytest.fixture(scope="module")
def paired(tmp_path_factory):
    """Requests start two by two, and share the tokens of each step."""
    server = start_server(
        tmp_path_factory.mktemp("paired"), DEMO, "--max-batch-size=2", "--max-queue-delay-us=3600000000",
        "--chunking-policy=equal_progress", "--max-num-tokens=128", "--step-time-goal-ms=60000", "--enable-prefix-reuse=false",
        "--log-verbose=1",
    )  # fmt: skip
    generate(server, prompt(10, 8), prompt(20, 8))  # the first steps are shorter, until their time is known
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def test_max_queue_delay_us(paired):
    first = threading.Thread(target=generate, args=(paired, prompt(10, 8)))
    first.start()
    waits = re.compile(r'^nv_inference_pending_request_count\{.*model="tensorrt_llm",version="1"\} 1$', re.MULTILINE)
    wait_until(lambda: waits.search(requests.get(f"http://{paired.metrics}/metrics", timeout=30).text))
    generate(paired, prompt(20, 8))
    first.join(PATIENCE_S)
    assert prompt_steps(paired, 32)[-1] == (2, 2, 16)


def test_chunking_policy(paired):
    before = len(steps(paired))
    tokens = sum(tokens for _, _, tokens in steps(paired))
    generate(paired, prompt(10, 300), prompt(700, 300))
    prompt_steps(paired, tokens + 600)
    shared = [step for step in steps(paired)[before:] if step[1] > 0]
    assert len(shared) >= 3 and {rows for _, rows, _ in shared[:-1]} == {2}, shared


def test_enable_prefix_reuse(paired):
    for _ in range(2):
        generate(paired, prompt(10, 200), prompt(10, 200))
    page = requests.get(f"http://{paired.metrics}/metrics", timeout=30).text
    assert re.search(r'^inflight_prompt_tokens_cached_total\{model="tensorrt_llm",version="1"\} 0$', page, re.MULTILINE)


@pytest.mark.parametrize("goal_ms,fits", [(1, False), (60000, True)])
def test_step_time_goal_ms(tmp_path, goal_ms, fits):
    """
    The first step takes a block, which says what a token costs, and so does the next one where it is planned before the first
    has ended. A GPU gets a few blocks of this model done in 1 ms.
    """
    server = start_server(tmp_path, DEMO, f"--step-time-goal-ms={goal_ms}", "--log-verbose=1")
    generate(server, prompt(10, 900))
    shares = [tokens for _, _, tokens in prompt_steps(server, 900)]
    assert shares[0] <= 64
    assert (len(shares) <= 3) == fits, shares
    assert server.stop() == 0


def test_enable_chunked_prefill(tmp_path):
    server = start_server(tmp_path, DEMO, "--step-time-goal-ms=1", "--enable-chunked-prefill=false", "--log-verbose=1")
    generate(server, prompt(10, 600))
    assert [tokens for _, _, tokens in prompt_steps(server, 600)] == [600]
    assert server.stop() == 0

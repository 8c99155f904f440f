# SPDX-License-Identifier: Apache-2.0
"""A stream over gRPC whose client does not read: its LLM waits (--grpc-max-response-pool-size), and nobody else does."""

import queue
import re
import threading

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from live_server import DEMO, SAME_AMONG_OTHERS, start_server
from llm_client import kv_blocks, wait_until
from tritonclient.grpc import service_pb2

# Two blocks of 64 tokens are all: a request of NUM_TOKENS needs both.
NUM_TOKENS = 100
VOCAB_SIZE = 2048
PROMPTS = {
    "tensorrt_llm": {"input_ids": [10, 20, 30], "input_lengths": 3, "request_output_len": NUM_TOKENS, "streaming": True},
    "ensemble": {"text_input": "The little robot", "max_tokens": NUM_TOKENS, "stream": True},
}
# The client takes 64 KiB that nobody reads, and a response with the logits of a token has 8 KiB.
LITTLE_ROOM = [
    ("grpc.http2.lookahead_bytes", 65536), ("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1),
]  # fmt: skip
PATIENCE_S = 120


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """A server that keeps one response of a stream waiting, and has room for one request at a time."""
    options = ("--grpc-max-response-pool-size=1", *SAME_AMONG_OTHERS)
    server = start_server(tmp_path_factory.mktemp("narrow"), DEMO, *options, max_kv_tokens=128)
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def inputs_of(model):
    values = {**PROMPTS[model], "end_id": -1, "return_generation_logits": True}
    inputs = []
    for name, value in values.items():
        datatype, kind = {str: ("BYTES", object), bool: ("BOOL", bool)}.get(type(value), ("INT32", np.int32))
        value = value.encode() if isinstance(value, str) else value
        array = np.array([value] if isinstance(value, list) else [[value]], dtype=kind)
        inputs.append(triton.InferInput(name, array.shape, datatype))
        inputs[-1].set_data_from_numpy(array)
    return inputs


ALL = 1 << 20


class Reader:
    """One request on a stream of its own, of which it reads one response, and as many more as it is allowed."""

    def __init__(self, server, model, allowed=ALL):
        self.permits, self.elements = threading.Semaphore(allowed), queue.Queue()
        self.client = triton.InferenceServerClient(server.grpc, channel_args=LITTLE_ROOM)
        self.client.start_stream(callback=self.take)
        self.client.async_stream_infer(model, inputs_of(model), request_id="r", enable_empty_final_response=True)

    def take(self, result, error):
        self.elements.put((result, error))
        assert self.permits.acquire(timeout=PATIENCE_S)

    def allow(self, count=ALL):
        self.permits.release(count)

    def answer(self):
        """Ids, or texts, of each response in order, and the likeliest id of each row of logits."""
        parts, likeliest, is_final = [], [], False
        while not is_final:
            result, error = self.elements.get(timeout=PATIENCE_S)
            assert error is None, error
            is_final = result.get_response().parameters["triton_final_response"].bool_param
            if result.as_numpy("generation_logits") is None:
                continue
            ids = result.as_numpy("output_ids")
            parts.append(ids.reshape(-1).tolist() if ids is not None else result.as_numpy("text_output").reshape(-1)[0])
            likeliest += result.as_numpy("generation_logits").reshape(-1, VOCAB_SIZE).argmax(1).tolist()
        self.client.stop_stream()
        self.client.close()
        assert self.elements.empty()
        return parts, likeliest


def gauge(server, pattern):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    return int(re.search(rf"^{pattern} (\d+)$", page, re.MULTILINE)[1])


def num_paused(server):
    labels = 'inflight_batcher_specific_metric="paused_requests",model="tensorrt_llm",version="1"'
    return gauge(server, f"nv_trt_llm_inflight_batcher_metrics{{{labels}}}")


def num_generated(server):
    return gauge(server, 'inflight_tokens_generated_total{model="tensorrt_llm",version="1"}')


@pytest.mark.parametrize("model", PROMPTS)
def test_a_slow_reader_has_each_token_once_and_holds_nobody_else(narrow, model):
    before = num_generated(narrow)
    unheld = Reader(narrow, model).answer()
    assert len(unheld[1]) == NUM_TOKENS
    if model == "tensorrt_llm":
        assert [i for ids in unheld[0] for i in ids] == unheld[1], "greedy"
    assert num_generated(narrow) == before + NUM_TOKENS

    before = num_generated(narrow)
    slow = Reader(narrow, model, allowed=0)
    wait_until(lambda: num_paused(narrow) == 1, PATIENCE_S)
    assert kv_blocks(narrow) == 0
    num_held = num_generated(narrow) - before
    assert num_held < NUM_TOKENS // 2
    # The other one needs all blocks, and comes and goes while the first is held.
    assert Reader(narrow, model).answer() == unheld
    assert num_generated(narrow) == before + num_held + NUM_TOKENS
    assert slow.elements.qsize() == 1
    slow.allow()
    assert slow.answer() == unheld
    assert num_generated(narrow) == before + 2 * NUM_TOKENS
    wait_until(lambda: kv_blocks(narrow) == 0 and num_paused(narrow) == 0)


def test_a_reader_in_fits_and_starts_has_each_token_once(narrow):
    unheld = Reader(narrow, "tensorrt_llm").answer()
    slow = Reader(narrow, "tensorrt_llm", allowed=0)
    for num_read in (20, 40, 60):
        wait_until(lambda: num_paused(narrow) == 1, PATIENCE_S)
        slow.allow(20)
        wait_until(lambda count=num_read: slow.elements.qsize() == count + 1, PATIENCE_S)
    slow.allow()
    assert slow.answer() == unheld


def raw_stream(channel, **options):
    """A stream of one request, of which the caller reads."""
    message = service_pb2.ModelInferRequest(model_name="tensorrt_llm", id="r")
    for tensor in inputs_of("tensorrt_llm"):
        message.inputs.append(tensor._get_tensor())
        message.raw_input_contents.append(tensor._get_content())
    method = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    return method(iter([message.SerializeToString()]), **options)


def test_a_held_request_ends_with_its_clients_cancel(narrow):
    with grpc.insecure_channel(narrow.grpc, LITTLE_ROOM) as channel:
        answers = raw_stream(channel)
        next(answers)
        wait_until(lambda: num_paused(narrow) == 1, PATIENCE_S)
        answers.cancel()
        wait_until(lambda: num_paused(narrow) == 0)
    assert len(Reader(narrow, "tensorrt_llm").answer()[1]) == NUM_TOKENS


def test_a_held_request_ends_with_its_calls_deadline(narrow):
    with grpc.insecure_channel(narrow.grpc, LITTLE_ROOM) as channel:
        answers = raw_stream(channel, timeout=10)
        next(answers)
        wait_until(lambda: num_paused(narrow) == 1, PATIENCE_S)
        wait_until(lambda: num_paused(narrow) == 0)
        with pytest.raises(grpc.RpcError) as error:
            list(answers)
    # The client's own clock, or what the server resets the stream with at the deadline: CANCEL of HTTP/2, which grpcio calls
    # DEADLINE_EXCEEDED where it takes its deadline for past by then, and CANCELLED where that is a moment ahead.
    if error.value.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
        assert error.value.code() == grpc.StatusCode.CANCELLED
        assert "RST_STREAM with error code 8" in error.value.details()


def test_a_server_ends_while_a_request_is_held(tmp_path):
    server = start_server(tmp_path, DEMO, "--grpc-max-response-pool-size=1", "--exit-timeout-secs=1")
    with grpc.insecure_channel(server.grpc, LITTLE_ROOM) as channel:
        answers = raw_stream(channel)
        next(answers)
        wait_until(lambda: num_paused(server) == 1, PATIENCE_S)
        assert server.stop() == 1
        assert "Exit timeout expired" in server.log.read_text()
        answers.cancel()

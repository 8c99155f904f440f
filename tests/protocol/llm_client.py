# SPDX-License-Identifier: Apache-2.0
"""Small clients of the tests: one LLM request over gRPC or HTTP, and the gauge that says whether it left anything."""

import json
import queue
import time

import numpy as np
import requests
import tritonclient.grpc as triton
from tokenizers import Tokenizer

DATATYPES = {
    "text_input": "BYTES", "max_tokens": "INT32", "stream": "BOOL", "end_id": "INT32", "stop_words": "BYTES",
    "bad_words": "BYTES", "temperature": "FP32", "top_k": "INT32", "top_p": "FP32", "random_seed": "UINT64",
    "repetition_penalty": "FP32", "presence_penalty": "FP32", "frequency_penalty": "FP32",
    "QUERY": "BYTES", "REQUEST_OUTPUT_LEN": "INT32", "guided_decoding_guide_type": "BYTES",
    "guided_decoding_guide": "BYTES",
}  # fmt: skip
NUMPY = {"BYTES": object, "INT32": np.int32, "BOOL": bool, "FP32": np.float32, "UINT64": np.uint64}


def tensors(**values):
    """Inputs of shape [1, 1], one a keyword."""
    inputs = []
    for name, value in values.items():
        datatype = DATATYPES[name]
        if isinstance(value, str):
            value = value.encode()
        infer_input = triton.InferInput(name, [1, 1], datatype)
        infer_input.set_data_from_numpy(np.array([[value]], dtype=NUMPY[datatype]))
        inputs.append(infer_input)
    return inputs


def token_ids(server, text):
    """What the tokenizers package makes of it."""
    return Tokenizer.from_file(str(server.model_dir / "tokenizer.json")).encode(text).ids


def text_of(result):
    return result.as_numpy("text_output").reshape(-1)[0].decode()


def is_final(result):
    return result.get_response().parameters["triton_final_response"].bool_param


class Stream:
    """One ModelStreamInfer RPC; elements arrive in `self.elements` as (result, error)."""

    def __init__(self, client, **kwargs):
        self.client, self.elements = client, queue.Queue()
        client.start_stream(callback=lambda result, error: self.elements.put((result, error)), **kwargs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.stop_stream()

    def send(self, request_id, inputs, model="ensemble", **kwargs):
        self.client.async_stream_infer(model, inputs, request_id=request_id, **kwargs)

    def receive(self):
        return self.elements.get(timeout=120)

    def receive_until_final(self):
        """The results of the only request in flight, which asked for an empty final response."""
        results = []
        while True:
            result, error = self.receive()
            assert error is None, error
            results.append(result)
            if is_final(result):
                return results


def stream_grpc(client, stream=True, **values):
    """The chunks of text of one request on a stream of its own."""
    with Stream(client) as s:
        s.send("", tensors(stream=stream, **values), enable_empty_final_response=True)
        results = s.receive_until_final()
    return [text_of(r) for r in results if r.get_response().outputs]


def open_http_stream(server, **values):
    """A generate_stream response that is being read, for tests that leave in the middle."""
    return requests.post(
        f"http://{server.http}/v2/models/ensemble/generate_stream", json={**values, "stream": True}, stream=True, timeout=120
    )


def events(response):
    """The JSON of each server-sent event."""
    for line in response.iter_lines(chunk_size=1):
        if line.startswith(b"data: "):
            yield json.loads(line[len(b"data: ") :])


def stream_http(server, **values):
    with open_http_stream(server, **values) as response:
        assert response.status_code == 200, response.text
        chunks = list(events(response))
    assert not any("error" in chunk for chunk in chunks), chunks
    return [chunk["text_output"] for chunk in chunks]


def kv_blocks(server, kind="used", headers=None):
    page = requests.get(f"http://{server.metrics}/metrics", headers=headers, timeout=30).text
    lines = [line for line in page.splitlines() if f'kv_cache_block_type="{kind}"' in line]
    assert lines, f"no gauge of {kind} KV blocks on the metrics page"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def wait_until(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.005)


def wait_until_idle(server):
    """Cancelled requests end with the next step; returns once no KV block is used."""
    wait_until(lambda: kv_blocks(server) == 0)

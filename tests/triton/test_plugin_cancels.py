# SPDX-License-Identifier: Apache-2.0
"""Clients that leave NVIDIA's Triton server: what they asked for ends, and its KV blocks are free.

On a server of its own, which is killed: in release 2.51.0 a cancel can make the front end keep a stream, or end the process
(docs/triton-plugin.md).
"""

import pytest
import tritonclient.grpc as client_grpc
from llm_client import Stream, kv_blocks, tensors, wait_until, wait_until_idle
from real_triton import DEMO, start_triton
from test_plugin import STORY, llm_inputs


@pytest.fixture
def left_triton(tmp_path, repository):
    server = start_triton(tmp_path, repository)
    server.model_dir = DEMO
    yield server
    has_ended = server.process.poll() is not None
    server.process.kill()
    log = server.log.read_text(errors="replace")
    assert "libtriton_tensorrtllm" not in log[log.find("Signal (") :] if has_ended else True, log[-4000:]


def ask_and_leave(server, inputs, model):
    """How many responses came."""
    with client_grpc.InferenceServerClient(server.grpc) as client:
        stream = Stream(client)
        stream.send("", inputs, model=model)
        assert stream.receive()[1] is None
        wait_until(lambda: kv_blocks(server) > 0)
        client.stop_stream(cancel_requests=True)
    wait_until_idle(server)
    return stream.elements.qsize()


def test_what_a_client_leaves_ends(left_triton):
    for model in ("tensorrt_llm_bls", "ensemble"):
        inputs = tensors(text_input=STORY, max_tokens=900, end_id=-1, stream=True)
        assert ask_and_leave(left_triton, inputs, model) < 890
    assert ask_and_leave(left_triton, llm_inputs(left_triton, STORY, 900, streaming=True), "tensorrt_llm") < 890

# SPDX-License-Identifier: Apache-2.0
"""The tensor `stop` of `tensorrt_llm` over both protocols: it ends the requests of its id, all of their rows, and no other."""

import concurrent.futures

import pytest
from live_server import DEMO, start_server
from llm_client import kv_blocks, wait_until, wait_until_idle
from matrix_client import CLIENTS, infer_rows
from release_repositories import OURS, write_repository

FILLED = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "False", "exclude_input_in_output": "True"}
LONG = {"text": "Tell me a story about a fox.", "max_tokens": 900, "end_id": -1, "return_finish_reason": True}


@pytest.fixture(scope="module")
def stoppable(tmp_path_factory):
    path = tmp_path_factory.mktemp("stop")
    server = start_server(path, None, "--model-repository", write_repository(path / "repository", OURS, **FILLED))
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def infer(server, transport, rows, request_id):
    return infer_rows(server, transport, "tensorrt_llm", rows, request_id=request_id)


@pytest.mark.parametrize("transport", list(CLIENTS))
@pytest.mark.parametrize("num_rows", [1, 3])
def test_stop_ends_all_rows_of_its_id(stoppable, transport, num_rows):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(infer, stoppable, transport, [LONG] * num_rows, "to be stopped")
        wait_until(lambda: kv_blocks(stoppable) > 0)
        other = infer(stoppable, transport, [{**LONG, "max_tokens": 4}], "another")
        acknowledged = infer(stoppable, transport, [{**LONG, "max_tokens": 1, "stop": True}] * num_rows, "to be stopped")
        stopped = running.result()
    assert acknowledged.as_numpy("output_ids") is None
    assert stopped.as_numpy("finish_reason").tolist() == [[b"cancelled"]] * num_rows
    lengths = stopped.as_numpy("sequence_length")
    assert lengths.shape == (num_rows, 1) and (lengths > 0).all() and (lengths < LONG["max_tokens"]).all()
    assert (other.as_numpy("finish_reason").tolist(), other.as_numpy("sequence_length").tolist()) == ([[b"length"]], [[4]])
    wait_until_idle(stoppable)

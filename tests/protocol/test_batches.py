# SPDX-License-Identifier: Apache-2.0
"""Requests of several rows against rows sent one by one: over HTTP and gRPC, streamed and not, through every model."""

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from llm_client import NUMPY, Stream, is_final, kv_blocks, token_ids, wait_until_idle

PROMPTS = ["The capital of", "Once upon a time", "Question: what is 2+2?"]
MAX_TOKENS = [6, 3, 9]
TYPES = {
    "text_input": "BYTES", "max_tokens": "INT32", "stream": "BOOL", "temperature": "FP32", "top_k": "INT32",
    "random_seed": "UINT64", "stop_words": "BYTES", "input_ids": "INT32", "input_lengths": "INT32",
    "request_output_len": "INT32", "streaming": "BOOL",
    "QUERY": "BYTES", "REQUEST_OUTPUT_LEN": "INT32", "STOP_WORDS_DICT": "BYTES",
    "TOKENS_BATCH": "INT32", "SEQUENCE_LENGTH": "INT32",
}  # fmt: skip


def batch(**columns):
    """Inputs of shape [B, 1], or of the shape of an array."""
    inputs = []
    for name, column in columns.items():
        array = column if isinstance(column, np.ndarray) else np.array([[v] for v in column], dtype=NUMPY[TYPES[name]])
        infer_input = triton.InferInput(name, list(array.shape), TYPES[name])
        infer_input.set_data_from_numpy(array)
        inputs.append(infer_input)
    return inputs


def post(server, model, **columns):
    """The outputs of one HTTP call by name, as arrays."""
    body = {
        "inputs": [
            {"name": name, "shape": [len(column), 1], "datatype": TYPES[name], "data": column} for name, column in columns.items()
        ]
    }
    answer = requests.post(f"http://{server.http}/v2/models/{model}/infer", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return {o["name"]: np.array(o["data"]).reshape(o["shape"]) for o in answer.json()["outputs"]}


def texts_one_by_one(server, **columns):
    """What each row has alone."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [post(server, "ensemble", **{k: [v] for k, v in row.items()})["text_output"][0] for row in rows]


def rows_of_stream(client, model, **columns):
    """Everything that a stream answers: batch index -> results; and the results in their order."""
    with Stream(client) as stream:
        stream.send("", batch(**columns), model=model, enable_empty_final_response=True)
        results = stream.receive_until_final()
    rows = {}
    for result in results:
        if result.get_response().outputs:
            rows.setdefault(int(result.as_numpy("batch_index")[0, 0]), []).append(result)
    return rows, results


def joined(results):
    return "".join(r.as_numpy("text_output").reshape(-1)[0].decode() for r in results)


SAMPLED = {
    "text_input": PROMPTS, "max_tokens": MAX_TOKENS,
    "temperature": [1.0, 0.7, 1.5], "top_k": [20, 5, 50], "random_seed": [1, 2, 3],
}  # fmt: skip


def test_http_answers_all_rows_at_once_each_as_alone(server):
    outputs = post(server, "ensemble", **SAMPLED)
    assert list(outputs["text_output"]) == texts_one_by_one(server, **SAMPLED)
    assert outputs["batch_index"].tolist() == [[0], [1], [2]]


def test_grpc_call_answers_all_rows_at_once_each_as_alone(server, client):
    result = client.infer("ensemble", batch(**SAMPLED))
    assert [t.decode() for t in result.as_numpy("text_output")] == texts_one_by_one(server, **SAMPLED)


@pytest.mark.parametrize("stream", [False, True])
def test_rows_on_a_stream_are_told_apart_and_end_once(server, client, stream):
    rows, results = rows_of_stream(client, "ensemble", **SAMPLED, stream=[stream] * 3)
    assert [joined(rows[i]) for i in range(3)] == texts_one_by_one(server, **SAMPLED)
    assert sum(is_final(r) for r in results) == 1 and is_final(results[-1])
    if not stream:
        assert [len(rows[i]) for i in range(3)] == [1, 1, 1]


def test_equal_rows_with_equal_seeds_are_equal_and_others_differ(server):
    columns = {"text_input": [PROMPTS[1]] * 3, "max_tokens": [24] * 3, "temperature": [1.5] * 3, "top_k": [50] * 3}
    texts = post(server, "ensemble", **columns, random_seed=[7, 7, 8])["text_output"]
    assert texts[0] == texts[1] != texts[2]


def test_stop_words_are_of_their_row(server):
    columns = {"text_input": [PROMPTS[0]] * 3, "max_tokens": [12] * 3}
    free = post(server, "ensemble", **columns)["text_output"][0]
    word = free.split()[1]
    texts = post(server, "ensemble", **columns, stop_words=["", " " + word, ""])["text_output"]
    assert texts[0] == texts[2] == free
    assert texts[1] == free[: free.index(word) + len(word)]


def test_ids_of_rows_are_padded_to_the_longest(server):
    prompts = [token_ids(server, p) for p in PROMPTS]
    width = max(map(len, prompts))
    ids = np.array([p + [0] * (width - len(p)) for p in prompts], dtype=np.int32)
    body = {
        "inputs": [
            {"name": "input_ids", "shape": list(ids.shape), "datatype": "INT32", "data": ids.ravel().tolist()},
            {"name": "input_lengths", "shape": [3, 1], "datatype": "INT32", "data": [len(p) for p in prompts]},
            {"name": "request_output_len", "shape": [3, 1], "datatype": "INT32", "data": MAX_TOKENS},
        ]
    }
    answer = requests.post(f"http://{server.http}/v2/models/tensorrt_llm/infer", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    outputs = {o["name"]: np.array(o["data"]).reshape(o["shape"]) for o in answer.json()["outputs"]}
    lengths = outputs["sequence_length"]
    assert lengths.tolist() == [[n] for n in MAX_TOKENS]
    assert outputs["output_ids"].shape == (3, 1, max(MAX_TOKENS))
    for row, n in enumerate(MAX_TOKENS):
        assert (outputs["output_ids"][row, 0, n:] == -1).all()
        assert (outputs["output_ids"][row, 0, :n] >= 0).all()


def test_preprocessing_and_postprocessing_take_rows(server, client):
    result = client.infer("preprocessing", batch(QUERY=PROMPTS, REQUEST_OUTPUT_LEN=MAX_TOKENS))
    ids, lengths = result.as_numpy("INPUT_ID"), result.as_numpy("REQUEST_INPUT_LEN")
    for row, prompt in enumerate(PROMPTS):
        assert ids[row, : lengths[row, 0]].tolist() == token_ids(server, prompt)
    result = client.infer("postprocessing", batch(TOKENS_BATCH=ids[:, None, :], SEQUENCE_LENGTH=lengths))
    assert [t.decode() for t in result.as_numpy("OUTPUT")] == PROMPTS


def test_a_row_that_fails_leaves_the_others_of_a_stream(client):
    columns = {"text_input": PROMPTS, "max_tokens": [4, 4, 4], "temperature": [1.0, -1.0, 1.0]}
    with Stream(client) as stream:
        stream.send("", batch(**columns), enable_empty_final_response=True)
        answers = [stream.receive() for _ in range(3)]
    failed = [str(error) for _, error in answers if error is not None]
    assert len(failed) == 1 and "row 1: temperature: got -1" in failed[0]
    rows = sorted(int(result.as_numpy("batch_index")[0, 0]) for result, error in answers if error is None)
    assert rows == [0, 2]


def test_one_response_names_every_row_that_failed(server):
    body = {
        "inputs": [
            {"name": "text_input", "shape": [3, 1], "datatype": "BYTES", "data": PROMPTS},
            {"name": "max_tokens", "shape": [3, 1], "datatype": "INT32", "data": [0, 4, -1]},
        ]
    }
    answer = requests.post(f"http://{server.http}/v2/models/ensemble/infer", json=body, timeout=60)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert "row 0: max_tokens: got 0" in error and "row 2: max_tokens: got -1" in error and "row 1" not in error
    wait_until_idle(server)


def test_rows_that_contradict_each_other_are_refused(server):
    body = {
        "inputs": [
            {"name": "text_input", "shape": [3, 1], "datatype": "BYTES", "data": PROMPTS},
            {"name": "max_tokens", "shape": [2, 1], "datatype": "INT32", "data": [4, 4]},
        ]
    }
    answer = requests.post(f"http://{server.http}/v2/models/ensemble/infer", json=body, timeout=60)
    assert answer.status_code == 400
    assert "batch size does not match other inputs" in answer.json()["error"]


def test_leaving_a_stream_ends_all_rows(server, client):
    columns = {"text_input": PROMPTS, "max_tokens": [400] * 3, "stream": [True] * 3}
    with Stream(client) as stream:
        stream.send("", batch(**columns))
        stream.receive()
        assert kv_blocks(server) > 0
        client.stop_stream(cancel_requests=True)
    wait_until_idle(server)

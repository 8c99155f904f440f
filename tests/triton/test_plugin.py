# SPDX-License-Identifier: Apache-2.0
"""Our plug-in in NVIDIA's Triton server answers as our own server does from the same repository and the same engine."""

import concurrent.futures

import numpy as np
import pytest
import requests
import tritonclient.grpc as client_grpc
from llm_client import Stream, token_ids, wait_until_idle

PROMPT = "Question: 12+30 Answer:"
STORY = "Once upon a time"
REQUESTS = {
    "greedy": {"text_input": STORY, "max_tokens": 24},
    "an answer that ends": {"text_input": PROMPT, "max_tokens": 32},
    "sampled": {"text_input": STORY, "max_tokens": 24, "top_k": 20, "temperature": 0.8, "random_seed": 12345},
    "stop words": {"text_input": STORY, "max_tokens": 64, "stop_words": [".", "!"]},
    "bad words": {"text_input": STORY, "max_tokens": 24, "bad_words": [" kind", " king"]},
    "log-probs": {"text_input": STORY, "max_tokens": 8, "return_log_probs": True},
    "end id": {"text_input": STORY, "max_tokens": 24, "end_id": 5, "pad_id": 6},
    "bias": {"text_input": STORY, "max_tokens": 8, "embedding_bias_words": [" fox"], "embedding_bias_weights": [50.0]},
}
STREAMED = ("greedy", "sampled", "an answer that ends", "stop words")


def generate(server, model="ensemble", **values):
    return requests.post(f"http://{server.http}/v2/models/{model}/generate", json=values, timeout=120)


@pytest.mark.parametrize("name", REQUESTS)
def test_generate(triton, ours, name):
    expected, got = generate(ours, **REQUESTS[name]), generate(triton, **REQUESTS[name])
    assert (got.status_code, expected.status_code) == (200, 200), (got.text, expected.text)
    expected, got = expected.json(), got.json()
    assert got["text_output"] == expected["text_output"] != ""
    assert {key: got[key] for key in got if key != "sequence_id"}.keys() <= expected.keys() | {"sequence_start", "sequence_end"}
    for key in ("cum_log_probs", "output_log_probs"):
        assert got.get(key) == pytest.approx(expected.get(key), abs=1e-5)


@pytest.mark.parametrize("name", STREAMED)
def test_generate_stream_of_the_bls(triton, ours, name):
    def text(server):
        answer = requests.post(
            f"http://{server.http}/v2/models/tensorrt_llm_bls/generate_stream",
            json=REQUESTS[name] | {"stream": True},
            timeout=120,
        )
        assert answer.status_code == 200, answer.text
        events = [requests.models.complexjson.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        assert len(events) > 2 and not any("error" in event for event in events), events
        return "".join(event["text_output"] for event in events)

    assert text(triton) == text(ours) != ""


def llm_inputs(server, text, max_tokens, streaming, **values):
    ids = token_ids(server, text)
    given = {
        "input_ids": np.array([ids], np.int32), "input_lengths": np.array([[len(ids)]], np.int32),
        "request_output_len": np.array([[max_tokens]], np.int32), "streaming": np.array([[streaming]]),
        "end_id": np.array([[-1]], np.int32), **values,
    }  # fmt: skip
    inputs = []
    for name, value in given.items():
        datatype = {"int32": "INT32", "bool": "BOOL", "float32": "FP32", "uint64": "UINT64"}[value.dtype.name]
        inputs.append(client_grpc.InferInput(name, value.shape, datatype))
        inputs[-1].set_data_from_numpy(value)
    return inputs


def responses(server, inputs, request_id="one"):
    """Each response of the LLM on a stream: its outputs by name, until the final one."""
    with client_grpc.InferenceServerClient(server.grpc) as client, Stream(client) as stream:
        stream.send(request_id, inputs, model="tensorrt_llm", enable_empty_final_response=True)
        return [
            {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}
            for result in stream.receive_until_final()
        ]


@pytest.mark.parametrize("streaming", [False, True])
def test_each_response_of_the_llm(triton, ours, streaming):
    values = {"return_log_probs": np.array([[True]]), "beam_width": np.array([[1]], np.int32)}
    got, expected = (responses(s, llm_inputs(s, STORY, 12, streaming, **values)) for s in (triton, ours))
    assert len(got) == len(expected) == (12 if streaming else 1)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.keys() == theirs.keys() > {"output_ids", "sequence_length", "cum_log_probs", "output_log_probs"}
        for name, value in theirs.items():
            assert mine[name].shape == value.shape and mine[name].dtype == value.dtype, name
            np.testing.assert_allclose(mine[name], value, atol=1e-5)


def parameters(server, inputs):
    """What the response of the LLM carries besides its outputs."""
    with client_grpc.InferenceServerClient(server.grpc) as client, Stream(client) as stream:
        stream.send("one", inputs, model="tensorrt_llm", enable_empty_final_response=True)
        [*answers] = (r.get_response() for r in stream.receive_until_final() if r.get_response().outputs)
    return [{key: value.SerializeToString() for key, value in answer.parameters.items()} for answer in answers]


def test_responses_have_the_same_parameters(triton, ours):
    """Of a request that draws without a seed too: a repository's seed is 0 where none is sent, so that none is told."""
    for values in ({}, {"runtime_top_k": np.array([[20]], np.int32)}):
        got, expected = (parameters(s, llm_inputs(s, STORY, 6, False, **values)) for s in (triton, ours))
        assert got == expected
        assert len(got) == 1 and "random_seed" not in got[0]
    zero = {"runtime_top_k": np.array([[20]], np.int32), "random_seed": np.array([[0]], np.uint64)}
    ids = [responses(triton, llm_inputs(triton, STORY, 6, False, **v))[0]["output_ids"].tolist() for v in (values, zero)]
    assert ids[0] == ids[1]


BAD = {
    "too long": {"text": "word " * 2000, "max_tokens": 4},
    "too many beams": {"text": STORY, "max_tokens": 4, "beam_width": np.array([[64]], np.int32)},
    "no tokens": {"text": STORY, "max_tokens": 0},
    "a bad temperature": {"text": STORY, "max_tokens": 4, "temperature": np.array([[-1.0]], np.float32)},
    "a stop without an id": {"text": STORY, "max_tokens": 4, "stop": np.array([[True]])},
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_have_the_same_error(triton, ours, name):
    def error(server):
        values = dict(BAD[name])
        inputs = llm_inputs(server, values.pop("text"), values.pop("max_tokens"), streaming=False, **values)
        with client_grpc.InferenceServerClient(server.grpc) as client, Stream(client) as stream:
            stream.send("" if "without an id" in name else "bad", inputs, model="tensorrt_llm")
            _, raised = stream.receive()
        assert raised is not None
        return raised.message()

    assert error(triton) == error(ours)


def test_a_stop_ends_its_request_alone(triton):
    with client_grpc.InferenceServerClient(triton.grpc) as client, Stream(client) as stream:
        stream.send("first", llm_inputs(triton, STORY, 900, streaming=True), model="tensorrt_llm")
        result, error = stream.receive()
        assert error is None and result.as_numpy("output_ids") is not None
        stop = llm_inputs(triton, STORY, 1, streaming=False, stop=np.array([[True]]))
        stream.send("first", stop, model="tensorrt_llm", enable_empty_final_response=True)
        count = 1
        while count < 900:
            result, error = stream.receive()
            assert error is None, error
            count += 1
            if result.as_numpy("output_ids") is None:
                break
        assert count < 900
    wait_until_idle(triton)


def test_many_streams_at_once_have_the_texts_of_each_alone(triton, ours):
    values = [{"text_input": f"{STORY} {i}", "max_tokens": 20 + i % 7, "top_k": 1 + i % 5, "random_seed": i} for i in range(24)]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        got = list(pool.map(lambda v: generate(triton, **v).json()["text_output"], values))
    assert got == [generate(ours, **v).json()["text_output"] for v in values]


def samples(server, prefix):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(prefix)}


def test_metrics(triton, ours):
    before = samples(triton, "nv_inference_")
    generate(triton, **REQUESTS["greedy"])
    after = samples(triton, "nv_inference_")
    mine = '{model="tensorrt_llm",version="1"}'
    for family in ("nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count"):
        assert after[family + mine] == before.get(family + mine, 0) + 1
    assert samples(triton, "nv_trt_llm_").keys() == samples(ours, "nv_trt_llm_").keys()
    assert (
        samples(triton, "nv_trt_llm_request_metrics")[
            'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"}'
        ]
        == samples(ours, "nv_trt_llm_request_metrics")[
            'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"}'
        ]
    )

# SPDX-License-Identifier: Apache-2.0
"""The likeliest tokens and logits as public clients see them: against numpy over the logits of the same answer, whatever
datatype those are sent in."""

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from live_server import DEMO, SAME_AMONG_OTHERS, start_server
from llm_client import Stream
from release_repositories import write_repository
from test_repositories import END_ID, FILLED, PROMPT, generate, generate_stream, serving, typed_inputs, url
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException

TOKENIZER = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
PROMPT_IDS = TOKENIZER.encode(PROMPT).ids
K = 4
LOGITS = ("generation_logits", "context_logits")
ROUNDING = {"TYPE_FP32": 0, "TYPE_FP16": 2**-11, "TYPE_BF16": 2**-8}  # relative, to nearest


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The models made from an engine, which declare the tensors."""
    server = start_server(tmp_path_factory.mktemp("top"))
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def log_softmax(logits):
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def check(ids, log_probs, logits):
    """[n, K] of each, the logits [n, vocabulary]."""
    expected = log_softmax(logits)
    order = np.argsort(-expected, axis=-1, kind="stable")[:, :K]
    assert ids.tolist() == order.tolist()
    assert log_probs == pytest.approx(np.take_along_axis(expected, order, -1), abs=1e-4)


def llm_inputs(client, max_tokens=6, **values):
    required = {"input_ids": PROMPT_IDS, "input_lengths": len(PROMPT_IDS), "request_output_len": max_tokens, "end_id": END_ID}
    return typed_inputs(client, "tensorrt_llm", **required, **values)


def test_they_are_the_largest_of_the_logits(server):
    with triton.InferenceServerClient(server.grpc) as client:
        logits = {"return_generation_logits": True, "return_context_logits": True}
        result = client.infer("tensorrt_llm", llm_inputs(client, num_top_log_probs=K, return_log_probs=True, **logits))
        ids, log_probs = result.as_numpy("top_log_prob_ids"), result.as_numpy("top_log_probs")
        logits = result.as_numpy("generation_logits")
        n = logits.shape[2]
        assert ids.shape == log_probs.shape == (1, 1, n, K)
        check(ids[0, 0], log_probs[0, 0], logits[0, 0])
        check(ids[0, 0, :1], log_probs[0, 0, :1], result.as_numpy("context_logits")[0, -1:])
        assert ids[0, 0, :, 0].tolist() == result.as_numpy("output_ids")[0, 0].tolist(), "greedy"
        assert log_probs[0, 0, :, 0] == pytest.approx(result.as_numpy("output_log_probs")[0, 0], abs=1e-5)

        with Stream(client) as stream:
            inputs = llm_inputs(client, streaming=True, num_top_log_probs=K)
            stream.send("r", inputs, model="tensorrt_llm", enable_empty_final_response=True)
            parts = [r for r in stream.receive_until_final() if r.get_response().outputs]
        streamed = np.concatenate([r.as_numpy("top_log_prob_ids")[0, 0] for r in parts])
        assert streamed.tolist() == ids[0, 0].tolist()
        with pytest.raises(InferenceServerException, match=r"num_top_log_probs: got 257, must be in \[0, 256\]"):
            client.infer("tensorrt_llm", llm_inputs(client, num_top_log_probs=257))
        with pytest.raises(InferenceServerException, match="num_top_log_probs: got -1, must be at least 0"):
            client.infer("tensorrt_llm", llm_inputs(client, num_top_log_probs=-1))


def test_http_and_the_ensemble_have_the_same(server):
    names = ["top_log_prob_ids", "top_log_probs", "generation_logits"]
    body = {
        "inputs": [
            {"name": name, "datatype": datatype, "shape": [1, 1], "data": [value]}
            for name, datatype, value in (
                ("text_input", "BYTES", PROMPT), ("max_tokens", "INT32", 6), ("num_top_log_probs", "INT32", K),
                ("return_generation_logits", "BOOL", True),
            )
        ],
        "outputs": [{"name": name} for name in names],
    }  # fmt: skip
    answer = requests.post(url(server, "ensemble", "infer"), json=body, timeout=60).json()
    ids, log_probs, logits = (
        np.array(o["data"]).reshape(o["shape"]) for name in names for o in answer["outputs"] if o["name"] == name
    )
    check(ids[0, 0], log_probs[0, 0], logits[0, 0])
    generated = generate(server, "ensemble", text_input=PROMPT, max_tokens=6, num_top_log_probs=K)
    assert generated["top_log_prob_ids"] == ids.reshape(-1).tolist()
    assert generated["top_log_probs"] == pytest.approx(log_probs.reshape(-1), abs=1e-5)
    chunks = generate_stream(server, "ensemble", text_input=PROMPT, max_tokens=6, num_top_log_probs=K)
    streamed = [i for chunk in chunks for i in np.atleast_1d(chunk.get("top_log_prob_ids", []))]
    assert streamed == generated["top_log_prob_ids"]
    assert "top_log_probs" not in generate(server, "ensemble", text_input=PROMPT, max_tokens=6)


def test_those_of_beams_follow_each_beam(server):
    with triton.InferenceServerClient(server.grpc) as client:
        asked = {"beam_width": 2, "num_top_log_probs": K, "return_generation_logits": True, "return_log_probs": True}
        result = client.infer("tensorrt_llm", llm_inputs(client, **asked))
        for b in range(2):
            n = int(result.as_numpy("sequence_length")[0, b])
            assert n > 0
            logits = result.as_numpy("generation_logits")[0, b, :n]
            check(result.as_numpy("top_log_prob_ids")[0, b, :n], result.as_numpy("top_log_probs")[0, b, :n], logits)


@pytest.fixture(scope="module", params=["TYPE_FP32", "TYPE_FP16", "TYPE_BF16"])
def typed(request, tmp_path_factory):
    """A server of 0.19 whose models declare their logits so, for beams too; a row's do not depend on how many are computed."""
    path = tmp_path_factory.mktemp(request.param)
    repository = write_repository(path / "repository", 19, **FILLED, logits_datatype=request.param, max_beam_width="2")
    with serving(path, repository, *SAME_AMONG_OTHERS) as server:
        server.logits_type = request.param
        yield server


def test_logits_have_the_type_that_the_file_declares(typed):
    asked = {"return_log_probs": True, "return_generation_logits": True, "return_context_logits": True}
    with triton.InferenceServerClient(typed.grpc) as client:
        for model, inputs in (
            ("tensorrt_llm", llm_inputs(client, **asked)),
            ("ensemble", typed_inputs(client, "ensemble", text_input=PROMPT, max_tokens=6, **asked)),
            ("tensorrt_llm_bls", typed_inputs(client, "tensorrt_llm_bls", text_input=PROMPT, max_tokens=6, **asked)),
        ):
            result = client.infer(model, inputs)
            types = {o.name: o.datatype for o in result.get_response().outputs}
            declared = {o["name"]: o["datatype"] for o in client.get_model_metadata(model, as_json=True)["outputs"]}
            assert {n: types[n] for n in LOGITS} == {n: declared[n] for n in LOGITS}
            if model == "tensorrt_llm":
                assert types["generation_logits"] == typed.logits_type.removeprefix("TYPE_")
            logits = result.as_numpy("generation_logits")[0, 0].astype(np.float64)
            best = log_softmax(logits).max(-1)
            bound = 2 * ROUNDING[typed.logits_type] * np.abs(logits).max() + 1e-4
            assert best == pytest.approx(result.as_numpy("output_log_probs")[0, 0], abs=bound)
            context = result.as_numpy("context_logits")[0]
            assert (context[-1] == result.as_numpy("generation_logits")[0, 0, 0]).all()


def test_beams_have_logits_too(typed):
    with triton.InferenceServerClient(typed.grpc) as client:
        inputs = llm_inputs(client, beam_width=2, return_log_probs=True, return_generation_logits=True)
        result = client.infer("tensorrt_llm", inputs)
        logits, log_probs = result.as_numpy("generation_logits"), result.as_numpy("output_log_probs")
        assert logits.shape[:3] == log_probs.shape
        for b in range(2):
            n = int(result.as_numpy("sequence_length")[0, b]) - len(PROMPT_IDS)
            ids = result.as_numpy("output_ids")[0, b, len(PROMPT_IDS) :][:n]
            chosen = log_softmax(logits[0, b, :n])[np.arange(n), ids]
            bound = 2 * ROUNDING[typed.logits_type] * np.abs(logits.astype(np.float64)).max() + 1e-4
            assert chosen == pytest.approx(log_probs[0, b, :n], abs=bound)

# SPDX-License-Identifier: Apache-2.0
"""Beam search through public clients: ensemble, BLS and the token model, over HTTP and gRPC, streamed and not.

Against an independent reference beam search is held in tests/golden; here the same search must look the same by every
road, and mean what the contract says.
"""

import concurrent.futures
import itertools
import re

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from live_server import SAME_AMONG_OTHERS
from llm_client import Stream, wait_until_idle
from release_repositories import write_repository
from test_repositories import (
    ANSWER,
    DEMO,
    END_ID,
    EXAMPLES,
    FILLED,
    PROMPT,
    generate,
    generate_stream,
    serving,
    typed_inputs,
    url,
)
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException

TOKENIZER = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
PROMPT_IDS = TOKENIZER.encode(PROMPT).ids  # as preprocessing has it
STORY_IDS = TOKENIZER.encode("Tell me a story about a fox.").ids
WIDTH = 3
SEARCH = {"text_input": PROMPT, "max_tokens": 16, "beam_width": WIDTH, "length_penalty": 1.0, "return_log_probs": True}
# BOOL in the releases. A number can say "never" too; that of two is refused is then not the shape's doing.
EARLY_STOPPING = re.compile(r'(name: "early_stopping"\s+data_type: TYPE_)BOOL\s+dims: \[ 1 \]\s+reshape: { shape: \[ \] }')
PIPELINES = ["ensemble", "tensorrt_llm_bls"]


@pytest.fixture(scope="module", params=[11, 16])
def beams(request, tmp_path_factory):
    """A server of the release's repository, and the release."""
    tmp_path = tmp_path_factory.mktemp("beams")
    repository = write_repository(tmp_path / "repository", request.param, **FILLED, max_beam_width="8")
    config = repository / "tensorrt_llm" / "config.pbtxt"
    text, num_changed = EARLY_STOPPING.subn(r"\g<1>INT32 dims: [ -1 ]", config.read_text())
    assert num_changed == 1
    config.write_text(text)
    with serving(tmp_path, repository, *SAME_AMONG_OTHERS) as server:
        server.release = request.param
        yield server


def llm_inputs(client, ids=PROMPT_IDS, max_tokens=16, **values):
    required = {"input_ids": ids, "input_lengths": len(ids), "request_output_len": max_tokens, "end_id": END_ID}
    sent = {**required, "beam_width": WIDTH, "len_penalty": 1.0, "return_log_probs": True, **values}
    return typed_inputs(client, "tensorrt_llm", **sent)


def rows_of(result, prompt_ids=PROMPT_IDS):
    """[(ids after the prompt, cum_log_prob)] of each beam of a whole answer."""
    ids, lengths = result.as_numpy("output_ids"), result.as_numpy("sequence_length")
    assert ids.shape[:2] == lengths.shape == result.as_numpy("cum_log_probs").shape
    generated = [ids[0, b, len(prompt_ids) : lengths[0, b]].tolist() for b in range(ids.shape[1])]
    return list(zip(generated, result.as_numpy("cum_log_probs")[0].tolist(), strict=True))


@pytest.mark.parametrize("model", PIPELINES)
def test_each_beam_is_a_text_the_best_first(beams, model):
    whole = generate(beams, model, **SEARCH)
    texts = whole["text_output"]
    assert len(texts) == len(set(texts)) == WIDTH
    assert texts[0] == f"{PROMPT} {ANSWER}", "the demo model is sure of its answer"
    assert all(text.startswith(PROMPT) for text in texts)
    lengths = [len(TOKENIZER.encode(t, add_special_tokens=False).ids) - len(PROMPT_IDS) + 1 for t in texts]
    normed = [c / n for c, n in zip(whole["cum_log_probs"], lengths, strict=True)]
    assert normed[0] > normed[-1]


@pytest.mark.parametrize("model", PIPELINES)
def test_a_stream_has_all_beams_whole_each_time_and_ends_with_the_answer(beams, model):
    whole = generate(beams, model, **SEARCH)
    chunks = [c for c in generate_stream(beams, model, **SEARCH) if "text_output" in c]
    assert len(chunks) > 3
    assert all(len(c["text_output"]) == WIDTH for c in chunks)
    assert all("\ufffd" not in text for c in chunks for text in c["text_output"])
    assert [PROMPT + text for text in chunks[-1]["text_output"]] == whole["text_output"]
    assert chunks[-1]["cum_log_probs"] == whole["cum_log_probs"]
    assert all(ANSWER.startswith(c["text_output"][0].strip()[:2]) for c in chunks), "whole texts, not what is new"


def test_the_token_model_has_a_row_for_each_beam(beams):
    texts = generate(beams, "ensemble", **SEARCH, end_id=END_ID)["text_output"]
    with triton.InferenceServerClient(beams.grpc) as client:
        result = client.infer("tensorrt_llm", llm_inputs(client, pad_id=5))
        rows = rows_of(result)
        assert [PROMPT + TOKENIZER.decode(ids) for ids, _ in rows] == texts
        ids, lengths = result.as_numpy("output_ids"), result.as_numpy("sequence_length")[0]
        assert ids.shape[2] == max(lengths)
        assert all(ids[0, b, lengths[b] :].tolist() == [5] * (max(lengths) - lengths[b]) for b in range(WIDTH))
        log_probs = result.as_numpy("output_log_probs")
        assert log_probs.shape == (1, WIDTH, max(len(g) for g, _ in rows))
        for b, (generated, cum) in enumerate(rows):
            assert np.all(log_probs[0, b, len(generated) :] == 0)
            assert log_probs[0, b].sum() >= cum - 1e-3, "the end id's own is in the sum alone"
        with Stream(client) as stream:
            stream.send("r", llm_inputs(client, streaming=True), model="tensorrt_llm", enable_empty_final_response=True)
            parts = [r for r in stream.receive_until_final() if r.get_response().outputs]
        last = parts[-1]
        lengths = last.as_numpy("sequence_length")[0]
        assert [last.as_numpy("output_ids")[0, b, : lengths[b]].tolist() for b in range(WIDTH)] == [g for g, _ in rows]


def lengths_and_scores(client, end_id, penalty, **values):
    """Of each beam: its generated tokens, the end id among them, and its score by the penalty."""
    asked = {"max_tokens": 10, "end_id": end_id, "len_penalty": penalty, **values}
    rows = rows_of(client.infer("tensorrt_llm", llm_inputs(client, ids=STORY_IDS, **asked)), STORY_IDS)
    lengths = [min(len(ids) + 1, 10) for ids, _ in rows]
    return lengths, [cum / n**penalty for n, (_, cum) in zip(lengths, rows, strict=True)]


def test_length_penalty(beams):
    """Sums of log-probs are divided by the length to its power: the higher, the better are long ones."""
    with triton.InferenceServerClient(beams.grpc) as client:
        found = [lengths_and_scores(client, end_id=11, penalty=penalty) for penalty in (-2.0, 0.0, 1.0, 3.0)]
    for _, scores in found:
        assert scores == sorted(scores, reverse=True)
    firsts = [lengths[0] for lengths, _ in found]
    assert firsts == sorted(firsts) and firsts[0] < firsts[1] < firsts[3]
    assert sum(found[1][0]) < sum(found[3][0])


def test_early_stopping_never(beams):
    """A search that ends only when nothing can be better: long penalties find what is given up otherwise."""
    with triton.InferenceServerClient(beams.grpc) as client:
        by_rule = [lengths_and_scores(client, end_id=256, penalty=3.0, early_stopping=rule) for rule in (0, 1, 2)]
        with pytest.raises(InferenceServerException, match="Invalid size for tensor early_stopping: got 2") as raised:
            lengths_and_scores(client, end_id=256, penalty=3.0, early_stopping=[2, 2])
    assert raised.value.status() == "StatusCode.INVALID_ARGUMENT"
    never = by_rule.pop()
    for lengths, scores in by_rule:
        assert max(lengths) < min(never[0]) == 10
        assert max(scores) < min(never[1])


def test_one_token_of_each_beam_is_the_likeliest_of_all(beams):
    """Of one step a search is a sorting of the vocabulary: any two widths agree on what they share."""
    with triton.InferenceServerClient(beams.grpc) as client:
        by_width = {k: rows_of(client.infer("tensorrt_llm", llm_inputs(client, max_tokens=1, beam_width=k))) for k in (2, 8)}
        greedy = client.infer("tensorrt_llm", llm_inputs(client, max_tokens=1, beam_width=1))
    assert by_width[8][:2] == by_width[2]
    ids, log_prob = rows_of(greedy)[0]
    assert (ids, pytest.approx(log_prob, abs=1e-6)) == by_width[8][0]  # on a GPU other sums of the same logits
    log_probs = [c for _, c in by_width[8]]
    assert all(a >= b for a, b in itertools.pairwise(log_probs))
    assert len({tuple(g) for g, _ in by_width[8]}) == 8
    assert sum(np.exp(log_probs)) <= 1 + 1e-5


def test_searches_and_others_in_one_step_do_not_disturb_each_other(beams):
    def ask(i):
        prompt = EXAMPLES[i % 4]["text_input"]
        kind = [{"beam_width": 2}, {"beam_width": 8}, {}, {"top_k": 40, "temperature": 3.0, "random_seed": i}][i % 4]
        return generate(beams, PIPELINES[i % 2], text_input=prompt, max_tokens=12, **kind)["text_output"]

    alone = [ask(i) for i in range(16)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(16))) == alone
    wait_until_idle(beams)


def test_a_stopped_search_answers_with_its_beams_and_leaves_nothing(beams):
    with triton.InferenceServerClient(beams.grpc) as client, Stream(client) as stream:
        endless = llm_inputs(client, max_tokens=800, end_id=-1, beam_width=8)
        stream.send("to stop", endless, model="tensorrt_llm", enable_empty_final_response=True)
        stop = typed_inputs(client, "tensorrt_llm", input_ids=[0], input_lengths=0, request_output_len=0, stop=True)
        stream.send("to stop", stop, model="tensorrt_llm", enable_empty_final_response=True)
        results = [stream.receive() for _ in range(2)]
        assert all(error is None for _, error in results)
        beams_of = [result.as_numpy("output_ids").shape[1] for result, _ in results if result.as_numpy("output_ids") is not None]
        assert beams_of == [8], "the stopped request's answer; the stop itself has none"
    wait_until_idle(beams)


def test_several_sequences_limit_the_beams_returned(beams):
    if beams.release < 14:
        pytest.skip("num_return_sequences came with 0.14; the server of 0.16 runs this")
    all_of_them = generate(beams, "ensemble", **{**SEARCH, "beam_width": 4})
    two = generate(beams, "ensemble", **{**SEARCH, "beam_width": 4}, num_return_sequences=2)
    assert two["text_output"] == all_of_them["text_output"][:2]
    one = generate(beams, "ensemble", **{**SEARCH, "beam_width": 4}, num_return_sequences=1)
    assert one["text_output"] == all_of_them["text_output"][0]
    assert "sequence_index" not in two


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"beam_width": 9}, "Requested beam width 9 is larger than configured max beam width 8"),
        ({"beam_width": 0}, "beam_width: got 0, must be at least 1"),
        ({"beam_width": 2, "top_k": 5}, "top_k: got 5 with beam_width 2"),
        ({"beam_width": 2, "top_p": 0.5}, "top_p: got 0.5 with beam_width 2"),
    ],
)
def test_what_cannot_be_is_refused_and_nobody_is_disturbed(beams, values, message):
    answer = generate(beams, "ensemble", text_input=PROMPT, max_tokens=4, **values)
    assert message in answer["error"]
    assert generate(beams, "ensemble", **SEARCH)["text_output"][0] == f"{PROMPT} {ANSWER}"


def test_length_penalties_that_are_no_number_are_refused(beams):
    with triton.InferenceServerClient(beams.grpc) as client:
        for name in ("len_penalty", "beam_search_diversity_rate"):
            with pytest.raises(InferenceServerException, match=f"{name}: got nan"):
                client.infer("tensorrt_llm", llm_inputs(client, **{name: float("nan")}))


def test_infer_over_http_gives_the_same_beams(beams):
    body = {
        "inputs": [
            {"name": name, "datatype": datatype, "shape": [1, 1], "data": [value]}
            for name, datatype, value in (
                ("text_input", "BYTES", PROMPT), ("max_tokens", "INT32", 16), ("beam_width", "INT32", WIDTH),
                ("length_penalty", "FP32", 1.0), ("bad_words", "BYTES", ""), ("stop_words", "BYTES", ""),
            )
        ]
    }  # fmt: skip
    response = requests.post(url(beams, "ensemble", "infer"), json=body, timeout=60).json()
    (text,) = [o for o in response["outputs"] if o["name"] == "text_output"]
    assert text["shape"] == [WIDTH]
    assert text["data"] == generate(beams, "ensemble", **SEARCH)["text_output"]

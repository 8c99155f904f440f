# SPDX-License-Identifier: Apache-2.0
"""Several sequences of one request through public clients: num_return_sequences of the releases that have it."""

import collections

import pytest
import requests
import tritonclient.grpc as triton
from live_server import SAME_AMONG_OTHERS
from llm_client import Stream
from release_repositories import write_repository
from test_repositories import DEMO, END_ID, FILLED, PROMPT, generate_stream, serving, typed_inputs, url
from tokenizers import Tokenizer

PROMPT_IDS = Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(PROMPT, add_special_tokens=False).ids
SAMPLED = {"top_k": 40, "temperature": 8.0, "random_seed": 7, "max_tokens": 12, "text_input": PROMPT}


@pytest.fixture(scope="module", params=[14, 16])
def release(request, tmp_path_factory):
    """A server of the release's repository."""
    tmp_path = tmp_path_factory.mktemp("sequences")
    repository = write_repository(tmp_path / "repository", request.param, **FILLED)
    with serving(tmp_path, repository, *SAME_AMONG_OTHERS) as server:
        server.release = request.param
        yield server


def texts_of(chunks):
    """The text of each sequence; a chunk without an index belongs to the only one."""
    texts = collections.defaultdict(str)
    for chunk in chunks:
        assert "error" not in chunk, chunk
        texts[chunk.get("sequence_index", 0)] += chunk["text_output"]
    return dict(texts)


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_each_sequence_is_what_its_own_seed_gives_alone(release, model):
    streamed = texts_of(generate_stream(release, model, **SAMPLED, num_return_sequences=3))
    assert sorted(streamed) == [0, 1, 2]
    assert len(set(streamed.values())) == 3, "seeds differ"
    for index, text in streamed.items():
        alone = generate_stream(release, model, **{**SAMPLED, "random_seed": SAMPLED["random_seed"] + index})
        assert texts_of(alone) == {0: text}
        assert all("sequence_index" not in chunk for chunk in alone)
    values = {**SAMPLED, "num_return_sequences": 3, "exclude_input_in_output": True}
    if release.release < 16:
        return  # the ensemble of 0.14 cannot keep the prompt out
    with requests.post(url(release, model, "generate_stream"), json=values, stream=True, timeout=60) as response:
        whole = [line for line in response.iter_lines() if line]
    assert len(whole) == 3, "without streaming each sequence is one response"


def llm_request(client, **values):
    lengths = {"input_lengths": len(PROMPT_IDS), "request_output_len": 8, "end_id": END_ID}
    return typed_inputs(client, "tensorrt_llm", input_ids=PROMPT_IDS, **lengths, **values)


def answers_of(client, **values):
    """The responses of one request that have outputs."""
    with Stream(client) as stream:
        stream.send("r", llm_request(client, **values), model="tensorrt_llm", enable_empty_final_response=True)
        return [r for r in stream.receive_until_final() if r.get_response().outputs]


def test_the_token_model_answers_each_sequence_by_its_index(release):
    sampling = {"runtime_top_k": 40, "temperature": 8.0, "return_log_probs": True}
    with triton.InferenceServerClient(release.grpc) as client:
        together = answers_of(client, **sampling, random_seed=3, num_return_sequences=2)
        assert sorted(int(r.as_numpy("sequence_index").item()) for r in together) == [0, 1]
        for result in together:
            index = int(result.as_numpy("sequence_index").item())
            (alone,) = answers_of(client, **sampling, random_seed=3 + index)
            for name in ("output_ids", "sequence_length", "output_log_probs", "cum_log_probs"):
                assert result.as_numpy(name).tolist() == alone.as_numpy(name).tolist(), name
        streamed = answers_of(client, **sampling, random_seed=3, num_return_sequences=2, streaming=True)
        for index in (0, 1):
            ids = [
                token
                for r in streamed
                if r.as_numpy("sequence_index").item() == index
                for token in r.as_numpy("output_ids").reshape(-1).tolist()
            ]
            (whole,) = [r for r in together if r.as_numpy("sequence_index").item() == index]
            assert PROMPT_IDS + ids == whole.as_numpy("output_ids").reshape(-1).tolist()
        # 0.14 and 0.15 send the index wherever the tensor was sent, later ones where it is above 1.
        (single,) = answers_of(client, **sampling, num_return_sequences=1)
        assert (single.as_numpy("sequence_index") is not None) == (release.release < 16)


def test_a_unary_call_says_that_it_cannot_hold_several_answers(release):
    body = {**SAMPLED, "num_return_sequences": 2, "bad_words": "", "stop_words": ""}
    response = requests.post(url(release, "ensemble", "generate"), json=body, timeout=60)
    assert "exactly 1 response" in response.json()["error"]


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_counts_out_of_range_are_refused_by_name(release, count):
    (chunk,) = generate_stream(release, "ensemble", **SAMPLED, num_return_sequences=count)
    assert f"num_return_sequences: got {count}, must be in [1, 1024]" in chunk["error"]

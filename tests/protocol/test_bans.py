# SPDX-License-Identifier: Apache-2.0
"""Bans, biases and minimal lengths by what they forbid and force, over both protocols, through pipelines and by the LLM alone."""

import itertools
import json

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from live_server import DEMO, start_server
from llm_client import Stream, events
from release_repositories import write_repository
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

TOKENIZER = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
VOCAB_SIZE = json.loads((DEMO / "config.json").read_text())["vocab_size"]
END_ID = json.loads((DEMO / "config.json").read_text())["eos_token_id"][0]
STORY = "Tell me a story about a fox."
EXAMPLE = json.loads((DEMO / "demo_requests.json").read_text())[0]
QUESTION, ANSWER = EXAMPLE["text_input"], EXAMPLE["expected"]
PIPELINES = ["ensemble", "tensorrt_llm_bls"]
WAYS = ["http", "http stream", "grpc", "grpc stream"]
NGRAMS = "input [ { name: 'no_repeat_ngram_size' data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } optional: true } ]"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A repository of 0.12, whose LLM also declares the tensor of later releases."""
    path = tmp_path_factory.mktemp("bans")
    repository = write_repository(
        path / "repository", 12, engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="True", exclude_input_in_output="True"
    )
    with open(repository / "tensorrt_llm" / "config.pbtxt", "a") as config:
        config.write(NGRAMS + "\n")
    server = start_server(path, None, "--model-repository", repository)
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def tensors(library, types, values):
    """Tensors [1, ...] of the library's kind."""
    inputs = []
    for name, value in values.items():
        array = np.array(value if isinstance(value, (list, np.ndarray)) else [value])
        if array.dtype.kind == "U":
            array = np.array([text.encode() for text in array], dtype=object)
        array = array.astype(triton_to_np_dtype(types[name]))[np.newaxis]
        tensor = library.InferInput(name, list(array.shape), types[name])
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return inputs


def results(server, way, model, **values):
    """What came back, response by response: a client's result each."""
    library = grpc_client if way.startswith("grpc") else http_client
    with library.InferenceServerClient(server.grpc if library is grpc_client else server.http) as client:
        metadata = client.get_model_metadata(model, as_json=True) if library is grpc_client else client.get_model_metadata(model)
        inputs = tensors(library, {i["name"]: i["datatype"] for i in metadata["inputs"]}, values)
        if not way.endswith("stream"):
            return [client.infer(model, inputs)]
        with Stream(client) as stream:
            stream.send("", inputs, model=model, enable_empty_final_response=True)
            return [r for r in stream.receive_until_final() if r.get_response().outputs]


def text(server, way, model, prompt=STORY, max_tokens=24, **values):
    values = {"text_input": prompt, "max_tokens": max_tokens, "stream": way.endswith("stream"), **values}
    if way == "http stream":
        with requests.post(f"http://{server.http}/v2/models/{model}/generate_stream", json=values, stream=True, timeout=60) as r:
            return "".join(event["text_output"] for event in events(r))
    return "".join(r.as_numpy("text_output").reshape(-1)[0].decode() for r in results(server, way, model, **values))


def ids(server, way, prompt=STORY, max_tokens=24, **values):
    """What `tensorrt_llm` alone generates."""
    tokens = TOKENIZER.encode(prompt).ids if isinstance(prompt, str) else prompt
    values = {"input_ids": tokens, "input_lengths": len(tokens), "request_output_len": max_tokens, **values}
    generated = []
    for result in results(server, way, "tensorrt_llm", streaming=way.endswith("stream"), **values):
        length = int(result.as_numpy("sequence_length").reshape(-1)[0])
        generated += result.as_numpy("output_ids").reshape(-1)[:length].tolist()
    return generated


def error(server, model, **values):
    with pytest.raises(InferenceServerException) as raised:
        results(server, "http", model, **values)
    return raised.value.message()


def word_list(*words):
    flat, ends = list(itertools.chain(*words)), np.cumsum([len(word) for word in words]).tolist()
    return np.array([flat, ends + [-1] * (len(flat) - len(ends))])


CORE_WAYS = ["http", "grpc", "grpc stream"]  # word lists are no JSON of generate_stream
every_pipeline = pytest.mark.parametrize("model", PIPELINES)
every_way = pytest.mark.parametrize("way", WAYS)
every_core_way = pytest.mark.parametrize("way", CORE_WAYS)


# --- the pipelines ---


@every_pipeline
@every_way
def test_a_bad_word_never_appears(served, way, model):
    free = text(served, way, model)
    word = max(free.split(), key=len).strip(".,")
    banned = text(served, way, model, bad_words=[word, " " + word])
    assert word in free and word not in banned and banned != ""


@every_pipeline
def test_a_bad_word_is_no_part_of_others_nor_begun_by_the_prompt(served, model):
    free = text(served, "http", model)
    banned = text(served, "http", model, bad_words=["ear"])
    assert "ear" in free and "ear" not in banned and banned != ""
    across = STORY[-1] + free[0]
    assert text(served, "http", model, bad_words=[across])[0] != free[0]
    assert text(served, "http", model, bad_words=["!" + across, "\N{SNOWMAN}"]) == free


@every_pipeline
def test_too_long_bad_words_are_named(served, model):
    message = error(served, model, text_input=STORY, max_tokens=4, bad_words=["x" * 40000] * 2)
    assert "bad_words: got words of 80000 bytes in all, at most 65536 are allowed (send fewer)" in message


@every_pipeline
@every_way
def test_the_end_comes_not_before_the_minimal_length(served, way, model):
    short = text(served, way, model, prompt=QUESTION)
    assert short.strip() == ANSWER
    long = text(served, way, model, prompt=QUESTION, min_length=24)
    assert long.startswith(short) and len(TOKENIZER.encode(long).ids) >= 20


@every_pipeline
@every_way
def test_a_bias_forces_and_forbids_a_word(served, way, model):
    forced = text(served, way, model, max_tokens=6, embedding_bias_words=[" fox"], embedding_bias_weights=[1000.0])
    assert forced.split() == ["fox"] * 6
    free = text(served, way, model)
    word = max(free.split(), key=len).strip(".,")
    weights = {"embedding_bias_words": [word, " " + word], "embedding_bias_weights": [-1000.0, -1000.0]}
    assert word not in text(served, way, model, **weights)


@every_pipeline
@every_way
def test_a_seed_repeats_beside_all_rules(served, way, model):
    rules = {"top_p": 0.95, "temperature": 1.5, "min_length": 8, "bad_words": [" fox"], "repetition_penalty": 1.2}
    first, again, other = (text(served, way, model, random_seed=seed, **rules) for seed in (7, 7, 8))
    assert first == again != other
    assert "fox" not in first


@every_pipeline
def test_wrong_biases_are_named(served, model):
    ask = {"text_input": STORY, "max_tokens": 4}
    message = error(served, model, **ask, embedding_bias_words=["a", "b"], embedding_bias_weights=[1.0])
    assert "embedding_bias_words and embedding_bias_weights must have the same dimension, got 2 words and 1 weights" in message
    message = error(served, model, **ask, embedding_bias_words=["a"], embedding_bias_weights=[float("nan")])
    assert "embedding_bias_weights[0]: got nan" in message
    assert "min_length: got -1, must be at least 0" in error(served, model, **ask, min_length=-1)


# --- the LLM alone ---


@every_core_way
def test_banned_ids_never_appear(served, way):
    free = ids(served, way)
    banned = ids(served, way, bad_words_list=word_list(*([i] for i in set(free))))
    assert len(banned) == len(free) and not set(banned) & set(free)


@every_core_way
def test_a_word_of_two_ids_never_appears_but_its_parts_may(served, way):
    free = ids(served, way)
    pairs = set(itertools.pairwise(free))
    banned = ids(served, way, bad_words_list=word_list(*([a, b] for a, b in pairs)))
    assert not set(itertools.pairwise(banned)) & pairs
    assert banned[0] == free[0]


@every_core_way
def test_a_word_may_begin_in_the_prompt(served, way):
    last, first = TOKENIZER.encode(STORY).ids[-1], ids(served, way)[0]
    assert ids(served, way, bad_words_list=word_list([last, first]))[0] != first
    assert ids(served, way, bad_words_list=word_list([last + 1, first]))[0] == first


@every_core_way
def test_no_ngram_appears_twice(served, way):
    prompt = TOKENIZER.encode("One two three. One two three. One two").ids
    end_never = {"min_length": 60, "end_id": END_ID, "max_tokens": 60}

    def ngrams(generated):
        tokens = prompt + generated
        return [tuple(tokens[i : i + 3]) for i in range(len(tokens) - 2)]

    free = ngrams(ids(served, way, prompt=prompt, **end_never))
    assert len(set(free)) < len(free)
    of_prompt = ngrams([])
    found = ngrams(ids(served, way, prompt=prompt, **end_never, no_repeat_ngram_size=3))[len(of_prompt) :]
    assert len(found) == 60 and len(set(found)) == 60 and not set(found) & set(of_prompt)


@every_core_way
@pytest.mark.parametrize("forced", [0, 5, VOCAB_SIZE - 1])
def test_a_dense_bias_forces_an_id(served, way, forced):
    bias = np.zeros(VOCAB_SIZE)
    bias[forced] = 1000.0
    assert ids(served, way, max_tokens=5, embedding_bias=bias) == [forced] * 5


# Top-p falls to almost nothing after the first token: the others are the likeliest.
@every_core_way
def test_a_top_p_that_decays_ends_greedy(served, way):
    sampled = {"runtime_top_p": 1.0, "temperature": 50.0, "random_seed": 11}
    decayed = ids(served, way, **sampled, runtime_top_p_decay=1e-6, runtime_top_p_min=1e-6)
    assert decayed[0] == ids(served, way, **sampled)[0]
    assert decayed[1:] == ids(served, way, prompt=TOKENIZER.encode(STORY).ids + decayed[:1], max_tokens=23)
    reset = ids(served, way, **sampled, runtime_top_p_decay=1e-6, runtime_top_p_min=1e-6, runtime_top_p_reset_ids=decayed[1])
    assert reset[:2] == decayed[:2] and reset != decayed


def test_values_out_of_bounds_are_named(served):
    tokens = TOKENIZER.encode(STORY).ids
    ask = {"input_ids": tokens, "input_lengths": len(tokens), "request_output_len": 4}
    for values, message in [
        ({"embedding_bias": np.zeros(5)}, f"embedding_bias: got 5 values, the engine's vocabulary has {VOCAB_SIZE}"),
        ({"embedding_bias": np.full(VOCAB_SIZE, np.nan)}, "embedding_bias[0]: got nan, must be finite"),
        ({"bad_words_list": word_list([VOCAB_SIZE])}, f"bad_words[0]: got id {VOCAB_SIZE}, the engine's vocabulary is [0, "),
        ({"bad_words_list": np.array([[1], [2]])}, "Sparse list must not have out-of-bound offsets"),
        ({"min_length": -1}, "min_length: got -1, must be at least 0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size: got -1, must be at least 0"),
        ({"runtime_top_p_decay": 0.0}, "runtime_top_p_decay: got 0, must be in (0, 1]"),
        ({"runtime_top_p_decay": float("nan")}, "runtime_top_p_decay: got nan, must be in (0, 1]"),
        ({"runtime_top_p_min": 2.0}, "runtime_top_p_min: got 2, must be in [0, 1]"),
        ({"runtime_top_p_reset_ids": VOCAB_SIZE}, f"top_p_reset_id: got {VOCAB_SIZE}, must be in [-1, {VOCAB_SIZE})"),
    ]:
        assert message in error(served, "tensorrt_llm", **ask, **values)
    assert len(ids(served, "http")) > 0  # nobody else is disturbed

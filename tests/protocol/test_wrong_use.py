# SPDX-License-Identifier: Apache-2.0
"""Each wrong use of the token model: status and text over HTTP and gRPC, while somebody else's stream goes on undisturbed.

What pipelines and batches add to this is in test_bans.py, test_beams.py and test_batches.py.
"""

import concurrent.futures
import json

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from live_server import DEMO, start_server
from llm_client import Stream, is_final, wait_until_idle
from release_repositories import write_repository
from test_repositories import generate_stream
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

CONFIG = json.loads((DEMO / "config.json").read_text())
VOCAB_SIZE, MAX_SEQ_LEN = CONFIG["vocab_size"], CONFIG["max_position_embeddings"]
IDS = [5, 6, 7, 8]
MODEL = "tensorrt_llm"
# Without bytes to fall back to: there are texts that it has no word for.
FEW_WORDS = {"model": {"type": "BPE", "unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1, "b": 2}, "merges": []}}
NAN, INFINITY = float("nan"), float("inf")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("wrong")
    repository = write_repository(
        path / "repository", 16, engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="True", max_beam_width="4"
    )
    words = path / "few_words"
    words.mkdir()
    (words / "tokenizer.json").write_text(json.dumps(FEW_WORDS))
    others = ("ensemble", "tensorrt_llm", "tensorrt_llm_bls", "postprocessing")
    write_repository(path / "repository", 16, suffix="_of_few_words", without=others, tokenizer_dir=words)
    server = start_server(path, None, "--model-repository", repository)
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def word_list(ids, ends):
    return np.array([[ids, ends]], np.int32)


WRONG = {
    "beams beyond the limit": (
        {"beam_width": 5}, "Requested beam width 5 is larger than configured max beam width 4 (beam_width)",
    ),
    "beams that are drawn by top-k": ({"beam_width": 2, "runtime_top_k": 5}, "top_k: got 5 with beam_width 2"),
    "beams that are drawn by top-p": ({"beam_width": 2, "runtime_top_p": 0.5}, "top_p: got 0.5 with beam_width 2"),
    "more answers than beams": (
        {"beam_width": 2, "num_return_sequences": 3}, "num_return_sequences: got 3, must be at most beam_width, which is 2",
    ),
    "no beams": ({"beam_width": 0}, "beam_width: got 0, must be at least 1"),
    "a bias of another size": (
        {"embedding_bias": [np.zeros(7)]}, f"embedding_bias: got 7 values, the engine's vocabulary has {VOCAB_SIZE}",
    ),
    "a bias that is no number": ({"embedding_bias": [np.full(VOCAB_SIZE, NAN)]}, "embedding_bias[0]: got nan, must be finite"),
    "a negative length": ({"request_output_len": -3}, "request_output_len: got -3, must be at least 1"),
    "a negative prompt": ({"input_lengths": -1}, "input_lengths: got -1, must be at least 1"),
    "a negative minimum": ({"min_length": -1}, "min_length: got -1, must be at least 0"),
    "a temperature that is no number": ({"temperature": NAN}, "temperature: got nan, must be a finite number of at least 0"),
    "an infinite temperature": ({"temperature": INFINITY}, "temperature: got inf"),
    "a top-p that is no number": ({"runtime_top_p": NAN}, "runtime_top_p: got nan, must be at most 1"),
    "a penalty that is no number": ({"repetition_penalty": NAN}, "repetition_penalty: got nan, must be a finite number above 0"),
    "a presence that is no number": ({"presence_penalty": NAN}, "presence_penalty: got nan, must be finite"),
    "a length penalty that is no number": ({"len_penalty": NAN}, "len_penalty: got nan, must be finite"),
    "more prompt than ids": ({"input_lengths": 99}, "input_lengths: got 99, must be at most 4, the number of input ids"),
    "words that end before they begin": (
        {"stop_words_list": word_list([1, 2, 3], [2, 1, -1])}, "Sparse list must not have non-increasing offsets",
    ),
    "words that end behind the list": (
        {"bad_words_list": word_list([1, 2], [5, -1])}, "Sparse list must not have out-of-bound offsets",
    ),
    "a vector where a number belongs": (
        {"temperature": [[1.0, 2.0]]},
        f"unexpected shape for input 'temperature' for model '{MODEL}'. Expected [-1,1], got [1,2]",
    ),
    "rows that differ": ({"input_ids": np.array([IDS, IDS], np.int32)}, "batch size does not match other inputs"),
    "a prompt id beyond the vocabulary": (
        {"input_ids": [[5, VOCAB_SIZE]], "input_lengths": 2},
        f"input_ids: got token id {VOCAB_SIZE}, must be in [0, {VOCAB_SIZE})",
    ),
    "a negative prompt id": ({"input_ids": [[-1]], "input_lengths": 1}, "input_ids: got token id -1"),
    "a stop word beyond the vocabulary": (
        {"stop_words_list": word_list([VOCAB_SIZE], [1])}, f"stop_words[0]: got id {VOCAB_SIZE}, the engine's vocabulary is [0, ",
    ),
    "a bad word below it": ({"bad_words_list": word_list([-4], [1])}, "bad_words[0]: got id -4, the engine's vocabulary is [0, "),
    "a prompt over the limit": (
        {"input_ids": [[5] * (MAX_SEQ_LEN + 1)], "input_lengths": MAX_SEQ_LEN + 1},
        f"Prompt length ({MAX_SEQ_LEN + 1}) exceeds maximum input length (",
    ),
    "no length of the answer": ({"request_output_len": None}, "request_output_len"),
    "a stop of nobody in particular": ({"stop": True}, "Trying to stop a request but request ID is not provided"),
}  # fmt: skip


def tensors(library, types, values):
    inputs = []
    for name, value in values.items():
        if value is None:
            continue
        array = np.array(value, dtype=triton_to_np_dtype(types[name]))
        if array.ndim == 0:
            array = array.reshape(1, 1)
        tensor = library.InferInput(name, list(array.shape), types[name])
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return inputs


@pytest.fixture(scope="module")
def types(server):
    with http_client.InferenceServerClient(server.http) as client:
        return {i["name"]: i["datatype"] for i in client.get_model_metadata(MODEL)["inputs"]}


def ask(library, client, types, request_id="", **values):
    required = {"input_ids": [IDS], "input_lengths": len(IDS), "request_output_len": 4}
    return client.infer(MODEL, tensors(library, types, {**required, **values}), request_id=request_id)


def victim(server):
    """A stream of somebody else."""
    request = {"text_input": "Tell me a story about a fox.", "max_tokens": 120, "end_id": -1}
    return [event.get("text_output", event) for event in generate_stream(server, "ensemble", **request)]


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_status_and_text_and_nobody_else_is_disturbed(server, types, transport):
    library = {"http": http_client, "grpc": grpc_client}[transport]
    alone = victim(server)
    with (
        library.InferenceServerClient(getattr(server, transport)) as client,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        beside = pool.submit(victim, server)
        for what, (values, text) in WRONG.items():
            with pytest.raises(InferenceServerException) as raised:
                ask(library, client, types, **values)
            error = raised.value
            assert text in error.message(), what
            assert error.status() in ("400", "StatusCode.INVALID_ARGUMENT"), f"{what}: {error.status()} {error.message()}"
        assert beside.result() == alone
        plain = ask(library, client, types)
        assert plain.as_numpy("sequence_length")[0, 0] == len(IDS) + 4
    wait_until_idle(server)


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_bias_of_a_word_that_the_tokenizer_does_not_know(server, transport):
    library = {"http": http_client, "grpc": grpc_client}[transport]
    types = {"QUERY": "BYTES", "REQUEST_OUTPUT_LEN": "INT32", "EMBEDDING_BIAS_WORDS": "BYTES", "EMBEDDING_BIAS_WEIGHTS": "FP32"}
    with library.InferenceServerClient(getattr(server, transport)) as client:

        def preprocess(*words):
            values = {"EMBEDDING_BIAS_WORDS": [words], "EMBEDDING_BIAS_WEIGHTS": [[9.0] * len(words)]}
            inputs = tensors(library, types, {"QUERY": [[b"ab"]], "REQUEST_OUTPUT_LEN": 3, **values})
            return client.infer("preprocessing_of_few_words", inputs)

        assert np.flatnonzero(preprocess(b"b").as_numpy("EMBEDDING_BIAS")).tolist() == [2]
        with pytest.raises(InferenceServerException) as raised:
            preprocess(b"a", b"ax")
    assert "EMBEDDING_BIAS_WORDS[1]: 'ax' is not in the tokenizer's vocabulary" in raised.value.message()
    assert raised.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")


def test_two_requests_of_one_id_both_run(server, types):
    """From 0.10 on; a stop reaches them."""
    with grpc_client.InferenceServerClient(server.grpc) as client, Stream(client) as stream:
        for n in (3, 5):
            values = {"input_ids": [IDS], "input_lengths": len(IDS), "request_output_len": n}
            stream.send("twin", tensors(grpc_client, types, values), model=MODEL, enable_empty_final_response=True)
        lengths = []
        while len(lengths) < 2:
            result, error = stream.receive()
            assert error is None
            assert is_final(result) and result.get_response().id == "twin"
            lengths.append(int(result.as_numpy("sequence_length")[0, 0]) - len(IDS))
    assert sorted(lengths) == [3, 5]


def test_a_stop_of_an_unknown_id_is_acknowledged(server, types):
    """From 0.10 on it is no error: the request may have ended meanwhile."""
    with grpc_client.InferenceServerClient(server.grpc) as client:
        result = ask(grpc_client, client, types, request_id="never seen", stop=True)
        assert list(result.get_response().outputs) == []
        assert result.get_response().id == "never seen"

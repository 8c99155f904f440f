# SPDX-License-Identifier: Apache-2.0
"""Speculation as clients see it: a server with drafts answers what one without does, and drafts of a client are judged."""

import concurrent.futures
import re

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from live_server import DEMO, ROOT, start_error, start_server
from llm_client import Stream
from test_repositories import INFLIGHT, generate, generate_stream, typed_inputs
from tritonclient.utils import InferenceServerException

LIST = "apples, pears, plums, apples, pears, plums, apples, pears,"
EAGLE = ROOT / "tests/golden/eagle"  # heads of the demo model
OTHER = ROOT / "tests/golden/data/llama_gqa4"  # of another vocabulary
PROMPTS = [
    LIST,
    "Once upon a time, there was a cat. Once upon a time, there was a dog. Once upon a time, there was",
    "1 + 1 = 2. 2 + 2 = 4. 1 + 1 = 2. 2 + 2 =",
    "The capital of France is",
]
KINDS = [
    {},
    {"top_k": 8, "temperature": 0.6, "random_seed": 3},
    {"top_p": 0.9, "temperature": 0.8, "random_seed": 4},
    {"top_k": 20, "random_seed": 5, "repetition_penalty": 1.1},
    {"stop_words": [" plums"], "frequency_penalty": 0.1},
    {"bad_words": [" pears"], "min_length": 12},
]
QUESTIONS = [{"text_input": prompt, "max_tokens": 40, **kind} for prompt in PROMPTS for kind in KINDS]


@pytest.fixture(scope="module")
def speculating(tmp_path_factory):
    server = start_server(tmp_path_factory.mktemp("speculating"), DEMO, "--speculation", "ngram", "--max-draft-len", 6)
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def two_models(tmp_path_factory):
    server = start_server(tmp_path_factory.mktemp("two_models"), DEMO, "--draft-model", DEMO)
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def counted(server):
    """Draft tokens so far, and those accepted."""
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    names = ("inflight_draft_tokens_total", "inflight_draft_tokens_accepted_total")
    return [int(re.search(rf"^{name}{{.*}} (\d+)$", page, re.MULTILINE)[1]) for name in names]


def ask(server, question):
    answer = generate(server, "ensemble", return_log_probs=True, **question)
    return {name: answer[name] for name in ("text_output", "output_log_probs", "cum_log_probs")}


@pytest.fixture(scope="module")
def expected(plain):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda question: ask(plain, question), QUESTIONS))


@pytest.mark.parametrize("at_once", [1, 8])
def test_answers_are_the_same(plain, expected, speculating, at_once):
    before = counted(speculating)
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        answers = list(pool.map(lambda question: ask(speculating, question), QUESTIONS))
    assert answers == expected
    drafted, accepted = (after - earlier for after, earlier in zip(counted(speculating), before, strict=True))
    assert drafted >= accepted
    assert drafted > 0 or at_once > 1, "the first ones of a server are tried; later how many depends on what steps cost"
    assert counted(plain) == [0, 0]


def test_a_draft_model_changes_no_answer(expected, two_models):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda question: ask(two_models, question), QUESTIONS))
    assert answers == expected
    drafted, accepted = counted(two_models)
    assert 0 < drafted / 2 < accepted <= drafted, "the model itself proposes"


@pytest.mark.parametrize("version", [1, 3])
def test_a_head_of_eagle_changes_no_answer(expected, tmp_path, version):
    server = start_server(tmp_path, DEMO, "--draft-model", EAGLE / f"v{version}", "--speculation", "eagle")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda question: ask(server, question), QUESTIONS))
    assert answers == expected
    drafted, accepted = counted(server)
    assert 0 < accepted <= drafted
    assert server.stop() == 0, server.log.read_text()[-4000:]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--draft-model", EAGLE / "v1", "--speculation", "medusa"], "draft_model: Medusa's heads propose tokens already"),
        (["--draft-model", DEMO, "--speculation", "eagle"], "which is no head of EAGLE"),
        (["--speculation", "eagle"], "speculation: got eagle, there is no head of EAGLE"),
        (["--draft-model", DEMO, "--speculation", "ngram"], "draft_model: n-grams propose tokens already"),
        (["--draft-model", DEMO, "--speculation", "suffix"], "draft_model: texts propose tokens already"),
        (["--draft-model", OTHER], "draft_model: its vocabulary has "),
        (["--draft-model", "/nowhere"], "draft_model"),
        (["--speculation", "ngram", "--max-draft-len", 64], "max_draft_len: got 64, must be in [1, 64)"),
    ],
)
def test_what_cannot_propose_is_refused_at_the_start(options, message):
    command = [INFLIGHT, "run", DEMO, "--device", "cpu", "--prompt", "a", *options]
    assert message in start_error(command)


def test_an_answer_that_comes_again_is_drafted_from_the_first(plain, tmp_path):
    server = start_server(tmp_path, DEMO, "--speculation", "suffix", "--max-draft-len", 6)
    question = {"text_input": "Tell me a story about a fox.", "max_tokens": 120}
    asked = [ask(server, question), counted(server), ask(server, question), counted(server)]
    assert asked[0] == asked[2] == ask(plain, question)
    drafted, accepted = (after - earlier for after, earlier in zip(asked[3], asked[1], strict=True))
    assert 0 < drafted / 2 < accepted, "the same story comes again"
    assert server.stop() == 0


def test_streams_are_the_same_text(plain, speculating):
    for question in QUESTIONS[::3]:
        texts = ["".join(c["text_output"] for c in generate_stream(server, "ensemble", **question))
                 for server in (plain, speculating)]  # fmt: skip
        assert texts[0] == texts[1]


@pytest.fixture(scope="module")
def told_twice(plain):
    """A story of the model's, twice, and how it begins."""
    story = generate(plain, "ensemble", text_input="Tell me a story about a fox.", max_tokens=200)["text_output"]
    return f"{story}\n{story}\n{story[:90]}"


def test_what_stood_there_before_is_drafted_and_accepted(plain, speculating, told_twice):
    question = {"text_input": told_twice, "max_tokens": 60}
    before = counted(speculating)
    assert ask(speculating, question) == ask(plain, question)
    drafted, accepted = (after - earlier for after, earlier in zip(counted(speculating), before, strict=True))
    assert 0 < drafted / 2 < accepted, "most of the story comes again"


def test_a_request_leaves_drafts_out(speculating, told_twice):
    before = counted(speculating)
    question = {"text_input": told_twice, "max_tokens": 60}
    without = generate(speculating, "ensemble", disable_speculation=True, **question)
    assert counted(speculating) == before
    assert without["text_output"] == generate(speculating, "ensemble", **question)["text_output"]
    assert counted(speculating)[0] > before[0]


def llm_inputs(client, ids, max_tokens, **values):
    required = {"input_ids": ids, "input_lengths": len(ids), "request_output_len": max_tokens, "end_id": -1}
    return typed_inputs(client, "tensorrt_llm", **required, **values)


def output_ids(client, ids, max_tokens, **values):
    """New ids of an answer."""
    result = client.infer("tensorrt_llm", llm_inputs(client, ids, max_tokens, **values))
    return result.as_numpy("output_ids").reshape(-1).tolist()


PROMPT_IDS = [12, 45, 12, 45, 300, 12, 45]


def test_drafts_of_a_client_are_judged(speculating):
    with triton.InferenceServerClient(speculating.grpc) as client:
        for rule in ({}, {"runtime_top_k": 9, "random_seed": 11}):
            plain = output_ids(client, PROMPT_IDS, 7, **rule)
            for right in range(7):
                drafts = plain[:right] + [7 if plain[i] != 7 else 8 for i in range(right, 6)]
                answered = output_ids(client, PROMPT_IDS, 7, draft_input_ids=drafts, **rule)
                assert answered == plain[: right + 1]


def test_drafts_with_logits_over_a_stream(speculating):
    with triton.InferenceServerClient(speculating.grpc) as client:
        values = {"return_generation_logits": True, "runtime_top_k": 9, "random_seed": 12}
        result = client.infer("tensorrt_llm", llm_inputs(client, PROMPT_IDS, 6, **values))
        plain = result.as_numpy("output_ids").reshape(-1).tolist()
        logits = triton.InferInput("draft_logits", [1, 5, result.as_numpy("generation_logits").shape[-1]], "FP32")
        logits.set_data_from_numpy(result.as_numpy("generation_logits")[0, :, :5])
        inputs = llm_inputs(client, PROMPT_IDS, 6, draft_input_ids=plain[:5], streaming=True, **values)
        with Stream(client) as stream:
            stream.send("r", [*inputs, logits], model="tensorrt_llm", enable_empty_final_response=True)
            results = [r for r in stream.receive_until_final() if r.get_response().outputs]
        assert [r.as_numpy("output_ids").reshape(-1).tolist() for r in results] == [plain], "one step"
        same = result.as_numpy("generation_logits")[0, 0]
        np.testing.assert_array_equal(results[0].as_numpy("generation_logits").reshape(same.shape), same)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"draft_input_ids": [5] * 7}, r"Draft tokens length \(7\) exceeds maximum draft tokens length \(6\)\."),
        ({"draft_input_ids": [5], "beam_width": 2}, "Can't use speculative decoding with beam search."),
        ({"draft_input_ids": [1 << 20]}, r"draft_ids\[0\]: got 1048576"),
        ({"draft_acceptance_threshold": 2.0}, "draft_acceptance_threshold: got 2, must be in"),
    ],
)
def test_drafts_are_refused_by_name(speculating, values, message):
    with triton.InferenceServerClient(speculating.grpc) as client, pytest.raises(InferenceServerException, match=message):
        client.infer("tensorrt_llm", llm_inputs(client, PROMPT_IDS, 20, **values))


def test_drafts_need_a_limit(plain):
    message = r"Draft tokens length \(1\) exceeds .* \(0\)"
    with triton.InferenceServerClient(plain.grpc) as client, pytest.raises(InferenceServerException, match=message):
        client.infer("tensorrt_llm", llm_inputs(client, PROMPT_IDS, 4, draft_input_ids=[5]))

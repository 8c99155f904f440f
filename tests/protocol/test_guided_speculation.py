# SPDX-License-Identifier: Apache-2.0
"""Guides beside drafts, by public clients: whoever proposes, an answer is that of a server without drafts, and valid."""

import concurrent.futures
import json
import re

import jsonschema
import pytest
import requests
import tritonclient.grpc as triton
from live_server import DEMO, DEVICE, ROOT, start_server
from test_speculation import EAGLE, counted, llm_inputs

SCHEMA = {
    "type": "array",
    "minItems": 3,
    "maxItems": 5,
    "items": {
        "type": "object",
        "properties": {"name": {"enum": ["fox", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
}
FOXES = json.dumps([{"name": "fox", "age": 7}] * 4)
LIST = r"((apples|pears), ){3,9}plums\."
CHOICES = ["red and green and red and green and red", "blue"]
GUIDES = {
    "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "foxes", "schema": SCHEMA}}},
    "regex": {"structured_outputs": {"regex": LIST}},
    "choice": {"guided_choice": CHOICES},
    "object": {"response_format": {"type": "json_object"}, "max_tokens": 60},
}
TOLD = {"schema": FOXES, "regex": "apples, pears, apples, pears, apples, pears, plums.", "choice": CHOICES[0], "object": FOXES}
KINDS = [
    {},
    {"temperature": 0.8, "seed": 3, "top_p": 0.9},
    {"temperature": 1.5, "seed": 4, "logprobs": True, "top_logprobs": 3},
    {"temperature": 0.7, "seed": 5, "n": 2, "frequency_penalty": 0.2},
    {"stop": ["pears, apples", "dog", "green and"]},
    {"max_tokens": 9},
]
PROPOSERS = {
    "n-grams": ["--speculation", "ngram", "--max-draft-len", 6],
    "texts": ["--speculation", "suffix"],
    "a model": ["--draft-model", ROOT / "models/demo-draft"],
    **({} if DEVICE == "cuda" else {"EAGLE-3": ["--draft-model", EAGLE / "v3"]}),
}


@pytest.fixture(scope="module", params=PROPOSERS)
def drafting(request, tmp_path_factory):
    server = start_server(tmp_path_factory.mktemp("drafting"), DEMO, *PROPOSERS[request.param])
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def body(guide, kind, **more):
    """Text of the guide twice in the question, so that texts propose."""
    messages = [{"role": "user", "content": f"{TOLD[guide]}\n{TOLD[guide]}\n"}]
    return {"model": "demo", "messages": messages, "max_tokens": 120, **GUIDES[guide], **kind, **more}


QUESTIONS = [(guide, kind) for guide in GUIDES for kind in KINDS]


def ask(server, question):
    answer = requests.post(f"http://{server.http}/v1/chat/completions", json=body(*question), timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def check(guide, choice):
    """By programs that know nothing of guides, where the answer ended by itself."""
    text = choice["message"]["content"]
    if choice["finish_reason"] != "stop":
        return
    if guide == "schema":
        jsonschema.validate(json.loads(text), SCHEMA)
    elif guide == "regex":
        assert re.fullmatch(LIST, text), text
    elif guide == "choice":
        assert text in CHOICES
    else:
        assert isinstance(json.loads(text), dict)


@pytest.fixture(scope="module")
def expected(plain):
    return [ask(plain, question) for question in QUESTIONS]


@pytest.mark.parametrize("at_once", [1, 8])
def test_guided_answers_are_the_same_and_valid(expected, drafting, at_once):
    before = counted(drafting)
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        answers = list(pool.map(lambda question: ask(drafting, question), QUESTIONS))
    assert answers == expected
    for (guide, kind), choices in zip(QUESTIONS, answers, strict=True):
        for choice in choices:
            if "stop" not in kind:
                check(guide, choice)
    drafted, accepted = (after - earlier for after, earlier in zip(counted(drafting), before, strict=True))
    assert drafted >= accepted
    assert accepted > 0 or at_once > 1, "how many are tried depends on what steps cost"


def test_streams_are_the_same_text(expected, drafting):
    def streamed(server, question):
        answer = requests.post(f"http://{server.http}/v1/chat/completions", json=body(*question, stream=True), timeout=120)
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        choices = [choice for event in events for choice in event["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices), choices[-1]["finish_reason"]

    for question, (choice, *_) in zip(QUESTIONS, expected, strict=True):
        if "n" not in question[1]:
            assert streamed(drafting, question) == (choice["message"]["content"], choice["finish_reason"])


def guided(client, ids, max_tokens, **values):
    """New ids of an answer of `tensorrt_llm` that is guided by LIST."""
    values |= {"guided_decoding_guide_type": "regex", "guided_decoding_guide": LIST}
    result = client.infer("tensorrt_llm", llm_inputs(client, ids, max_tokens, **values))
    return result.as_numpy("output_ids").reshape(-1).tolist()


def test_drafts_of_a_client_are_judged_by_the_guide(tmp_path):
    server = start_server(tmp_path, DEMO, "--max-draft-len", 6)
    with triton.InferenceServerClient(server.grpc) as client:
        prompt = [12, 45, 12, 45, 300, 12, 45]
        for rule in ({}, {"runtime_top_k": 9, "random_seed": 11}):
            whole = guided(client, prompt, 7, **rule)
            for right in range(6):
                wrong = 300 if whole[right] != 300 else 301
                drafts = whole[:right] + [wrong] * (6 - right)
                assert guided(client, prompt, 7, draft_input_ids=drafts, **rule) == whole[: right + 1]
    assert server.stop() == 0, server.log.read_text()[-4000:]

# SPDX-License-Identifier: Apache-2.0
"""Answers that are guided, by public clients: what comes is what was asked for, by every road, and what is wrong is named.

The demo model knows nothing of such texts, so that each of them is the guide's work.
"""

import json
import math
import re
from typing import Annotated, Literal

import jsonschema
import openai
import pydantic
import pytest
import requests
from live_server import DEMO, start_server
from llm_client import wait_until_idle
from release_repositories import write_repository
from test_repositories import FILLED, serving
from tokenizers import Tokenizer

QUESTION = [{"role": "user", "content": "Tell me about a fox."}]
CHOICES = ["red", "green", "greenish blue"]
DATE = r"(19|20)\d\d-(0[1-9]|1[0-2])-[0-3]\d"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start_server(tmp_path_factory.mktemp("structured"))
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    """The repository of the release that brought the tensors."""
    folder = tmp_path_factory.mktemp("later")
    with serving(folder, write_repository(folder / "repository", 19, **FILLED)) as running:
        yield running


@pytest.fixture(scope="module")
def api(server):
    with openai.OpenAI(base_url=f"http://{server.http}/v1", api_key="none", max_retries=0) as made:
        yield made


def chat(api, **options):
    return api.chat.completions.create(**{"model": "demo", "messages": QUESTION, "max_tokens": 200, "seed": 5, **options})


def complete(api, **options):
    return api.completions.create(**{"model": "demo", "prompt": "Once", "max_tokens": 200, "seed": 5, **options})


def generate(server, model="ensemble", **fields):
    body = {"text_input": "Once upon a time", "max_tokens": 200, "exclude_input_in_output": True, **fields}
    return requests.post(f"http://{server.http}/v2/models/{model}/generate", json=body, timeout=120)


REGEX = [
    {"extra_body": {"guided_regex": DATE}},
    {"extra_body": {"structured_outputs": {"regex": DATE}}},
]


@pytest.mark.parametrize("options", REGEX)
@pytest.mark.parametrize("temperature", [0, 1, 5])
def test_answers_match_their_regular_expression(api, options, temperature):
    answer = chat(api, temperature=temperature, **options).choices[0]
    assert re.fullmatch(DATE, answer.message.content)
    assert answer.finish_reason == "stop"
    assert re.fullmatch(DATE, complete(api, temperature=temperature, **options).choices[0].text)


def test_a_stream_is_the_whole(api):
    options = {"temperature": 2, "extra_body": {"guided_regex": f"{DATE} and {DATE}"}}
    whole = chat(api, **options).choices[0].message.content
    pieces = [c.choices[0].delta.content or "" for c in chat(api, stream=True, **options)]
    assert "".join(pieces) == whole
    assert len(pieces) > 3


def test_every_answer_of_several_is_guided(api):
    answers = chat(api, n=8, temperature=5, extra_body={"guided_choice": CHOICES}).choices
    texts = [a.message.content for a in answers]
    assert set(texts) <= set(CHOICES)
    assert len(set(texts)) > 1
    assert {a.finish_reason for a in answers} == {"stop"}
    best = complete(api, n=1, best_of=4, temperature=5, extra_body={"guided_choice": CHOICES}).choices
    assert best[0].text in CHOICES


def test_log_probs_are_of_what_may_come(api):
    """Of two texts that begin apart, the first token's two probabilities are all."""
    answer = chat(api, temperature=0, logprobs=True, top_logprobs=5, extra_body={"guided_regex": "[ab]"}).choices[0]
    first = answer.logprobs.content[0]
    likely = {t.token: t.logprob for t in first.top_logprobs if t.logprob > -1e3}
    assert set(likely) == {"a", "b"}
    assert math.fsum(map(math.exp, likely.values())) == pytest.approx(1, abs=1e-5)
    assert answer.message.content == max(likely, key=likely.get) == first.token


def test_min_tokens_stop_and_length_keep_their_meaning(api):
    longest = chat(api, temperature=0, extra_body={"guided_regex": "a{1,30}", "min_tokens": 30}).choices[0]
    assert set(longest.message.content) == {"a"}
    cut = chat(api, temperature=0, max_tokens=2, extra_body={"guided_regex": DATE}).choices[0]
    assert cut.finish_reason == "length"
    assert not re.fullmatch(DATE, cut.message.content)
    stopped = chat(api, temperature=0, stop=["-"], extra_body={"guided_regex": DATE}).choices[0]
    assert re.fullmatch(r"(19|20)\d\d", stopped.message.content)
    assert stopped.finish_reason == "stop"


def test_a_whole_answer_ends_without_an_end_id(api):
    answer = chat(api, extra_body={"guided_choice": ["yes"], "ignore_eos": True}).choices[0]
    assert (answer.message.content, answer.finish_reason) == ("yes", "stop")


def test_guided_answers_stand_beside_free_ones(api):
    free = chat(api, temperature=0, max_tokens=12).choices[0].message.content
    batch = complete(api, prompt=["Once", "There was", "A fox"], extra_body={"guided_choice": CHOICES}).choices
    assert all(c.text in CHOICES for c in batch)
    assert chat(api, temperature=0, max_tokens=12).choices[0].message.content == free


@pytest.mark.parametrize(
    ("options", "param", "says"),
    [
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "beside guided_regex"),
        ({"guided_regex": "(a"}, "guided_regex", "guided_regex"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag", "is not supported"),
        ({"guided_choice": [1]}, "guided_choice[0]", "must be a string"),
        ({"guided_regex": r"\bfox"}, "guided_regex", r"\b"),
    ],
)
def test_a_wrong_guide_is_named(api, options, param, says):
    with pytest.raises(openai.BadRequestError) as error:
        chat(api, extra_body=options)
    assert error.value.param == param
    assert says in error.value.body["message"]


def test_bans_that_leave_nothing_end_the_request(server):
    answer = generate(server, guided_decoding_guide_type="regex", guided_decoding_guide="zq", bad_words=["z"])
    assert answer.status_code == 400, answer.text
    assert "guide: no token may come next" in answer.json()["error"]
    wait_until_idle(server)


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_repositories_of_later_releases_guide_too(later, model):
    answer = generate(later, model, guided_decoding_guide_type="regex", guided_decoding_guide=DATE)
    assert answer.status_code == 200, answer.text
    assert re.fullmatch(DATE, answer.json()["text_output"])


def test_each_beam_is_guided(server):
    beams = generate(server, beam_width=3, guided_decoding_guide_type="regex", guided_decoding_guide="(red|green|blue)(ish)?")
    assert beams.status_code == 200, beams.text
    texts = beams.json()["text_output"]
    texts = texts if isinstance(texts, list) else [texts]
    assert len(texts) == 3
    assert len(set(texts)) > 1  # two beams may spell one text by other tokens
    assert all(re.fullmatch("(red|green|blue)(ish)?", t) for t in texts), texts


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"guided_decoding_guide_type": "structural_tag", "guided_decoding_guide": "{}"}, "json_schema, regex"),
        ({"guided_decoding_guide_type": "regex"}, "needs a text in guided_decoding_guide"),
        ({"guided_decoding_guide": "a"}, "needs its type"),
        ({"guided_decoding_guide_type": "regex", "guided_decoding_guide": "(a"}, "guided_decoding_guide: "),
    ],
)
def test_wrong_tensors_are_named(server, fields, says):
    answer = generate(server, **fields)
    assert answer.status_code in (400, 501), answer.text
    assert says in answer.json()["error"]


def test_the_model_of_ids_is_guided_by_the_tokenizer_beside_it(server):
    inputs = [
        {"name": "input_ids", "datatype": "INT32", "shape": [1, 2], "data": [5, 6]},
        {"name": "input_lengths", "datatype": "INT32", "shape": [1, 1], "data": [2]},
        {"name": "request_output_len", "datatype": "INT32", "shape": [1, 1], "data": [30]},
        {"name": "guided_decoding_guide_type", "datatype": "BYTES", "shape": [1, 1], "data": ["regex"]},
        {"name": "guided_decoding_guide", "datatype": "BYTES", "shape": [1, 1], "data": [DATE]},
    ]
    answer = requests.post(f"http://{server.http}/v2/models/tensorrt_llm/infer", data=json.dumps({"inputs": inputs}), timeout=60)
    assert answer.status_code == 200, answer.text
    ids = next(o["data"] for o in answer.json()["outputs"] if o["name"] == "output_ids")
    assert re.fullmatch(DATE, Tokenizer.from_file(str(DEMO / "tokenizer.json")).decode(ids))


class Fox(pydantic.BaseModel):
    """Of bounded texts, so that the demo model, which would go on for ever, comes to an end."""

    name: Annotated[str, pydantic.Field(max_length=12)]
    age: Annotated[int, pydantic.Field(ge=0, le=20)]
    colour: Literal["red", "grey"]
    friends: Annotated[list[Annotated[str, pydantic.Field(max_length=5)]], pydantic.Field(max_length=2)]


SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["fox", "bear"]},
        "weight": {"type": "number", "minimum": 0, "maximum": 99},
        "home": {"type": ["string", "null"], "maxLength": 8},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        "inner": {"$ref": "#/$defs/inner"},
    },
    "required": ["kind", "weight", "inner"],
    "additionalProperties": False,
    "$defs": {"inner": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"],
                        "additionalProperties": False}},
}  # fmt: skip


def formatted(schema):
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}


@pytest.mark.parametrize("temperature", [0, 1, 5])
def test_a_class_of_pydantic_is_parsed(api, temperature):
    answer = api.chat.completions.parse(
        model="demo", messages=QUESTION, max_tokens=300, seed=3, temperature=temperature, response_format=Fox
    )
    assert isinstance(answer.choices[0].message.parsed, Fox)


def test_other_apis_have_their_own_names_for_a_schema(api, server):
    answer = api.responses.parse(model="demo", input="Invent a fox.", text_format=Fox, max_output_tokens=300, temperature=1)
    assert isinstance(answer.output_parsed, Fox)
    body = {
        "model": "demo", "messages": QUESTION, "max_tokens": 300,
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    }  # fmt: skip
    message = requests.post(f"http://{server.http}/v1/messages", json=body, timeout=60)
    assert message.status_code == 200, message.text
    jsonschema.validate(json.loads(message.json()["content"][0]["text"]), SCHEMA)


@pytest.mark.parametrize(
    "options",
    [
        {"response_format": formatted(SCHEMA)},
        {"extra_body": {"structured_outputs": {"json": SCHEMA}}},
        {"extra_body": {"guided_json": json.dumps(SCHEMA)}},
    ],
)
def test_answers_are_valid_for_their_schema(api, options):
    for choice in chat(api, n=6, temperature=3, max_tokens=400, **options).choices:
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)
    streamed = [c.choices[0].delta.content or "" for c in chat(api, temperature=3, max_tokens=400, stream=True, **options)]
    assert "".join(streamed) == chat(api, temperature=3, max_tokens=400, **options).choices[0].message.content


def test_beams_are_valid_for_their_schema(server):
    fields = {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": json.dumps(SCHEMA)}
    beams = generate(server, beam_width=3, max_tokens=400, **fields)
    assert beams.status_code == 200, beams.text
    for text in beams.json()["text_output"]:
        jsonschema.validate(json.loads(text), SCHEMA)


def test_any_json_object_is_one(api, server):
    """It may not end before max_tokens; what there is of it then is the beginning of one."""
    answer = chat(api, temperature=0, max_tokens=60, response_format={"type": "json_object"}).choices[0]
    assert answer.message.content.startswith("{")
    if answer.finish_reason == "stop":
        assert isinstance(json.loads(answer.message.content), dict)
    assert generate(server, guided_decoding_guide_type="json", max_tokens=20).json()["text_output"].startswith("{")


def test_a_grammar_is_followed(api):
    grammar = 'root ::= sum\nsum ::= digit | sum "+" digit\ndigit ::= [1-3]'
    for choice in chat(api, n=4, temperature=2, extra_body={"guided_grammar": grammar}).choices:
        assert choice.finish_reason == "length" or re.fullmatch(r"[1-3](\+[1-3])*", choice.message.content)


@pytest.mark.parametrize(
    ("options", "param", "says"),
    [
        ({"response_format": formatted({"type": "object", "not": {}})}, "response_format.json_schema.schema", "not"),
        ({"guided_json": {"properties": {"a": {"type": "int"}}}}, "guided_json", "/properties/a"),
        ({"guided_json": "{"}, "guided_json", "guided_json"),
        ({"guided_grammar": "root ::= x"}, "guided_grammar", "x"),
    ],
)
def test_a_wrong_schema_is_named_with_its_place(api, options, param, says):
    with pytest.raises(openai.BadRequestError) as error:
        chat(api, extra_body=options)
    assert error.value.param == param
    assert says in error.value.body["message"]

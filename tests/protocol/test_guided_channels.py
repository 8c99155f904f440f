# SPDX-License-Identifier: Apache-2.0
"""Guided answers of a model that answers in channels: it reasons as it would without a guide, and the message of its
channel `final`, the only one beside its reasoning, is what was asked for."""

import json
import re

import jsonschema
import openai
import pytest
import requests
from live_server import start_server
from scripted_model import write_scripted_model

REASONING = "They want a fox."
SCRIPTS = {
    "answers": f"<|channel|>analysis<|message|>{REASONING}<|end|><|start|>assistant<|channel|>final<|message|>It is red.",
    "announces": "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>Grey?",
    "opened": "It is a fox.<|end|><|start|>assistant<|channel|>final<|message|>No.",
}
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' or not loop.last or add_generation_prompt %}{{ m.role }}: {{ m.content }}\n"
    "{% else %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}{% endif %}{% endfor %}"
    "{% if false %}functions.<|channel|>analysis<|message|>{% endif %}{% if script %}{{ '<|' + script + '|>' }}{% endif %}"
    "{{ end }}"
)
QUESTION = [{"role": "user", "content": "Tell me about a fox."}]
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["fox", "bear"]}, "tame": {"type": "boolean"}},
    "required": ["kind", "tame"],
    "additionalProperties": False,
}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA}}
DATE = r"(19|20)\d\d-(0[1-9]|1[0-2])"
MARKED = "a<|end|><|start|>assistant<|channel|>analysis<|message|>b"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_scripted_model(tmp_path_factory.mktemp("scripted") / "scripted", TEMPLATE, SCRIPTS)


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    running = start_server(tmp_path_factory.mktemp("channels"), model)
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def ask(server, script="answers", end="", stream=False, **options):
    """Content, reasoning and finish reason, of which a stream says the same."""
    body = {
        "messages": QUESTION, "max_tokens": 300, "temperature": 0, "chat_template_kwargs": {"script": script, "end": end},
        **options,
    }  # fmt: skip
    answer = requests.post(f"http://{server.http}/v1/chat/completions", json={**body, "stream": stream}, timeout=60)
    assert answer.status_code == 200, answer.text
    if not stream:
        (choice,) = answer.json()["choices"]
        message = choice["message"]
        return message["content"] or "", message.get("reasoning_content") or "", choice["finish_reason"]
    content, reasoning, reason = "", "", None
    for event in (json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")):
        (choice,) = event["choices"]
        content += choice["delta"].get("content") or ""
        reasoning += choice["delta"].get("reasoning_content") or ""
        reason = choice["finish_reason"] or reason
    return content, reasoning, reason


def refused(server, **options):
    body = {"messages": QUESTION, "chat_template_kwargs": {"script": "answers", "end": ""}, **options}
    answer = requests.post(f"http://{server.http}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code in (400, 501), answer.text
    return answer.json()["error"]


def is_valid(text):
    jsonschema.validate(json.loads(text), SCHEMA)
    return True


GUIDES = [
    ({"response_format": JSON_SCHEMA}, is_valid),
    ({"structured_outputs": {"json": SCHEMA}}, is_valid),
    ({"guided_json": json.dumps(SCHEMA)}, is_valid),
    ({"guided_regex": DATE}, re.compile(DATE).fullmatch),
    ({"structured_outputs": {"choice": ["grey", "black"]}}, ["grey", "black"].__contains__),
    ({"guided_grammar": 'root ::= "(" [a-c] ")" | "[" root "]"'}, re.compile(r"(\[*)\([a-c]\)\]*").fullmatch),
]


@pytest.mark.parametrize(("options", "fits"), GUIDES)
@pytest.mark.parametrize("script", ["answers", "announces"])
def test_the_final_message_is_guided(server, options, fits, script):
    answer = ask(server, script, **options)
    content, reasoning, reason = answer
    assert fits(content), content
    assert reason == "stop"
    if script == "answers":
        assert reasoning == REASONING
    assert ask(server, script, stream=True, **options) == answer


def test_without_a_guide_it_answers_as_it_would(server):
    assert ask(server) == ("It is red.", REASONING, "stop")
    assert ask(server, "announces") == ("I look.\n\nGrey?", "", "stop")


def test_any_json_object_begins_as_one(server):
    for stream in (False, True):
        content, reasoning, _ = ask(server, stream=stream, response_format={"type": "json_object"}, max_tokens=60)
        assert content.startswith("{")
        assert reasoning == REASONING


@pytest.mark.parametrize("stream", [False, True])
def test_markers_in_a_guided_message_are_its_text(server, stream):
    assert ask(server, stream=stream, guided_choice=[MARKED]) == (MARKED, REASONING, "stop")


@pytest.mark.parametrize(("end", "reasoning"), [
    ("<|channel|>final<|message|>", ""), ("<|channel|>analysis<|message|>", "It is a fox."),
])  # fmt: skip
def test_a_prompt_may_begin_the_message(model, tmp_path, end, reasoning):
    """What the template writes last is the beginning of the answer's messages."""
    template = f"{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}<|opened|>{{# functions. {end} #}}{end}"
    template += "{# <|channel|>analysis<|message|> #}"
    (tmp_path / "channels.jinja").write_text(template)
    running = start_server(tmp_path, model, "--chat-template", str(tmp_path / "channels.jinja"))
    for stream in (False, True):
        content, thought, reason = ask(running, stream=stream, guided_choice=[MARKED])
        assert (content, reason) == (MARKED, "stop")
        assert bool(thought) == bool(reasoning)
    assert running.stop() == 0


def test_a_message_that_goes_on_is_guided_from_there(server):
    messages = [*QUESTION, {"role": "assistant", "content": '{"kind": '}]
    more = {"add_generation_prompt": False, "continue_final_message": True, "guided_choice": ['"fox"}' + MARKED]}
    body = {"messages": messages, "max_tokens": 200, "chat_template_kwargs": {"script": "", "end": ""}, **more}
    answer = requests.post(f"http://{server.http}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == '"fox"}' + MARKED


def test_other_apis_are_guided_too(server):
    with openai.OpenAI(base_url=f"http://{server.http}/v1", api_key="none", max_retries=0) as api:
        kwargs = {"chat_template_kwargs": {"script": "answers", "end": ""}}
        text = {"format": {"type": "json_schema", "name": "it", "schema": SCHEMA}}
        answer = api.responses.create(model="scripted", input="A fox?", text=text, temperature=0, extra_body=kwargs)
        assert is_valid(answer.output_text)
    body = {
        "model": "scripted", "messages": QUESTION, "max_tokens": 300, "temperature": 0,
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}, **kwargs,
    }  # fmt: skip
    message = requests.post(f"http://{server.http}/v1/messages", json=body, timeout=60)
    assert message.status_code == 200, message.text
    assert is_valid("".join(part["text"] for part in message.json()["content"] if part["type"] == "text"))


def test_reasoning_that_is_not_read_is_not_written(model, tmp_path):
    running = start_server(tmp_path, model, "--reasoning-format", "none")
    for stream in (False, True):
        content, reasoning, reason = ask(running, stream=stream, response_format=JSON_SCHEMA)
        assert is_valid(content)
        assert (reasoning, reason) == ("", "stop")
    assert running.stop() == 0


def test_reasoning_is_cut_where_its_tokens_are_used_up(tmp_path):
    model = write_scripted_model(tmp_path / "scripted", TEMPLATE, SCRIPTS, end="<|stop|>")
    running = start_server(tmp_path, model)
    lengths = []
    for budget in (0, 1, 2, 50):
        answer = ask(running, guided_choice=["grey", "black"], thinking_budget=budget)
        assert ask(running, stream=True, guided_choice=["grey", "black"], thinking_budget=budget) == answer
        content, reasoning, reason = answer
        assert (content in ("grey", "black"), reason) == (True, "stop")
        assert REASONING.startswith(reasoning)
        lengths.append(len(reasoning))
    assert lengths[0] == 0 < lengths[1] < lengths[2] < lengths[3] == len(REASONING)
    assert running.stop() == 0


@pytest.mark.parametrize(("options", "param", "says"), [
    ({"guided_json": "{"}, "guided_json", "schema"),
    ({"guided_regex": "(a"}, "guided_regex", "not closed"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}},
     "response_format.json_schema.schema", "not: this keyword"),
])  # fmt: skip
def test_what_is_wrong_is_named(server, options, param, says):
    error = refused(server, **options)
    assert error["param"] == param
    assert says in error["message"]

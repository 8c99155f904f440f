# SPDX-License-Identifier: Apache-2.0
"""Tools and reasoning by the published client of OpenAI's API, of a model that says what it is told to."""

import json

import jinja2.sandbox
import openai
import pytest
import requests
from live_server import start_server
from scripted_model import write_scripted_model

TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments | tojson }}</tool_call>{% endfor %}\n"
    "{% endfor %}{{ '<|' + script + '|>' }}{# <think></think> #}"
)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln", "days": [1, 2]}}\n</tool_call>'
SECOND = '<tool_call>{"arguments": {"deep": {"a": null}}, "name": "add"}</tool_call>'
SCRIPTS = {
    "calls": f"Let me look.\n{CALL}\n{SECOND}",
    "thinks": "<think>\nWhat is the weather, and where?\n</think>\n\nSunny, I guess.",
    "broken": '<tool_call>{"name": "unknown_function"}</tool_call>',
    "short": ["[TOOL_CALLS]", '[{"name": "add", "arguments": {"x": 1}}]'],
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "of a city", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "add"}},
]
QUESTION = [{"role": "user", "content": "How is the weather?"}]
TWO_CALLS = [("get_weather", '{"city": "Köln", "days": [1, 2]}'), ("add", '{"deep": {"a": null}}')]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_scripted_model(tmp_path_factory.mktemp("scripted") / "scripted", TEMPLATE, SCRIPTS, {"[TOOL_CALLS]"})


@pytest.fixture(scope="module")
def talker(model, tmp_path_factory):
    running = start_server(tmp_path_factory.mktemp("tools"), model)
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def api(talker):
    with openai.OpenAI(base_url=f"http://{talker.http}/v1", api_key="none", max_retries=0) as made:
        yield made


def ask(api, script, **options):
    body = {"model": "scripted", "messages": QUESTION, "tools": TOOLS, **options}
    return api.chat.completions.create(**body, extra_body={"chat_template_kwargs": {"script": script}})


def joined(stream):
    """Content, reasoning, calls and finish reason of a stream."""
    content, reasoning, calls, reason = "", "", [], None
    for chunk in stream:
        (choice,) = chunk.choices
        content += choice.delta.content or ""
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        for call in choice.delta.tool_calls or []:
            if call.id:
                assert call.index == len(calls)
                calls.append([call.function.name, ""])
            calls[call.index][1] += call.function.arguments
        reason = choice.finish_reason or reason
    return content, reasoning, [tuple(c) for c in calls], reason


def whole(answer):
    (choice,) = answer.choices
    message = choice.message
    calls = [(c.function.name, c.function.arguments) for c in message.tool_calls or []]
    return message.content or "", getattr(message, "reasoning_content", None) or "", calls, choice.finish_reason


@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        ("calls", {}, ("Let me look.", "", TWO_CALLS, "tool_calls")),
        ("calls", {"parallel_tool_calls": False}, ("Let me look.", "", TWO_CALLS[:1], "tool_calls")),
        ("calls", {"tool_choice": "none"}, (SCRIPTS["calls"], "", [], "stop")),
        ("calls", {"tools": []}, (SCRIPTS["calls"], "", [], "stop")),
        ("thinks", {}, ("Sunny, I guess.", "What is the weather, and where?", [], "stop")),
        ("thinks", {"tools": []}, ("Sunny, I guess.", "What is the weather, and where?", [], "stop")),
        ("broken", {}, (SCRIPTS["broken"], "", [], "stop")),
    ],
)
def test_answers_are_read_whole_and_streamed(api, script, options, expected):
    assert whole(ask(api, script, **options)) == expected
    assert joined(ask(api, script, stream=True, **options)) == expected


def test_arguments_come_in_pieces_and_a_cut_call_says_so(api):
    deltas = [c.choices[0].delta.tool_calls for c in ask(api, "calls", stream=True) if c.choices[0].delta.tool_calls]
    assert len([d for d in deltas if d[0].index == 0]) > 3
    cut = ask(api, "calls", max_tokens=14)
    assert cut.choices[0].finish_reason == "length"
    content, _, calls, _ = whole(cut)
    assert (content, [c[0] for c in calls]) == ("Let me look.", ["get_weather"])
    assert TWO_CALLS[0][1].startswith(calls[0][1])


def test_log_probs_are_told_of_every_token(api):
    whole_items = ask(api, "calls", logprobs=True).choices[0].logprobs.content
    streamed = []
    for chunk in ask(api, "calls", logprobs=True, stream=True):
        streamed += chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else []
    assert [i.token for i in streamed] == [i.token for i in whole_items]


def test_calls_and_results_are_rendered_as_transformers_does(talker):
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": [1.5, "é"]}'}}
    messages = [
        *QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
    ]  # fmt: skip
    body = {"messages": messages, "tools": TOOLS, "chat_template_kwargs": {"script": "calls"}}
    ids = requests.post(f"http://{talker.http}/tokenize", json=body, timeout=30).json()["tokens"]
    text = requests.post(f"http://{talker.http}/detokenize", json={"tokens": ids}, timeout=30).json()["prompt"]
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    function = {**call["function"], "arguments": json.loads(call["function"]["arguments"])}
    given = [messages[0], {**messages[1], "tool_calls": [{**call, "function": function}]}, messages[2]]
    assert text == env.from_string(TEMPLATE).render(messages=given, tools=TOOLS, script="calls")


def named(**function):
    return [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    ("options", "param", "says"),
    [
        ({"tools": named(name="a b")}, "tools[0].function.name", "must be 1 to 128 letters"),
        ({"tools": named()}, "tools[0].function.name", "must be 1 to 128 letters"),
        ({"tools": [*TOOLS, TOOLS[1]]}, "tools[2].function.name", "for the second time"),
        ({"tools": named(name="a", parameters={"type": "string"})}, "tools[0].function.parameters.type", "must be"),
        ({"tools": named(name="a", strict=True)}, "tools[0].function.strict", "not guided"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "functions alone"),
        ({"tool_choice": "required"}, "tool_choice", "not supported"),
        ({"tool_choice": "sometimes"}, "tool_choice", "must be"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "{"}}]}]},
         "messages[0].tool_calls[0].function.arguments", "JSON object"),
        ({"messages": [{"role": "user", "content": "a", "tool_calls": [{"function": {"name": "a"}}]}]},
         "messages[0].tool_calls", "of the role assistant"),
    ],
)  # fmt: skip
def test_a_wrong_tool_is_told_what_is_wrong(api, options, param, says):
    with pytest.raises(openai.BadRequestError) as error:
        ask(api, "calls", **options)
    assert error.value.body["param"] == param
    assert says in error.value.body["message"]


def test_a_format_of_the_command_line_reads_special_tokens(model, tmp_path):
    running = start_server(tmp_path, model, "--tool-call-format", "mistral", "--reasoning-format", "none")
    with openai.OpenAI(base_url=f"http://{running.http}/v1", api_key="none", max_retries=0) as api:
        answer = ask(api, "short")
        assert whole(answer) == ("", "", [("add", '{"x": 1}')], "tool_calls")
        assert len(answer.choices[0].message.tool_calls[0].id) == 9
        assert whole(ask(api, "short", tools=[]))[0] == SCRIPTS["short"][1]
        assert whole(ask(api, "thinks"))[0] == SCRIPTS["thinks"]
    assert running.stop() == 0

# SPDX-License-Identifier: Apache-2.0
"""Tools and reasoning by the published client of OpenAI's API, of a model that says what it is told to."""

import json

import jinja2.sandbox
import jsonschema
import openai
import pytest
import requests
from live_server import DEMO, start_server
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
    "harmony": (
        "<|channel|>analysis<|message|>They ask for the weather.<|end|><|start|>assistant<|channel|>commentary<|message|>I look."
        '<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city": "Köln"}'
    ),
    "coder": (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n12\n</parameter>\n"
        "</function>\n</tool_call>"
    ),
    "direct": CALL.replace("Köln", "Ulm"),
    "json": json.dumps({"answer": SECOND}),
    "reasons": ["<think>\nWhich tool is it?\n</think>", "None of them."],
    "short": ["[TOOL_CALLS]", '[{"name": "add", "arguments": {"x": 1}}]'],
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "of a city", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "add"}},
]
HARMONY = (
    "{% for m in messages %}{% for message in [m] %}{% if message.thinking %}<|channel|>analysis<|message|>{{ message.thinking }}"
    "{% endif %}{% if 'content' in message %}{{ message.role }}: {{ message.content }}{% endif %}{% for c in message.tool_calls"
    " or [] %}to=functions.{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}\n{% endfor %}"
    "{{ tools | length }}{{ '<|' + script + '|>' }}"
)
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


WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Köln", "Ulm"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
STRICT = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER, "strict": True}}, TOOLS[1]]
WEATHER_ALONE = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_weather", "add"}),
        (WEATHER_ALONE, {"get_weather"}),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [WEATHER_ALONE]}}, {"get_weather"}),
    ],
)
def test_a_call_is_made_where_it_must_be_and_its_arguments_fit(api, choice, names):
    """The model would say something else behind its reasoning."""
    options = {"tools": STRICT, "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 300}
    content, reasoning, calls, reason = whole(ask(api, "reasons", **options))
    assert (content, reasoning, reason) == ("", "Which tool is it?", "tool_calls")
    ((name, arguments),) = calls
    assert name in names
    jsonschema.validate(json.loads(arguments), WEATHER if name == "get_weather" else {"type": "object"})
    assert joined(ask(api, "reasons", stream=True, **options)) == (content, reasoning, calls, reason)


def test_calls_that_must_be_made_may_be_several(api):
    options = {"tools": STRICT, "tool_choice": "required", "max_tokens": 300}
    _, _, calls, _ = whole(ask(api, "reasons", **options))
    assert len(calls) > 1
    for name, arguments in calls[:-1]:  # the last may be cut
        jsonschema.validate(json.loads(arguments), WEATHER if name == "get_weather" else {"type": "object"})


def test_a_strict_function_is_called_well_where_the_model_may_choose(api):
    """The model would give days as a list."""
    content, _, calls, _ = whole(ask(api, "calls", tools=STRICT, parallel_tool_calls=False, max_tokens=300))
    assert content == "Let me look."
    ((name, arguments),) = calls
    assert name == "get_weather"
    jsonschema.validate(json.loads(arguments), WEATHER)
    assert whole(ask(api, "thinks", tools=STRICT)) == ("Sunny, I guess.", "What is the weather, and where?", [], "stop")


@pytest.mark.parametrize("name", ["pythonic", "gemma", "qwen_coder", "llama", "seed"])
def test_calls_of_a_format_are_forced_and_fit(tmp_path, name):
    """The demo model says what it likes between the marks."""
    (tmp_path / "tools.jinja").write_text("{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}")
    weather = {**WEATHER, "properties": {**WEATHER["properties"], "note": {"type": "string", "maxLength": 20}}}
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": weather}}]
    running = start_server(tmp_path, DEMO, "--chat-template", str(tmp_path / "tools.jinja"), "--tool-call-format", name)
    with openai.OpenAI(base_url=f"http://{running.http}/v1", api_key="none", max_retries=0) as api:
        options = {"model": "demo", "messages": QUESTION, "tools": tools, "parallel_tool_calls": False, "max_tokens": 200}
        for seed in range(6):
            answer = api.chat.completions.create(**options, tool_choice="required", temperature=1, seed=seed)
            content, _, calls, reason = whole(answer)
            assert (content, [n for n, _ in calls], reason) == ("", ["get_weather"], "tool_calls")
            jsonschema.validate(json.loads(calls[0][1]), weather)
        for seed in range(6):
            answer = api.chat.completions.create(**options, response_format=FORMATTED, temperature=1, seed=seed)
            content, _, calls, reason = whole(answer)
            check_guided(content, calls, reason, {"get_weather": weather})
        tools[0]["function"]["strict"] = True
        for seed in range(6):  # the model calls if it likes
            _, _, calls, reason = whole(api.chat.completions.create(**options, temperature=1, seed=seed))
            for _, arguments in calls if reason == "tool_calls" else []:
                jsonschema.validate(json.loads(arguments), weather)
    assert running.stop() == 0


def test_reasoning_ends_where_its_budget_does(api):
    def reasoning(**extra):
        kwargs = {"chat_template_kwargs": {"script": "reasons"}}
        answer = api.chat.completions.create(model="scripted", messages=QUESTION, max_tokens=60, extra_body={**kwargs, **extra})
        return whole(answer)[1]

    assert reasoning(thinking_budget=50) == reasoning() == "Which tool is it?"
    assert reasoning(thinking_budget=0) < reasoning(thinking_budget=2) < "Which tool is it?"
    assert "Which tool is it?".startswith(reasoning(thinking_budget=2))


THOUGHT = "They ask for the weather."
MARKERS = ("<|message|>", "<|end|>", "<|start|>", "<|channel|>")


def test_a_budget_of_channels_ends_their_message(tmp_path):
    """A model that says the same behind the beginning of any message."""
    template = "{% for m in messages %}{{ m.content }}{% endfor %}<|channel|>analysis<|message|>"
    scripts = {"any": ["<|message|>", THOUGHT], "others": list(MARKERS[1:])}
    model = write_scripted_model(tmp_path / "scripted", template, scripts, set(MARKERS), end="<|stop|>")
    running = start_server(tmp_path, model)
    with openai.OpenAI(base_url=f"http://{running.http}/v1", api_key="none", max_retries=0) as api:
        for budget, reasoning in ((0, ""), (2, THOUGHT[:10]), (len(THOUGHT), THOUGHT)):
            options = {"model": "scripted", "messages": QUESTION, "max_tokens": 60, "extra_body": {"thinking_budget": budget}}
            expected = ("" if reasoning == THOUGHT else THOUGHT, reasoning, [], "stop")
            assert whole(api.chat.completions.create(**options)) == expected
            assert joined(api.chat.completions.create(**options, stream=True)) == expected
    assert running.stop() == 0


def test_a_budget_of_channels_leads_to_the_call_that_must_be_made(tmp_path):
    model = write_scripted_model(tmp_path / "scripted", HARMONY, {"harmony": SCRIPTS["harmony"]}, end="<|stop|>")
    running = start_server(tmp_path, model)
    with openai.OpenAI(base_url=f"http://{running.http}/v1", api_key="none", max_retries=0) as api:
        kwargs = {"chat_template_kwargs": {"script": "harmony"}, "thinking_budget": 2}
        options = {"model": "scripted", "messages": QUESTION, "tools": STRICT, "tool_choice": "required", "max_tokens": 300}
        content, reasoning, calls, reason = whole(api.chat.completions.create(**options, extra_body=kwargs))
        assert (content, reason) == ("", "tool_calls")
        assert THOUGHT.startswith(reasoning) and 0 < len(reasoning) < len(THOUGHT)
        ((name, arguments),) = calls
        jsonschema.validate(json.loads(arguments), WEATHER if name == "get_weather" else {"type": "object"})
        del options["tool_choice"]
        options["response_format"] = FORMATTED
        content, reasoning, calls, reason = whole(api.chat.completions.create(**options, extra_body=kwargs))
        assert THOUGHT.startswith(reasoning) and 0 < len(reasoning) < len(THOUGHT)
        check_guided(content, calls, reason, {"get_weather": WEATHER, "add": {"type": "object"}})
    assert running.stop() == 0


def test_a_guide_is_of_texts_and_not_of_calls(api):
    formatted = {"type": "json_object"}
    forced = {"tools": STRICT, "tool_choice": WEATHER_ALONE, "max_tokens": 300}
    assert whole(ask(api, "reasons", response_format=formatted, **forced)) == whole(ask(api, "reasons", **forced))
    answer = ask(api, "reasons", tool_choice="none", response_format=formatted, max_tokens=60)
    assert whole(answer)[0].startswith("{")


ANSWER = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": False}
FORMATTED = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER}}


def test_beside_tools_a_guide_is_of_what_is_not_a_call(api):
    """What the model would say as text is none of the two."""
    for script, expected in (
        ("direct", ("", "", [("get_weather", TWO_CALLS[0][1].replace("Köln", "Ulm"))], "tool_calls")),
        ("json", (SCRIPTS["json"], "", [], "stop")),
    ):
        assert whole(ask(api, script, response_format=FORMATTED)) == expected
        assert joined(ask(api, script, response_format=FORMATTED, stream=True)) == expected
    content, reasoning, calls, reason = whole(ask(api, "reasons", response_format=FORMATTED, max_tokens=300, tools=STRICT))
    assert reasoning == "Which tool is it?"
    check_guided(content, calls, reason, {"get_weather": WEATHER, "add": {"type": "object"}})
    with pytest.raises(openai.BadRequestError) as error:
        wrong = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"not": {}}}}
        ask(api, "direct", response_format=wrong)
    assert error.value.param == "tools and response_format.json_schema.schema" and "answer: schema: at #: not" in str(error.value)


def check_guided(content, calls, reason, schemas):
    """Of an answer that is calls that fit, or a text of ANSWER; what was cut is neither."""
    for name, arguments in calls if reason == "tool_calls" else []:
        assert content == ""
        jsonschema.validate(json.loads(arguments), schemas[name])
    if reason == "stop":
        assert calls == []
        jsonschema.validate(json.loads(content), ANSWER)


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
        ({"tools": named(name="a", strict=1)}, "tools[0].function.strict", "must be true or false"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "functions alone"),
        ({"tool_choice": "sometimes"}, "tool_choice", "must be"),
        ({"tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice", "names 'no'"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function.name", "must be a string"),
        ({"tool_choice": {"type": "custom"}}, "tool_choice.type", "must be"),
        ({"tool_choice": "required", "tools": []}, "tool_choice", "needs tools"),
        ({"tool_choice": "required", "tools": named(name="a", parameters={"type": "object", "not": {}})},
         "tool_choice", "not"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [WEATHER_ALONE]}}},
         "tool_choice.allowed_tools.mode", "leave out of tools"),
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
        forced = whole(ask(api, "short", tools=STRICT, tool_choice=WEATHER_ALONE, max_tokens=300))
        assert (forced[0], [n for n, _ in forced[2]], forced[3]) == ("", ["get_weather"], "tool_calls")
        jsonschema.validate(json.loads(forced[2][0][1]), WEATHER)
        assert whole(ask(api, "short", tools=[]))[0] == SCRIPTS["short"][1]
        assert whole(ask(api, "thinks"))[0] == SCRIPTS["thinks"]
    assert running.stop() == 0


def test_harmony_is_read_and_rendered(model, tmp_path):
    (tmp_path / "harmony.jinja").write_text(HARMONY)
    running = start_server(tmp_path, model, "--chat-template", str(tmp_path / "harmony.jinja"))
    with openai.OpenAI(base_url=f"http://{running.http}/v1", api_key="none", max_retries=0) as api:
        expected = ("I look.", "They ask for the weather.", [("get_weather", '{"city": "Köln"}')], "tool_calls")
        assert whole(ask(api, "harmony")) == expected
        assert joined(ask(api, "harmony", stream=True)) == expected
        for budget in (8, 12, 20):  # enough to reason with, and less than the whole answer
            kwargs = {"chat_template_kwargs": {"script": "harmony"}, "thinking_budget": budget}
            within = api.chat.completions.create(model="scripted", messages=QUESTION, tools=TOOLS, extra_body=kwargs)
            assert whole(within) == expected
        for choice in ("required", "auto"):
            options = {"tools": STRICT[:1], "tool_choice": choice, "max_tokens": 400}
            content, reasoning, calls, reason = whole(ask(api, "harmony", **options))
            assert reasoning == expected[1]
            if choice == "required":
                assert (content, [n for n, _ in calls], reason) == ("", ["get_weather"], "tool_calls")
                jsonschema.validate(json.loads(calls[0][1]), WEATHER)
            else:
                assert content.startswith("I look.")
            kwargs = {"chat_template_kwargs": {"script": "harmony"}, "thinking_budget": 12}
            within = api.chat.completions.create(model="scripted", messages=QUESTION, **options, extra_body=kwargs)
            assert whole(within) == (content, reasoning, calls, reason)
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    answers = [
        ({"content": None, "reasoning_content": "Hm."}, {"thinking": "Hm."}),
        ({"content": "So.", "reasoning_content": "Hm."}, {"thinking": "Hm.\n\nSo."}),
        ({"content": "So."}, {"content": "So."}),
    ]
    for told, given in answers:
        messages = [*QUESTION, {"role": "assistant", "tool_calls": [call], **told}]
        body = {"messages": messages, "tools": TOOLS, "chat_template_kwargs": {"script": "calls"}}
        ids = requests.post(f"http://{running.http}/tokenize", json=body, timeout=30).json()["tokens"]
        text = requests.post(f"http://{running.http}/detokenize", json={"tokens": ids}, timeout=30).json()["prompt"]
        seen = {"role": "assistant", "tool_calls": [{**call, "function": {"name": "add", "arguments": {}}}], **given}
        env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        assert text == env.from_string(HARMONY).render(messages=[*QUESTION, seen], tools=TOOLS, script="calls")
    assert running.stop() == 0


def test_a_schema_says_which_values_are_texts(model, tmp_path):
    running = start_server(tmp_path, model, "--tool-call-format", "qwen_coder")
    schema = {"type": "object", "properties": {"city": {"type": ["string", "null"]}, "days": {"type": "integer"}}}
    with openai.OpenAI(base_url=f"http://{running.http}/v1", api_key="none", max_retries=0) as api:
        tools = [{"type": "function", "function": {"name": "get_weather", "parameters": schema}}]
        expected = ("", "", [("get_weather", '{"city": "12", "days": 12}')], "tool_calls")
        assert whole(ask(api, "coder", tools=tools)) == expected
        assert joined(ask(api, "coder", tools=tools, stream=True)) == expected
    assert running.stop() == 0


PYTHONIC = r"""[get_weather(city='K\xf6ln, it\'s "big"', days=(1, [2.5, None], {'on': True})), add(x=-1)]"""


def test_literals_of_python_come_in_pieces_of_json(tmp_path):
    scripts = {"pythonic": ["<|python_start|>", PYTHONIC], "comprehension": "[add(x=1), add(x=n) for n in range(3)]"}
    model = write_scripted_model(tmp_path / "scripted", TEMPLATE, scripts, {"<|python_start|>"})
    running = start_server(tmp_path, model, "--tool-call-format", "pythonic")
    city = {"city": "Köln, it's \"big\"", "days": [1, [2.5, None], {"on": True}]}
    calls = [("get_weather", json.dumps(city, ensure_ascii=False)), ("add", '{"x": -1}')]
    with openai.OpenAI(base_url=f"http://{running.http}/v1", api_key="none", max_retries=0) as api:
        for options, expected in (
            ({}, ("", "", calls, "tool_calls")),
            ({"parallel_tool_calls": False}, ("", "", calls[:1], "tool_calls")),
            ({"tools": []}, (PYTHONIC, "", [], "stop")),
        ):
            assert whole(ask(api, "pythonic", **options)) == expected
            assert joined(ask(api, "pythonic", stream=True, **options)) == expected
        deltas = [c.choices[0].delta.tool_calls for c in ask(api, "pythonic", stream=True) if c.choices[0].delta.tool_calls]
        assert len([d for d in deltas if d[0].index == 0]) > 6
        expected = (", add(x=n) for n in range(3)]", "", [("add", '{"x": 1}')], "tool_calls")
        assert whole(ask(api, "comprehension")) == joined(ask(api, "comprehension", stream=True)) == expected
        for max_tokens in range(1, 16):
            content, _, cut, reason = whole(ask(api, "pythonic", max_tokens=max_tokens))
            assert reason == "length"
            if cut:
                assert (content, [n for n, _ in cut]) == ("", [n for n, _ in calls[: len(cut)]])
                assert all(c[1].startswith(a) for c, (_, a) in zip(calls, cut, strict=False))
            else:
                assert PYTHONIC.startswith(content)
        assert cut
    assert running.stop() == 0

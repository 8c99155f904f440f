# SPDX-License-Identifier: Apache-2.0
"""Anthropic's API by its published client: messages, streams, tools, thinking, counting, and what is refused."""

import asyncio
import json

import anthropic
import jsonschema
import openai
import pytest
import requests
from live_server import DEMO, start_server
from scripted_model import write_scripted_model
from test_tools import SCRIPTS, TEMPLATE, TWO_CALLS

MODEL = "scripted"
QUESTION = [{"role": "user", "content": "How is the weather?"}]
TOOLS = [
    {"name": "get_weather", "description": "of a city", "input_schema": {"type": "object"}},
    {"name": "add", "input_schema": {"type": "object"}},
]
NOT_SUPPORTED = {"format": {"type": "json_schema", "schema": {"type": "object", "not": {}}}}  # found late
TWO_USES = [(name, json.loads(arguments)) for name, arguments in TWO_CALLS]


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    model = write_scripted_model(tmp_path_factory.mktemp("scripted") / MODEL, TEMPLATE, SCRIPTS, {"[TOOL_CALLS]"})
    running = start_server(tmp_path_factory.mktemp("anthropic"), model)
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def api(talker):
    with anthropic.Anthropic(base_url=f"http://{talker.http}", api_key="none", max_retries=0) as made:
        yield made


def asked(script, **options):
    body = {"model": MODEL, "max_tokens": 200, "messages": QUESTION, "tools": TOOLS, **options}
    return body | {"extra_body": {"chat_template_kwargs": {"script": script}}}


def ask(api, script, **options):
    return api.messages.create(**asked(script, **options))


def parts(message):
    """(text, thinking, uses of tools, why it ended)"""
    text = "".join(b.text for b in message.content if b.type == "text")
    thinking = "".join(b.thinking for b in message.content if b.type == "thinking")
    uses = [(b.name, b.input) for b in message.content if b.type == "tool_use"]
    return text, thinking, uses, message.stop_reason


@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        ("calls", {}, ("Let me look.", "", TWO_USES, "tool_use")),
        ("calls", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
         ("Let me look.", "", TWO_USES[:1], "tool_use")),
        ("calls", {"tool_choice": {"type": "none"}}, (SCRIPTS["calls"], "", [], "end_turn")),
        ("thinks", {}, ("Sunny, I guess.", "What is the weather, and where?", [], "end_turn")),
        ("broken", {}, (SCRIPTS["broken"], "", [], "end_turn")),
        ("thinks", {"max_tokens": 3}, ("", "What is", [], "max_tokens")),
    ],
)  # fmt: skip
def test_a_message_is_the_same_whole_and_streamed(api, script, options, expected):
    whole = ask(api, script, **options)
    assert (whole.type, whole.role, whole.model) == ("message", "assistant", MODEL)
    assert parts(whole) == expected
    assert all(b.id.startswith("toolu_") for b in whole.content if b.type == "tool_use")
    with api.messages.stream(**asked(script, **options)) as stream:
        streamed = stream.get_final_message()
    assert parts(streamed) == expected
    assert [b.type for b in streamed.content] == [b.type for b in whole.content]
    assert streamed.usage.output_tokens == whole.usage.output_tokens > 0


@pytest.mark.parametrize(("choice", "names"), [({"type": "any"}, {"a", "b"}), ({"type": "tool", "name": "b"}, {"b"})])
def test_a_tool_is_used_where_it_must_be(api, choice, names):
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
    tools = [{"name": "a", "input_schema": schema, "strict": True}, {"name": "b", "input_schema": schema}]
    choice = {**choice, "disable_parallel_tool_use": True}
    text, thinking, uses, reason = parts(ask(api, "reasons", tools=tools, tool_choice=choice))
    assert (text, thinking, reason) == ("", "Which tool is it?", "tool_use")
    ((name, given),) = uses
    assert name in names
    jsonschema.validate(given, schema)


def test_an_answer_fits_a_schema(api):
    schema = {"type": "object", "properties": {"x": {"enum": ["a"]}}, "required": ["x"], "additionalProperties": False}
    config = {"format": {"type": "json_schema", "schema": schema}}
    text = parts(ask(api, "reasons", tools=[], output_config=config))[0]
    assert json.loads(text) == {"x": "a"}


def test_thinking_ends_where_its_budget_does(api):
    whole = parts(ask(api, "reasons"))[1]
    lengths = []
    for budget in (1, 2, 100):
        limited = ask(api, "reasons", thinking={"type": "enabled", "budget_tokens": budget}, max_tokens=120)
        thinking = parts(limited)[1]
        assert whole.startswith(thinking)
        lengths.append(len(thinking))
    assert lengths[0] < lengths[1] < lengths[2] == len(whole)


def test_a_request_as_coding_assistants_send_it_is_answered(api):
    """With what comes along: ?beta=true, names of betas, marks of the cache, who asks, and results of tools among words."""
    mark = {"type": "ephemeral", "ttl": "5m", "scope": "global"}
    use = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}, "cache_control": mark}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "2"}], "is_error": False}
    body = asked(
        "calls", betas=["interleaved-thinking-2025-05-14"], metadata={"user_id": "somebody"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        system=[{"type": "text", "text": "You are brief.", "cache_control": mark}],
        tools=[TOOLS[0], {**TOOLS[1], "cache_control": mark}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Add."}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Well."}, use]},
            {"role": "user", "content": [result, {"type": "text", "text": "And the weather?", "cache_control": mark}]},
        ],
    )  # fmt: skip
    expected = ("Let me look.", "", TWO_USES, "tool_use")
    assert parts(api.beta.messages.create(**body)) == expected
    with api.beta.messages.stream(**body) as stream:
        assert parts(stream.get_final_message()) == expected


def test_a_stop_sequence_is_told(api):
    answer = ask(api, "thinks", stop_sequences=["nobody says this", "I guess"])
    assert parts(answer) == ("Sunny, ", "What is the weather, and where?", [], "stop_sequence")
    assert answer.stop_sequence == "I guess"
    assert ask(api, "thinks").stop_sequence is None


def test_a_last_message_of_the_assistant_is_continued(talker, api):
    begun = [*QUESTION, {"role": "assistant", "content": "It is <|think"}]
    kwargs = {"chat_template_kwargs": {"script": "thinks"}}
    counted = api.messages.count_tokens(model=MODEL, messages=begun, extra_body=kwargs).input_tokens
    body = {"messages": begun, "continue_final_message": True, **kwargs}
    url = f"http://{talker.http}"
    ids = requests.post(f"{url}/tokenize", json=body, timeout=30).json()["tokens"]
    assert counted == len(ids)
    text = requests.post(f"{url}/detokenize", json={"tokens": ids}, timeout=30).json()["prompt"]
    assert text == f"user: {QUESTION[0]['content']}assistant: It is <|think"


def test_events_come_in_their_order(talker):
    body = asked("calls", stream=True)
    body |= body.pop("extra_body")
    answer = requests.post(f"http://{talker.http}/v1/messages", json=body, timeout=30)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    events = [e.split("\n") for e in answer.text.removesuffix("\n\n").split("\n\n")]
    names = [name.removeprefix("event: ") for name, _ in events]
    data = [json.loads(line.removeprefix("data: ")) for _, line in events]
    assert names == [d["type"] for d in data]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert data[0]["message"]["content"] == []
    opened = []
    for name, event in zip(names, data, strict=True):
        if name == "content_block_start":
            assert event["index"] == len(opened)
            opened.append(event["content_block"])
        elif name.startswith("content_block"):
            assert event["index"] == len(opened) - 1
    assert [b["type"] for b in opened] == ["text", "tool_use", "tool_use"]
    assert opened[1]["input"] == {}
    pieces = [d["delta"]["partial_json"] for d in data if d.get("delta", {}).get("type") == "input_json_delta"]
    assert len(pieces) > 3
    assert "".join(pieces) == "".join(arguments for _, arguments in TWO_CALLS)


def test_the_asynchronous_client_has_many_answers_at_once(talker):
    async def run():
        async with anthropic.AsyncAnthropic(base_url=f"http://{talker.http}", api_key="none", max_retries=0) as made:

            async def one(script):
                async with made.messages.stream(**asked(script)) as stream:
                    text = "".join([t async for t in stream.text_stream])
                return text, (await made.messages.create(**asked(script))).content

            return await asyncio.gather(*(one(s) for s in ("calls", "thinks", "broken")))

    for text, content in asyncio.run(run()):
        assert text == "".join(b.text for b in content if b.type == "text")


def test_the_prompt_is_that_of_chat(talker, api):
    use = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": [1.5, "é"]}}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": [{"type": "text", "text": "Well."}, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"},
                                     {"type": "text", "text": "So?"}]},
    ]  # fmt: skip
    counted = api.messages.count_tokens(
        model=MODEL, messages=messages, tools=TOOLS, system="Be brief.",
        extra_body={"chat_template_kwargs": {"script": "calls"}},
    ).input_tokens  # fmt: skip
    call = {"id": "toolu_1", "type": "function", "function": {"name": "add", "arguments": '{"a": [1.5, "é"]}'}}
    chat = [
        {"role": "system", "content": "Be brief."}, *QUESTION,
        {"role": "assistant", "content": "Well.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "3"}, {"role": "user", "content": "So?"},
    ]  # fmt: skip
    functions = [
        {"type": "function", "function": {**{k: v for k, v in t.items() if k != "input_schema"}, "parameters": t["input_schema"]}}
        for t in TOOLS
    ]
    kwargs = {"chat_template_kwargs": {"script": "calls"}}
    with openai.OpenAI(base_url=f"http://{talker.http}/v1", api_key="none", max_retries=0) as other:
        answer = other.chat.completions.create(model=MODEL, messages=chat, tools=functions, extra_body=kwargs)
    assert counted == answer.usage.prompt_tokens
    usage = api.messages.create(
        model=MODEL, messages=messages, tools=TOOLS, system=[{"type": "text", "text": "Be brief."}], max_tokens=200,
        extra_body=kwargs,
    ).usage  # fmt: skip
    assert usage.input_tokens + usage.cache_read_input_tokens == counted
    assert usage.cache_read_input_tokens > 0, "chat asked the same before"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_tokens": 0}, "max_tokens: got 0"),
        ({"messages": []}, "messages: is empty"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://a"}}]}]},
         "messages[0].content[0].type: got 'image'"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}, "tools[0].name: got 'a b'"),
        ({"tools": [{"name": "a", "input_schema": {"type": "string"}}]}, "tools[0].input_schema.type: got"),
        ({"thinking": {"type": "some"}}, "thinking.type: got 'some'"),
        ({"thinking": {"type": "disabled"}}, "thinking: cannot be off"),
        ({"thinking": {"type": "enabled", "budget_tokens": 200}}, "thinking.budget_tokens: got 200"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens: is missing"),
        ({"output_config": {"effort": "low"}}, "output_config.effort: is not supported"),
        ({"output_config": {"format": {"type": "json_schema", "schema": 1}}}, "output_config.format.schema: must be"),
        ({"tools": [], "output_config": NOT_SUPPORTED}, "output_config.format.schema: "),
        ({"tools": [], "output_config": NOT_SUPPORTED, "stream": True}, "output_config.format.schema: "),
        ({"tool_choice": {"type": "tool", "name": "no"}}, "tool_choice: names 'no'"),
        ({"container": "c"}, "container: is not supported"),
        ({"stop_sequences": [""]}, "stop_sequences: got an empty text"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_told_what_is_wrong(api, options, says):
    with pytest.raises(anthropic.BadRequestError) as error:
        ask(api, "calls", **options)
    assert set(error.value.body) == {"type", "error"}
    assert error.value.body["type"] == "error"
    assert error.value.body["error"]["type"] == "invalid_request_error"
    assert says in error.value.body["error"]["message"]


@pytest.mark.parametrize(
    ("member", "value", "says"),
    [
        ("stop", ["a"], "stop: is not a member of this request; did you mean 'stop_sequences'?"),
        ("max_completion_tokens", 5, "did you mean 'max_tokens'?"),
        ("enable_thinking", False, "did you mean 'chat_template_kwargs'?"),
        ("context_management", {"edits": [{"type": "clear_tool_uses_20250919"}]},
         "context_management.edits[0].type: got 'clear_tool_uses_20250919': conversations are taken as they are"),
        ("context_management", {"edits": [{"type": "clear_thinking_20251015"}]}, "context_management.edits[0].keep"),
    ],
)  # fmt: skip
def test_a_member_that_is_elsewhere_is_told_its_name_here(talker, member, value, says):
    body = {"model": MODEL, "max_tokens": 9, "messages": QUESTION, member: value}
    answer = requests.post(f"http://{talker.http}/v1/messages", json=body, timeout=30)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_other_faults_have_their_status_and_type(talker, api):
    with pytest.raises(anthropic.NotFoundError) as error:
        ask(api, "calls", model="claude")
    assert error.value.body["error"]["type"] == "not_found_error"
    url = f"http://{talker.http}/v1/messages"
    assert requests.post(url, data=b"{", timeout=30).json()["error"]["type"] == "invalid_request_error"
    assert "max_tokens: is missing" in requests.post(url, json={"messages": QUESTION}, timeout=30).text
    answer = requests.post(url, json={"messages": QUESTION, "max_tokens": 1, "top_p": 2}, timeout=30)
    assert answer.json()["error"]["message"] == "top_p: got 2, must be in [0, 1]"
    assert "max_token: is not a member" in requests.post(url, json={"max_token": 1}, timeout=30).text
    answer = requests.get(url, timeout=30)
    assert (answer.status_code, answer.json()["type"]) == (405, "error")


def test_a_key_opens_it_by_either_header(tmp_path):
    (tmp_path / "keys").write_text("secret\n")
    running = start_server(
        tmp_path, None, "-m", DEMO, "--host", "127.0.0.1", "-p", "0", "--api-key-file", tmp_path / "keys",
        "--http-max-input-size", "4000",
    )  # fmt: skip
    hello = {"model": "demo", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
    for right, wrong in (({"api_key": "secret"}, {"api_key": "no"}), ({"auth_token": "secret"}, {"auth_token": "no"})):
        with anthropic.Anthropic(base_url=f"http://{running.http}", max_retries=0, **right) as api:
            assert api.messages.create(**hello).usage.output_tokens > 0
            with pytest.raises(anthropic.APIStatusError) as large:
                api.messages.create(**{**hello, "messages": [{"role": "user", "content": "a" * 5000}]})
            assert (large.value.status_code, large.value.body["error"]["type"]) == (413, "request_too_large")
        with anthropic.Anthropic(base_url=f"http://{running.http}", max_retries=0, **wrong) as api:
            with pytest.raises(anthropic.AuthenticationError) as error:
                api.messages.create(**hello)
            assert error.value.body["error"]["type"] == "authentication_error"
    assert running.stop() == 0

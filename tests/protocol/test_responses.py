# SPDX-License-Identifier: Apache-2.0
"""/v1/responses by OpenAI's published client: answers, events, tools, reasoning, what is kept, and what is refused."""

import json

import openai
import pytest
import requests
from live_server import DEMO, start_server
from scripted_model import write_scripted_model
from test_tools import SCRIPTS, TEMPLATE, TWO_CALLS

MODEL = "scripted"
QUESTION = "How is the weather?"
TOOLS = [
    {"type": "function", "name": "get_weather", "description": "of a city", "parameters": {"type": "object"}},
    {"type": "function", "name": "add", "parameters": None, "strict": False},
]


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    path = tmp_path_factory.mktemp("responses")
    (path / "keys").write_text("key-a\nkey-b\n")
    model = write_scripted_model(path / MODEL, TEMPLATE, SCRIPTS, {"[TOOL_CALLS]"})
    running = start_server(path, model, "--api-key-file", path / "keys")
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def client(server, key="key-a"):
    return openai.OpenAI(base_url=f"http://{server.http}/v1", api_key=key, max_retries=0)


@pytest.fixture(scope="module")
def api(talker):
    with client(talker) as made:
        yield made


def asked(script, **options):
    return {"model": MODEL, "input": QUESTION, "tools": TOOLS, **options,
            "extra_body": {"chat_template_kwargs": {"script": script}}}  # fmt: skip


def ask(api, script, **options):
    return api.responses.create(**asked(script, **options))


def parts(response):
    """(text, reasoning, calls, status)"""
    reasoning = "".join(p.text for i in response.output if i.type == "reasoning" for p in i.content)
    calls = [(i.name, i.arguments) for i in response.output if i.type == "function_call"]
    return response.output_text, reasoning, calls, response.status


ANSWERS = [
    ("calls", {}, ("Let me look.", "", TWO_CALLS, "completed")),
    ("calls", {"parallel_tool_calls": False}, ("Let me look.", "", TWO_CALLS[:1], "completed")),
    ("calls", {"tool_choice": "none"}, (SCRIPTS["calls"], "", [], "completed")),
    ("thinks", {}, ("Sunny, I guess.", "What is the weather, and where?", [], "completed")),
    ("thinks", {"max_output_tokens": 3}, ("", "What is", [], "incomplete")),
]


@pytest.mark.parametrize(("script", "options", "expected"), ANSWERS)
def test_a_response_is_the_same_whole_and_streamed(api, script, options, expected):
    whole = ask(api, script, **options)
    assert (whole.object, whole.model, whole.error) == ("response", MODEL, None)
    assert parts(whole) == expected
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    assert (whole.usage.output_tokens_details.reasoning_tokens > 0) == bool(expected[1])
    reason = whole.incomplete_details and whole.incomplete_details.reason
    assert reason == ("max_output_tokens" if expected[3] == "incomplete" else None)
    with api.responses.stream(**asked(script, **options)) as stream:
        events = list(stream)
    streamed = events[-1].response
    assert events[-1].type == f"response.{expected[3]}"
    assert parts(streamed) == expected
    assert [i.type for i in streamed.output] == [i.type for i in whole.output]


def test_an_answer_fits_a_schema_and_calls_are_made(api):
    schema = {"type": "object", "properties": {"x": {"enum": ["a"]}}, "required": ["x"], "additionalProperties": False}
    text = {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}}
    assert json.loads(ask(api, "reasons", tools=[], text=text).output_text) == {"x": "a"}
    options = {"parallel_tool_calls": False, "tools": [{"type": "function", "name": "f", "parameters": schema, "strict": True}]}
    for choice in ("required", {"type": "function", "name": "f"}):
        answer = ask(api, "reasons", tool_choice=choice, **options)
        assert [(n, json.loads(a)) for n, a in parts(answer)[2]] == [("f", {"x": "a"})]


def test_events_come_in_their_order(api):
    events = list(ask(api, "calls", stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    types = [e.type for e in events]
    assert types[:4] == ["response.created", "response.in_progress", "response.output_item.added",
                         "response.content_part.added"]  # fmt: skip
    assert types[-2:] == ["response.output_item.done", "response.completed"]
    assert events[0].response.status == "in_progress"
    assert events[0].response.output == []
    texts, items, parts_open = {}, {}, set()
    for event in events:
        if event.type == "response.output_item.added":
            assert event.output_index == len(items)
            items[event.item.id] = event.output_index
        if event.type == "response.content_part.added":
            parts_open.add(event.item_id)
        if event.type.endswith(".delta"):
            assert items[event.item_id] == event.output_index
            texts[event.item_id] = texts.get(event.item_id, "") + event.delta
        if event.type in ("response.output_text.done", "response.function_call_arguments.done"):
            said = event.text if event.type.startswith("response.output_text") else event.arguments
            assert said == texts[event.item_id]
        if event.type == "response.content_part.done":
            parts_open.remove(event.item_id)
    assert not parts_open
    assert len(items) == 3
    assert types.count("response.function_call_arguments.delta") > 3


def test_it_tells_what_was_asked(api):
    answer = ask(api, "thinks", instructions="Be brief.", temperature=0.25, metadata={"a": "b"}, store=False)
    assert (answer.instructions, answer.temperature, answer.metadata) == ("Be brief.", 0.25, {"a": "b"})
    assert (answer.truncation, answer.tool_choice, answer.previous_response_id) == ("disabled", "auto", None)
    assert [t.name for t in answer.tools] == ["get_weather", "add"]
    assert answer.store is False


def test_the_prompt_is_that_of_chat(api):
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": [1.5, "é"]}'}}
    chat = [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "Well.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "3"}, {"role": "user", "content": "So?"},
    ]  # fmt: skip
    items = [
        {"role": "user", "content": QUESTION},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well.", "annotations": []}]},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a": [1.5, "é"]}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "3"},
        {"role": "user", "content": [{"type": "input_text", "text": "So?"}]},
    ]  # fmt: skip
    answer = ask(api, "calls", input=items, instructions="Be brief.", store=False)
    functions = [{"type": "function", "function": {"name": "get_weather", "description": "of a city",
                                                   "parameters": {"type": "object"}}},
                 {"type": "function", "function": {"name": "add"}}]  # fmt: skip
    other = api.chat.completions.create(
        model=MODEL, messages=chat, tools=functions, extra_body={"chat_template_kwargs": {"script": "calls"}}
    )
    assert answer.usage.input_tokens == other.usage.prompt_tokens
    assert other.usage.prompt_tokens_details.cached_tokens > 0, "the same prompt was asked before"


def test_a_conversation_goes_on_from_what_is_kept(talker, api):
    first = ask(api, "calls", instructions="Forget this.")
    assert first.store is True
    assert api.responses.retrieve(first.id) == first
    (_, one, two) = first.output
    outputs = [{"type": "function_call_output", "call_id": c.call_id, "output": o} for c, o in ((one, "20"), (two, "3"))]
    kept = ask(api, "thinks", input=outputs, previous_response_id=first.id)
    said = [{"role": "user", "content": QUESTION}, *(i.model_dump(exclude_none=True) for i in first.output), *outputs]
    whole = ask(api, "thinks", input=said, store=False)
    assert kept.usage.input_tokens == whole.usage.input_tokens
    assert parts(kept) == parts(whole)
    again = ask(api, "thinks", input="And now?", previous_response_id=kept.id, stream=True)
    last = list(again)[-1].response
    assert last.previous_response_id == kept.id
    assert api.responses.retrieve(last.id).output == last.output
    with client(talker, "key-b") as other:
        for ask_other in (lambda: other.responses.retrieve(first.id), lambda: other.responses.delete(first.id),
                          lambda: ask(other, "thinks", previous_response_id=first.id)):  # fmt: skip
            with pytest.raises(openai.NotFoundError):
                ask_other()
    api.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError) as error:
        api.responses.retrieve(first.id)
    assert "there is no response" in error.value.body["message"]
    assert ask(api, "thinks", input="And now?", previous_response_id=kept.id).status == "completed"


def test_what_is_not_to_be_kept_is_not(api):
    answer = ask(api, "thinks", store=False)
    with pytest.raises(openai.NotFoundError):
        api.responses.retrieve(answer.id)


@pytest.mark.parametrize(
    ("options", "param", "says"),
    [
        ({"input": []}, "input", "is empty"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://a"}]}]},
         "input[0].content[0].type", "text alone"),
        ({"input": [{"type": "web_search_call", "id": "a"}]}, "input[0].type", "function_call_output alone"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "b", "arguments": "{"}]}, "input[0].arguments",
         "JSON object"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "runs no tools"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "must be 1 to 128 letters"),
        ({"include": ["reasoning.encrypted_content"]}, "include[0]", "does not have"),
        ({"truncation": "auto"}, "truncation", "not supported"),
        ({"background": True}, "background", "not supported"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary", "told as it is"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": 1}}}, "text.format.schema", "must be an object"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "must be text, json_object or json_schema"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort", "knows no effort"),
        ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
        ({"conversation": "c"}, "conversation", "use previous_response_id"),
        ({"metadata": {"a": 1}}, "metadata.a", "must be a string"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_told_what_is_wrong(api, options, param, says):
    with pytest.raises(openai.BadRequestError) as error:
        ask(api, "calls", **options)
    assert error.value.body["param"] == param
    assert says in error.value.body["message"]


@pytest.mark.parametrize("name", ["messages", "max_tokens", "reasoning_effort", "response_format"])
def test_a_member_of_chat_is_unknown_by_the_name_that_it_has(talker, name):
    body = {"model": MODEL, "input": QUESTION, name: None}
    url, headers = f"http://{talker.http}/v1/responses", {"Authorization": "Bearer key-a"}
    error = requests.post(url, json=body, headers=headers, timeout=30).json()["error"]
    assert error["param"] == name
    assert error["message"].startswith(f"{name}: is not a member of this request")


def test_embeddings_are_refused_by_name(api):
    with pytest.raises(openai.BadRequestError) as error:
        api.embeddings.create(model=MODEL, input="a")
    assert error.value.body["code"] == "unsupported_parameter"
    assert "/v1/responses" in error.value.body["message"]


def test_a_server_may_keep_nothing(tmp_path):
    running = start_server(tmp_path, DEMO, "--stored-responses-byte-size", "0")
    url = f"http://{running.http}/v1/responses"
    answer = requests.post(url, json={"input": "Hello", "max_output_tokens": 4}, timeout=30).json()
    assert answer["store"] is False
    assert requests.get(f"{url}/{answer['id']}", timeout=30).status_code == 404
    error = requests.post(url, json={"input": "Hello", "store": True}, timeout=30).json()["error"]
    assert (error["param"], error["code"]) == ("store", "unsupported_parameter")
    assert running.stop() == 0

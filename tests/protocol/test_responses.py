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


LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}


@pytest.mark.parametrize("script", ["calls", "thinks", "broken"])
def test_tokens_of_the_text_have_log_probs(api, script):
    whole = ask(api, script, **LOGPROBS)
    assert whole.top_logprobs == 2
    (text,) = (p for i in whole.output if i.type == "message" for p in i.content)
    told = [t.token for t in text.logprobs]
    assert text.text in "".join(told)
    assert text.text not in "".join(told[1:]), "the first token has some of the text"
    assert text.text not in "".join(told[:-1]), "and the last one"
    for token in text.logprobs:
        assert bytes(token.bytes).decode() == token.token
        assert token.top_logprobs[0].token == token.token, "the likeliest is taken"
        assert token.top_logprobs[0].logprob == token.logprob
        assert len(token.top_logprobs) == 2
    names = ("name", "description", "parameters")
    functions = [{"type": "function", "function": {k: t[k] for k in names if t.get(k)}} for t in TOOLS]
    chat = api.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": QUESTION}], logprobs=True, top_logprobs=2, tools=functions,
        extra_body={"chat_template_kwargs": {"script": script}},
    )  # fmt: skip
    of_chat = {t.token: t.logprob for t in chat.choices[0].logprobs.content}
    assert {t.token: t.logprob for t in text.logprobs} == {t: of_chat[t] for t in told}
    events = list(ask(api, script, stream=True, **LOGPROBS))
    deltas = [e for e in events if e.type == "response.output_text.delta"]
    assert [t.token for e in deltas for t in e.logprobs] == told
    (done,) = (e for e in events if e.type == "response.output_text.done")
    assert [(t.token, t.logprob) for t in done.logprobs] == [(t.token, t.logprob) for t in text.logprobs]
    (part,) = (e.part for e in events if e.type == "response.content_part.done" and e.part.type == "output_text")
    (kept,) = (p for i in events[-1].response.output if i.type == "message" for p in i.content)
    assert part == kept == text
    without = ask(api, script, include=LOGPROBS["include"])
    assert without.output_text == whole.output_text
    (text,) = (p for i in without.output if i.type == "message" for p in i.content)
    assert [(t.token, t.top_logprobs) for t in text.logprobs] == [(t, []) for t in told]


def test_a_kept_answer_tells_its_items(talker, api):
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "So?"}]},
        {"type": "function_call", "id": "fc_a", "call_id": "call_1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "3"},
        {"role": "assistant", "content": "Well."},
        {"role": "user", "content": "And?"},
    ]  # fmt: skip
    first = ask(api, "thinks", input=items, instructions="Forget this.")
    told = list(api.responses.input_items.list(first.id, order="asc"))
    assert [i.type for i in told] == ["message", "function_call", "function_call_output", "message", "message"]
    assert [i.content[0].text for i in told if i.type == "message"] == ["So?", "Well.", "And?"]
    assert [i.role for i in told if i.type == "message"] == ["user", "assistant", "user"]
    assert (told[1].id, told[1].call_id, told[1].name, told[2].output) == ("fc_a", "call_1", "add", "3")
    assert len({i.id for i in told}) == len(told)
    page = api.responses.input_items.list(first.id, limit=2)
    assert ([i.id for i in page.data], page.has_more) == ([told[4].id, told[3].id], True), "the last is the first"
    assert [i.id for i in page] == [i.id for i in reversed(told)], "the client asks for the pages that follow"
    page = api.responses.input_items.list(first.id, after=told[2].id, order="asc")
    assert ([i.id for i in page.data], page.has_more) == ([told[3].id, told[4].id], False)
    assert api.responses.input_items.list(first.id, after=told[4].id, order="asc").data == []
    second = ask(api, "thinks", input="And now?", previous_response_id=first.id)
    longer = list(api.responses.input_items.list(second.id, order="asc"))
    assert [i.id for i in longer[:-1]] == [i.id for i in told] + [i.id for i in first.output]
    assert longer[-1].content[0].text == "And now?"
    for params in ({"limit": 0}, {"limit": 101}, {"order": "up"}, {"after": "x"}, {"include": ["message.input_image.image_url"]}):
        (name,) = (f"{name}[]" if name == "include" else name for name in params)
        with pytest.raises(openai.BadRequestError) as error:
            api.responses.input_items.list(first.id, **params)
        assert error.value.body["param"] == name
    with client(talker, "key-b") as other, pytest.raises(openai.NotFoundError):
        other.responses.input_items.list(first.id)
    api.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        api.responses.input_items.list(first.id)
    assert len(list(api.responses.input_items.list(second.id))) == len(longer)


def test_a_kept_answer_is_told_whole(talker, api):
    kept = ask(api, "thinks")
    url, headers = f"http://{talker.http}/v1/responses/{kept.id}", {"Authorization": "Bearer key-a"}
    assert requests.get(f"{url}?stream=false", headers=headers, timeout=30).json()["id"] == kept.id
    for query, name in (("stream=true", "stream"), ("include%5B%5D=a", "include[]"), ("starting_after=1", "starting_after")):
        answer = requests.get(f"{url}?{query}", headers=headers, timeout=30)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)


def test_a_long_conversation_begins_later_where_it_is_asked_to(api):
    def said(turns):
        return [{"role": role, "content": f"{i} {'x' * 700}"} for i in turns for role in ("user", "assistant")]

    system, last = {"role": "developer", "content": "Be brief."}, {"role": "user", "content": "So?"}
    options = {"tools": [], "store": False, "max_output_tokens": 100}
    whole = [*said([0]), system, *said(range(1, 6)), last]
    for truncation in ({}, {"truncation": "disabled"}):
        with pytest.raises(openai.BadRequestError) as error:
            ask(api, "thinks", input=whole, instructions="Obey.", **options, **truncation)
        assert error.value.body["code"] == "context_length_exceeded"
    # A turn has 1423 characters, each of them a token, and the model takes 4096.
    for max_output_tokens, first in ((100, 4), (1500, 5)):
        options["max_output_tokens"] = max_output_tokens
        answer = ask(api, "thinks", input=whole, instructions="Obey.", truncation="auto", **options)
        assert (answer.truncation, answer.status) == ("auto", "completed")
        shorter = ask(api, "thinks", input=[system, *said(range(first, 6)), last], instructions="Obey.", **options)
        assert answer.usage.input_tokens == shorter.usage.input_tokens
    alone = [{"role": "user", "content": "x" * 5000}]
    with pytest.raises(openai.BadRequestError) as error:
        ask(api, "thinks", input=alone, truncation="auto", **options)
    assert error.value.body["code"] == "context_length_exceeded"
    short = ask(api, "thinks", input=[system, last], truncation="auto", **options)
    assert short.usage.input_tokens == ask(api, "thinks", input=[system, last], **options).usage.input_tokens


def test_events_are_lines_however_a_request_is_written(talker):
    fields = {"model": MODEL, "input": QUESTION, "tools": TOOLS, "metadata": {"a": "b"}, "stream": True}
    body = json.dumps({**fields, "chat_template_kwargs": {"script": "thinks"}}, indent=1)
    headers = {"Authorization": "Bearer key-a", "Content-Type": "application/json"}
    answer = requests.post(f"http://{talker.http}/v1/responses", data=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    lines = answer.content.decode().split("\n")
    assert all(not line or line.startswith(("event: ", "data: ")) for line in lines)
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert events[0]["response"]["tools"] == TOOLS
    assert events[-1]["type"] == "response.completed"


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
        ({"include": ["message.input_image.image_url"]}, "include[0]", "message.output_text.logprobs"),
        ({"top_logprobs": 2}, "top_logprobs", "needs include"),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 21}, "top_logprobs", "must be in [0, 20]"),
        ({"truncation": "middle"}, "truncation", "must be auto or disabled"),
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

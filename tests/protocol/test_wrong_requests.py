# SPDX-License-Identifier: Apache-2.0
"""Wrong requests to /v1: each has its status and a message that helps, and a good one beside it has its whole answer."""

import contextlib
import hashlib
import json
import re
import socket
import threading

import pytest
import requests
from live_server import DEMO, is_sanitized, start_server
from llm_client import wait_until

LIMIT = json.loads((DEMO / "config.json").read_text())["max_position_embeddings"]
ROLES = {"user": ["inference"], "reader": ["metrics"]}
CHAT = "/v1/chat/completions"
MANY_WORDS = 100_000 if is_sanitized() else 2_000_000  # more than the model takes; a sanitizer looks at each slowly
PATHS = [CHAT, "/v1/completions", "/v1/responses", "/v1/messages"]
QUESTION = [{"role": "user", "content": "Tell me about a fox."}]
EVIL = {"Origin": "https://evil.example"}
GOOD = {"messages": QUESTION, "max_tokens": 48, "temperature": 0, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("wrong")
    keys = [{"name": n, "sha256": hashlib.sha256(n.encode()).hexdigest(), "roles": r} for n, r in ROLES.items()]
    (path / "access.json").write_text(json.dumps({"keys": keys}))
    running = start_server(path, DEMO, "--access", path / "access.json")
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def bearer(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


def ask(server, path, body, key="user", **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return requests.post(f"http://{server.http}{path}", data=data, headers=bearer(key) | headers, timeout=60)


def streamed(server, begun=None):
    """The text of the good request."""
    url = f"http://{server.http}{CHAT}"
    text = ""
    with requests.post(url, json=GOOD, headers=bearer("user"), stream=True, timeout=60) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if begun is not None:
                begun.set()
            if line.startswith(b"data: {"):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
    return text


@pytest.fixture(scope="module")
def whole(server):
    return streamed(server)


@pytest.fixture
def undisturbed(server, whole):
    """A good request runs while the test does."""

    @contextlib.contextmanager
    def run():
        texts, begun = [], threading.Event()
        thread = threading.Thread(target=lambda: texts.append(streamed(server, begun)))
        thread.start()
        assert begun.wait(60)
        try:
            yield
        finally:
            thread.join(60)
        assert texts == [whole]

    return run


def body_of(path, text="Tell me about a fox."):
    """A small request that is right."""
    names = {CHAT: "messages", "/v1/messages": "messages", "/v1/completions": "prompt", "/v1/responses": "input"}
    asked = [{"role": "user", "content": text}] if names[path] == "messages" else text
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    return {"model": "demo", names[path]: asked, limit: 4}


def error_of(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


@pytest.mark.parametrize("path", PATHS)
def test_every_api_says_what_is_wrong_with_a_request(server, undisturbed, path):
    good = body_of(path)
    with undisturbed():
        assert "no JSON" in error_of(ask(server, path, b'{"model": "demo",'), 400)["message"]
        assert "must be a JSON object" in error_of(ask(server, path, b"[1]"), 400)["message"]
        wrong = json.dumps(good).encode().replace(b"fox", b"f\xffx")
        assert "not valid UTF-8" in error_of(ask(server, path, wrong), 400)["message"]
        typed = error_of(ask(server, path, good | {"temperature": "hot"}), 400)["message"]
        assert "temperature: got a string, must be a number" in typed
        unknown = error_of(ask(server, path, good | {"model": "gpt-5"}), 404)["message"]
        assert "'gpt-5' is not served here; this server has 'demo'" in unknown
        assert "did you mean 'temperature'?" in error_of(ask(server, path, good | {"temprature": 1}), 400)["message"]
        for key in (None, "guess"):
            answer = ask(server, path, good, key=key)
            assert "key" in error_of(answer, 401)["message"].lower()
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert "'inference'" in error_of(ask(server, path, good, key="reader"), 403)["message"]
        large = error_of(ask(server, path, body_of(path, "word " * MANY_WORDS)), 400)["message"]
        assert f"more tokens than the {LIMIT - 1} that this model takes" in large
        foreign = ask(server, path, good, **EVIL)
        assert "got 'https://evil.example'" in error_of(foreign, 403)["message"]
        assert not any(name.lower().startswith("access-control-") for name in foreign.headers)
    assert ask(server, path, good).status_code == 200


def test_a_page_of_a_foreign_origin_gets_no_leave(server, undisturbed):
    asked = EVIL | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with undisturbed():
        answer = requests.options(f"http://{server.http}{CHAT}", headers=asked, timeout=30)
    assert answer.status_code == 403
    assert "--cors-origin" in json.dumps(answer.json())


def test_a_context_that_is_exceeded_says_by_how_much(server, undisturbed):
    with undisturbed():
        error = error_of(ask(server, "/v1/completions", {"prompt": [5] * (LIMIT + 6)}), 400)
        assert error["code"] == "context_length_exceeded"
        assert f"has {LIMIT + 6} tokens, 7 more than the {LIMIT - 1} that this model takes" in error["message"]
        words = {"messages": [{"role": "user", "content": "fox " * LIMIT}]}
        count = ask(server, "/tokenize", words).json()["count"]
        error = error_of(ask(server, CHAT, words), 400)
        assert error["code"] == "context_length_exceeded"
        assert f"has {count} tokens, {count - LIMIT + 1} more than the {LIMIT - 1}" in error["message"]


def schema(value):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}


TREE = {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False}
GUIDES = {
    "a schema of many properties": schema({"properties": {f"name{i}": {"type": "integer"} for i in range(40_000)}}),
    "a schema of a long text": schema({"type": "string", "minLength": 4_000_000}),
    "a schema of long arrays": schema({"type": "array", "items": {"type": "array", "minItems": 4_000_000}}),
    "a schema of itself": schema({"$ref": "#"}),
    "schemas of each other": schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    "a schema that no value has": schema(TREE | {"required": ["child"]}),
    "a schema that is not there": schema({"$ref": "#/$defs/none"}),
    "a grammar of itself": {"guided_grammar": "root ::= root"},
    "grammars of each other": {"guided_grammar": "root ::= a\na ::= b\nb ::= a"},
    "a grammar without an end": {"guided_grammar": 'root ::= "a" root'},
    "an expression of powers": {"guided_regex": "(a|b)*a(a|b){60}"},
    "an expression that is none": {"guided_regex": "("},
}


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_without_bounds_is_refused(server, undisturbed, name):
    with undisturbed():
        error = error_of(ask(server, CHAT, {"messages": QUESTION, "max_tokens": 8, **GUIDES[name]}), 400)
    assert error["param"].split(".")[0] in GUIDES[name]
    assert error["message"].startswith(error["param"] + ": ")
    assert len(error["message"]) < 500


def test_a_deep_schema_is_refused(server, undisturbed):
    deep = '{"items":' * 20_000 + "{}" + "}" * 20_000
    body = json.dumps({"messages": QUESTION, "max_tokens": 8, "guided_json": "DEEP"}).replace('"DEEP"', deep)
    with undisturbed():
        error = error_of(ask(server, CHAT, body.encode()), 400)
    assert error["param"] == "guided_json"
    assert len(error["message"]) < 500


@pytest.mark.parametrize(
    "guide",
    [schema(TREE), {"guided_grammar": 'root ::= "a" | "(" root ")"'}, {"guided_grammar": 'root ::= root "a" | "b"'}],
)
def test_a_guide_of_itself_that_ends_is_followed(server, guide):
    answer = ask(server, CHAT, {"messages": QUESTION, "max_tokens": 40, "seed": 1, "temperature": 1, **guide})
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"][0] in "{a(b"


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "takes text alone"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "takes text alone"),
        ({"type": "file", "file": {"file_id": "x"}}, "takes text alone"),
        ({"text": "a"}, "must be an object with a type"),
        ({"type": "text"}, "must be a string"),
    ],
)
def test_parts_that_are_no_texts_are_named(server, undisturbed, part, says):
    with undisturbed():
        error = error_of(ask(server, CHAT, {"messages": [{"role": "user", "content": [part]}]}), 400)
    assert error["param"].startswith("messages[0].content[0]")
    assert says in error["message"]


@pytest.mark.parametrize(
    ("member", "value", "says"),
    [
        ("messages", "hi", "must be an array"),
        ("messages", {"role": "user", "content": "a"}, "must be an array"),
        ("max_tokens", 1.5, "must be an integer"),
        ("max_tokens", "8", "must be an integer"),
        ("stream", "yes", "must be true or false"),
        ("stop", 5, "must be a string or an array of strings"),
        ("logit_bias", [1], "must be an object of token ids"),
        ("seed", "one", "must be an integer of 64 bits"),
        ("seed", 1e40, "must be an integer of 64 bits"),
        ("n", 1000, "must be in [1, 128]"),
        ("tools", {"name": "f"}, "must be an array"),
        ("model", 5, "must be a string"),
        ("thinking_budget", 10, "chat template shows no reasoning; leave it out"),
    ],
)
def test_wrong_types_and_values_are_named(server, member, value, says):
    error = error_of(ask(server, CHAT, {"messages": QUESTION, "max_tokens": 4, member: value}), 400)
    assert error["param"] == member
    assert says in error["message"]


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A request waits for a second one to begin with, and is all that may wait."""
    options = ("--max-batch-size=2", "--max-queue-delay-us=3600000000", "--max-queue-size=1")
    running = start_server(tmp_path_factory.mktemp("full"), DEMO, *options)
    waits = re.compile(r'^nv_inference_pending_request_count\{.*model="tensorrt_llm",version="1"\} 1$', re.MULTILINE)
    data = json.dumps(body_of(CHAT)).encode()
    host, port = running.http.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as waiting:
        waiting.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        wait_until(lambda: waits.search(requests.get(f"http://{running.metrics}/metrics", timeout=30).text))
        yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_a_full_queue_says_so_in_the_words_of_the_api(full, path, stream):
    status, kind = (529, "overloaded_error") if path == "/v1/messages" else (503, "server_error")
    error = error_of(ask(full, path, body_of(path) | {"stream": stream}, key=None), status)
    assert error["type"] == kind
    assert "Maximum queue size of 1 has been reached" in error["message"]
    assert path == "/v1/messages" or error["code"] == "overloaded"

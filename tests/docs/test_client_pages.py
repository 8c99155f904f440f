# SPDX-License-Identifier: Apache-2.0
"""The commands of the pages about clients, word for word but for the port: curl succeeds, and programs in Python print what the
model says, which is one text, whatever it is asked."""

import json
import re
import subprocess
import sys

import pytest
from command import ROOT
from live_server import start_server
from scripted_model import write_scripted_model

PERSON = '{"name": "Ann", "age": 7}'
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ '<|person|>' }}"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    work = tmp_path_factory.mktemp("pages")
    model = write_scripted_model(work / "scripted", TEMPLATE, {"person": PERSON})
    running = start_server(work, model, "--served-model-name", "qwen")  # as the pages call it
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def blocks(server, page, language=""):
    """The blocks of a page, but for other programs' and the lines that start a server."""
    text = (ROOT / "docs" / page).read_text().split("## Other programs")[0].replace("localhost:8000", server.http)
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub("(?m)^inflight .*\n", "", code) for name, code in found if name == language]


def answers(server, page):
    """What the page's lines of curl print."""
    curl = 'curl() { command curl --fail-with-body -sS "$@" && echo; }\n'
    lines = curl + "".join(blocks(server, page))
    done = subprocess.run(["bash", "-ec", lines], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines.count("\ncurl ") > 0
    return [line for line in done.stdout.splitlines() if line]


def printed(server, page):
    program = "".join(blocks(server, page, "python"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_openai_clients(server):
    listed, chat, *stream, completion, tokens = answers(server, "openai-clients.md")
    assert [model["id"] for model in json.loads(listed)["data"]] == ["qwen"]
    assert json.loads(chat)["choices"][0]["message"]["content"] == PERSON
    events = [json.loads(line[6:]) for line in stream if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events) == PERSON
    assert stream[-1] == "data: [DONE]"
    assert json.loads(completion)["object"] == "text_completion"
    assert json.loads(tokens)["count"] > 0
    assert printed(server, "openai-clients.md") == f"{PERSON}\n{PERSON}{PERSON}\n"


def test_anthropic_clients(server):
    (message,) = answers(server, "anthropic-clients.md")
    assert json.loads(message)["content"][0]["text"] == PERSON
    told = printed(server, "anthropic-clients.md")
    assert told.count(PERSON) == 2 and re.search(r"\}\d+\n$", told), told


def test_structured_output(server):
    schema, any_object, date, colour, tensors = map(json.loads, answers(server, "structured-output.md"))
    for answer in (schema, any_object):
        assert answer["choices"][0]["message"]["content"] == PERSON
    assert re.fullmatch(r"(19|20)\d\d-(0[1-9]|1[0-2])-[0-3]\d", date["choices"][0]["text"])
    assert colour["choices"][0]["text"] in ("blue", "grey", "black")
    assert tensors["text_output"].endswith(("blue", "grey", "black"))
    assert printed(server, "structured-output.md") == "name='Ann' age=7\n"

# SPDX-License-Identifier: Apache-2.0
"""Programs that speak OpenAI's or Anthropic's API, as they are published: a chat, a stream, and a call or a structured
answer of each. They run in .venv-clients (scripts/install_deps.sh ci)."""

import functools
import json
import os
import pathlib
import subprocess

import pytest
from live_server import ROOT, start_server
from scripted_model import write_scripted_model

# With tools the model calls one; asked for JSON it answers so; else it talks.
TEMPLATE = (
    "{% if tools %}<|calls|>{% elif 'JSON' in (messages | map(attribute='content') | join(' ')) %}<|json|>"
    "{% else %}<|talks|>{% endif %}{# <tool_call> #}"
)
TALK = "It is sunny in Köln today."
SCRIPTS = {
    "calls": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn"}}\n</tool_call>',
    "json": '```json\n{"city":   "Bonn"}\n```',
    "talks": TALK,
}
PYTHON = pathlib.Path(os.environ.get("INFLIGHT_CLIENTS", ROOT / ".venv-clients")) / "bin/python"


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    work = tmp_path_factory.mktemp("clients")
    server = start_server(work, write_scripted_model(work / "scripted", TEMPLATE, SCRIPTS), "--tool-call-format", "hermes")
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


# CI makes it, and takes a skip for want of it as a failure (tests/conftest.py); elsewhere these packages are a lot to ask for.
needs_clients = pytest.mark.skipif(
    not PYTHON.exists(), reason="this machine has no .venv-clients: scripts/install_deps.sh ci makes it"
)


# Clients of one package are asked by one program: to import a package takes seconds.
TOGETHER = [("langchain",), ("litellm", "litellm_anthropic"), ("instructor", "instructor_guided"), ("llama_index",)]


def told_by(client, server):
    """What the program prints of the client."""
    clients = next(clients for clients in TOGETHER if client in clients)
    return told_by_all(clients, f"http://{server.http}/v1", server.log.parent)[client]


@functools.cache
def told_by_all(clients, url, home):
    program = pathlib.Path(__file__).with_name("clients_program.py")
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith("OPENAI")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the packages come as sources: who imports one first compiles it
    done = subprocess.run(
        [PYTHON, program, url, *clients], capture_output=True, text=True, timeout=180, check=False,
        env=dict(environment, HOME=str(home), no_proxy="127.0.0.1"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@needs_clients
@pytest.mark.parametrize("client", ["langchain", "litellm", "litellm_anthropic", "instructor", "llama_index"])
def test_clients_understand_the_answers(client, scripted):
    told = told_by(client, scripted)
    assert told["chat"] == TALK
    assert told["call"] == ["get_weather", {"city": "Bonn"}]
    if client == "instructor":  # of a stream it makes objects that grow
        assert told["stream"] == ["Bonn"]
    else:
        assert "".join(told["stream"]) == TALK and len(told["stream"]) > 2


@needs_clients
def test_instructor_has_answers_that_fit(scripted):
    """Of a model that would say something else."""
    made = told_by("instructor_guided", scripted)
    assert len(made) == 4
    for mode, forecast in made.items():
        assert forecast["city"] in ("Bonn", "Ulm") and forecast["days"] in (1, 2, 3), mode

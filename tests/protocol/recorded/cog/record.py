#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what cog 0.9.26 answers, with a predictor that has the inputs of cog-triton: exchanges.json and openapi.json.

In an environment with `pip install cog==0.9.26 'pydantic<2' 'fastapi<0.111' 'setuptools<70'`, run from this folder:

    python record.py

Each exchange is one connection: method, path, headers and body as they are sent, status and body as they come. The
server takes a free port. Names of sequences begin with their number: they are sent one after the other to one server.
"""

import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
COG_YAML = """build:
  gpu: true
  python_version: "3.10"
predict: "predict.py:Predictor"
"""
PREDICTOR = """
import time
from cog import BasePredictor, ConcatenateIterator, Input


class Predictor(BasePredictor):
    def predict(
        self,
        prompt: str = Input(description="d"),
        system_prompt: str = Input(description="d", default=""),
        max_tokens: int = Input(description="d", ge=1, default=512),
        min_tokens: int = Input(description="d", ge=-1, default=None),
        temperature: float = Input(description="d", ge=0.0, le=5, default=0.7),
        top_p: float = Input(description="d", ge=0.0, le=1.0, default=0.95),
        top_k: int = Input(description="d", ge=-1, default=0),
        stop_sequences: str = Input(description="d", default=None),
        length_penalty: float = Input(description="d", ge=0.0, le=5.0, default=1.0),
        presence_penalty: float = Input(description="d", default=0.0),
        seed: int = Input(description="d", default=None),
        prompt_template: str = Input(description="d", default="{prompt}", min_length=1),
        log_performance_metrics: bool = Input(description="d", default=False),
        max_new_tokens: int = Input(description="d", ge=1, default=None),
        min_new_tokens: int = Input(description="d", ge=-1, default=None),
    ) -> ConcatenateIterator[str]:
        if prompt == "":
            raise ValueError("E1001 PromptRequired: words of the predictor")
        if "{prompt}" not in prompt_template:
            raise ValueError("E1003 BadPromptTemplate: words of the predictor")
        text = prompt_template.format(prompt=prompt, system_prompt=system_prompt)
        for word in text.split(" ")[:max_tokens]:
            if word == "wait":
                time.sleep(30)
            yield word
        print("a line")
"""


def prediction(**members):
    return {"input": {"prompt": "a b", **members}}


def with_member(**members):
    return {"input": {"prompt": "a b"}, **members}


ASYNC = {"Prefer": "respond-async"}
WAITS = {"id": "waits", "input": {"prompt": "a wait b"}}
# Name: (method, path, body, headers). A body that is no text is sent as JSON.
CASES = {
    "root": ("GET", "/"),
    "health": ("GET", "/health-check"),
    "prediction": ("POST", "/predictions", prediction()),
    "prediction with all inputs": ("POST", "/predictions", prediction(
        system_prompt="s", max_tokens=7, min_tokens=2, temperature=0, top_p=0.5, top_k=3, stop_sequences="x,y",
        length_penalty=2, presence_penalty=-1.5, seed=5, prompt_template="{system_prompt} {prompt}",
        log_performance_metrics=True, max_new_tokens=7, min_new_tokens=2)),
    "no body": ("POST", "/predictions", ""),
    "empty object": ("POST", "/predictions", {}),
    "null input": ("POST", "/predictions", {"input": None}),
    "no prompt": ("POST", "/predictions", {"input": {}}),
    "empty prompt": ("POST", "/predictions", prediction(prompt="")),
    "no JSON": ("POST", "/predictions", "nonsense"),
    "a list": ("POST", "/predictions", [1]),
    "a text": ("POST", "/predictions", '"x"'),
    "input is a text": ("POST", "/predictions", {"input": "x"}),
    "input that is not known": ("POST", "/predictions", prediction(unknown=1)),
    "form": ("POST", "/predictions", "input=1", {"Content-Type": "application/x-www-form-urlencoded"}),
    "JSON as text": ("POST", "/predictions", json.dumps(prediction()), {"Content-Type": "text/plain"}),
    "JSON by suffix": ("POST", "/predictions", prediction(), {"Content-Type": "application/cloud+json"}),
    "other members": ("POST", "/predictions", with_member(id="x", zz=[1, {"a": None}], output_file_prefix="http://x/")),
    "events": ("POST", "/predictions", with_member(webhook_events_filter=["completed", "start", "start"])),
    "no events": ("POST", "/predictions", with_member(webhook_events_filter=[])),
    "null events": ("POST", "/predictions", with_member(webhook_events_filter=None)),
    "null webhook": ("POST", "/predictions", with_member(webhook=None)),
    "PUT": ("PUT", "/predictions/abc", prediction()),
    "PUT same id": ("PUT", "/predictions/abc", with_member(id="abc")),
    "PUT other id": ("PUT", "/predictions/abc", with_member(id="abd")),
    "PUT encoded id": ("PUT", "/predictions/a%20b", prediction()),
    "PUT no body": ("PUT", "/predictions/abc", None),
    "cancel of none": ("POST", "/predictions/abc/cancel", None),
    "GET predictions": ("GET", "/predictions"),
    "GET prediction": ("GET", "/predictions/abc"),
    "DELETE": ("DELETE", "/predictions"),
    "unknown path": ("GET", "/nope"),
    "POST health": ("POST", "/health-check", None),
    "GET shutdown": ("GET", "/shutdown"),
    "slash": ("POST", "/predictions/", prediction()),
    "huge integer": ("POST", "/predictions", '{"input":{"prompt":"a","max_tokens":99999999999999999999999}}'),
    "NaN": ("POST", "/predictions", '{"input":{"prompt":"a","temperature":NaN}}'),
    "several faults": ("POST", "/predictions", prediction(temperature=-0.1, top_p=1.5, top_k=-2, length_penalty=9)),
    "1 running": ("POST", "/predictions", WAITS, ASYNC),
    "2 health when busy": ("GET", "/health-check"),
    "3 another": ("POST", "/predictions", prediction()),
    "4 PUT of the running": ("PUT", "/predictions/waits", prediction(prompt="other")),
    "5 PUT of another": ("PUT", "/predictions/other", prediction()),
    "6 cancel of another": ("POST", "/predictions/other/cancel", None),
    "7 cancel": ("POST", "/predictions/waits/cancel", None),
}  # fmt: skip
VALUES = {
    "prompt": [None, 5, 1.5, True, ["a"], {}],
    "system_prompt": [None],
    "max_tokens": [0, "12", "x", 3.7, None, True, [1], " 7 ", "7.0", -1],
    "min_tokens": [None, -1, -2],
    "temperature": [6, "0.5", "x", 1, True, None, 5],
    "log_performance_metrics": ["yes", "maybe", 1, 2, None, "OFF", [], 0.0],
    "prompt_template": ["", None, 7],
    "seed": [None, 0, "3"],
    "stop_sequences": [None, "", "a,b"],
    "max_new_tokens": [0, None],
}
MEMBERS = {
    "id": [5, None, []],
    "created_at": ["2024-01-02T03:04:05Z", "2024-01-02T03:04:05.25+01:30", "2024-01-02 03:04", 1700000000, 1700000000123,
                   "yesterday", [], "2024-13-02T03:04:05Z", "1700000000.5", "2024-01-02", None, "2024-01-02T03:04:05-0800"],
    "output_file_prefix": [[], 5],
    "webhook": ["nourl", "ftp://x/y", 5, "", "http://", "http://a b/", "http://x:99999999/"],
    "webhook_events_filter": [["start", "x"], "start", [1]],
}  # fmt: skip
for name, values in VALUES.items():
    for value in values:
        CASES[f"{name} {json.dumps(value)}"] = ("POST", "/predictions", prediction(**{name: value}))
for name, values in MEMBERS.items():
    for value in values:
        CASES[f"member {name} {json.dumps(value)}"] = ("POST", "/predictions", with_member(**{name: value}))


def exchange(port, method, path, body=None, headers=None):
    headers = dict(headers or {})
    if body is not None and not isinstance(body, str):
        body = json.dumps(body)
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    return {"method": method, "path": path, "headers": headers, "body": body, "status": answer.status, "answer": text}


def record(port):
    started = {}
    for name, case in sorted(CASES.items(), key=lambda item: (item[0][0].isdigit(), item[0][0] if item[0][0].isdigit() else "")):
        started[name] = exchange(port, *case)
    (HERE / "exchanges.json").write_text(json.dumps(started, indent=0) + "\n")
    schema = json.loads(exchange(port, "GET", "/openapi.json")["answer"])
    (HERE / "openapi.json").write_text(json.dumps(schema, indent=0) + "\n")


def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "cog.yaml").write_text(COG_YAML)
        pathlib.Path(folder, "predict.py").write_text(PREDICTOR)
        command = [sys.executable, "-m", "cog.server.http", "--host", "127.0.0.1"]
        server = subprocess.Popen(command, cwd=folder, env={**os.environ, "PORT": str(port)})
        try:
            for _ in range(600):
                time.sleep(0.1)
                try:
                    if json.loads(exchange(port, "GET", "/health-check")["answer"])["status"] == "READY":
                        break
                except OSError:
                    pass
            record(port)
        finally:
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Profiles of the step loops, taken from a server at work (docs/reference/protocol/http.md, "Profiles")."""

import concurrent.futures
import http.client
import json
import select
import time

import jsonschema
import pytest
import requests
from demo_llm import add_demo_llm
from live_server import DEVICE, start_server

PATH = "/v2/debug/profile"
PATIENCE_S = 60
NUM_CLIENTS = 4
ROUNDING_US = 1e-3  # of sums: times have whole nanoseconds
FORWARD = {"cpu": "forward", "cuda": "launch"}[DEVICE]
PHASES = {"admit", "plan", "prepare", FORWARD, "masks", "wait", "collect", "retire", "statistics", "deliver"}
# Chromium's "Trace Event Format": the object form, with complete events, instants and metadata.
TIMED = {"name": {"type": "string"}, "pid": {"type": "integer"}, "tid": {"type": "integer"}, "args": {"type": "object"}}
FORMAT = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object"},
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    {
                        "required": ["name", "ph", "ts", "dur", "pid", "tid"],
                        "properties": {
                            **TIMED, "ph": {"const": "X"}, "cat": {"type": "string"}, "ts": {"type": "number"},
                            "dur": {"type": "number", "minimum": 0},
                        },
                    },
                    {
                        "required": ["name", "ph", "ts", "pid", "tid"],
                        "properties": {
                            **TIMED, "ph": {"const": "i"}, "s": {"enum": ["g", "p", "t"]}, "ts": {"type": "number"}
                        },
                    },
                    {
                        "required": ["name", "ph", "pid", "args"],
                        "properties": {
                            **TIMED, "ph": {"const": "M"}, "name": {"enum": ["process_name", "thread_name"]},
                            "args": {"required": ["name"]},
                        },
                    },
                ]
            },
        },
    },
}  # fmt: skip


def capture(server, **members):
    answer = requests.post(f"http://{server.http}{PATH}", json=members, timeout=PATIENCE_S + 60)
    if answer.status_code == 200:
        assert answer.headers["Content-Type"] == "application/json"
        jsonschema.validate(answer.json(), FORMAT)
    return answer


def complete(server, name):
    """A completion whose prompt no other begins with; what it says of its tokens."""
    body = {"model": "demo", "prompt": f"{name}: The fox", "max_tokens": 6, "temperature": 0}
    answer = requests.post(f"http://{server.http}/v1/completions", json=body, timeout=PATIENCE_S)
    assert answer.ok, answer.text
    return answer.json()["usage"]


def profile_of_load(server):
    """A profile that the whole of some load lies within, and the usage of each request."""
    for duration_ms in (1500, 6000, 30000):
        with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS + 1) as pool:
            answer = pool.submit(capture, server, duration_ms=duration_ms)
            time.sleep(0.3)
            began_ms = time.time() * 1000
            names = [f"{duration_ms} {number}" for number in range(3 * NUM_CLIENTS)]
            usages = list(pool.map(complete, [server] * len(names), names))
            ended_ms = time.time() * 1000
            trace = answer.result().json()
        other = trace["otherData"]
        if other["captured_at_ms"] < began_ms and ended_ms < other["captured_at_ms"] + duration_ms:
            return trace, usages
    pytest.fail("some completions took longer than half a minute")


@pytest.fixture(scope="module")
def loaded(server):
    return profile_of_load(server)


def events(trace, *names):
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["name"] in names]


def test_tokens_are_those_of_the_requests(loaded):
    trace, usages = loaded
    collected = [event["args"] for event in events(trace, "collect")]
    launched = [event["args"] for event in events(trace, FORWARD)]
    prompt_tokens = sum(usage["prompt_tokens"] for usage in usages)
    assert sum(args["tokens_generated"] for args in collected) == sum(usage["completion_tokens"] for usage in usages)
    assert sum(args["prompt_tokens"] for args in collected) == prompt_tokens
    assert sum(args["prompt_tokens"] for args in launched) == prompt_tokens
    assert max(args["rows"] for args in collected) <= NUM_CLIENTS
    steps = [args["step"] for args in collected]
    assert steps == list(range(steps[0], steps[0] + len(steps)))
    assert steps == [args["step"] for args in launched]
    for args in launched:
        assert 0 <= args["prompt_tokens"] <= args["tokens"] and args["rows"] <= args["tokens"]


def test_events_lie_in_the_window_and_phases_fill_their_turns(loaded):
    trace, _ = loaded
    window_us = trace["otherData"]["duration_ms"] * 1000
    assert window_us >= 1500 * 1000
    turns = []  # (event, its phases), as they stand in the file
    for event in events(trace, "turn", *PHASES):
        if event["name"] == "turn":
            turns.append((event, []))
        else:
            turns[-1][1].append(event)
    assert sum(1 + len(phases) for _, phases in turns) == sum(event["ph"] == "X" for event in trace["traceEvents"])
    at = 0
    for turn, phases in turns:
        assert turn["ts"] >= at - ROUNDING_US
        at, end = turn["ts"], turn["ts"] + turn["dur"]
        assert phases[0]["name"] == "admit" and phases[-1]["name"] == "deliver"
        for phase in phases:
            assert phase["ts"] == pytest.approx(at, abs=ROUNDING_US)
            at = phase["ts"] + phase["dur"]
        assert at == pytest.approx(end, abs=ROUNDING_US)
    assert at <= window_us
    assert sum(turn["dur"] for turn, _ in turns) <= window_us
    assert sum(event["dur"] for event in events(trace, FORWARD, "wait")) > 0


def test_turns_say_how_full_the_model_is(loaded):
    trace, _ = loaded
    (model,) = trace["otherData"]["models"]
    turns = events(trace, "turn")
    assert model["model"] == "tensorrt_llm" and model["version"] == "1" and model["device"].startswith(DEVICE)
    assert model["turns"] == len(turns) and model["lost_turns"] == 0
    used = [turn["args"]["kv_blocks_used"] for turn in turns]
    assert 0 < max(used) <= model["kv_blocks_max"]
    assert max(turn["args"]["active_requests"] for turn in turns) <= NUM_CLIENTS
    assert turns[-1]["args"] == {"active_requests": 0, "queued_requests": 0, "kv_blocks_used": 0}


def test_process_and_step_loops_have_names(loaded):
    trace, _ = loaded
    names = {event["name"]: event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    other = trace["otherData"]
    assert names == {"process_name": f"inflight {other['version']}", "thread_name": "tensorrt_llm 1"}
    assert other["cores"] >= 1 and other["ended_by"] == "duration" and other["is_cut"] is False


def test_an_idle_server_has_an_empty_profile(server):
    for members in ({}, {"duration_ms": 1, "model": "tensorrt_llm"}):
        trace = capture(server, **members).json()
        assert events(trace, "turn", *PHASES) == []
        assert trace["otherData"]["models"][0]["turns"] == 0
    without_body = requests.post(f"http://{server.http}{PATH}", timeout=PATIENCE_S)
    assert without_body.status_code == 200 and without_body.json()["otherData"]["duration_ms"] >= 1000


BOUND = "must be an integer in [1, 60000]"
WRONG = [
    *((f'{{"duration_ms": {value}}}', 400, f"duration_ms: got {value}, {BOUND}")
      for value in ("0", "60001", "-1", "1.5", '"1000"', "null", "true", "[1]", "1e3", "99999999999999999999")),
    ('{"model": 5}', 400, "model: got 5, must be a model's name"),
    ('{"model": ""}', 400, 'model: got "", must be a model\'s name'),
    ('{"model": "nobody"}', 404, "unknown model: 'nobody'"),
    ('{"model": "ensemble"}', 400, "model: got 'ensemble', must be one that has a step loop of its own: tensorrt_llm"),
    ('{"duration": 5}', 400, "duration: is not known here; a profile has duration_ms and model"),
    ("[]", 500, "attempt to get members for non-object"),
    ("{", 500, "failed to parse the request JSON buffer"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status", "text"), WRONG)
def test_what_is_wrong_is_named(server, body, status, text):
    answer = requests.post(f"http://{server.http}{PATH}", data=body, timeout=30)
    assert answer.status_code == status and text in answer.json()["error"], answer.text


def test_it_is_asked_for_by_post_alone(server):
    assert requests.get(f"http://{server.http}{PATH}", timeout=30).status_code == 405


def begin(server, **members):
    """A connection on which a profile is being taken, and how another one is refused beside it."""
    connection = http.client.HTTPConnection(*server.http.split(":"), timeout=PATIENCE_S)
    question = ("POST", PATH, json.dumps(members), {"Content-Type": "application/json"})
    connection.request(*question)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        time.sleep(0.1)
        second = capture(server, duration_ms=1)
        if select.select([connection.sock], [], [], 0)[0]:  # it came while the second one was being taken
            connection.getresponse().read()
            connection.request(*question)
        elif second.status_code == 429:
            return connection, second
    pytest.fail("no profile began")


def test_one_at_a_time_and_who_leaves_ends_it(server):
    first, refused = begin(server, duration_ms=60000)
    assert "another profile is being taken" in refused.json()["error"]
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert complete(server, "meanwhile")["completion_tokens"] > 0
    first.close()
    deadline = time.monotonic() + PATIENCE_S
    while capture(server, duration_ms=1).status_code == 429:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def controlled(tmp_path):
    """The demo model as one that may be unloaded."""
    add_demo_llm(tmp_path / "models")
    return start_server(
        tmp_path, None, "--model-repository", tmp_path / "models", "--model-control-mode=explicit", "--load-model=tensorrt_llm"
    )


def test_an_unloaded_model_has_its_turns_until_then_and_the_end_of_the_server_answers(controlled):
    connection, _ = begin(controlled, duration_ms=60000)
    inputs = {"input_ids": [5, 6, 7], "input_lengths": [3], "request_output_len": [4]}
    body = {"inputs": [{"name": k, "datatype": "INT32", "shape": [1, len(v)], "data": v} for k, v in inputs.items()]}
    answer = requests.post(f"http://{controlled.http}/v2/models/tensorrt_llm/infer", json=body, timeout=PATIENCE_S)
    assert answer.ok, answer.text
    unloaded = requests.post(f"http://{controlled.http}/v2/repository/models/tensorrt_llm/unload", json={}, timeout=PATIENCE_S)
    assert unloaded.ok
    index, deadline = f"http://{controlled.http}/v2/repository/index", time.monotonic() + PATIENCE_S
    while requests.post(index, json={}, timeout=30).json()[0]["state"] != "UNAVAILABLE":  # the profile keeps no model
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        status = pool.submit(controlled.stop)
        response = connection.getresponse()
        trace = json.loads(response.read())
        assert response.status == 200
        assert status.result() == 0, controlled.log.read_text()[-4000:]
    jsonschema.validate(trace, FORMAT)
    assert trace["otherData"]["ended_by"] == "exit" and trace["otherData"]["duration_ms"] < 60000
    assert sum(event["args"]["prompt_tokens"] for event in events(trace, "collect")) == 3
    assert 1 <= sum(event["args"]["tokens_generated"] for event in events(trace, "collect")) <= 4

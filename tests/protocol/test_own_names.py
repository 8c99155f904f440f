# SPDX-License-Identifier: Apache-2.0
"""The models of `serve DIR`, which no configuration file describes: sampling as people mean it, outputs that were asked for,
defaults, and names that were spelt wrong. `inflight ps` of such a server."""

import json
import shutil
import subprocess

import pytest
import requests
from command import INFLIGHT
from live_server import DEMO, start_server

STORY = {"text_input": "Once upon a time", "max_tokens": 12}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    work = tmp_path_factory.mktemp("own")
    model = work / "drawing"
    shutil.copytree(DEMO, model)
    config = json.loads((model / "generation_config.json").read_text())
    drawn = {**config, "do_sample": True, "temperature": 1.5, "top_p": 0.98, "max_new_tokens": 7}
    (model / "generation_config.json").write_text(json.dumps(drawn))
    server = start_server(work, model)
    yield server
    assert server.stop() == 0


def generate(server, path="generate", **body):
    return requests.post(f"http://{server.http}/v2/models/ensemble/{path}", json={**STORY, **body}, timeout=60)


def test_only_outputs_that_were_asked_for_come(server):
    assert set(generate(server).json()) == {
        "model_name", "model_version", "sequence_end", "sequence_id", "sequence_start", "text_output"
    }  # fmt: skip
    with_log_probs = generate(server, return_log_probs=True).json()
    assert len(with_log_probs["output_log_probs"]) > 1 and with_log_probs["cum_log_probs"] < 0
    assert "context_logits" not in with_log_probs


def test_max_tokens_has_a_default(server, own):
    body = {"text_input": "Once upon a time"}
    at_once = requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60)
    assert at_once.status_code == 200, at_once.text
    assert at_once.json()["text_output"] == generate(server, max_tokens=64).json()["text_output"]
    ids = {"input_ids": [5, 6, 7], "input_lengths": 3, "temperature": 0.0, "end_id": -1}
    short = requests.post(f"http://{own.http}/v2/models/tensorrt_llm/generate", json=ids, timeout=60).json()
    assert short["sequence_length"] == 7  # max_new_tokens of the model


def test_temperature_alone_draws_and_the_seed_is_told(server):
    greedy = generate(server).json()
    assert "random_seed" not in greedy
    first = generate(server, temperature=3.0, max_tokens=40).json()
    again = generate(server, temperature=3.0, max_tokens=40, random_seed=first["random_seed"]).json()
    assert first["text_output"] == again["text_output"] and "random_seed" not in again
    assert generate(server, temperature=3.0, max_tokens=40).json()["text_output"] != first["text_output"]


def test_the_models_own_defaults_draw(own):
    first = generate(own, max_tokens=30).json()
    said = {"temperature": 1.5, "top_p": 0.98, "random_seed": first["random_seed"]}
    assert generate(own, max_tokens=30, **said).json()["text_output"] == first["text_output"]
    assert "random_seed" not in generate(own, temperature=0.0).json()
    log = own.log.read_text()
    assert "generation_config.json" in log and "do_sample true, temperature 1.5, top_p 0.98, max_new_tokens 7" in log


def test_a_stream_tells_its_seed_once(server):
    text = generate(server, "generate_stream", temperature=3.0, stream=True).text
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]
    assert ["random_seed" in event for event in events] == [True] + [False] * (len(events) - 1)


def test_unknown_members_are_told_of_in_a_header(server):
    answer = generate(server, temprature=0.5, zzzzzzzz=1)
    assert answer.status_code == 200
    assert answer.headers["Inflight-Warning"] == (
        "'temprature' is not known, did you mean 'temperature'?; 'zzzzzzzz' is not known"
    )
    assert "Inflight-Warning" not in generate(server, temperature=0.5, cache_salt="x", priority=1).headers
    hostile = generate(server, **{"a\r\nSet-Cookie: b": 1, "ü" * 100: 2})
    assert hostile.status_code == 200 and "Set-Cookie" not in hostile.headers


def test_strict_parameters_refuse_them(tmp_path):
    server = start_server(tmp_path, DEMO, "--strict-parameters")
    try:
        answer = generate(server, temprature=0.5)
        assert answer.status_code == 400
        assert answer.json() == {"error": "'temprature' is not known, did you mean 'temperature'?"}
        assert generate(server, temperature=0.5).status_code == 200
    finally:
        assert server.stop() == 0


def ps(*arguments):
    return subprocess.run([INFLIGHT, "ps", *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_ps_tells_models_and_load(server):
    done = ps("--url", f"http://{server.http}", "--metrics-url", f"http://{server.metrics}", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {m["name"]: m["state"] for m in told["models"]}["ensemble"] == "READY"
    assert told["metrics"]["requests waiting"] == 0 and told["metrics"]["KV blocks"] > 0
    table = ps("--url", f"http://{server.http}").stdout
    assert table.splitlines()[0].split() == ["MODEL", "VERSION", "STATE", "REASON"] and "ensemble" in table


def test_ps_of_no_server_is_an_error():
    done = ps("--url", "http://127.0.0.1:9")
    assert done.returncode == 1 and "127.0.0.1:9" in done.stderr

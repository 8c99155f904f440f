# SPDX-License-Identifier: Apache-2.0
"""Models that sleep: the paths, queries and is_sleeping of vLLM's sleep mode
(vllm-project/vllm/vllm/entrypoints/serve/sleep/api_router.py), over the demo model, whose greedy answers are the oracle."""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import threading
import time

import pytest
import requests
from demo_llm import add_demo_llm
from live_server import DEMO, start_error, start_server

PROMPT = "three plus four is"
LLM = "tensorrt_llm"


def serve(path, *options):
    return start_server(path, DEMO, "--enable-sleep-mode", "--deterministic", *options)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = serve(tmp_path_factory.mktemp("sleep"), "--allow-openai=true")
    yield running
    assert running.stop() == 0


@pytest.fixture(autouse=True)
def awake(request):
    yield
    if "server" in request.fixturenames:
        call(request.getfixturevalue("server"), "POST", "wake_up")


def call(server, method, path, **query):
    return requests.request(method, f"http://{server.http}/{path}", params=query, timeout=60)


def generate(server, text=PROMPT, max_tokens=24, **members):
    body = {"text_input": text, "max_tokens": max_tokens, **members}
    return requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60)


def answer(server, *args, **members):
    response = generate(server, *args, **members)
    assert response.ok, response.text
    return response.json()["text_output"]


def metric(server, family, **labels):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    for line in page.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith(family + "{") and all(f'{key}="{text}"' in name for key, text in labels.items()):
            return float(value)
    raise AssertionError(f"no {family} {labels} in:\n{page}")


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("level", [1, 2])
def test_answers_are_the_same_before_and_after(server, level):
    before = answer(server)
    memory = metric(server, "nv_trt_llm_runtime_memory_metrics", memory_type="cpu")
    for _ in range(2):
        slept = call(server, "POST", "sleep", level=level)
        assert slept.status_code == 200, slept.text
        assert slept.json()["is_sleeping"] is True
        state = slept.json()["models"][0]
        assert state["name"] == LLM and state["level"] == level and state["kv_cache_bytes"] > 0
        assert (state["weight_bytes"] > 0) == (level == 2)
        assert call(server, "GET", "is_sleeping").json()["is_sleeping"] is True
        assert metric(server, "inflight_sleep_level", model=LLM) == level
        given = state["kv_cache_bytes"] + state["weight_bytes"]
        assert metric(server, "nv_trt_llm_runtime_memory_metrics", memory_type="cpu") == memory - given
        assert call(server, "POST", "sleep", level=level).status_code == 200
        woken = call(server, "POST", "wake_up")
        assert woken.status_code == 200 and woken.json()["is_sleeping"] is False
        assert call(server, "GET", "is_sleeping").json()["is_sleeping"] is False
        assert metric(server, "inflight_sleep_level", model=LLM) == 0
        assert answer(server) == before
    assert metric(server, "nv_trt_llm_runtime_memory_metrics", memory_type="cpu") == memory


def test_a_sleeping_server_is_live_and_not_ready(server):
    def get(path):
        return requests.get(f"http://{server.http}/v2/{path}", timeout=30)

    assert get("health/ready").ok and get(f"models/{LLM}/ready").ok
    call(server, "POST", "sleep")
    assert get("health/live").ok
    assert get("health/ready").status_code == 400
    for model in (LLM, "ensemble"):
        refused = get(f"models/{model}/ready")
        assert refused.status_code == 400 and "wake_up" in refused.json()["error"]
    assert get("models/preprocessing/ready").ok
    index = {entry["name"]: entry for entry in call(server, "POST", "v2/repository/index").json()}
    assert "wake_up" in index[LLM]["reason"] and "reason" not in index["preprocessing"]
    call(server, "POST", "wake_up")
    assert get("health/ready").ok


def num_pending(server):
    return metric(server, "nv_inference_pending_request_count", model=LLM)


def test_requests_wait_and_clients_may_leave(server):
    expected = answer(server)
    call(server, "POST", "sleep")
    with pytest.raises(requests.exceptions.ReadTimeout):
        body = {"text_input": PROMPT, "max_tokens": 4}
        requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=0.3)
    wait_until(lambda: num_pending(server) == 0)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(answer, server) for _ in range(3)]
        wait_until(lambda: num_pending(server) == 3)
        assert not any(one.done() for one in waiting)
        call(server, "POST", "wake_up")
        assert [one.result() for one in waiting] == [expected] * 3


def test_a_stream_that_is_paused_goes_on_with_the_same_text(server):
    text = "Once upon a time"
    expected = answer(server, text, 200)
    body = {"text_input": text, "max_tokens": 200, "stream": True}
    url = f"http://{server.http}/v2/models/ensemble/generate_stream"
    parts = []
    with requests.post(url, json=body, stream=True, timeout=60) as response:
        for line in response.iter_lines():
            if not line.startswith(b"data: "):
                continue
            parts.append(json.loads(line[6:])["text_output"])
            if len(parts) in (3, 20):
                assert call(server, "POST", "sleep", level=1 + len(parts) % 2).status_code == 200
                assert call(server, "POST", "wake_up").status_code == 200
    assert "".join(parts) == expected


def test_modes_wait_and_abort(server):
    expected = answer(server, "Once upon a time", 300)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(answer, server, "Once upon a time", 300)
        wait_until(lambda: metric(server, "nv_trt_llm_request_metrics", request_type="active") == 1 or running.done())
        assert call(server, "POST", "sleep", mode="wait").status_code == 200
        assert running.result() == expected
        call(server, "POST", "wake_up")
        running = pool.submit(generate, server, "Once upon a time", 300)
        wait_until(lambda: metric(server, "nv_trt_llm_request_metrics", request_type="active") == 1 or running.done())
        assert call(server, "POST", "sleep", mode="abort").status_code == 200
        running.result()  # it ends, however far it has come
        call(server, "POST", "wake_up")
    assert answer(server, "Once upon a time", 300) == expected


@pytest.mark.parametrize(
    ("method", "path", "query", "status", "words"),
    [
        ("POST", "sleep", {"level": "3"}, 400, ["level", "'3'", "1 ", "2 "]),
        ("POST", "sleep", {"level": "one"}, 400, ["level", "'one'"]),
        ("POST", "sleep", {"level": "0"}, 400, ["level", "'0'"]),
        ("POST", "sleep", {"mode": "nap"}, 400, ["mode", "'nap'", "keep", "wait", "abort"]),
        ("POST", "sleep", {"tags": "weights"}, 400, ["tags", "level, mode and model"]),
        ("POST", "sleep", {"model": "nobody"}, 404, ["nobody"]),
        ("POST", "sleep", {"model": "preprocessing"}, 400, ["preprocessing", LLM]),
        ("POST", "sleep", {"model": ""}, 400, ["model"]),
        ("POST", "wake_up", {"tags": "scheduling"}, 400, ["tags", "'scheduling'", "weights", "kv_cache"]),
        ("POST", "wake_up", {"level": "1"}, 400, ["level", "tags and model"]),
        ("POST", "wake_up", {"model": "nobody"}, 404, ["nobody"]),
        ("GET", "is_sleeping", {"model": "nobody"}, 404, ["nobody"]),
        ("GET", "sleep", {}, 405, []),
        ("POST", "is_sleeping", {}, 405, []),
    ],
)
def test_what_is_wrong_is_named(server, method, path, query, status, words):
    refused = call(server, method, path, **query)
    assert refused.status_code == status, refused.text
    for word in words:
        assert word in refused.json()["error"]
    assert call(server, "GET", "is_sleeping").json()["is_sleeping"] is False


def test_models_are_named_by_what_runs_them_and_woken_in_parts(server):
    before = answer(server)
    assert call(server, "POST", "sleep", model="ensemble", level=2).json()["models"][0]["name"] == LLM
    assert call(server, "POST", "wake_up", model=LLM, tags="weights").json()["is_sleeping"] is True
    state = call(server, "GET", "is_sleeping", model="ensemble").json()["models"][0]
    assert state["weight_bytes"] == 0 and state["kv_cache_bytes"] > 0
    assert call(server, "POST", "wake_up", tags="kv_cache").json()["is_sleeping"] is False
    assert answer(server) == before


def test_under_streams_that_come_and_go_every_one_ends(server):
    expected = answer(server, PROMPT, 40)
    ended = []

    def one(i):
        if i % 4 == 0:  # leaves after its first event
            url = f"http://{server.http}/v2/models/ensemble/generate_stream"
            body = {"text_input": PROMPT, "max_tokens": 40, "stream": True}
            with requests.post(url, json=body, stream=True, timeout=60) as response:
                next(response.iter_lines())
            ended.append(None)
        else:
            ended.append(answer(server, PROMPT, 40))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(32)]
    for thread in threads:
        thread.start()
    for i in range(6):
        assert call(server, "POST", "sleep", level=1 + i % 2).status_code == 200
        assert call(server, "POST", "wake_up").status_code == 200
    for thread in threads:
        thread.join(60)
    assert len(ended) == 32 and set(ended) == {None, expected}
    wait_until(lambda: metric(server, "nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="used") == 0)


def test_the_commands_do_the_same(server):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"

    def run(*arguments):
        return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)

    slept = run("sleep", f"http://{server.http}", "--model", "ensemble", "--level", "2")
    assert slept.returncode == 0, slept.stderr
    assert LLM in slept.stdout and "sleeps" in slept.stdout and "level 2" in slept.stdout
    assert call(server, "GET", "is_sleeping").json()["is_sleeping"] is True
    woken = run("wake", f"http://{server.http}/")
    assert woken.returncode == 0 and "awake" in woken.stdout
    assert call(server, "GET", "is_sleeping").json()["is_sleeping"] is False
    unknown = run("sleep", f"http://{server.http}", "--model", "nobody")
    assert unknown.returncode == 1 and "nobody" in unknown.stderr


def test_without_the_option_calls_are_refused_by_its_name(tmp_path):
    running = start_server(tmp_path, DEMO)
    try:
        for path in ("sleep", "wake_up"):
            refused = call(running, "POST", path)
            assert refused.status_code == 400 and "--enable-sleep-mode" in refused.json()["error"]
        assert call(running, "GET", "is_sleeping").json()["is_sleeping"] is False
        assert requests.get(f"http://{running.http}/v2/health/ready", timeout=30).ok
    finally:
        assert running.stop() == 0


@pytest.mark.parametrize("option", ["--receipts", "--record={}/journal"])
def test_what_does_not_go_with_it_is_refused_at_the_start(tmp_path, option):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    words = start_error([
        program, "serve", DEMO, "--device=cpu", "--enable-sleep-mode", option.format(tmp_path), "--http-port=0",
        "--grpc-port=0", "--metrics-port=0",
    ])  # fmt: skip
    assert "enable_sleep_mode" in words and option.split("=")[0] in words


def test_a_server_that_sleeps_ends_at_once_with_all_that_wait(tmp_path):
    running = serve(tmp_path, "--exit-timeout-secs=3600")
    call(running, "POST", "sleep", level=2)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(generate, running)
        wait_until(lambda: num_pending(running) == 1)
        assert running.stop() == 0
        waiting.result()  # it has ended, as cancelled


def test_a_model_that_is_unloaded_asleep_ends_what_waits(tmp_path):
    add_demo_llm(tmp_path / "repository")
    running = start_server(
        tmp_path, None, "--enable-sleep-mode", "--model-repository", tmp_path / "repository",
        "--model-control-mode=explicit", f"--load-model={LLM}",
    )  # fmt: skip
    inputs = [("input_ids", [1, 3], [5, 6, 7]), ("input_lengths", [1, 1], [3]), ("request_output_len", [1, 1], [4])]
    body = {"inputs": [{"name": n, "shape": s, "datatype": "INT32", "data": d} for n, s, d in inputs]}

    def infer():
        return requests.post(f"http://{running.http}/v2/models/{LLM}/infer", json=body, timeout=60)

    try:
        assert infer().ok
        call(running, "POST", "sleep")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            waiting = pool.submit(infer)
            wait_until(lambda: num_pending(running) == 1)
            assert call(running, "POST", f"v2/repository/models/{LLM}/unload").ok
            assert waiting.result().ok  # it has ended, as cancelled
        assert call(running, "POST", "sleep").status_code == 400  # no LLM is loaded
        assert call(running, "POST", f"v2/repository/models/{LLM}/load").ok
        assert infer().ok
    finally:
        assert running.stop() == 0

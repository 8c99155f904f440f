# SPDX-License-Identifier: Apache-2.0
"""Threads that read metrics, statistics, the index, metadata and settings, over HTTP and gRPC, while models load, unload and
fail to load. The sanitizers of memory and of threads watch it (scripts/sanitize.sh)."""

import json
import pathlib
import sys
import threading
import time

import pytest
import requests

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))

from conformance_models import add_ensemble, add_identity, infer_body
from demo_llm import add_demo_llm
from live_server import is_sanitized, start_server

RUN_S = 12 if is_sanitized() else 6
LEAST = 3  # times that each reader and each changer gets its turn, however slow the machine
MAY_FAIL = (200, 400, 404, 500, 503)  # the model that is asked for may have gone
MODELS = ("small", "around", "tensorrt_llm", "broken")


@pytest.fixture
def server(tmp_path):
    models = tmp_path / "models"
    add_identity(models, "small")
    add_ensemble(models, "around", "small")
    add_identity(models, "broken", "instance_group { count: -1 }")
    add_demo_llm(models)
    running = start_server(
        tmp_path, None, "--model-repository", models, "--model-control-mode=explicit", "--load-model=small",
        "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS", f"--trace-config=triton,file={tmp_path / 'trace'}",
    )  # fmt: skip
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def http_readers(server):
    def get(url):
        return lambda session: session.get(url, timeout=60)

    base = f"http://{server.http}/v2"
    yield get(f"http://{server.metrics}/metrics")
    for path in ("", "/health/ready", "/models/stats", "/trace/setting", "/logging"):
        yield get(base + path)
    for model in MODELS:
        for path in ("", "/config", "/stats", "/ready", "/trace/setting"):
            yield get(f"{base}/models/{model}{path}")
    yield lambda session: session.post(f"{base}/repository/index", json={}, timeout=60)
    yield lambda session: session.post(f"{base}/models/around/infer", json=infer_body([1, 2], "IN"), timeout=60)
    yield lambda session: session.post(f"{base}/models/small/trace/setting", data=json.dumps({"trace_rate": "2"}), timeout=60)


def changers(server):
    def change(session, model, what):
        return session.post(f"http://{server.http}/v2/repository/models/{model}/{what}", json={}, timeout=60)

    for model in MODELS:
        yield lambda session, model=model: change(session, model, "load")
        yield lambda session, model=model: change(session, model, "unload")


def grpc_readers(address):
    import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException

    def turn(client):
        for read in (
            client.get_model_repository_index, client.get_inference_statistics, client.get_server_metadata,
            client.get_trace_settings, client.get_log_settings,
            lambda: client.get_model_metadata("around"), lambda: client.get_model_config("tensorrt_llm"),
            lambda: client.get_inference_statistics("small"), lambda: client.get_trace_settings("small"),
        ):  # fmt: skip
            try:
                read()
            except InferenceServerException as gone:
                assert gone.status() in ("StatusCode.NOT_FOUND", "StatusCode.UNAVAILABLE", "StatusCode.INVALID_ARGUMENT"), gone

    return triton.InferenceServerClient(address), turn


def test_readers_meet_models_that_come_and_go(server):
    stop, failures, turns = threading.Event(), [], {}

    def repeat(name, turn):
        try:
            while not stop.is_set() or turns.get(name, 0) < LEAST:
                turn()
                turns[name] = turns.get(name, 0) + 1
        except Exception as failure:  # what a thread raises is nobody else's
            failures.append((name, failure))
            stop.set()

    def over_http(calls):
        session = requests.Session()

        def turn():
            for call in calls:
                answer = call(session)
                assert answer.status_code in MAY_FAIL, (answer.url, answer.status_code, answer.text)

        return turn

    work = {f"http-{i}": over_http(list(http_readers(server))) for i in range(3)}
    work |= {"changes": over_http(list(changers(server)))}
    client = None
    if server.grpc:
        client, turn = grpc_readers(server.grpc)
        work["grpc"] = lambda: turn(client)
    threads = [threading.Thread(target=repeat, args=item) for item in work.items()]
    for thread in threads:
        thread.start()
    stop.wait(RUN_S)
    stop.set()
    deadline = time.monotonic() + 240
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
        assert not thread.is_alive(), turns
    if client is not None:
        client.close()
    assert not failures, failures
    assert server.process.poll() is None, server.log.read_text()[-4000:]
    assert all(turns[name] >= LEAST for name in work), turns

# SPDX-License-Identifier: Apache-2.0
"""Responses that are kept for requests with the same inputs, and requests that warm a model up before it is ready."""

import os
import pathlib
import subprocess

import numpy
import pytest
import requests
import tritonclient.grpc as triton
from conformance_models import add_ensemble, add_identity, add_model, infer_body, io
from live_server import start_server

CACHED = "response_cache { enable: true }"


def warm_up(data, name="w", batch_size=1, extra=""):
    value = f'{{ key: "INPUT0" value {{ data_type: TYPE_INT32 dims: [ 2 ] {data} }} }}'
    return f'model_warmup {{ name: "{name}" batch_size: {batch_size} {extra} inputs {value} }}'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    for name in ("kept", "kept_over_grpc", "kept_reloaded", "kept_step"):
        add_identity(repository, name, CACHED)
    add_identity(repository, "not_kept")
    add_ensemble(repository, "around_kept", "kept_step")
    add_model(
        repository, "failing", "fail", io("input", "CODE", "[ 1 ]"), io("input", "MESSAGE", "[ 1 ]", "TYPE_STRING"),
        io("output", "OUT", "[ 1 ]", "TYPE_STRING"), CACHED,
    )  # fmt: skip
    add_identity(
        repository, "warm", warm_up("zero_data: true"), warm_up("random_data: true", "x", 3, "count: 2"),
        warm_up('input_data_file: "ints"', "y"),
        files={"warmup/ints": numpy.array([1, 2], dtype="<i4").tobytes()},
    )  # fmt: skip
    add_identity(repository, "cold", warm_up("zero_data: true").replace("dims: [ 2 ]", "dims: [ 3 ]"))
    add_identity(repository, "fileless", warm_up('input_data_file: "none"', "of the file"))
    add_identity(repository, "decoupled", CACHED, "model_transaction_policy { decoupled: true }")
    running = start_server(
        tmp_path_factory.mktemp("cache"), None, "--model-repository", repository, "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in ("kept", "kept_over_grpc", "not_kept", "around_kept", "failing", "warm")),
        "--cache-config=local,size=1048576",
    )  # fmt: skip
    running.repository = repository
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def post(server, path, body=None):
    return requests.post(f"http://{server.http}/v2/{path}", json=body, timeout=30)


def infer(server, model, body):
    return post(server, f"models/{model}/infer", body)


def stats_of(server, model):
    (stats,) = requests.get(f"http://{server.http}/v2/models/{model}/stats", timeout=30).json()["model_stats"]
    counts = {name: value["count"] for name, value in stats["inference_stats"].items()}
    return counts | {"inferences": stats["inference_count"], "executions": stats["execution_count"]}


def metric(server, family, model):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    prefix = f'{family}{{model="{model}",version="1"}} '
    return [float(line.removeprefix(prefix)) for line in page.splitlines() if line.startswith(prefix)]


def test_the_same_inputs_are_answered_without_running_the_model(server):
    first = infer(server, "kept", infer_body([1, 2], id="a"))
    again = infer(server, "kept", infer_body([1, 2], id="b", parameters={"priority": 1}))
    assert first.json() == {**again.json(), "id": "a"}
    assert again.json()["id"] == "b"
    assert infer(server, "kept", infer_body([3, 4])).json()["outputs"][0]["data"] == [3, 4]
    stats = stats_of(server, "kept")
    assert stats == {
        "success": 3, "fail": 0, "queue": 3, "compute_input": 2, "compute_infer": 2, "compute_output": 2,
        "cache_hit": 1, "cache_miss": 2, "inferences": 2, "executions": 2,
    }  # fmt: skip
    assert metric(server, "nv_cache_num_hits_per_model", "kept") == [1]
    assert metric(server, "nv_cache_num_misses_per_model", "kept") == [2]
    assert metric(server, "nv_cache_hit_duration_per_model", "kept") != []
    assert metric(server, "nv_inference_request_success", "kept") == [3]
    assert metric(server, "nv_inference_count", "kept") == [2]


def test_another_parameter_is_another_request(server):
    for parameters, hits in [({"colour": "red"}, 0), ({"colour": "blue"}, 0), ({"colour": "red"}, 1)]:
        before = stats_of(server, "kept_step")["cache_hit"]
        assert infer(server, "around_kept", infer_body([8, 9], "IN", parameters=parameters)).ok
        assert stats_of(server, "kept_step")["cache_hit"] - before == hits


def test_over_grpc(server):
    tensor = triton.InferInput("INPUT0", [2], "INT32")
    tensor.set_data_from_numpy(numpy.array([5, 6], dtype=numpy.int32))
    with triton.InferenceServerClient(server.grpc) as client:
        for _ in range(3):
            assert list(client.infer("kept_over_grpc", [tensor]).as_numpy("OUTPUT0")) == [5, 6]
        times = client.get_inference_statistics("kept_over_grpc").model_stats[0].inference_stats
    assert (times.success.count, times.cache_hit.count, times.cache_miss.count) == (3, 2, 1)


def test_models_that_do_not_ask_are_not_cached(server):
    for _ in range(2):
        assert infer(server, "not_kept", infer_body([1, 2])).ok
    stats = stats_of(server, "not_kept")
    assert (stats["cache_hit"], stats["cache_miss"], stats["executions"]) == (0, 0, 2)
    assert metric(server, "nv_cache_num_hits_per_model", "not_kept") == []


def test_an_ensembles_cached_step_is_run_once(server):
    hits, executions = stats_of(server, "kept_step")["cache_hit"], stats_of(server, "around_kept")["executions"]
    for _ in range(2):
        assert infer(server, "around_kept", infer_body([1, 2], "IN")).json()["outputs"][0]["data"] == [1, 2]
    assert stats_of(server, "kept_step")["cache_hit"] == hits + 1
    assert stats_of(server, "around_kept")["executions"] == executions + 2


def test_errors_are_not_kept(server):
    inputs = [
        {"name": "CODE", "datatype": "INT32", "shape": [1], "data": [1]},
        {"name": "MESSAGE", "datatype": "BYTES", "shape": [1], "data": ["again"]},
    ]
    for _ in range(2):
        assert infer(server, "failing", {"inputs": inputs}).status_code == 500
    stats = stats_of(server, "failing")
    assert (stats["fail"], stats["cache_hit"], stats["cache_miss"]) == (2, 0, 2)


def test_a_model_loaded_again_begins_anew(server):
    for i in range(2):
        assert post(server, "repository/models/kept_reloaded/load").ok
        assert infer(server, "kept_reloaded", infer_body([1, 2])).ok
        assert infer(server, "kept_reloaded", infer_body([1, 2])).ok
        assert stats_of(server, "kept_reloaded")["cache_hit"] == 1, f"load {i}"
        config = server.repository / "kept_reloaded" / "config.pbtxt"
        config.write_text(config.read_text() + "\n# changed\n")


def test_a_decoupled_model_cannot_be_cached(server):
    assert post(server, "repository/models/decoupled/load").status_code == 500
    assert "Response Cache does not currently support model decoupled" in server.log.read_text()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--cache-config=redis,host=x"], "only the cache 'local' is supported"),
        (["--cache-config=local,size=x"], "expected local,size=<bytes>"),
        (["--cache-config=local,size=9", "--response-cache-byte-size=9"], "give one of them"),
    ],
)
def test_faulty_flags_end_the_start(server, flags, expected):
    command = [pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight", "serve", "--model-repository", server.repository]
    ended = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert expected in ended.stderr


def test_a_model_is_warmed_up_before_it_is_ready_and_counts_nothing(server):
    log = server.log.read_text()
    (line,) = [line for line in log.splitlines() if "model warmed up model=warm " in line]
    assert "samples=3" in line
    assert stats_of(server, "warm")["success"] == 0
    assert infer(server, "warm", infer_body([1, 2])).ok
    assert stats_of(server, "warm")["success"] == 1


@pytest.mark.parametrize(("model", "expected"), [("cold", "sample 'w'"), ("fileless", "sample 'of the file'")])
def test_a_warm_up_that_fails_fails_the_load(server, model, expected):
    failed = post(server, f"repository/models/{model}/load")
    assert failed.status_code == 400
    assert "failed to run warmup " + expected in failed.json()["error"]

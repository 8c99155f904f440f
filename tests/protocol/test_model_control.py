# SPDX-License-Identifier: Apache-2.0
"""Models that come, change and go while the server runs, and ensembles of models without weights."""

import base64
import json
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from conformance_models import add_model, io
from live_server import start_server
from server_log import messages
from tritonclient.utils import InferenceServerException

PATIENCE_S = 30


def tensor(kind, name, dims):
    return f'{kind} [ {{ name: "{name}" data_type: TYPE_INT32 dims: [ {dims} ] }} ]\n'


def write_identity(repository, name, max_batch_size=0):
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(
        f'backend: "conformance" max_batch_size: {max_batch_size}\n'
        + tensor("input", "INPUT0", 1)
        + tensor("output", "OUTPUT0", 1)
        + 'parameters { key: "kind" value: { string_value: "identity" } }\n'
    )


def write_addsub(repository, name):
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(
        'backend: "conformance"\n'
        + tensor("input", "INPUT0", 1) + tensor("input", "INPUT1", 1)
        + tensor("output", "OUTPUT0", 1) + tensor("output", "OUTPUT1", 1)
        + 'parameters { key: "kind" value: { string_value: "addsub" } }\n'
    )  # fmt: skip


def step(model, inputs, outputs):
    maps = [f'input_map {{ key: "{k}" value: "{v}" }}' for k, v in inputs.items()]
    maps += [f'output_map {{ key: "{k}" value: "{v}" }}' for k, v in outputs.items()]
    return f'step [ {{ model_name: "{model}" model_version: -1 {" ".join(maps)} }} ]\n'


def write_ensemble(repository, name, steps, inputs, outputs):
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    text = 'platform: "ensemble"\n'
    text += "".join(tensor("input", i, 1) for i in inputs) + "".join(tensor("output", o, 1) for o in outputs)
    (repository / name / "config.pbtxt").write_text(text + "ensemble_scheduling {\n" + "".join(steps) + "}\n")


def infer(server, model, outputs=None, **inputs):
    body = {"inputs": [{"name": k, "datatype": "INT32", "shape": [1], "data": [v]} for k, v in inputs.items()]}
    if outputs:
        body["outputs"] = [{"name": o} for o in outputs]
    return requests.post(f"http://{server.http}/v2/models/{model}/infer", json=body, timeout=30)


def values(answer):
    assert answer.status_code == 200, answer.text
    return {o["name"]: o["data"][0] for o in answer.json()["outputs"]}


def state(server, model):
    index = requests.post(f"http://{server.http}/v2/repository/index", timeout=30).json()
    return next((m.get("state", "") for m in index if m["name"] == model), None)


def count(server, model):
    stats = requests.get(f"http://{server.http}/v2/models/{model}/stats", timeout=30).json()
    return stats["model_stats"][0]["inference_stats"]["success"]["count"]


def eventually(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def serve(tmp_path, repository, *options):
    return start_server(tmp_path, None, "--model-repository", repository, *options)


def test_poll_mode_follows_the_repository(tmp_path, repository):
    write_identity(repository, "first")
    server = serve(tmp_path, repository, "--model-control-mode=poll", "--repository-poll-secs=1")
    try:
        assert values(infer(server, "first", INPUT0=3)) == {"OUTPUT0": 3}
        write_identity(repository, "second")
        eventually(lambda: state(server, "second") == "READY")
        write_identity(repository, "first", max_batch_size=4)  # changed: a batch dimension now
        eventually(lambda: infer(server, "first", INPUT0=3).status_code == 400)
        shutil.rmtree(repository / "second")
        eventually(lambda: state(server, "second") is None)
        eventually(lambda: infer(server, "second", INPUT0=3).status_code == 404)
        load = requests.post(f"http://{server.http}/v2/repository/models/first/load", timeout=30)
        assert load.status_code == 503
    finally:
        assert server.stop() == 0


def test_a_broken_change_leaves_the_old_copy_serving(tmp_path, repository):
    write_identity(repository, "m")
    server = serve(tmp_path, repository, "--model-control-mode=explicit", "--load-model=m")
    try:
        (repository / "m" / "config.pbtxt").write_text("no config {")
        load = requests.post(f"http://{server.http}/v2/repository/models/m/load", timeout=30)
        assert load.status_code == 500
        assert load.json()["error"] == "failed to load 'm', failed to poll from model repository"
        assert values(infer(server, "m", INPUT0=5)) == {"OUTPUT0": 5}
    finally:
        assert server.stop() == 0


def test_star_loads_all_and_names_cannot_leave_the_repository(tmp_path, repository):
    for name in ("a", "b"):
        write_identity(repository, name)
    server = serve(tmp_path, repository, "--model-control-mode=explicit", "--load-model=*")
    try:
        assert state(server, "a") == state(server, "b") == "READY"
        blank = "Model name cannot be empty. Please enter a valid name to deploy."
        elsewhere = "invalid model name '{}', model name must not contain path traversal characters"
        order = requests.Request("POST", "http://x/").prepare()
        order.url = f"http://{server.http}/v2/repository/models/../load"
        answer = requests.Session().send(order, timeout=30)
        assert (answer.status_code, answer.json()) == (400, {"error": elsewhere.format("..")})
        with triton.InferenceServerClient(server.grpc) as client:
            for name, error in [("", blank), (" ", blank), ("a/b", elsewhere)]:
                with pytest.raises(InferenceServerException) as refused:
                    client.load_model(name)
                assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
                assert refused.value.message() == error.format(name)
                client.unload_model(name)  # nothing has such a name, so there is nothing to do
        # What is unloaded has no series.
        assert infer(server, "a", INPUT0=1).ok
        page = f"http://{server.metrics}/metrics"
        assert 'model="a"' in requests.get(page, timeout=30).text
        assert requests.post(f"http://{server.http}/v2/repository/models/a/unload", timeout=30).ok
        eventually(lambda: 'model="a"' not in requests.get(page, timeout=30).text)
        assert 'model="b"' in requests.get(page, timeout=30).text
        gone = requests.get(f"http://{server.http}/v2/models/a/versions/1", timeout=30)
        assert (gone.status_code, gone.json()["error"]) == (
            503, "Request for unknown model: 'a' version 1 is not at ready state"
        )  # fmt: skip
    finally:
        assert server.stop() == 0


def test_a_load_reads_no_file_outside_of_the_model(tmp_path, repository):
    write_identity(repository, "m")
    (tmp_path / "secret").write_text("secret\n")
    (repository / "m" / "link").symlink_to(tmp_path / "secret")
    server = serve(tmp_path, repository, "--model-control-mode=explicit", "--load-model=m")
    try:
        config = requests.get(f"http://{server.http}/v2/models/m/config", timeout=30).json()
        for file in (str(tmp_path / "secret"), "../../secret", "1/../../../secret", "link", "..\0", "../m\0"):
            config["output"][0]["label_filename"] = file
            load = {"parameters": {"config": json.dumps(config)}}
            answer = requests.post(f"http://{server.http}/v2/repository/models/m/load", json=load, timeout=30)
            assert answer.status_code == 400, (file, answer.text)
            assert "label_filename: " in answer.text and "lies outside of the model's directory" in answer.text, answer.text
        for name in ("file:../m\0", "file:1/..\0/..\0/secret", "file:1/../../secret"):
            content = base64.b64encode(b"x").decode()
            load = {"parameters": {"config": json.dumps(config), name: content}}
            answer = requests.post(f"http://{server.http}/v2/repository/models/m/load", json=load, timeout=30)
            assert not answer.ok, name
        if server.grpc:
            with triton.InferenceServerClient(server.grpc) as client, pytest.raises(InferenceServerException) as refused:
                client.load_model("..\0")
            assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
        assert values(infer(server, "m", INPUT0=5)) == {"OUTPUT0": 5}
    finally:
        assert server.stop() == 0


def test_what_a_load_cannot_have_is_an_error_and_the_server_goes_on(tmp_path, repository, monkeypatch):
    write_identity(repository, "m")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "no such directory"))
    server = serve(tmp_path, repository, "--model-control-mode=explicit", "--load-model=m")
    try:
        config = {"backend": "conformance", "instance_group": [{"kind": "KIND_CPU", "count": 1_000_000}]}
        url = f"http://{server.http}/v2/repository/models/m/load"
        many = requests.post(url, json={"parameters": {"config": json.dumps(config)}}, timeout=30)
        assert many.status_code == 400
        assert "ask for 1000000 instances, at most 1024 are possible" in many.json()["error"]
        some = {"backend": "conformance", "version_policy": {"specific": {"versions": [1, 7]}}}
        some["parameters"] = {"kind": {"string_value": "identity"}}
        for name in ("input", "output"):
            some[name] = [{"name": f"{name.upper()}0", "data_type": "TYPE_INT32", "dims": [1]}]
        assert requests.post(url, json={"parameters": {"config": json.dumps(some)}}, timeout=30).status_code == 200
        assert "version of the version policy is not there" in server.log.read_text()
        files = {"config": "{}", "file:1/model.bin": "AAAA"}
        assert requests.post(url, json={"parameters": files}, timeout=30).status_code == 500
        assert values(infer(server, "m", INPUT0=5)) == {"OUTPUT0": 5}
    finally:
        assert server.stop() == 0


def test_an_ensemble_runs_its_graph(tmp_path, repository):
    """A diamond: s = a + b, d = a - b; then (s + d, s - d), which is (2a, 2b); and a branch that is not asked for."""
    write_addsub(repository, "first")
    write_addsub(repository, "second")
    write_identity(repository, "side")
    steps = [
        step("second", {"INPUT0": "s", "INPUT1": "d"}, {"OUTPUT0": "TWICE_A", "OUTPUT1": "TWICE_B"}),
        step("side", {"INPUT0": "d"}, {"OUTPUT0": "SIDE"}),
        step("first", {"INPUT0": "A", "INPUT1": "B"}, {"OUTPUT0": "s", "OUTPUT1": "d"}),
    ]
    write_ensemble(repository, "diamond", steps, ["A", "B"], ["TWICE_A", "TWICE_B", "SIDE"])
    server = serve(tmp_path, repository)
    try:
        assert values(infer(server, "diamond", A=7, B=4)) == {"TWICE_A": 14, "TWICE_B": 8, "SIDE": 3}
        assert count(server, "side") == 1
        assert values(infer(server, "diamond", outputs=["TWICE_B"], A=1, B=9)) == {"TWICE_B": 18}
        assert count(server, "side") == 1  # not needed, so not run
        assert count(server, "diamond") == count(server, "second") == 2
        # Fields that later releases have are told too.
        config = requests.get(f"http://{server.http}/v2/models/diamond/config", timeout=30).json()["ensemble_scheduling"]
        assert config["max_inflight_requests"] == 0
        assert [s["model_namespace"] for s in config["step"]] == [""] * len(steps)
    finally:
        assert server.stop() == 0


def failures(server, model):
    stats = requests.get(f"http://{server.http}/v2/models/{model}/stats", timeout=30).json()["model_stats"][0]
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    series = rf'^nv_inference_request_failure\{{model="{model}",reason="\w+",version="1"\}} (\d+)$'
    return stats["inference_stats"]["fail"]["count"], sum(map(int, re.findall(series, page, re.MULTILINE)))


def test_a_step_that_fails_counts_at_its_model_and_at_the_ensemble(tmp_path, repository):
    add_model(repository, "fails", "fail", io("input", "CODE", "[ 1 ]"), io("output", "OUT", "[ 1 ]", "TYPE_STRING"))
    write_identity(repository, "first")
    steps = [step("first", {"INPUT0": "A"}, {"OUTPUT0": "a"}), step("fails", {"CODE": "a"}, {"OUT": "B"})]
    write_ensemble(repository, "outer", steps, ["A"], ["B"])
    config = repository / "outer/config.pbtxt"
    config.write_text(config.read_text().replace('"B" data_type: TYPE_INT32', '"B" data_type: TYPE_STRING'))
    server = serve(tmp_path, repository)
    try:
        assert values(infer(server, "outer", A=-1)) == {"B": "ok"}
        assert infer(server, "outer", A=4).status_code == 503
        assert failures(server, "fails") == (1, 1)
        assert failures(server, "outer") == (2, 2)  # as in the original: where it is answered, and where the request ends
        assert failures(server, "first") == (0, 0)
        assert (count(server, "outer"), count(server, "fails"), count(server, "first")) == (1, 1, 2)
    finally:
        assert server.stop() == 0


def test_an_output_that_no_step_made_is_left_out(tmp_path, repository):
    """Asked for or not; a line says so."""
    outputs = (io("output", "OUTPUT0", "[ 1 ]"), io("output", "OUTPUT1", "[ 1 ]"))
    add_model(repository, "half", "identity", io("input", "INPUT0", "[ 1 ]"), *outputs)
    write_ensemble(repository, "outer", [step("half", {"INPUT0": "A"}, {"OUTPUT0": "B", "OUTPUT1": "C"})], ["A"], ["B", "C"])
    server = serve(tmp_path, repository, "--log-verbose=1")
    try:
        for asked in (None, ["B", "C"]):
            assert values(infer(server, "outer", outputs=asked, A=7)) == {"B": 7}
        said = [line for line in messages(server.log.read_text()) if "did not make an output" in line]
        assert len(said) == 2 and all("output=C" in line for line in said)
    finally:
        assert server.stop() == 0


def test_a_configuration_that_is_none_is_told_to_the_log(tmp_path, repository):
    write_identity(repository, "m")
    server = serve(tmp_path, repository, "--model-control-mode=explicit")
    try:
        url = f"http://{server.http}/v2/repository/models/m/load"
        answer = requests.post(url, json={"parameters": {"config": '{"backend": '}}, timeout=30)
        assert (answer.status_code, answer.json()["error"]) == (500, "failed to load 'm', failed to poll from model repository")
        assert any("Invalid config override: " in line for line in messages(server.log.read_text()))
        assert state(server, "m") != "READY"
    finally:
        assert server.stop() == 0


def test_many_clients_of_an_ensemble_get_their_own_answers(tmp_path, repository):
    write_addsub(repository, "first")
    write_identity(repository, "last")
    steps = [
        step("first", {"INPUT0": "A", "INPUT1": "B"}, {"OUTPUT0": "s", "OUTPUT1": "DIFFERENCE"}),
        step("last", {"INPUT0": "s"}, {"OUTPUT0": "SUM"}),
    ]
    write_ensemble(repository, "both", steps, ["A", "B"], ["SUM", "DIFFERENCE"])
    server = serve(tmp_path, repository)
    try:
        with ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(lambda i: values(infer(server, "both", A=i, B=2 * i)), range(200)))
        assert answers == [{"SUM": 3 * i, "DIFFERENCE": -i} for i in range(200)]
    finally:
        assert server.stop() == 0


def write_slow(repository, name, groups, *more):
    """Takes DELAY ms for each request, which waits in a queue until an instance is free."""
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(
        'backend: "conformance"\n'
        + tensor("input", "INPUT0", 1) + tensor("input", "DELAY", 1) + tensor("output", "OUTPUT0", 1)
        + 'parameters { key: "kind" value: { string_value: "slow" } }\n'
        + f"instance_group [ {groups} ]\n" + "".join(more)
    )  # fmt: skip


def load(server, model, **parameters):
    url = f"http://{server.http}/v2/repository/models/{model}/load"
    return requests.post(url, json={"parameters": parameters}, timeout=60)


def config_of(server, model):
    return requests.get(f"http://{server.http}/v2/models/{model}/config", timeout=30).json()


def config_with(server, model, groups):
    """What the config endpoint says, with other groups."""
    return json.dumps(config_of(server, model) | {"instance_group": groups})


def pending(server, model):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    label = f'nv_inference_pending_request_count{{model="{model}",version="1"}} '
    return next(int(line.removeprefix(label)) for line in page.splitlines() if line.startswith(label))


def test_instances_come_and_go_under_requests_that_run_and_wait(tmp_path, repository):
    write_slow(repository, "m", "{ count: 1 }")
    server = serve(tmp_path, repository, "--model-control-mode=explicit", "--load-model=m")
    try:
        with ThreadPoolExecutor(3) as threads:
            first = [threads.submit(infer, server, "m", INPUT0=i, DELAY=5000) for i in range(3)]
            eventually(lambda: pending(server, "m") == 2)
            write_slow(repository, "m", "{ count: 3 }")
            assert load(server, "m").status_code == 200
            eventually(lambda: pending(server, "m") == 0)
            assert count(server, "m") == 0  # all three run
            assert load(server, "m", config=config_with(server, "m", [{"count": 1}])).status_code == 200
            assert [values(each.result()) for each in first] == [{"OUTPUT0": i} for i in range(3)]
            then = [threads.submit(infer, server, "m", INPUT0=i, DELAY=1500) for i in range(3)]
            eventually(lambda: pending(server, "m") == 2)  # one runs
            assert [values(each.result()) for each in then] == [{"OUTPUT0": i} for i in range(3)]
        assert count(server, "m") == 6
        [group] = config_of(server, "m")["instance_group"]
        assert (group["name"], group["count"], group["kind"]) == ("m_0", 1, "KIND_CPU")
        assert server.log.read_text().count("model loaded") == 1
    finally:
        assert server.stop() == 0


def test_a_stream_of_requests_sees_no_change_of_instances(tmp_path, repository):
    write_slow(repository, "m", "{ count: 1 }", "dynamic_batching { }\n")
    server = serve(tmp_path, repository, "--model-control-mode=explicit", "--load-model=m")
    module, address = triton, server.grpc
    stops = []

    def infer_all_the_time():
        inputs = [module.InferInput(name, [1], "INT32") for name in ("INPUT0", "DELAY")]
        for each, value in zip(inputs, (7, 1), strict=True):
            each.set_data_from_numpy(np.array([value], np.int32))
        answered = 0
        with module.InferenceServerClient(address) as client:  # of one thread: that over HTTP belongs to its event loop
            while not stops:
                assert client.infer("m", inputs).as_numpy("OUTPUT0").tolist() == [7]
                answered += 1
        return answered

    try:
        with ThreadPoolExecutor(4) as threads, module.InferenceServerClient(address) as client:
            streams = [threads.submit(infer_all_the_time) for _ in range(4)]
            try:
                for i, instances in enumerate((4, 1, 2, 3, 1, 2) * 3):
                    if i % 2:
                        write_slow(repository, "m", f"{{ count: {instances} }}", "dynamic_batching { }\n")
                        client.load_model("m")
                    else:
                        client.load_model("m", config=config_with(server, "m", [{"count": instances}]))
                    assert config_of(server, "m")["instance_group"][0]["count"] == instances
            finally:
                stops.append(True)
            answered = sum(stream.result() for stream in streams)
        assert count(server, "m") == answered > 0
        assert server.log.read_text().count("model loaded") == 1
    finally:
        assert server.stop() == 0


def test_other_instances_keep_cached_responses_and_a_refused_change_keeps_the_instances(tmp_path, repository):
    cached = "response_cache { enable: true }\n"
    write_slow(repository, "m", "{ count: 1 }", cached)
    server = serve(tmp_path, repository, "--model-control-mode=explicit", "--load-model=m", "--cache-config=local,size=65536")
    try:
        for groups, status in [("{ count: 2 }", 200), ("{ count: 4000 }", 400), ("{ count: 1 }", 200)]:
            assert values(infer(server, "m", INPUT0=5, DELAY=1)) == {"OUTPUT0": 5}
            write_slow(repository, "m", groups, cached)
            answer = load(server, "m")
            assert answer.status_code == status, answer.text
            if status == 400:
                assert "ask for 4000 instances, at most 1024 are possible" in answer.json()["error"]
        stats = requests.get(f"http://{server.http}/v2/models/m/stats", timeout=30).json()["model_stats"][0]["inference_stats"]
        assert (stats["cache_miss"]["count"], stats["cache_hit"]["count"]) == (1, 2)
    finally:
        assert server.stop() == 0

# SPDX-License-Identifier: Apache-2.0
"""The front end for Vertex AI (docs/reference/protocol/vertex-ai.md), as the platform starts and calls it."""

import json
import os
import pathlib
import struct

import pytest
import requests
from conformance_models import add_identity, infer_body
from live_server import start_error, start_server

REDIRECT = "X-Vertex-Ai-Triton-Redirect"
BINARY = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
ENVIRONMENT = {
    "AIP_MODE": "PREDICTION",
    "AIP_HTTP_PORT": "0",
    "AIP_HEALTH_ROUTE": "/v1/endpoints/1/deployedModels/2",
    "AIP_PREDICT_ROUTE": "/v1/endpoints/1/deployedModels/2:predict",
}


@pytest.fixture(scope="module")
def vertex(tmp_path_factory):
    """Started by the environment alone; (server, health URL, predict URL)."""
    folder = tmp_path_factory.mktemp("vertex")
    add_identity(folder / "models", "default")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("AIP_STORAGE_URI", str(folder / "models"))
        server = start_server(folder, None, "--model-control-mode=explicit", "--load-model=default")
    port = json.loads((folder / "ports.json").read_text())["vertex_ai"]
    base = f"http://127.0.0.1:{port}"
    yield server, base + ENVIRONMENT["AIP_HEALTH_ROUTE"], base + ENVIRONMENT["AIP_PREDICT_ROUTE"]
    assert server.stop() == 0, server.log.read_text()[-4000:]


def test_the_environment_starts_this_front_end_alone(vertex):
    server, health, _ = vertex
    assert server.http is None
    assert server.grpc is None
    assert requests.get(health, timeout=30).status_code == 200
    assert "Started Vertex AI HTTPService at 0.0.0.0:" in server.log.read_text()


def test_a_prediction_is_an_infer_of_the_default_model(vertex):
    _, _, predict = vertex
    answer = requests.post(predict, json=infer_body([4, 5], id="7"), timeout=30)
    assert answer.status_code == 200
    assert answer.json() == {
        "id": "7", "model_name": "default", "model_version": "1",
        "outputs": [{"name": "OUTPUT0", "datatype": "INT32", "shape": [2], "data": [4, 5]}],
    }  # fmt: skip


def test_binary_tensors_are_framed_by_the_media_type(vertex):
    _, _, predict = vertex
    tensor = struct.pack("<2i", -1, 2**31 - 1)
    head = json.dumps({
        "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "parameters": {"binary_data_size": 8}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }).encode()  # fmt: skip
    answer = requests.post(predict, data=head + tensor, headers={"Content-Type": f"{BINARY}{len(head)}"}, timeout=30)
    assert answer.status_code == 200, answer.text
    length = int(answer.headers["Content-Type"].removeprefix(BINARY))
    assert json.loads(answer.content[:length])["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert answer.content[length:] == tensor


def test_redirects_lead_to_other_endpoints(vertex):
    _, _, predict = vertex

    def redirect(path, **body):
        return requests.post(predict, headers={REDIRECT: path}, timeout=30, **body)

    assert redirect("v2").json()["name"] == "triton"
    assert redirect("v2/models/default").json()["inputs"][0]["name"] == "INPUT0"
    assert redirect("v2/repository/models/default/load").status_code == 200
    assert redirect("v2/repository/index").json() == [{"name": "default", "version": "1", "state": "READY"}]
    before = redirect("v2/models/default/stats").json()["model_stats"][0]["inference_count"]
    assert redirect("v2/models/default/infer", json=infer_body([1, 2])).status_code == 200
    assert redirect("v2/models/default/stats").json()["model_stats"][0]["inference_count"] == before + 1
    metrics = redirect("metrics")
    assert f'nv_inference_count{{model="default",version="1"}} {before + 1}' in metrics.text
    assert redirect("v2/logging").status_code == 400
    assert redirect("v3").status_code == 400
    assert requests.get(predict, headers={REDIRECT: "v2"}, timeout=30).status_code == 405


def test_other_routes_and_methods_are_refused(vertex):
    _, health, predict = vertex
    assert requests.get(health.replace("endpoints", "nowhere"), timeout=30).status_code == 400
    assert requests.get(predict, timeout=30).status_code == 405
    assert requests.post(health, timeout=30).status_code == 405


def test_what_the_platform_must_say_is_asked_for(tmp_path):
    repository = tmp_path / "models"
    add_identity(repository, "one")
    add_identity(repository, "two")
    inflight = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    command = [inflight, "serve", "--metrics-port", "0", "--device", "cpu", "--model-repository", repository]
    without_route = {**ENVIRONMENT, "AIP_PREDICT_ROUTE": ""}
    assert "AIP_PREDICT_ROUTE" in start_error(command, **without_route)
    single = "Expect the model repository contains only a single model if default model is not specified"
    assert single in start_error(command, **ENVIRONMENT)
    missing = start_error([*command, "--vertex-ai-default-model=three"], **ENVIRONMENT)
    assert "Expect the default model 'three' is loaded" in missing
    assert "AIP_HTTP_PORT: got 'x'" in start_error(command, **{**ENVIRONMENT, "AIP_HTTP_PORT": "x"})
    remote = start_error(command[:2], **{**ENVIRONMENT, "AIP_STORAGE_URI": "gs://bucket/../models"})
    assert "AIP_STORAGE_URI: 'gs://bucket/../models': a path has no '.' and no '..'" in remote


def test_flags_are_stronger_than_the_environment(tmp_path):
    add_identity(tmp_path / "models", "one")
    add_identity(tmp_path / "models", "two")
    add_identity(tmp_path / "elsewhere", "three")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "AIP_HTTP_PORT": "1", "AIP_STORAGE_URI": str(tmp_path / "elsewhere")}.items():
            patch.setenv(name, value)
        server = start_server(
            tmp_path, None, "--model-repository", tmp_path / "models", "--vertex-ai-default-model=two", "--vertex-ai-port=0",
            "--vertex-ai-thread-count=1", "--allow-http=true", "--http-restricted-api=inference:key=secret",
        )  # fmt: skip
    try:
        port = json.loads((tmp_path / "ports.json").read_text())["vertex_ai"]
        predict = f"http://127.0.0.1:{port}{ENVIRONMENT['AIP_PREDICT_ROUTE']}"
        assert requests.post(predict, json=infer_body([1, 2]), timeout=30).status_code == 403
        answer = requests.post(predict, json=infer_body([1, 2]), headers={"key": "secret"}, timeout=30)
        assert answer.json()["model_name"] == "two"
        index = requests.post(f"http://{server.http}/v2/repository/index", timeout=30).json()
        assert {model["name"] for model in index} == {"one", "two"}
    finally:
        assert server.stop() == 0

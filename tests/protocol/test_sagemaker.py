# SPDX-License-Identifier: Apache-2.0
"""The front end for SageMaker (docs/reference/protocol/sagemaker.md): one model at /invocations, and models that come and go."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from conformance_models import add_ensemble, add_identity, add_model, infer_body, io
from live_server import DEVICE, ROOT, ports_in, start_error, start_server

BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
TARGET = "X-Amzn-SageMaker-Target-Model"
INFLIGHT = pathlib.Path(os.environ.get("INFLIGHT_BIN_DIR", ".")) / "inflight"


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    """A server in mode explicit that serves this front end and HTTP; (server, URL of the front end)."""
    folder = tmp_path_factory.mktemp("sagemaker")
    add_identity(folder / "models", "default")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "default")
        server = start_server(
            folder, None, "--model-repository", folder / "models", "--model-control-mode=explicit", "--load-model=default",
            "--allow-sagemaker=true", "--sagemaker-port=0", "--sagemaker-thread-count=2", "--allow-grpc=false",
            "--model-namespacing=true",
        )  # fmt: skip
    port = json.loads((folder / "ports.json").read_text())["sagemaker"]
    yield server, f"http://127.0.0.1:{port}"
    assert server.stop() == 0, server.log.read_text()[-4000:]


def load(url, name, directory, **headers):
    return requests.post(f"{url}/models", json={"model_name": name, "url": str(directory)}, headers=headers, timeout=60)


def states(server):
    index = requests.post(f"http://{server.http}/v2/repository/index", timeout=30).json()
    return {model["name"]: model.get("state") for model in index}


def test_the_container_contract(platform):
    server, url = platform
    assert requests.get(f"{url}/ping", timeout=30).status_code == 200
    answer = requests.post(f"{url}/invocations", json=infer_body([4, 5]), timeout=30)
    assert answer.status_code == 200
    assert answer.json()["model_name"] == "default"
    assert answer.json()["outputs"][0]["data"] == [4, 5]
    assert requests.get(f"{url}/invocations", timeout=30).status_code == 400
    assert "Started Sagemaker HTTPService at 0.0.0.0:" in server.log.read_text()


def test_binary_tensors_are_framed_by_the_media_type(platform):
    _, url = platform
    tensor = struct.pack("<2i", -1, 2**31 - 1)
    head = json.dumps({
        "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "parameters": {"binary_data_size": 8}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }).encode()  # fmt: skip
    answer = requests.post(f"{url}/invocations", data=head + tensor, headers={"Content-Type": f"{BINARY}{len(head)}"}, timeout=30)
    assert answer.status_code == 200, answer.text
    length = int(answer.headers["Content-Type"].removeprefix(BINARY))
    assert "outputs" in json.loads(answer.content[:length])
    assert answer.content[length:] == tensor


def test_a_model_is_loaded_called_and_unloaded(platform, tmp_path):
    """DIR is the model itself; its own name does not matter."""
    server, url = platform
    add_identity(tmp_path / "h1", "model")
    directory = tmp_path / "h1" / "model"
    assert requests.post(f"{url}/models/h1/invoke", json=infer_body([1, 2]), timeout=30).status_code == 404
    assert load(url, "h1", directory).status_code == 200
    assert load(url, "h1", directory).status_code == 409
    assert load(url, "h2", directory).status_code == 409  # its repository is there
    described = {"modelName": "h1", "modelUrl": str(directory)}
    assert requests.get(f"{url}/models/h1", timeout=30).json() == described
    assert requests.get(f"{url}/models", timeout=30).json() == {"models": [described]}
    answer = requests.post(f"{url}/models/h1/invoke", json=infer_body([1, 2]), timeout=30)
    assert answer.json()["model_name"] == "h1"
    assert answer.json()["outputs"][0]["data"] == [1, 2]
    assert states(server) == {"default": "READY", "h1": "READY"}
    assert requests.delete(f"{url}/models/h1", timeout=60).status_code == 200
    assert requests.delete(f"{url}/models/h1", timeout=30).status_code == 404
    assert requests.get(f"{url}/models", timeout=30).json() == {"models": []}
    assert states(server) == {"default": "READY"}
    assert requests.get(f"http://{server.http}/v2/models/h1", timeout=30).status_code == 404
    assert load(url, "h1", directory).status_code == 200  # and comes again
    assert requests.delete(f"{url}/models/h1", timeout=60).status_code == 200


def test_of_a_repository_with_an_ensemble_the_ensemble_is_meant(platform, tmp_path):
    server, url = platform
    add_identity(tmp_path / "h", "step")
    add_ensemble(tmp_path / "h", "pipeline", "step")
    assert load(url, "hash", tmp_path / "h", **{TARGET: "pipeline.tar.gz"}).status_code == 200
    answer = requests.post(f"{url}/models/hash/invoke", json=infer_body([7, 8], name="IN"), timeout=30)
    assert answer.json()["model_name"] == "pipeline.tar.gz"
    assert answer.json()["outputs"] == [{"name": "OUT", "datatype": "INT32", "shape": [2], "data": [7, 8]}]
    assert states(server) == {"default": "READY", "pipeline.tar.gz": "READY", "step": "READY"}
    assert requests.delete(f"{url}/models/hash", timeout=60).status_code == 200
    assert states(server) == {"default": "READY"}  # its step has gone with it


def test_models_may_have_steps_of_the_same_name(platform, tmp_path):
    """The platform's start has --model-namespacing: each repository is a namespace, also in the metrics."""
    server, url = platform
    for name, repository in (("left", tmp_path / "a"), ("right", tmp_path / "b")):
        add_identity(repository, "step")
        add_ensemble(repository, "pipeline", "step")
        assert load(url, name, repository, **{TARGET: name}).status_code == 200
    for name, count in (("left", 1), ("right", 2)):
        for _ in range(count):
            answer = requests.post(f"{url}/models/{name}/invoke", json=infer_body([7, 8], name="IN"), timeout=30)
            assert answer.json()["model_name"] == name and answer.json()["outputs"][0]["data"] == [7, 8]
    assert requests.post(f"http://{server.http}/v2/models/step/infer", json=infer_body([1, 2]), timeout=30).status_code == 400
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    counted = {re.search(r'namespace="([^"]*)"', line)[1]: line.rsplit(" ", 1)[1] for line in page.splitlines()
               if line.startswith("nv_inference_request_success{") and 'model="step"' in line}  # fmt: skip
    assert counted == {str(tmp_path / "a"): "1", str(tmp_path / "b"): "2"}
    assert requests.delete(f"{url}/models/left", timeout=60).status_code == 200
    answer = requests.post(f"{url}/models/right/invoke", json=infer_body([7, 8], name="IN"), timeout=30)
    assert answer.status_code == 200
    assert requests.delete(f"{url}/models/right", timeout=60).status_code == 200
    assert states(server) == {"default": "READY"}


def test_a_load_that_fails_leaves_nothing(platform, tmp_path):
    server, url = platform
    add_model(tmp_path / "bad", "model", "no such kind", io("input", "INPUT0", "[ 2 ]"), io("output", "OUTPUT0", "[ 2 ]"))
    answer = load(url, "bad", tmp_path / "bad")
    assert answer.status_code == 400
    assert "no such kind" in answer.json()["error"]
    assert requests.get(f"{url}/models/bad", timeout=30).status_code == 404
    assert requests.get(f"{url}/ping", timeout=30).status_code == 200  # ready, as before
    assert states(server) == {"default": "READY"}
    for directory in ("/proc/self", "/dev", tmp_path / "nowhere", ""):
        assert load(url, "bad", directory).status_code == 400, directory
    # Mended in its place it can be loaded.
    shutil.rmtree(tmp_path / "bad")
    add_identity(tmp_path / "bad", "model")
    assert load(url, "bad", tmp_path / "bad").status_code == 200
    assert requests.delete(f"{url}/models/bad", timeout=60).status_code == 200


def test_names_that_are_taken_or_no_names_are_refused(platform, tmp_path):
    server, url = platform
    add_identity(tmp_path / "h", "model")
    assert load(url, "default", tmp_path / "h").status_code == 409
    for name in ("../x", "..", " "):
        assert load(url, name, tmp_path / "h").status_code == 400, name
    assert states(server) == {"default": "READY"}


def test_an_unload_waits_for_requests_that_run(platform, tmp_path):
    server, url = platform
    add_model(tmp_path / "slow", "model", "slow", io("input", "INPUT0", "[ 1 ]"), io("input", "DELAY", "[ 1 ]"),
              io("output", "OUTPUT0", "[ 1 ]"))  # fmt: skip
    assert load(url, "slow", tmp_path / "slow").status_code == 200
    inputs = [{"name": n, "datatype": "INT32", "shape": [1], "data": [v]} for n, v in (("INPUT0", 3), ("DELAY", 700))]

    def invoke(_):
        return requests.post(f"{url}/models/slow/invoke", json={"inputs": inputs}, timeout=30)

    def num_pending():
        page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
        return int(re.search(r'nv_inference_pending_request_count{model="slow"[^}]*} (\d+)', page)[1])

    with ThreadPoolExecutor(2) as threads:
        answers = threads.map(invoke, range(2))
        deadline = time.monotonic() + 30
        pending = []
        while pending[-2:] != [1, 1]:  # one runs, one is queued: the first one alone would not stay pending
            assert time.monotonic() < deadline
            pending.append(num_pending())
            time.sleep(0.05)
        assert requests.delete(f"{url}/models/slow", timeout=60).status_code == 200
        assert [answer.status_code for answer in answers] == [200, 200]
    assert states(server) == {"default": "READY"}


# ---- What a start needs ----


def test_what_cannot_be_meant_ends_the_start(tmp_path):
    add_identity(tmp_path / "models", "one")
    command = [
        INFLIGHT, "serve", "--device", "cpu", "--metrics-port=0", "--http-port=0", "--allow-grpc=false",
        "--model-repository", tmp_path / "models", "--allow-sagemaker=true",
    ]  # fmt: skip
    assert "SAGEMAKER_TRITON_PING_MODE" in start_error(command, SAGEMAKER_TRITON_PING_MODE="x")
    assert "SAGEMAKER_TRITON_INFERENCE_TYPE" in start_error(command, SAGEMAKER_TRITON_INFERENCE_TYPE="x")
    outside = start_error([*command, "--sagemaker-port=9000", "--sagemaker-safe-port-range=8000-8999"])
    assert "--sagemaker-port: got 9000, --sagemaker-safe-port-range allows 8000-8999" in outside
    for text in ("8000", "8000-", "a-b", "9000-8000", "1-70000"):
        assert "--sagemaker-safe-port-range: got" in start_error([*command, f"--sagemaker-safe-port-range={text}"])


# ---- deploy/sagemaker/serve ----


def serve_script(tmp_path, *options, **environment):
    """The command of the container and its environment."""
    environment = {**os.environ, "PATH": f"{INFLIGHT.parent}:{os.environ['PATH']}", **environment}
    options = [ROOT / "deploy/sagemaker/serve", "--device", DEVICE, "--port-file", tmp_path / "ports.json", *options]
    return [str(word) for word in options], environment


def ready_port(tmp_path, process):
    """The port that the script asked for, once it answers; other front ends are off."""
    ports = tmp_path / "ports.json"
    deadline = time.monotonic() + 60
    while (used := ports_in(ports)) is None:
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert {name for name, port in used.items() if port} == {"sagemaker"}
    return used["sagemaker"]


@pytest.mark.parametrize("is_multi_model", [False, True])
def test_the_script_of_the_container(tmp_path, is_multi_model):
    add_identity(tmp_path / "model", "only")
    (tmp_path / "model" / "notes").mkdir()
    command, environment = serve_script(
        tmp_path, SM_MODEL_DIR=str(tmp_path / "model"), SAGEMAKER_BIND_TO_PORT="0", SAGEMAKER_SAFE_PORT_RANGE="0-100",
        SAGEMAKER_MULTI_MODEL="true" if is_multi_model else "false",
    )  # fmt: skip
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{ready_port(tmp_path, process)}"
        assert requests.get(f"{url}/ping", timeout=30).status_code == 200
        answer = requests.post(f"{url}/invocations", json=infer_body([1, 2]), timeout=30)
        assert answer.status_code == (400 if is_multi_model else 200)  # nothing to answer it, or the only model
        if is_multi_model:
            assert load(url, "h", tmp_path / "model").status_code == 200
            assert requests.post(f"{url}/models/h/invoke", json=infer_body([1, 2]), timeout=30).status_code == 200
    finally:
        process.terminate()
        assert process.wait(60) == 0, (tmp_path / "log").read_text()[-4000:]


def test_the_script_asks_which_of_several_models_is_meant(tmp_path):
    for name in ("one", "two"):
        add_identity(tmp_path / "model", name)
    command, environment = serve_script(tmp_path, SM_MODEL_DIR=str(tmp_path / "model"))
    assert "has 2 models; set SAGEMAKER_TRITON_DEFAULT_MODEL_NAME" in start_error(command, **environment)

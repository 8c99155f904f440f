# SPDX-License-Identifier: Apache-2.0
"""Model repositories in stores, by the real server: at start, polled, loaded one by one, and when the store fails."""

import base64
import contextlib
import ctypes
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import urllib.parse

import boto3
import pytest
import requests
from gcp_storage_emulator.server import create_server
from live_server import DEMO, is_sanitized, start_error, start_server
from llm_api_repository import write_llm_api_repository
from moto.server import ThreadedMotoServer
from release_repositories import V1, write_repository
from stand_ins import KEY_ID, REGION, S3, SECRET, As, Fault, Gs, corrupt, stall, status
from test_model_control import (
    eventually,
    infer,
    load,
    state,
    step,
    values,
    write_addsub,
    write_ensemble,
    write_identity,
)  # fmt: skip
from test_repositories import ANSWER, FILLED, generate, question

POLL = ("--model-control-mode=poll", "--repository-poll-secs=1")
LANDLOCK_CREATE_RULESET = 444  # on every architecture
EXPLICIT = ("--model-control-mode=explicit",)


@pytest.fixture(autouse=True)
def environment(tmp_path, monkeypatch):
    """That of a user with keys, and with a cache of its own."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "TRITON_"))]:
        monkeypatch.delenv(name)
    given = {
        "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": REGION, "no_proxy": "127.0.0.1,localhost",
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def files_of(folder, prefix):
    """{key: bytes}; an empty folder is a key that ends with a slash, as consoles make it."""
    found = {}
    for path in folder.rglob("*"):
        key = f"{prefix}/{path.relative_to(folder)}"
        if path.is_file():
            found[key] = path.read_bytes()
        elif not any(path.iterdir()):
            found[key + "/"] = b""
    return found


@contextlib.contextmanager
def serving(tmp_path, address, *options):
    tmp_path.mkdir(exist_ok=True)
    server = start_server(tmp_path, None, "--model-repository", address, *options)
    try:
        yield server
    finally:
        assert server.stop() == 0
    log = server.log.read_text()
    assert SECRET not in log and "Signature=" not in log


@pytest.fixture
def s3():
    with S3() as store:
        yield store


def trees(tmp_path):
    return list((tmp_path / "cache/inflight/objects/trees").iterdir())


@pytest.fixture(scope="module")
def moto():
    """The program moto, which checks signatures and policies; a client of its administrator, and keys of a reader."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())

    def client(service, key_id="admin", secret="admin"):
        return boto3.client(
            service, endpoint_url=url, region_name="us-east-1", aws_access_key_id=key_id, aws_secret_access_key=secret
        )

    def user(name, action):
        client("iam").create_user(UserName=name)
        rule = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}
        client("iam").put_user_policy(UserName=name, PolicyName=name, PolicyDocument=json.dumps(rule))
        key = client("iam").create_access_key(UserName=name)["AccessKey"]
        return key["AccessKeyId"], key["SecretAccessKey"]

    writer = user("writer", "s3:*")
    keys = {"reader": user("reader", ["s3:ListBucket", "s3:GetObject"]), "stranger": user("stranger", "iam:GetUser")}
    client("s3").create_bucket(Bucket="shelf")
    requests.post(f"{url}/moto-api/reset-auth", data="0", timeout=10).raise_for_status()
    yield url.removeprefix("http://"), client("s3", *writer), keys
    server.stop()


def set_keys(environment, keys, region="us-east-1"):
    for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), keys, strict=True):
        environment.setenv(name, value)
    environment.setenv("AWS_DEFAULT_REGION", region)


def test_a_repository_in_a_real_store_is_served_and_followed(tmp_path, models, moto, environment):
    host, client, keys = moto
    set_keys(environment, keys["reader"])
    write_identity(models, "first")
    write_repository(models, 12, engine_dir=f"s3://{host}/shelf/engine", tokenizer_dir=f"s3://{host}/shelf/engine",
                     decoupled_mode="True", without=("tensorrt_llm_bls",))  # fmt: skip
    for key, body in {**files_of(models, "repo/models"), **files_of(DEMO, "engine")}.items():
        if key.count("/") < 2 or not key.startswith("engine"):
            client.put_object(Bucket="shelf", Key=key, Body=body)
    with serving(tmp_path / "server", f"s3://{host}/shelf/repo//models/", *POLL) as server:
        assert values(infer(server, "first", INPUT0=3)) == {"OUTPUT0": 3}
        client.put_object(Bucket="shelf", Key="repo/models/first/2/", Body=b"")
        index = f"http://{server.http}/v2/repository/index"
        eventually(lambda: {"name": "first", "version": "2", "state": "READY"} in requests.post(index, timeout=30).json())
        write_identity(models, "second", max_batch_size=4)
        for key, body in files_of(models / "second", "repo/models/second").items():
            client.put_object(Bucket="shelf", Key=key, Body=body)
        eventually(lambda: state(server, "second") == "READY")
        for key in files_of(models / "second", "repo/models/second"):
            client.delete_object(Bucket="shelf", Key=key)
        eventually(lambda: state(server, "second") is None)
        assert generate(server, "ensemble", **question(12))["text_output"].endswith(ANSWER.strip())
    assert trees(tmp_path) == []


@pytest.mark.parametrize(
    ("who", "path", "why"),
    [
        ("stranger", "shelf/repo", "AccessDenied"),
        ("reader", "gone/repo", "NoSuchBucket"),
        ("forger", "shelf", "SignatureDoesNotMatch"),
    ],
)
def test_a_real_store_that_refuses_ends_the_start(tmp_path, moto, environment, who, path, why):
    host, _, keys = moto
    set_keys(environment, keys.get(who, (keys["reader"][0], "forged")))
    said = start_error([*SERVE, "--model-repository", f"s3://{host}/{path}"])
    assert f"s3://{host}/{path}: Unable to create S3 filesystem client. Check account credentials. {why}" in said
    assert keys["reader"][1] not in said and "forged" not in said


SERVE = [pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight", "serve", "--device", "cpu", "--http-port", "0",
         "--grpc-port", "0", "--metrics-port", "0"]  # fmt: skip


def test_explicit_loads_fetch_what_they_need(tmp_path, models, s3):
    write_identity(models, "in_step")
    write_addsub(models, "sum")
    write_ensemble(
        models, "both",
        [step("in_step", {"INPUT0": "INPUT0"}, {"OUTPUT0": "x"}),
         step("sum", {"INPUT0": "x", "INPUT1": "INPUT0"}, {"OUTPUT0": "OUTPUT0"})],
        ["INPUT0"], ["OUTPUT0"],
    )  # fmt: skip
    (models / "logs").mkdir()
    (models / "logs/big").write_bytes(b"x" * 1000)
    s3.objects = files_of(models, "repo")
    with serving(tmp_path / "server", s3.address("repo"), *EXPLICIT) as server:
        index = requests.post(f"http://{server.http}/v2/repository/index", timeout=30).json()
        assert [model["name"] for model in index] == ["both", "in_step", "logs", "sum"]
        assert s3.asked("/models/repo/") == []
        assert load(server, "both").status_code == 200
        assert values(infer(server, "both", INPUT0=4)) == {"OUTPUT0": 8}
        assert {request.path.rpartition("/")[2] for request in s3.asked("/models/repo/")} == {"config.pbtxt"}
        assert load(server, "sum").status_code == 200
        assert load(server, "logs").status_code == 500
        assert s3.asked("logs/big") == []  # no model's

        # Another configuration comes by the next load alone.
        s3.requests.clear()
        write_identity(models, "in_step", max_batch_size=8)
        s3.objects |= files_of(models, "repo")
        assert values(infer(server, "in_step", INPUT0=4)) == {"OUTPUT0": 4}
        assert load(server, "in_step").status_code == 200
        assert infer(server, "in_step", INPUT0=4).status_code == 400
        assert len(s3.asked("/models/repo/")) == 1

        # A model that the store has got since, and one that it has lost.
        write_identity(models, "new")
        s3.objects |= files_of(models / "new", "repo/new")
        assert load(server, "new").status_code == 200
        for key in files_of(models / "new", "repo/new"):
            del s3.objects[key]
        assert load(server, "new").status_code == 500
        assert load(server, "none").status_code == 500
        assert load(server, "../repo").status_code in (400, 404)

        # What fails leaves the old copy.
        for fault in [Fault(status(403, b"<Error><Code>AccessDenied</Code></Error>"), "list-type", times=99),
                      Fault(corrupt, "in_step/config.pbtxt", times=99)]:  # fmt: skip
            s3.objects["repo/in_step/config.pbtxt"] += b"# changed\n"
            s3.faults = [fault]
            assert load(server, "in_step").json() == {"error": "failed to load 'in_step', failed to poll from model repository"}
            assert state(server, "in_step") == "READY"
            assert not list((tmp_path / "cache/inflight/objects/partial").iterdir())
        s3.faults = []
        assert load(server, "in_step").status_code == 200
    log = (tmp_path / "server/log").read_text()
    assert "AccessDenied" in log and "has not the checksum that the store says" in log


def test_a_load_from_the_network_names_no_store(tmp_path, models, s3):
    write_repository(models, 12, **FILLED, without=("tensorrt_llm_bls",))
    s3.objects = files_of(models, "repo")
    with serving(tmp_path / "server", models, *EXPLICIT) as server:
        text = (models / "tensorrt_llm/config.pbtxt").read_text()
        assert str(DEMO) in text
        for model, key in (("tensorrt_llm", "gpt_model_path"), ("preprocessing", "tokenizer_dir")):
            assert load(server, model).status_code == 200
            config = requests.get(f"http://{server.http}/v2/models/{model}/config", timeout=30).json()
            config["parameters"][key] = {"string_value": s3.address("repo")}
            refused = load(server, model, config=json.dumps(config))
            assert refused.status_code == 400 and key in refused.text, refused.text
        added = requests.post(f"http://{server.http}/v2/repository/models/{s3.address('repo')}/load", timeout=30)
        assert added.status_code in (400, 404)
    assert s3.requests == []


def test_a_store_that_comes_back_is_polled(tmp_path, models, s3):
    write_identity(models, "m")
    s3.objects = files_of(models, "repo")
    s3.faults = [Fault(status(403), times=1)]
    with serving(tmp_path / "server", s3.address("repo"), *POLL, "--exit-on-error=false") as server:
        eventually(lambda: state(server, "m") == "READY")
        eventually(lambda: requests.get(f"http://{server.http}/v2/health/ready", timeout=30).status_code == 200)
        s3.faults = [Fault(status(403), times=2)]
        eventually(lambda: s3.faults[0].times == 0)
        assert values(infer(server, "m", INPUT0=3)) == {"OUTPUT0": 3}  # an outage unloads nothing
        s3.requests.clear()
        eventually(lambda: len(s3.requests) > 1)
        assert all("list-type" in request.target for request in s3.requests)  # nothing changed, nothing comes


def test_a_model_that_cannot_be_fetched_is_named_and_the_others_are_served(tmp_path, models, s3):
    write_identity(models, "good")
    write_identity(models, "bad")
    s3.objects = files_of(models, "repo")
    s3.faults = [Fault(corrupt, "bad/config.pbtxt", times=99)]
    said = start_error([*SERVE, "--model-repository", s3.address("repo")])
    assert "failed to load all models: 'bad': " in said and "has not the checksum that the store says" in said
    s3.faults = [Fault(corrupt, "bad/config.pbtxt", times=99)]
    with serving(tmp_path / "server", s3.address("repo"), "--exit-on-error=false") as server:
        assert values(infer(server, "good", INPUT0=3)) == {"OUTPUT0": 3}
        assert infer(server, "bad", INPUT0=3).status_code == 404


def test_a_signal_ends_a_start_that_waits_for_a_store(tmp_path, models, s3):
    write_identity(models, "m")
    s3.objects = files_of(models, "repo")
    s3.faults = [Fault(stall(10), "config.pbtxt")]
    command = [*map(str, SERVE), "--model-repository", s3.address("repo")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        eventually(lambda: s3.asked("config.pbtxt"))
        process.send_signal(signal.SIGTERM)
        assert "given up" in process.stderr.read()
    assert process.returncode == 1 and trees(tmp_path) == []


@pytest.mark.skipif(
    ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, 1) <= 0,
    reason="this machine has no Landlock (Linux 5.13), so that nothing is shown of --sandbox",
)
@pytest.mark.skipif(is_sanitized(), reason="sanitizers read and map what a sandbox refuses; CI's release build runs it")
def test_the_sandbox_leaves_what_a_store_needs(tmp_path, models, s3, environment):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment.delenv(name)
    (tmp_path / ".aws").mkdir()
    text = f"[default]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
    (tmp_path / ".aws/credentials").write_text(text)
    write_identity(models, "m")
    s3.objects = files_of(models, "repo")
    address = s3.address("repo").replace("127.0.0.1", "localhost")  # a name, which is looked up
    with serving(tmp_path / "server", address, *EXPLICIT, "--sandbox", "on") as server:
        assert load(server, "m").status_code == 200
        assert values(infer(server, "m", INPUT0=3)) == {"OUTPUT0": 3}
        write_identity(models, "m", max_batch_size=4)
        s3.objects |= files_of(models, "repo")
        assert load(server, "m").status_code == 200
        assert infer(server, "m", INPUT0=3).status_code == 400
    assert trees(tmp_path) == []


def test_a_model_of_the_llm_api_lies_in_a_store_and_a_load_names_no_other(tmp_path, models, s3):
    write_llm_api_repository(models, V1, model=s3.address("engine"))
    s3.objects = files_of(models, "repo") | files_of(DEMO, "engine")
    (name,) = (path.name for path in models.iterdir())
    with serving(tmp_path / "server", s3.address("repo"), *EXPLICIT) as server:
        assert load(server, name).status_code == 200
        s3.requests.clear()
        config = json.dumps(requests.get(f"http://{server.http}/v2/models/{name}/config", timeout=30).json())
        for place in (s3.address("engine"), str(DEMO)):
            text = re.sub("(?m)^model: .*", f"model: {place}", (models / name / "1/model.yaml").read_text())
            file = base64.b64encode(text.encode()).decode()
            refused = load(server, name, config=config, **{"file:1/model.yaml": file})
            assert refused.status_code == 400 and "model" in refused.text, refused.text
            assert str(DEMO) not in refused.text
        assert s3.asked("/models/engine") == []


def test_repositories_are_namespaces_and_get_new_models(tmp_path, models, s3):
    for place in ("a", "b"):
        write_identity(models / place, "shared")
    s3.objects = files_of(models, "repo")
    options = ("--model-repository", s3.address("repo/b"), "--model-namespacing=true", *EXPLICIT)
    with serving(tmp_path / "server", s3.address("repo/a"), *options) as server:
        assert load(server, "shared").status_code == 500  # two have it
        write_identity(models / "b", "own")
        s3.objects |= files_of(models, "repo")
        assert load(server, "own").status_code == 200
        assert values(infer(server, "own", INPUT0=3)) == {"OUTPUT0": 3}


def test_vertex_ai_serves_from_its_storage(tmp_path, models, environment):
    write_identity(models, "m")
    with Gs() as store:
        store.objects = files_of(models, "repo")
        store.is_public = True
        given = {
            "AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "0", "AIP_HEALTH_ROUTE": "/health", "AIP_PREDICT_ROUTE": "/predict",
            "AIP_STORAGE_URI": "gs://models/repo", "STORAGE_EMULATOR_HOST": store.host,
        }  # fmt: skip
        for name, value in given.items():
            environment.setenv(name, value)
        server = start_server(tmp_path, None)
        try:
            port = json.loads((tmp_path / "ports.json").read_text())["vertex_ai"]
            body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [3]}]}
            answer = requests.post(f"http://127.0.0.1:{port}/predict", json=body, timeout=30)
            assert values(answer) == {"OUTPUT0": 3}
        finally:
            assert server.stop() == 0


@pytest.fixture
def emulator():
    """The address of the program gcp-storage-emulator, which takes whoever comes, with the bucket shelf."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with create_server("127.0.0.1", port, in_memory=True, default_bucket="shelf"):
        yield f"127.0.0.1:{port}"


def test_a_repository_in_a_program_of_googles_interface(tmp_path, models, emulator, environment):
    def upload(files):
        for key, body in files.items():
            if key.endswith("/"):  # it takes no empty object
                key, body = key + "kept", b"x"
            url = f"http://{emulator}/upload/storage/v1/b/shelf/o"
            requests.post(url, params={"uploadType": "media", "name": key}, data=body, timeout=30).raise_for_status()

    environment.setenv("STORAGE_EMULATOR_HOST", emulator)
    write_identity(models, "first")
    engine = "gs://shelf/engine"
    write_repository(models, 12, engine_dir=engine, tokenizer_dir=engine, decoupled_mode="True", without=("tensorrt_llm_bls",))
    upload(files_of(models, "repo") | {key: body for key, body in files_of(DEMO, "engine").items() if key.count("/") == 1})
    with serving(tmp_path / "server", "gs://shelf/repo", *POLL) as server:
        assert values(infer(server, "first", INPUT0=3)) == {"OUTPUT0": 3}
        assert generate(server, "ensemble", **question(12))["text_output"].endswith(ANSWER.strip())
        write_identity(models, "second")
        upload(files_of(models / "second", "repo/second"))
        eventually(lambda: state(server, "second") == "READY")
        for key in ("config.pbtxt", "1/kept"):
            name = urllib.parse.quote(f"repo/second/{key}", safe="")
            requests.delete(f"http://{emulator}/storage/v1/b/shelf/o/{name}", timeout=30).raise_for_status()
        eventually(lambda: state(server, "second") is None)
    said = start_error([*SERVE, "--model-repository", "gs://gone/repo"])
    assert "gs://gone/repo: Unable to create GCS filesystem client. Check account credentials." in said


@pytest.mark.parametrize("kind", ["gs", "as"])
def test_repositories_of_google_and_azure(tmp_path, models, environment, kind):
    write_identity(models, "m")
    with Gs() if kind == "gs" else As() as store:
        store.objects = files_of(models, "repo")
        if kind == "gs":
            environment.setenv("STORAGE_EMULATOR_HOST", store.host)
            environment.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(store.account_file(tmp_path / "account.json")))
        else:
            environment.setenv("AZURE_STORAGE_CONNECTION_STRING", store.connection(AccountKey=store.key))
        address = "gs://models/repo" if kind == "gs" else f"as://{As.ACCOUNT}/models/repo"
        with serving(tmp_path / "server", address, *POLL) as server:
            assert values(infer(server, "m", INPUT0=3)) == {"OUTPUT0": 3}
            write_identity(models, "m", max_batch_size=4)
            store.objects |= files_of(models, "repo")
            eventually(lambda: infer(server, "m", INPUT0=3).status_code == 400)
        with serving(tmp_path / "server2", address, *EXPLICIT, "--load-model=m") as server:
            assert state(server, "m") == "READY"

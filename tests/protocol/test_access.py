# SPDX-License-Identifier: Apache-2.0
"""Keys of clients: what each may do, over HTTP, gRPC and on the metrics page."""

import hashlib
import json
import os
import pathlib
import re
import socket
import subprocess
import time

import pytest
import requests
import tritonclient.grpc as triton
from light_models import write_light_repository
from live_server import require_grpc, start_server
from tritonclient.utils import InferenceServerException

PATIENCE_S = 30
ROLES = {"user": ["inference"], "reader": ["metrics"], "admin": ["inference", "control", "settings", "shared_memory"]}
ECHO = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["echo"]}]}


def sha256(key):
    return hashlib.sha256(key.encode()).hexdigest()


def bearer(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


def inflight(*arguments):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("access")
    repository = write_light_repository(path / "repository")
    keys = [{"name": name, "sha256": sha256(name), "roles": roles} for name, roles in ROLES.items()]
    keys.append({"name": "slow", "sha256": sha256("slow"), "roles": ["inference"], "requests_per_second": 0.001, "burst": 2})
    keys.append({**keys[-1], "name": "large", "sha256": sha256("large")})
    (path / "access.json").write_text(json.dumps({"keys": keys}))
    (path / "keys").write_text(f"plain-key\nsha256:{sha256('hashed-key')}\n")
    running = start_server(
        path, None, "--model-repository", repository, "--model-control-mode=explicit", "--load-model=identity",
        "--access", path / "access.json", "--api-key-file", path / "keys", max_kv_tokens=None,
    )  # fmt: skip
    running.dir = path
    yield running
    assert running.stop() == 0


def infer(server, key):
    return requests.post(f"http://{server.http}/v2/models/identity/infer", json=ECHO, headers=bearer(key), timeout=30)


def test_health_is_open_and_inference_needs_a_key(server):
    assert requests.get(f"http://{server.http}/v2/health/ready", timeout=30).ok
    answer = infer(server, None)
    assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
    assert "Authorization: Bearer" in answer.json()["error"]
    assert infer(server, "guess").status_code == 401
    assert infer(server, "user").json()["outputs"][0]["data"] == ["echo"]
    assert infer(server, "plain-key").ok and infer(server, "hashed-key").ok
    assert infer(server, sha256("hashed-key")).status_code == 401


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("/v2/repository/models/identity/load", "control"),
        ("/v2/logging", "settings"),
        ("/v2/trace/setting", "settings"),
        ("/v2/systemsharedmemory/unregister", "shared_memory"),
    ],
)
def test_a_key_does_what_its_roles_allow(server, path, role):
    def ask(key):
        return requests.post(f"http://{server.http}{path}", json={}, headers=bearer(key), timeout=30)

    assert ask(None).status_code == 401
    refused = ask("user")
    assert refused.status_code == 403 and f"'{role}'" in refused.json()["error"]
    assert ask("admin").status_code not in (401, 403)


def test_metrics_have_a_role(server):
    url = f"http://{server.metrics}/metrics"
    assert requests.get(url, timeout=30).status_code == 401
    assert requests.get(url, headers=bearer("user"), timeout=30).status_code == 403
    for key in ("reader", "plain-key"):
        assert "nv_inference" in requests.get(url, headers=bearer(key), timeout=30).text


def test_requests_of_a_key_are_bounded(server):
    assert [infer(server, "slow").status_code for _ in range(3)] == [200, 200, 429]
    assert infer(server, "slow").headers["Retry-After"] == "1"
    # A body that is looked at by its head first counts once.
    large = {"inputs": [{**ECHO["inputs"][0], "data": ["x" * 100_000]}]}
    url = f"http://{server.http}/v2/models/identity/infer"
    assert [requests.post(url, json=large, headers=bearer("large"), timeout=30).status_code for _ in range(3)] == [200, 200, 429]
    assert infer(server, "user").ok


def test_grpc_asks_for_the_same_keys(server):
    require_grpc(server)
    with triton.InferenceServerClient(server.grpc) as client:
        assert client.is_server_live()

        def status(call, key):
            try:
                call(headers={name.lower(): value for name, value in bearer(key).items()})
                return "OK"
            except InferenceServerException as error:
                return error.status().removeprefix("StatusCode.")

        def describe(headers):
            return client.get_model_metadata("identity", headers=headers)

        for key in (None, "guess"):
            assert status(describe, key) == "UNAUTHENTICATED"
        assert status(describe, "reader") == "PERMISSION_DENIED"
        assert status(describe, "user") == "OK"
        assert status(client.get_trace_settings, "user") == "PERMISSION_DENIED"
        assert status(client.get_trace_settings, "admin") == "OK"


def test_a_refused_body_is_not_read(server):
    head = "POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 60000000\r\n\r\n"
    with socket.create_connection(server.http.split(":"), timeout=30) as client:
        client.sendall(head.encode())
        assert client.recv(65536).startswith(b"HTTP/1.1 401 ")
    unknown = head.replace("identity", "nobody").replace("Host", "Authorization: Bearer user\r\nHost")
    with socket.create_connection(server.http.split(":"), timeout=30) as client:
        client.sendall(unknown.encode())
        answer = client.recv(65536)
        assert answer.startswith(b"HTTP/1.1 404 ") or b"unknown model: 'nobody'" in answer, answer


def test_keys_come_and_go_with_their_file(server):
    made = re.fullmatch(r"key   (\S{46})\nline  (sha256:[0-9a-f]{64})\n", inflight("key"))
    assert infer(server, made[1]).status_code == 401
    file = server.dir / "keys"
    before = file.read_text()

    def wait_for(code):
        deadline = time.monotonic() + PATIENCE_S
        while infer(server, made[1]).status_code != code:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    file.write_text(before + made[2] + "\n")
    wait_for(200)
    file.write_text("sha256:broken\n")
    deadline = time.monotonic() + PATIENCE_S
    while "64 lower-case hexadecimal digits" not in server.log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert infer(server, made[1]).ok
    file.write_text(before)
    wait_for(401)

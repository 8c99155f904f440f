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
from certificates import make_certificates
from light_models import write_light_repository
from live_server import start_server
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
    keys += [{**keys[-1], "name": name, "sha256": sha256(name)} for name in ("large", "slow-grpc")]
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
        ("/v2/debug/profile", "control"),
        ("/sleep", "control"),
        ("/wake_up", "control"),
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
    refused = infer(server, "slow")
    assert 900 < int(refused.headers["Retry-After"]) <= 1000  # 1 / 0.001 a second, less what has passed
    assert "key 'slow' has sent more than its requests_per_second of 0.001 with a burst of 2" in refused.json()["error"]
    # A body that is looked at by its head first counts once.
    large = {"inputs": [{**ECHO["inputs"][0], "data": ["x" * 100_000]}]}
    url = f"http://{server.http}/v2/models/identity/infer"
    assert [requests.post(url, json=large, headers=bearer("large"), timeout=30).status_code for _ in range(3)] == [200, 200, 429]
    assert infer(server, "user").ok


def test_grpc_asks_for_the_same_keys(server):
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


def test_grpc_requests_of_a_key_are_bounded(server):
    with triton.InferenceServerClient(server.grpc) as client:
        for _ in range(2):
            client.get_model_metadata("identity", headers={"authorization": "Bearer slow-grpc"})
        with pytest.raises(InferenceServerException) as refused:
            client.get_model_metadata("identity", headers={"authorization": "Bearer slow-grpc"})
    assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    assert re.search(r"key 'slow-grpc' .* of 0.001 with a burst of 2 allow; try again in \d+ s", refused.value.message())
    assert infer(server, "slow-grpc").status_code == 429  # over both protocols together


def answer_to_head(address, method_and_path, key=None, wait_s=30):
    """What comes back for the head of a request whose body never comes, to the end of the connection; None in `wait_s`."""
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    head = f"{method_and_path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{authorization}Content-Length: 60000000\r\n\r\n"
    host, port = address.split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=wait_s) as client:
        client.sendall(head.encode())
        try:
            while more := client.recv(65536):
                answer += more
        except TimeoutError:
            return None
    return answer.decode()


def test_a_refused_body_is_not_read(server):
    infer_of = "POST /v2/models/{}/infer".format
    refusals = {
        (infer_of("identity"), None): ("401 Unauthorized", "this request needs a key"),
        (infer_of("identity"), "guess"): ("401 Unauthorized", "the key is not known"),
        (infer_of("identity"), "reader"): ("403 Forbidden", "the key does not have the role 'inference'"),
        (infer_of("nobody"), "user"): ("404 Not Found", "unknown model: 'nobody'"),
        ("POST /nowhere", "user"): ("404 Not Found", "Not Found"),
    }
    for (path, key), (status, error) in refusals.items():
        answer = answer_to_head(server.http, path, key)
        assert answer.startswith(f"HTTP/1.1 {status}\r\n") and error in answer, (path, key)
        assert "\r\nConnection: close\r\n" in answer
    # What is not refused waits for its body: the answers above are not those of requests without one.
    assert answer_to_head(server.http, infer_of("identity"), "user", wait_s=1) is None


@pytest.fixture(scope="module")
def platforms(tmp_path_factory):
    """A server with keys that SageMaker and Vertex AI call; (URL of the one, prediction and health URLs of the other)."""
    path = tmp_path_factory.mktemp("platforms")
    repository = write_light_repository(path / "repository")
    keys = [{"name": name, "sha256": sha256(name), "roles": roles} for name, roles in ROLES.items()]
    (path / "access.json").write_text(json.dumps({"keys": keys}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "identity")
        patch.setenv("AIP_HEALTH_ROUTE", "/health")
        patch.setenv("AIP_PREDICT_ROUTE", "/predict")
        running = start_server(
            path, None, "--model-repository", repository, "--model-control-mode=explicit", "--load-model=identity",
            "--access", path / "access.json", "--allow-sagemaker=true", "--sagemaker-port=0", "--allow-vertex-ai=true",
            "--vertex-ai-port=0", "--vertex-ai-default-model=identity", "--allow-grpc=false", max_kv_tokens=None,
        )  # fmt: skip
    ports = json.loads((path / "ports.json").read_text())
    yield f"127.0.0.1:{ports['sagemaker']}", f"127.0.0.1:{ports['vertex_ai']}"
    assert running.stop() == 0


def statuses(method, url, keys, **request):
    return [requests.request(method, url, headers=bearer(key), timeout=30, **request).status_code for key in keys]


def test_sagemaker_asks_for_the_same_keys(platforms):
    place, _ = platforms
    assert requests.get(f"http://{place}/ping", timeout=30).ok
    keys = [None, "guess", "reader", "user"]
    assert statuses("POST", f"http://{place}/invocations", keys, json=ECHO) == [401, 401, 403, 200]
    assert statuses("POST", f"http://{place}/models/a/invoke", keys, json=ECHO) == [401, 401, 403, 404]
    assert statuses("GET", f"http://{place}/models", [None, "user", "admin"]) == [401, 403, 200]
    assert statuses("DELETE", f"http://{place}/models/a", [None, "user", "admin"]) == [401, 403, 404]
    assert answer_to_head(place, "POST /invocations").startswith("HTTP/1.1 401 Unauthorized\r\nContent-Type")
    assert answer_to_head(place, "POST /nowhere", "user").startswith("HTTP/1.1 400 Bad Request\r\n")


def test_vertex_ai_asks_for_the_same_keys(platforms):
    _, place = platforms
    assert requests.get(f"http://{place}/health", timeout=30).ok
    url = f"http://{place}/predict"
    assert statuses("POST", url, [None, "guess", "reader", "user"], json=ECHO) == [401, 401, 403, 200]

    def redirected(path, key):
        return requests.post(url, headers={"X-Vertex-Ai-Triton-Redirect": path, **bearer(key)}, timeout=30).status_code

    assert [redirected("metrics", key) for key in (None, "user", "reader")] == [401, 403, 200]
    load = "v2/repository/models/identity/load"
    assert [redirected(load, key) for key in (None, "user", "admin")] == [401, 403, 200]
    assert answer_to_head(place, "POST /predict").startswith("HTTP/1.1 401 Unauthorized\r\n")
    assert answer_to_head(place, "POST /nowhere", "user").startswith("HTTP/1.1 400 Bad Request\r\n")


def test_keys_on_open_ports_without_tls_are_warned_of(tmp_path):
    """TLS of gRPC hides none of what goes to HTTP."""
    certificates = make_certificates(tmp_path)
    (tmp_path / "keys").write_text("a-key\n")
    repository = write_light_repository(tmp_path / "repository")
    pair = certificates.server
    tls = ["--grpc-use-ssl=true", "--grpc-server-cert", pair.certificate, "--grpc-server-key", pair.key]

    def warnings(name, *options):
        (tmp_path / name).mkdir()
        running = start_server(
            tmp_path / name, None, "--model-repository", repository, "--model-control-mode=explicit",
            "--api-key-file", tmp_path / "keys", *options, max_kv_tokens=None,
        )  # fmt: skip
        assert running.stop() == 0
        return re.findall(r"keys go over the network as they are: .* ports=(.*)", running.log.read_text())

    (warning,) = warnings("http", *tls, "--http-address=0.0.0.0")
    assert "HTTP, metrics" in warning and "gRPC" not in warning
    (warning,) = warnings("metrics", *tls, "--metrics-address=0.0.0.0")
    assert "metrics" in warning and "HTTP" not in warning
    scraped = ["--metrics-use-ssl=true", "--metrics-server-cert", pair.certificate, "--metrics-server-key", pair.key]
    assert warnings("metrics-tls", *tls, *scraped, "--metrics-address=0.0.0.0") == []
    (warning,) = warnings("grpc", "--grpc-address=0.0.0.0")
    assert "gRPC" in warning and "HTTP" not in warning
    assert warnings("tls", *tls, "--grpc-address=0.0.0.0") == []


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

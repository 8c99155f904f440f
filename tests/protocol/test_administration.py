# SPDX-License-Identifier: Apache-2.0
"""A port and a Unix socket of administration: what is answered there alone, who may ask there, and the socket's file."""

import hashlib
import http.client
import json
import os
import pathlib
import signal
import socket
import stat

import grpc
import pytest
import requests
from client_models import start_client_models
from light_models import write_light_repository
from live_server import start_error, start_server
from test_restricted_apis import GROUPS, GRPC, HTTP, call

ADMINISTRATION = ("model-repository", "trace", "logging", "profile")
PLACE = "the port of --admin-port and the socket of --admin-socket"
REFUSED = f"this API is answered on {PLACE} alone"
LOGGING = "/v2/logging"


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def ask(path, method, target, body=None, headers=None):
    """(status, text) of a request over a Unix socket."""
    connection = SocketConnection(path)
    try:
        data = None if body is None else json.dumps(body)
        kind = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, target, data, {**kind, **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def ports(folder):
    return json.loads((folder / "ports.json").read_text())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """With both places; `admin` is the port's address, `socket` the file."""
    work_dir = tmp_path_factory.mktemp("admin")
    admin = ("--admin-port=0", "--admin-socket", work_dir / "s")
    running = start_client_models(work_dir, "--load-model=spare", "--load-model=words", *admin)
    running.admin, running.socket = f"127.0.0.1:{ports(work_dir)['admin']}", work_dir / "s"
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]
    assert not running.socket.exists()


@pytest.mark.parametrize("group", GROUPS)
def test_public_ports_refuse_administration_over_http(server, group):
    for method, path, body, status in HTTP[group]:
        answer = requests.request(method, f"http://{server.http}{path}", json=body, timeout=30)
        if group in ADMINISTRATION:
            assert answer.status_code == 403 and answer.json() == {"error": REFUSED}, path
        else:
            assert answer.status_code == status, (path, answer.text)


@pytest.mark.parametrize("group", GROUPS)
def test_public_ports_refuse_administration_over_grpc(server, group):
    with grpc.insecure_channel(server.grpc) as channel:
        for name, message, code in GRPC[group]:
            expected = (grpc.StatusCode.PERMISSION_DENIED, REFUSED) if group in ADMINISTRATION else (code,)
            assert call(channel, name, message, {})[: len(expected)] == expected, name


@pytest.mark.parametrize("group", GROUPS)
def test_the_port_and_the_socket_answer_all_of_http(server, group):
    for method, path, body, status in HTTP[group]:
        answer = requests.request(method, f"http://{server.admin}{path}", json=body, timeout=30)
        assert answer.status_code == status, (path, answer.text)
        assert ask(server.socket, method, path, body)[0] == status, path


def test_a_body_that_is_refused_is_not_read(server):
    """By its head alone, as what a key may not do."""
    host, port = server.http.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"POST /v2/repository/models/spare/load HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 403 Forbidden\r\n")


def test_the_socket_is_called_by_any_name_and_by_no_page(server):
    assert ask(server.socket, "GET", LOGGING, headers={"Host": "anything"})[0] == 200
    status, text = ask(server.socket, "POST", LOGGING, {}, {"Origin": "http://evil.example"})
    assert status == 403 and "Origin" in text


def test_the_log_says_where_administration_is(server):
    log = server.log.read_text()
    assert f"are answered on {PLACE} alone" in log
    assert f"Started Administration Service at {server.admin}" in log
    assert f"Started Administration Service at {server.socket}" in log


def test_keys_and_headers_hold_at_the_port_and_not_at_the_socket(tmp_path):
    repository = write_light_repository(tmp_path / "repository")
    key = {"name": "operator", "sha256": hashlib.sha256(b"operator").hexdigest(), "roles": ["settings", "inference"]}
    (tmp_path / "access.json").write_text(json.dumps({"keys": [key]}))
    server = start_server(
        tmp_path, None, "--model-repository", repository, "--model-control-mode=explicit", "--load-model=identity",
        "--access", tmp_path / "access.json", "--grpc-restricted-protocol=logging:word=open", "--admin-port=0",
        "--admin-socket", tmp_path / "s", max_kv_tokens=None,
    )  # fmt: skip
    admin, bearer, word = f"http://127.0.0.1:{ports(tmp_path)['admin']}", {"Authorization": "Bearer operator"}, {"word": "open"}

    def status(url, headers):
        return requests.get(url, headers=headers, timeout=30).status_code

    assert [status(admin + LOGGING, headers) for headers in ({}, bearer, word, bearer | word)] == [401, 403, 401, 200]
    assert status(f"http://{server.http}{LOGGING}", bearer | word) == 403
    assert status(f"http://{server.http}/v2/models/identity", bearer) == 200
    assert [ask(tmp_path / "s", "GET", LOGGING, headers=headers)[0] for headers in ({}, bearer)] == [200, 200]
    assert ask(tmp_path / "s", "POST", "/v2/repository/index")[0] == 200  # of which the key has no role
    assert server.stop() == 0


def test_platforms_refuse_administration_too(tmp_path):
    repository = write_light_repository(tmp_path / "repository")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIP_HEALTH_ROUTE", "/health")
        patch.setenv("AIP_PREDICT_ROUTE", "/predict")
        server = start_server(
            tmp_path, None, "--model-repository", repository, "--model-control-mode=explicit", "--load-model=identity",
            "--allow-sagemaker=true", "--sagemaker-port=0", "--allow-vertex-ai=true", "--vertex-ai-port=0",
            "--vertex-ai-default-model=identity", "--allow-http=false", "--admin-port=0", max_kv_tokens=None,
        )  # fmt: skip
    sagemaker, vertex_ai, admin = (f"http://127.0.0.1:{ports(tmp_path)[name]}" for name in ("sagemaker", "vertex_ai", "admin"))
    refused = {"error": "this API is answered on the port of --admin-port alone"}
    assert requests.get(f"{sagemaker}/models", timeout=30).json() == refused
    assert requests.get(f"{sagemaker}/ping", timeout=30).ok
    index = {"X-Vertex-Ai-Triton-Redirect": "v2/repository/index"}
    assert requests.post(f"{vertex_ai}/predict", headers=index, timeout=30).json() == refused
    assert requests.post(f"{admin}/v2/repository/index", timeout=30).ok  # with HTTP itself closed
    assert server.stop() == 0


def test_the_port_has_the_tls_of_http(tmp_path, repository, certificates):
    pair = certificates.server
    server = start_server(
        tmp_path, None, "--model-repository", repository, "--allow-grpc=false", "--admin-port=0", "--http-use-ssl=true",
        "--http-server-cert", pair.certificate, "--http-server-key", pair.key, max_kv_tokens=None,
    )  # fmt: skip
    address = f"127.0.0.1:{ports(tmp_path)['admin']}{LOGGING}"
    assert requests.get(f"https://{address}", verify=str(certificates.root.certificate), timeout=30).ok
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(f"http://{address}", timeout=30)
    assert server.stop() == 0


def serve_socket(folder, repository, path):
    folder.mkdir()
    return start_server(
        folder, None, "--model-repository", repository, "--allow-grpc=false", "--admin-socket", path, max_kv_tokens=None
    )


def socket_error(repository, path):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    command = [program, "serve", "--model-repository", repository, "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    return start_error([*command, "--admin-socket", path])


def test_the_file_of_the_socket(tmp_path, repository):
    path = tmp_path / "s"
    first = serve_socket(tmp_path / "first", repository, path)
    mode = path.lstat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    taken = socket_error(repository, path)
    assert "--admin-socket: " in taken and f"'{path}'" in taken and "a server answers there" in taken
    assert ask(path, "GET", LOGGING)[0] == 200  # which goes on
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(30)
    assert path.exists()  # what a killed server leaves
    second = serve_socket(tmp_path / "second", repository, path)
    assert ask(path, "GET", LOGGING)[0] == 200
    assert second.stop() == 0
    assert not path.exists()
    path.write_text("content")
    assert "the file is no socket" in socket_error(repository, path)
    assert path.read_text() == "content"
    assert "at most 107 are allowed" in socket_error(repository, tmp_path / ("x" * 120))


def test_wrong_flags_do_not_start(repository):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"

    def error(*options):
        command = [program, "serve", "--model-repository", repository, "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
        return start_error([*command, *options])

    assert "--admin-address is that of --admin-port, which is needed with it" in error("--admin-address=127.0.0.1")
    assert "--admin-port: got '70000'" in error("--admin-port=70000")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--admin-port: admin cannot listen on 127.0.0.1:{port}" in error(f"--admin-port={port}")

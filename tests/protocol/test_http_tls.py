# SPDX-License-Identifier: Apache-2.0
"""TLS and mutual TLS of the HTTP port: who is served, who is refused, which flags do not start, and certificates that change."""

import json
import os
import pathlib
import shutil
import socket
import ssl
import time

import numpy as np
import pytest
import requests
import tritonclient.http
from certificates import make_leaf
from live_server import DEMO, start_error, start_server

PATIENCE_S = 30
ECHO = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["echo"]}]}
INFER = "/v2/models/identity/infer"


def serve(path, repository, *options):
    return start_server(path, None, "--model-repository", repository, "--allow-grpc=false", *options, max_kv_tokens=None)


def flags(pair):
    return ["--http-server-cert", pair.certificate, "--http-server-key", pair.key]


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory, repository, certificates):
    running = serve(tmp_path_factory.mktemp("tls"), repository, "--http-use-ssl=true", *flags(certificates.server))
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def mutual_server(tmp_path_factory, repository, certificates):
    options = ["--http-use-ssl-mutual=true", *flags(certificates.server), "--http-root-cert", certificates.root.certificate]
    running = serve(tmp_path_factory.mktemp("mutual"), repository, *options)
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def echo(server, root, client=None, body=ECHO):
    answer = requests.post(
        f"https://{server.http}{INFER}", json=body, timeout=60, verify=str(root.certificate),
        cert=client and (str(client.certificate), str(client.key)),
    )  # fmt: skip
    answer.raise_for_status()
    return answer.json()["outputs"][0]["data"]


def connect(server, root, client=None, **settings):
    """A connection over TLS, for bytes."""
    context = ssl.create_default_context(cafile=root.certificate)
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    for name, value in settings.items():
        setattr(context, name, value)
    host, port = server.http.split(":")
    raw = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    return context.wrap_socket(raw, server_hostname=host, suppress_ragged_eofs=False)


def request_bytes(body, *headers):
    data = json.dumps(body).encode()
    head = [f"POST {INFER} HTTP/1.1", "Host: localhost", *headers, f"Content-Length: {len(data)}"]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + data


def read_all(connection):
    """To the close_notify of the server: an end without it raises."""
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


def test_clients_are_served_over_tls(tls_server, certificates):
    assert echo(tls_server, certificates.root) == ["echo"]
    context = ssl.create_default_context(cafile=certificates.root.certificate)
    with tritonclient.http.InferenceServerClient(
        tls_server.http, ssl=True, ssl_context_factory=lambda: context, network_timeout=60, connection_timeout=60
    ) as client:
        assert client.is_server_ready()
        tensor = tritonclient.http.InferInput("INPUT0", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([b"binary"], dtype=object))
        for _ in range(3):
            assert client.infer("identity", [tensor]).as_numpy("OUTPUT0").tolist() == [b"binary"]


def test_large_bodies_pass_in_both_directions(tls_server, certificates):
    text = "".join(chr(ord("a") + i % 26) for i in range(3_000_000))
    assert echo(tls_server, certificates.root, body={"inputs": [{**ECHO["inputs"][0], "data": [text]}]}) == [text]


def test_pipelined_requests_and_the_end_of_an_answer(tls_server, certificates):
    bodies = [{"inputs": [{**ECHO["inputs"][0], "data": [f"number {i}"]}]} for i in range(20)]
    with connect(tls_server, certificates.root) as connection:
        assert connection.version() == "TLSv1.3"
        pipelined = b"".join(request_bytes(body) for body in bodies[:-1])
        connection.sendall(pipelined + request_bytes(bodies[-1], "Connection: close"))
        received = read_all(connection)
    assert received.count(b"HTTP/1.1 200 OK") == len(bodies)
    positions = [received.index(f'number {i}"'.encode()) for i in range(len(bodies))]
    assert positions == sorted(positions)


def test_a_refused_body_gets_its_answer(tls_server, certificates):
    """The client goes on sending after it: the answer still arrives whole, with its end."""
    head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n"
    with connect(tls_server, certificates.root) as connection:
        connection.sendall(head + b"x" * 300_000)
        assert read_all(connection).startswith(b"HTTP/1.1 404 Not Found\r\n")


def test_versions_and_plain_text(tls_server, certificates):
    with connect(tls_server, certificates.root, maximum_version=ssl.TLSVersion.TLSv1_2) as connection:
        assert connection.version() == "TLSv1.2"
        connection.sendall(request_bytes(ECHO, "Connection: close"))
        assert b"echo" in read_all(connection)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(tls_server, certificates.root, minimum_version=ssl.TLSVersion.TLSv1_1, maximum_version=ssl.TLSVersion.TLSv1_1)
    with pytest.raises(requests.exceptions.SSLError):
        echo(tls_server, certificates.other_root)
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(f"http://{tls_server.http}/v2/health/live", timeout=30)
    assert echo(tls_server, certificates.root) == ["echo"]


def test_mutual_tls_asks_for_a_certificate(mutual_server, certificates):
    assert echo(mutual_server, certificates.root, certificates.client) == ["echo"]
    assert echo(mutual_server, certificates.root, certificates.client) == ["echo"]  # also where a session goes on
    for client in (None, certificates.stranger):
        with pytest.raises((requests.exceptions.ConnectionError, requests.exceptions.SSLError)):
            echo(mutual_server, certificates.root, client)


def test_streams_go_over_tls(tmp_path, certificates):
    server = start_server(tmp_path, DEMO, "--allow-grpc=false", "--http-use-ssl=true", *flags(certificates.server))
    body = {"text_input": "Once upon a time", "max_tokens": 20, "stream": True, "end_id": -1}
    url = f"https://{server.http}/v2/models/ensemble/generate_stream"
    with requests.post(url, json=body, stream=True, timeout=60, verify=str(certificates.root.certificate)) as answer:
        events = [line for line in answer.iter_lines() if line]
    assert len(events) == 20 and all(event.startswith(b"data: {") for event in events)
    with requests.post(url, json={**body, "max_tokens": 900}, stream=True, timeout=60, verify=str(certificates.root.certificate)):
        pass  # leaves in the middle
    assert server.stop() == 0


def test_the_port_of_openais_api_has_the_same_tls(tmp_path, certificates):
    options = ["--allow-grpc=false", "--openai-port=0", "--http-use-ssl=true", *flags(certificates.server)]
    server = start_server(tmp_path, DEMO, *options)
    place = f"127.0.0.1:{json.loads((tmp_path / 'ports.json').read_text())['openai']}"
    assert requests.get(f"https://{place}/v1/models", timeout=30, verify=str(certificates.root.certificate)).ok
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(f"http://{place}/v1/models", timeout=30)
    assert server.stop() == 0
    assert f"curl https://{place}/v1/chat/completions " in server.log.read_text()


def test_half_a_handshake_is_not_waited_for(tmp_path, repository, certificates):
    options = ["--http-use-ssl=true", *flags(certificates.server), "--http-header-timeout-ms=500"]
    server = serve(tmp_path, repository, *options)
    host, port = server.http.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as half:
        half.sendall(b"\x16\x03\x01")
        assert half.recv(100) == b""
    assert echo(server, certificates.root) == ["echo"]
    assert server.stop() == 0


def test_certificates_are_read_anew_when_they_change(tmp_path, repository, certificates):
    pair = make_leaf(tmp_path, "changing", certificates.other_root)
    (tmp_path / "server").mkdir()
    server = serve(tmp_path / "server", repository, "--http-use-ssl=true", *flags(pair))
    assert echo(server, certificates.other_root) == ["echo"]
    kept = connect(server, certificates.other_root)

    def replace(source, target):
        shutil.copy(source, str(target) + ".new")
        os.replace(str(target) + ".new", target)

    replace(certificates.server.key, pair.key)
    replace(certificates.server.certificate, pair.certificate)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            assert echo(server, certificates.root) == ["echo"]
            break
        except requests.exceptions.SSLError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    kept.sendall(request_bytes(ECHO, "Connection: close"))  # what was connected stays so
    assert b"echo" in read_all(kept)
    pair.certificate.write_text("broken")
    deadline = time.monotonic() + PATIENCE_S
    while "is no PEM file" not in server.log.read_text():
        assert echo(server, certificates.root) == ["echo"]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert echo(server, certificates.root) == ["echo"]
    assert server.stop() == 0


def test_wrong_flags_do_not_start(tmp_path, repository, certificates):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    broken = tmp_path / "broken"
    broken.write_text("no PEM")
    server, other = certificates.server, certificates.client

    def error(*options):
        command = [program, "serve", "--model-repository", repository, "--allow-grpc=false", "--http-port=0", *options]
        return start_error([*command, "--allow-metrics=false"])

    on = "--http-use-ssl=true"
    assert "--http-server-cert: a PEM file is needed for TLS" in error(on)
    assert "--http-server-key: a PEM file is needed for TLS" in error(on, "--http-server-cert", server.certificate)
    assert "is no PEM file" in error(on, "--http-server-cert", broken, "--http-server-key", server.key)
    mixed = error(on, "--http-server-cert", server.certificate, "--http-server-key", other.key)
    assert "do --http-server-cert and --http-server-key belong to each other?" in mixed
    assert "--http-root-cert: a PEM file is needed for TLS" in error("--http-use-ssl-mutual=true", *flags(server))
    assert "add --http-use-ssl=true" in error(*flags(server))

# SPDX-License-Identifier: Apache-2.0
"""TLS and mutual TLS of the gRPC port: who is served, who is refused, and which flags do not start."""

import os
import pathlib
import subprocess

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from live_server import start_server
from tritonclient.utils import InferenceServerException


def serve(path, repository, *options):
    return start_server(path, None, "--model-repository", repository, *options, max_kv_tokens=None)


def server_flags(certificates):
    return ["--grpc-server-cert", certificates.server.certificate, "--grpc-server-key", certificates.server.key]


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory, repository, certificates):
    path = tmp_path_factory.mktemp("tls")
    running = serve(path, repository, "--grpc-use-ssl=true", *server_flags(certificates))
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def mutual_server(tmp_path_factory, repository, certificates):
    path = tmp_path_factory.mktemp("mutual")
    options = [*server_flags(certificates), "--grpc-root-cert", certificates.root.certificate]
    running = serve(path, repository, "--grpc-use-ssl-mutual=true", *options)
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def echo(server, root=None, client=None, ssl=True):
    """An infer over a connection of its own; raises what the client raises."""
    files = {}
    if root is not None:
        files["root_certificates"] = str(root.certificate)
    if client is not None:
        files |= {"private_key": str(client.key), "certificate_chain": str(client.certificate)}
    with triton.InferenceServerClient(server.grpc, ssl=ssl, **files) as connection:
        text = triton.InferInput("INPUT0", [1], "BYTES")
        text.set_data_from_numpy(np.array([b"sealed"], dtype=object))
        return connection.infer("identity", [text], client_timeout=20).as_numpy("OUTPUT0")[0]


def refusal(server, **how):
    with pytest.raises(InferenceServerException) as caught:
        echo(server, **how)
    return caught.value.status()


def test_tls_serves_clients_that_trust_its_root(tls_server, certificates):
    assert echo(tls_server, certificates.root) == b"sealed"


def test_tls_serves_a_client_whatever_certificate_it_shows(tls_server, certificates):
    assert echo(tls_server, certificates.root, certificates.stranger) == b"sealed"


def test_tls_refuses_plain_clients(tls_server, certificates):
    assert refusal(tls_server, ssl=False) == "StatusCode.UNAVAILABLE"
    assert echo(tls_server, certificates.root) == b"sealed"


def test_clients_refuse_a_server_whose_root_they_do_not_trust(tls_server, certificates):
    assert refusal(tls_server, root=certificates.other_root) == "StatusCode.UNAVAILABLE"


def test_http_stays_plain(tls_server):
    assert requests.get(f"http://{tls_server.http}/v2/health/ready", timeout=20).status_code == 200


def test_mutual_tls_serves_clients_of_its_root(mutual_server, certificates):
    assert echo(mutual_server, certificates.root, certificates.client) == b"sealed"


def test_mutual_tls_refuses_everyone_else(mutual_server, certificates):
    unavailable = "StatusCode.UNAVAILABLE"
    assert refusal(mutual_server, ssl=False) == unavailable
    assert refusal(mutual_server, root=certificates.root) == unavailable  # no certificate
    assert refusal(mutual_server, root=certificates.root, client=certificates.stranger) == unavailable
    assert echo(mutual_server, certificates.root, certificates.client) == b"sealed"


def start_error(tmp_path, repository, *options):
    """What a server that refuses to start says."""
    inflight = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    command = [
        inflight, "serve", "--model-repository", repository, "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0",
        "--http-address", "127.0.0.1", "--grpc-address", "127.0.0.1", *options,
    ]  # fmt: skip
    done = subprocess.run([str(c) for c in command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    return done.stderr + done.stdout


@pytest.mark.parametrize("options, message", [
    (["--grpc-use-ssl=true"], "--grpc-server-cert: a PEM file is needed for TLS"),
    (["--grpc-use-ssl=true", "--grpc-server-cert={server.certificate}"], "--grpc-server-key: a PEM file is needed for TLS"),
    (["--grpc-server-cert={server.certificate}"], "--grpc-server-cert: the port would open without TLS"),
    (["--grpc-server-key={server.key}"], "--grpc-server-key: the port would open without TLS"),
    (["--grpc-use-ssl=true", "--grpc-server-cert=/nowhere.crt", "--grpc-server-key={server.key}"], "/nowhere.crt"),
    (["--grpc-use-ssl=true", "--grpc-server-cert=/bin/sh", "--grpc-server-key={server.key}"],
     "--grpc-server-cert: '/bin/sh' is no PEM file"),
    (["--grpc-use-ssl=true", "--grpc-server-cert={server.certificate}", "--grpc-server-key={client.key}"],
     "do --grpc-server-cert and --grpc-server-key belong to each other?"),
    (["--grpc-use-ssl-mutual=true", "--grpc-server-cert={server.certificate}", "--grpc-server-key={server.key}"],
     "--grpc-root-cert: a PEM file is needed for TLS"),
])  # fmt: skip
def test_a_port_that_cannot_be_as_safe_as_asked_does_not_open(tls_server, tmp_path, repository, certificates, options, message):
    options = [option.format(server=certificates.server, client=certificates.client) for option in options]
    assert message in start_error(tmp_path, repository, *options)

# SPDX-License-Identifier: Apache-2.0
"""Several certificates of a port: a client is shown that of the name by which it calls the server, over HTTP and gRPC."""

import itertools
import os
import pathlib
import shutil
import socket
import ssl
import time

import grpc
import pytest
from certificates import Pair, make_leaf
from live_server import start_error, start_server
from tritonclient.grpc import service_pb2 as pb

PATIENCE_S = 30
ALPN = {"http": "http/1.1", "grpc": "h2"}
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory, certificates):
    """In the order in which the server has them; the wildcard stands before a name that it would match."""
    path = tmp_path_factory.mktemp("pairs")
    names = {
        "first": ("DNS:localhost", "IP:127.0.0.1"), "wild": ("DNS:*.cloud.example",),
        "exact": ("DNS:a.cloud.example", "DNS:b.test"),
    }  # fmt: skip
    return {name: make_leaf(path, name, certificates.root, of) for name, of in names.items()}


def flags(port, pairs, *options):
    both = ((f"--{port}-server-cert={pair.certificate}", f"--{port}-server-key={pair.key}") for pair in pairs)
    return [*itertools.chain(*both), *options]


def serve(path, repository, *options):
    return start_server(path, None, "--model-repository", repository, *options, max_kv_tokens=None)


@pytest.fixture(scope="module")
def server(tmp_path_factory, repository, pairs):
    options = [option for port in ALPN for option in flags(port, pairs.values(), f"--{port}-use-ssl=true")]
    running = serve(tmp_path_factory.mktemp("names"), repository, *options)
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def connect(server, root, name, port="http", client=None, verifies=True, version=None):
    context = ssl.create_default_context(cafile=root.certificate)
    context.check_hostname = verifies
    context.set_alpn_protocols([ALPN[port]])
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    host, number = getattr(server, port).split(":")
    raw = socket.create_connection((host, int(number)), timeout=PATIENCE_S)
    return context.wrap_socket(raw, server_hostname=name)


def shown(*args, **settings):
    """The common name of the certificate that a client of this name is shown."""
    with connect(*args, **settings) as connection:
        assert connection.selected_alpn_protocol() == ALPN[settings.get("port", "http")]
        return dict(part[0] for part in connection.getpeercert()["subject"])["commonName"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("port", ALPN)
def test_a_client_is_shown_the_certificate_of_its_name(server, certificates, port, version):
    expected = {
        "a.cloud.example": "exact", "A.Cloud.Example": "exact", "b.test": "exact", "c.cloud.example": "wild",
        "localhost": "first", "127.0.0.1": "first",
    }  # fmt: skip
    for name, certificate in expected.items():
        assert shown(server, certificates.root, name, port=port, version=version) == certificate, name
    for name in ("elsewhere.test", "c.a.cloud.example", "cloud.example", None):
        assert shown(server, certificates.root, name, port=port, version=version, verifies=False) == "first", name


def test_requests_pass_under_each_name(server, certificates):
    for name in ("a.cloud.example", "c.cloud.example", "localhost"):
        with connect(server, certificates.root, name) as connection:
            connection.sendall(LIVE)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
        credentials = grpc.ssl_channel_credentials(certificates.root.certificate.read_bytes())
        with grpc.secure_channel(server.grpc, credentials, [("grpc.ssl_target_name_override", name)]) as channel:
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            assert pb.ServerLiveResponse.FromString(live(b"", timeout=PATIENCE_S)).live


def test_mutual_tls_holds_under_each_name(tmp_path, repository, certificates, pairs):
    options = ["--http-use-ssl-mutual=true", "--http-root-cert", certificates.root.certificate, "--allow-grpc=false"]
    server = serve(tmp_path, repository, *flags("http", pairs.values(), *options))
    for name in ("localhost", "a.cloud.example", "c.cloud.example"):
        with connect(server, certificates.root, name, client=certificates.client) as connection:
            connection.sendall(LIVE)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n"), name
        for client in (None, certificates.stranger):
            with (
                pytest.raises((ssl.SSLError, ConnectionError)),
                connect(server, certificates.root, name, client=client) as connection,
            ):
                connection.sendall(LIVE)
                connection.recv(65536)
    assert server.stop() == 0


def test_each_certificate_is_read_anew_when_it_changes(tmp_path, repository, certificates, pairs):
    first = make_leaf(tmp_path, "first", certificates.root)
    changing = make_leaf(tmp_path, "old", certificates.root, ("DNS:a.cloud.example",))
    (tmp_path / "server").mkdir()
    options = flags("http", [first, changing], "--http-use-ssl=true", "--allow-grpc=false")
    server = serve(tmp_path / "server", repository, *options)
    assert shown(server, certificates.root, "a.cloud.example") == "old"

    def replace(pair):
        for source, target in ((pair.key, changing.key), (pair.certificate, changing.certificate)):
            shutil.copy(source, f"{target}.new")
            os.replace(f"{target}.new", target)

    replace(pairs["wild"])  # has the name by a wildcard
    deadline = time.monotonic() + PATIENCE_S
    while shown(server, certificates.root, "a.cloud.example", verifies=False) != "wild":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert shown(server, certificates.root, "b.cloud.example") == "wild"
    assert shown(server, certificates.root, "localhost") == "first"
    changing.certificate.write_text("broken")
    deadline = time.monotonic() + PATIENCE_S
    while "is no PEM file" not in server.log.read_text():
        assert shown(server, certificates.root, "b.cloud.example") == "wild"
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert shown(server, certificates.root, "b.cloud.example") == "wild"
    assert server.stop() == 0


def test_pairs_that_do_not_fit_do_not_start(repository, pairs):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    first, wild, exact = pairs.values()

    def error(port, *options):
        command = [program, "serve", "--model-repository", repository, "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
        return start_error([*command, f"--{port}-use-ssl=true", *options])

    for port in ALPN:
        few = error(port, *flags(port, [first, wild])[:-1])
        assert f"--{port}-server-key: got 1 where --{port}-server-cert has 2; each certificate has a key" in few
        many = error(port, *flags(port, [first]), f"--{port}-server-key={wild.key}")
        assert f"--{port}-server-key: got 2 where --{port}-server-cert has 1" in many
        crossed = [first, Pair(wild.certificate, exact.key), Pair(exact.certificate, wild.key)]
        wrong = error(port, *flags(port, crossed))
        assert f"do --{port}-server-cert and --{port}-server-key belong to each other?" in wrong
        assert str(wild.certificate) in wrong and str(exact.key) in wrong and str(first.key) not in wrong

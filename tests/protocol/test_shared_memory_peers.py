# SPDX-License-Identifier: Apache-2.0
"""Who may register shared memory: clients of the server's machine, over either protocol, whatever else they may do."""

import contextlib
import socket

import pytest
import requests
import tritonclient.grpc as grpcclient
from client_models import write_client_models
from live_server import start_server
from tritonclient.utils import InferenceServerException

WHY = "' is not a loopback address; start the server with '--shared-memory-remote-peers=true'"


def own_address():
    """An address of this machine that is no loopback one; no packet is sent for it."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("10.255.255.255", 9))
        except OSError:
            return None
        return probe.getsockname()[0]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_client_models(tmp_path_factory.mktemp("peers") / "models")


def serve(work_dir, models, *options):
    work_dir.mkdir()
    return start_server(
        work_dir, None, "--model-repository", models, "--allow-client-shm=true", "--http-address", "0.0.0.0",
        "--grpc-address", "0.0.0.0", *options, max_kv_tokens=None,
    )  # fmt: skip


def register(url, region, key):
    body = {"key": key, "offset": 0, "byte_size": 64}
    return requests.post(f"http://{url}/v2/systemsharedmemory/region/{region}/register", json=body, timeout=30)


def test_clients_of_other_machines_register_nothing(tmp_path, models, regions):
    address = own_address()
    if address is None:
        pytest.skip("this machine has loopback addresses alone, and a peer that is not local needs another")
    name, _ = regions(64)
    server = serve(tmp_path / "strict", models)
    try:
        outside = server.http.replace("127.0.0.1", address)
        assert requests.get(f"http://{outside}/v2/health/ready", timeout=30).ok
        for path, body in (
            ("systemsharedmemory/region/r/register", {"key": name, "offset": 0, "byte_size": 64}),
            ("cudasharedmemory/region/g/register", {"raw_handle": {"b64": "aA=="}, "device_id": 0, "byte_size": 8}),
            ("systemsharedmemory/unregister", {}),
        ):
            refused = requests.post(f"http://{outside}/v2/{path}", json=body, timeout=30)
            assert refused.status_code == 403, (path, refused.text)
            assert f"'{address}{WHY}" in refused.json()["error"], refused.text
        if server.grpc:
            with grpcclient.InferenceServerClient(server.grpc.replace("127.0.0.1", address)) as client:
                for call in (
                    lambda: client.register_system_shared_memory("r", name, 64),
                    lambda: client.register_cuda_shared_memory("g", b"aA==", 0, 8),
                    client.unregister_system_shared_memory,
                ):
                    with pytest.raises(InferenceServerException, match="is not a loopback address") as refused:
                        call()
                    assert refused.value.status() == "StatusCode.PERMISSION_DENIED"
            with grpcclient.InferenceServerClient(server.grpc) as client:
                client.register_system_shared_memory("r", name, 64)
                client.unregister_system_shared_memory("r")
        assert register(server.http, "r", name).ok
    finally:
        assert server.stop() == 0


def test_the_rules_are_options(tmp_path, models, regions):
    (allowed, _), (other, _) = regions(64), regions(64)
    server = serve(
        tmp_path / "options", models, "--shared-memory-remote-peers=true", "--shared-memory-prefix", "/" + allowed,
        "--shared-memory-client-regions=1",
    )  # fmt: skip
    try:
        refused = register(server.http, "o", other)
        assert refused.status_code == 400 and "(--shared-memory-prefix)" in refused.text, refused.text
        outside = server.http.replace("127.0.0.1", own_address() or "127.0.0.1")
        assert register(outside, "a", allowed).ok
    finally:
        assert server.stop() == 0

# SPDX-License-Identifier: Apache-2.0
"""Hostile and broken clients: the server outlives them, serves others meanwhile, and its memory comes back.

Sizes are for CI. INFLIGHT_SURVIVAL=full takes those that the server is made for: 10,000 idle connections, 2,000 half-open
requests, 1,000 killed streams, 5 minutes of mutations.
"""

import os
import pathlib
import resource
import sys
import threading
import time

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))

import attacks
import mutations
from light_models import write_light_repository
from live_server import require_grpc, start_server
from server_counts import rss_bytes

IS_FULL = os.environ.get("INFLIGHT_SURVIVAL") == "full"
PULSE_S = 0.1
MEMORY_SLACK = 0.02
MAX_ATTACKS = 8
MAX_OPEN_MEANWHILE = 5  # connections of the well-formed requests
FUZZ_S = 100 if IS_FULL else 2  # for each of three fuzzers
SEED = 20261122
OPTIONS = ["--http-header-timeout-ms=1500", "--http-body-timeout-ms=1500", "--http-max-input-size=1048576"]


def size(ci, full):
    return full if IS_FULL else ci


def num_idle():
    """As many as descriptors allow: ours, and as many again for the server."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(size(1000, 10_000), hard - 1000)


def is_sanitized():
    cache = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]).parent / "CMakeCache.txt"
    return any(
        line.startswith("INFLIGHT_SANITIZERS:") and line.split("=", 1)[1].strip() for line in cache.read_text().splitlines()
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("survival")
    repository = write_light_repository(path / "repository")
    running = start_server(path, None, "--model-repository", repository, *OPTIONS, max_kv_tokens=None)
    running.num_descriptors = attacks.num_descriptors(running)
    yield running
    assert running.process.poll() is None, f"the server ended by itself:\n{running.log.read_text()[-4000:]}"
    assert running.stop() == 0, running.log.read_text()[-4000:]


class Pulse(threading.Thread):
    """Well-formed requests, over HTTP on a kept and on new connections and over gRPC, until it is stopped."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.stopped, self.problems, self.count, self.slowest_s = server, threading.Event(), [], 0, 0.0
        self.beaten = threading.Event()
        self.text = triton.InferInput("INPUT0", [1], "BYTES")
        self.text.set_data_from_numpy(np.array([b"echo"], dtype=object))

    def run(self):
        session = requests.Session()
        client = triton.InferenceServerClient(self.server.grpc) if self.server.grpc else None
        beats = [lambda: self.beat_http(session), lambda: self.beat_http(requests)]
        if client:
            beats.append(lambda: self.beat_grpc(client))
        while not self.stopped.wait(PULSE_S):
            start = time.monotonic()
            try:
                beats[self.count % len(beats)]()
            except Exception as e:
                self.problems.append(f"beat {self.count}: {e!r}")
            self.count += 1
            self.beaten.set()
            self.slowest_s = max(self.slowest_s, time.monotonic() - start)

    def beat_http(self, session):
        answer = session.post(f"http://{self.server.http}{attacks.INFER}", json=attacks.ECHO, timeout=attacks.PATIENCE_S)
        assert answer.json()["outputs"][0]["data"] == ["echo"], answer.text

    def beat_grpc(self, client):
        result = client.infer("identity", [self.text], client_timeout=attacks.PATIENCE_S)
        assert result.as_numpy("OUTPUT0")[0] == b"echo"


@pytest.fixture(autouse=True)
def pulse(server):
    running = Pulse(server)
    running.start()
    yield running
    running.beaten.wait(2 * attacks.PATIENCE_S)  # some attacks are over before its first
    running.stopped.set()
    running.join()
    print(f"{running.count} requests meanwhile, the slowest in {running.slowest_s * 1000:.0f} ms")
    assert running.problems == []
    assert running.count > 0
    assert server.process.poll() is None


def endure(server, attack):
    """The attack, until it leaves no more memory behind than the one before: allocators keep what the first ones needed."""
    before = None
    for _ in range(MAX_ATTACKS):
        attack()
        if is_sanitized():  # whose allocator keeps what is freed, to see it used
            return
        settle(server)
        after = rss_bytes(server.process.pid)
        if before and after <= before * (1 + MEMORY_SLACK):
            print(f"resident {before >> 10} KiB before, {after >> 10} KiB after")
            return
        before = after
    pytest.fail(f"resident memory grew with each of {MAX_ATTACKS} attacks, to {after >> 10} KiB")


def settle(server):
    """Until no request is under way: what streams did, they do no more."""
    deadline = time.monotonic() + attacks.PATIENCE_S
    while True:
        count = attacks.num_descriptors(server)
        if count <= server.num_descriptors + MAX_OPEN_MEANWHILE:
            return
        assert time.monotonic() < deadline, f"{count - server.num_descriptors} descriptors more than at the start are open"
        time.sleep(0.05)


ATTACKS = {
    "idle_connections": lambda s: attacks.idle_connections(s, num_idle()),
    "half_open_requests": lambda s: attacks.half_open_requests(s, size(200, 2000)),
    "slow_loris": lambda s: attacks.slow_loris(s, size(50, 1000)),
    "killed_streams": lambda s: attacks.killed_streams(s, size(100, 1000)),
    "slow_readers": lambda s: attacks.slow_readers(s, size(8, 64)),
    "bodies_over_the_limit": lambda s: attacks.bodies_over_the_limit(s, size(3, 50)),
    "compressed_bombs": lambda s: attacks.compressed_bombs(s, size(3, 100)),
    "deep_json": lambda s: attacks.deep_json(s, size(1, 20)),
    "prefixes": lambda s: attacks.prefixes(s, size(60, 150)),
    "random_bytes": lambda s: attacks.random_bytes(s, size(60, 2000)),
    "mutated_http": lambda s: mutations.http(s, FUZZ_S, SEED),
}
GRPC_ATTACKS = {
    "killed_grpc_streams": lambda s: mutations.killed_streams(s, size(100, 1000)),
    "mutated_grpc_messages": lambda s: mutations.grpc_messages(s, FUZZ_S, SEED),
    "mutated_grpc_frames": lambda s: mutations.grpc_frames(s, FUZZ_S, SEED),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_server_endures(server, name):
    endure(server, lambda: ATTACKS[name](server))


@pytest.mark.parametrize("name", GRPC_ATTACKS)
def test_the_grpc_port_endures(server, name):
    require_grpc(server)
    endure(server, lambda: GRPC_ATTACKS[name](server))

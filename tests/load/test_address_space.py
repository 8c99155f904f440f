# SPDX-License-Identifier: Apache-2.0
"""A server whose address space is at its limit (RLIMIT_AS): what needs more memory than there is ends with 503, one request at
a time or several, and what needs little is answered before, after and meanwhile."""

import concurrent.futures
import pathlib
import re
import resource
import sys

import pytest
import requests

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))

from conformance_models import add_identity, infer_body
from live_server import is_sanitized, start_server

MIB = 1 << 20
ROOM = 48 * MIB  # that the server may take beyond what it has, with its caches warm
NO_MEMORY = "no memory left"

pytestmark = pytest.mark.skipif(
    is_sanitized(), reason="the sanitizers' shadow memory has no place under a limit; release builds run this"
)


@pytest.fixture
def server(tmp_path):
    models = tmp_path / "models"
    add_identity(models, "identity", dims="[ -1 ]")
    running = start_server(
        tmp_path, None, "--model-repository", models, f"--request-memory-byte-size={1 << 34}", max_kv_tokens=None
    )
    for _ in range(20):
        assert small(running).ok
    taken = int(re.search(r"VmSize:\s+(\d+) kB", pathlib.Path(f"/proc/{running.process.pid}/status").read_text())[1]) * 1024
    resource.prlimit(running.process.pid, resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
    yield running
    assert running.process.poll() is None, running.log.read_text()[-4000:]
    assert running.stop() == 0, running.log.read_text()[-4000:]


def url(server):
    return f"http://{server.http}/v2/models/identity/infer"


def small(server):
    return requests.post(url(server), json=infer_body([1, 2]), timeout=60)


def post(server, body, **headers):
    return requests.post(url(server), data=body, headers={"Content-Type": "application/json"} | headers, timeout=120)


def of_values(num_values):
    """An infer request, of two bytes for each of its values, which takes four bytes for each, and as many for its answer."""
    head = f'{{"inputs":[{{"name":"INPUT0","datatype":"INT32","shape":[{num_values}],"data":['
    return (head + ",".join(["1"] * num_values) + "]}]}").encode()


def is_refused(answer):
    return answer.status_code == 503 and NO_MEMORY in answer.json()["error"]


def test_a_body_for_which_there_is_no_memory_is_refused(server):
    answer = post(server, b" " * (60 * MIB))
    assert is_refused(answer), (answer.status_code, answer.text[:300])
    assert small(server).ok


def test_tensors_for_which_there_is_no_memory_are_refused(server):
    answers = [post(server, of_values(num_mib * MIB // 2)) for num_mib in (4, 20, 28, 36)]
    assert all(answer.ok or is_refused(answer) for answer in answers), [(a.status_code, a.text[:300]) for a in answers]
    assert any(is_refused(answer) for answer in answers)
    assert small(server).ok


def test_small_requests_are_answered_beside_large_ones(server):
    large = of_values(8 * MIB)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        refused = [pool.submit(post, server, large) for _ in range(12)]
        while not all(answer.done() for answer in refused):
            answer = small(server)
            assert answer.ok or is_refused(answer), (answer.status_code, answer.text[:300])
        answers = [answer.result() for answer in refused]
    assert all(answer.ok or is_refused(answer) for answer in answers), [(a.status_code, a.text[:300]) for a in answers]
    assert any(is_refused(answer) for answer in answers)
    assert small(server).ok

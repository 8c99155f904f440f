# SPDX-License-Identifier: Apache-2.0
"""A server whose address space is at its limit (RLIMIT_AS): what needs more memory than there is ends with 503 or, over gRPC,
RESOURCE_EXHAUSTED, one request at a time or several, and what needs little is answered before, after and meanwhile."""

import concurrent.futures
import pathlib
import re
import resource
import sys

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))

from conformance_models import add_identity, infer_body
from live_server import is_sanitized, start_server

MIB = 1 << 20
ROOM = 48 * MIB  # that the server may take beyond what it has, with its caches warm
NO_MEMORY = "no memory left"

pytestmark = pytest.mark.skipif(
    is_sanitized(), reason="the sanitizers' shadow memory has no place under a limit; CI's release build runs it"
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


def grpc_code(client, num_values):
    """Of an infer with four bytes for each value, and as many for its answer; None where it is right."""
    values = np.full(num_values, 7, np.int32)
    tensor = triton.InferInput("INPUT0", [num_values], "INT32")
    tensor.set_data_from_numpy(values)
    try:
        assert (client.infer("identity", [tensor], client_timeout=20).as_numpy("OUTPUT0") == values).all()
    except triton.InferenceServerException as error:
        return error.status()
    return None


def test_messages_for_which_there_is_no_memory_are_refused(server):
    with triton.InferenceServerClient(server.grpc) as client:
        codes = [grpc_code(client, num_mib * MIB // 4) for num_mib in (1, 8, 16, 24, 40, 60)]
        assert set(codes) <= {None, str(grpc.StatusCode.RESOURCE_EXHAUSTED)}, codes
        assert codes[0] is None and codes[-1] is not None and grpc_code(client, 10) is None, codes
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            codes = {call.result() for call in [pool.submit(grpc_code, client, 4 * MIB) for _ in range(12)]}
        assert codes <= {None, str(grpc.StatusCode.RESOURCE_EXHAUSTED)}, codes
        assert grpc_code(client, 10) is None
    assert small(server).ok


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


def ends_well(ask, *args):
    """Answered or refused; or, where there is no memory for the words of a refusal, its connection was closed."""
    try:
        answer = ask(*args)
    except requests.ConnectionError:
        return True
    return answer.ok or is_refused(answer)


def test_the_server_outlives_small_requests_beside_large_ones(server):
    large = of_values(8 * MIB)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        refused = [pool.submit(ends_well, post, server, large) for _ in range(12)]
        while not all(end.done() for end in refused):
            assert ends_well(small, server)
        assert all(end.result() for end in refused)
    assert small(server).ok

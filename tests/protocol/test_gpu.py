# SPDX-License-Identifier: Apache-2.0
"""What only a server on a GPU can show; run with INFLIGHT_TEST_DEVICE=cuda on a machine that has one."""

import concurrent.futures

import pytest
import requests
from live_server import needs_gpu, start_server

pytestmark = needs_gpu

PROMPT = {"text_input": "Question: 3 + 4 = ? Answer:", "max_tokens": 16, "temperature": 0.0}


def generate(server, **changes):
    return requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=PROMPT | changes, timeout=60)


def is_ready(server):
    return requests.get(f"http://{server.http}/v2/health/ready", timeout=10).status_code == 200


def test_two_processes_share_one_gpu(tmp_path):
    """Each takes its fraction of what it finds free."""
    servers = []
    try:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            servers.append(start_server(tmp_path / name, max_kv_tokens=None))
        answers = [generate(server) for server in servers]
        assert [a.status_code for a in answers] == [200, 200]
        assert answers[0].json()["text_output"] == answers[1].json()["text_output"]
    finally:
        codes = [server.stop() for server in servers]
    assert codes == [0, 0]


@pytest.mark.parametrize("fault", ["launch", "trap", "stuck"])
def test_a_fault_ends_pending_requests_readiness_and_on_sigterm_the_process(fault, tmp_path, monkeypatch):
    monkeypatch.setenv("INFLIGHT_CUDA_FAULT", f"{fault}@30")
    monkeypatch.setenv("INFLIGHT_CUDA_WATCHDOG_MS", "1000")
    server = start_server(tmp_path)
    try:
        assert is_ready(server)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda seed: generate(server, max_tokens=200, random_seed=seed, end_id=-1), range(8)))
        assert all(a.status_code >= 500 for a in answers), [a.status_code for a in answers]
        assert all(a.json()["error"] for a in answers)
        assert not is_ready(server)
        assert generate(server).status_code == 503
    finally:
        code = server.stop()
    assert code == 0, server.log.read_text()[-3000:]

# SPDX-License-Identifier: Apache-2.0
"""What only a server on a GPU can show; run with INFLIGHT_TEST_DEVICE=cuda on a machine that has one."""

import base64
import concurrent.futures
import ctypes
import struct

import pytest
import requests
from conformance_models import add_identity
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


class GpuMemory:
    """Eight bytes on the first GPU that another process may open, by the driver's own calls."""

    def __init__(self):
        self._driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)
        self._data = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(self._data), ctypes.c_size_t(8))

    def _call(self, name, *arguments):
        assert getattr(self._driver, name)(*arguments) == 0, name

    def handle(self):
        handle = ctypes.create_string_buffer(64)
        self._call("cuIpcGetMemHandle", handle, self._data)
        return base64.b64encode(handle.raw).decode()

    def write(self, content):
        self._call("cuMemcpyHtoD_v2", self._data, content, ctypes.c_size_t(len(content)))

    def read(self):
        content = ctypes.create_string_buffer(8)
        self._call("cuMemcpyDtoH_v2", content, self._data, ctypes.c_size_t(8))
        return content.raw


def test_tensors_are_read_from_a_client_s_memory_on_the_gpu_and_written_to_it(tmp_path):
    add_identity(tmp_path / "models", "copy")
    server = start_server(
        tmp_path, None, "--model-repository", tmp_path / "models", "--allow-client-shm=true", max_kv_tokens=None
    )

    def post(path, body):
        return requests.post(f"http://{server.http}/v2/{path}", json=body, timeout=60)

    try:
        memory = {"in": GpuMemory(), "out": GpuMemory()}
        memory["in"].write(struct.pack("<2i", 11, -22))
        for name, place in memory.items():
            region = {"raw_handle": {"b64": place.handle()}, "device_id": 0, "byte_size": 8}
            assert post(f"cudasharedmemory/region/{name}/register", region).text == ""
        too_long = {"raw_handle": {"b64": memory["in"].handle()}, "device_id": 0, "byte_size": 1 << 40}
        assert "invalid args" in post("cudasharedmemory/region/long/register", too_long).json()["error"]
        known = requests.get(f"http://{server.http}/v2/cudasharedmemory/status", timeout=60).json()
        assert known == [{"name": name, "device_id": 0, "byte_size": 8} for name in ("in", "out")]
        where = {name: {"shared_memory_region": name, "shared_memory_byte_size": 8} for name in memory}
        body = {
            "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "parameters": where["in"]}],
            "outputs": [{"name": "OUTPUT0", "parameters": where["out"]}],
        }
        assert post("models/copy/infer", body).ok
        assert struct.unpack("<2i", memory["out"].read()) == (11, -22)
        where["in"]["shared_memory_offset"] = 1
        assert "Invalid offset + byte size" in post("models/copy/infer", body).json()["error"]
        assert post("cudasharedmemory/unregister", None).ok
        assert "Unable to find shared memory region" in post("models/copy/infer", body).json()["error"]
    finally:
        code = server.stop()
    assert code == 0

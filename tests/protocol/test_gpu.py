# SPDX-License-Identifier: Apache-2.0
"""What only a server on a GPU can show; run with INFLIGHT_TEST_DEVICE=cuda on a machine that has one."""

import base64
import concurrent.futures
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import time

import pytest
import requests
from conformance_models import add_identity
from live_server import DEMO, needs_gpu, start_error, start_server
from release_repositories import write_repository

pytestmark = needs_gpu

PROMPT = {"text_input": "Question: 3 + 4 = ? Answer:", "max_tokens": 16, "temperature": 0.0}


def generate(server, **changes):
    return requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=PROMPT | changes, timeout=60)


def is_ready(server):
    return requests.get(f"http://{server.http}/v2/health/ready", timeout=10).status_code == 200


class MemoryInfo(ctypes.Structure):
    """Of the first GPU, by all processes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]  # noqa: RUF012

    @classmethod
    def read(cls):
        nvml, gpu, info = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), cls()
        assert nvml.nvmlInit_v2() == 0
        assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)) == 0
        assert nvml.nvmlDeviceGetMemoryInfo(gpu, ctypes.byref(info)) == 0
        nvml.nvmlShutdown()
        return info


def planned(server):
    """The parts of the memory plan that the server logged for its model."""
    line = next(line for line in server.log.read_text().splitlines() if '"memory planned' in line)
    assert "device=cuda:0" in line
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)\b", line)}


@contextlib.contextmanager
def memory_taken(bytes_left):
    """All memory of the first GPU but `bytes_left`, held by this process."""
    driver, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_ulonglong()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    try:
        assert driver.cuCtxSetCurrent(context) == 0
        assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(free.value - bytes_left)) == 0
        yield
    finally:  # takes the memory with it
        assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0


PARTS = ["weight_bytes", "workspace_bytes", "kernel_bytes", "graph_bytes", "step_input_bytes", "sampler_bytes"]


@pytest.fixture
def long_model(tmp_path):
    """The demo model for sequences so long that no GPU holds a batch of them: its cache takes all that it may."""
    path = tmp_path / "long"
    shutil.copytree(DEMO, path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1 << 18}))
    return path


def test_two_processes_share_one_gpu(tmp_path, long_model):
    """Each takes its fraction of what it finds free: the second one half of what the first one left."""
    servers = []
    try:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            free = MemoryInfo.read().free
            servers.append(start_server(tmp_path / name, long_model, "--kv-cache-free-memory-fraction", 0.5, max_kv_tokens=None))
        answers = [generate(server) for server in servers]
        assert [a.status_code for a in answers] == [200, 200]
        assert answers[0].json()["text_output"] == answers[1].json()["text_output"]
        first, second = map(planned, servers)
        for plan in (first, second):
            assert all(plan[part] > 0 for part in PARTS), plan
            assert plan["full_length_sequences"] < 200, "the cache is bounded by memory alone"
        others = sum(second[part] for part in PARTS)
        own = 3e9  # what the second process's context and code take
        assert 0.5 * (free - others - own) < second["kv_bytes"] < 0.5 * free
        assert second["kv_bytes"] < 0.7 * first["kv_bytes"]
    finally:
        codes = [server.stop() for server in servers]
    assert codes == [0, 0]


def test_a_full_gpu_is_named():
    inflight = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    with memory_taken(100 << 20):
        error = start_error(
            [inflight, "serve", DEMO, "--device", "cuda", "--http-port", 0, "--grpc-port", 0, "--metrics-port", 0]
        )
    assert re.search(r"cuda:0, whose memory is full.*free memory, choose another GPU", error), error


def test_inspect_prints_the_plan_of_the_gpu():
    inflight = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    command = [inflight, "inspect", DEMO, "--device", "cuda"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "Memory plan on cuda:0" in text
    for part in ("weights", "workspace", "kernels", "graphs", "inputs", "sampler", "KV cache"):
        assert re.search(rf"^ *{part} +[\d.]+ [MG]iB", text, re.MULTILINE), part


def test_a_model_that_is_unloaded_gives_its_memory_back(tmp_path):
    repository = write_repository(
        tmp_path / "repository", 11, engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="True"
    )  # fmt: skip
    server = start_server(
        tmp_path, None, "--model-repository", repository, "--model-control-mode=explicit", "--load-model=*",
        max_kv_tokens=None,
    )  # fmt: skip

    def post(action):
        answer = requests.post(f"http://{server.http}/v2/repository/models/{action}", json={}, timeout=60)
        assert answer.ok, answer.text

    def states():
        index = requests.post(f"http://{server.http}/v2/repository/index", timeout=30).json()
        return {model["name"]: model.get("state") for model in index}

    def eventually(condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def unload():
        post("tensorrt_llm/unload")
        eventually(lambda: states()["tensorrt_llm"] == "UNAVAILABLE")

    try:
        kv_bytes = planned(server)["kv_bytes"]
        assert kv_bytes > 2**29
        empty = None
        for _ in range(3):
            assert generate(server).ok
            loaded = MemoryInfo.read().used
            assert empty is None or loaded > empty + 0.9 * kv_bytes
            unload()
            # What was loaded once, context and code, stays. The first time nothing says how much that is.
            most = loaded - 0.9 * kv_bytes if empty is None else empty + 2**26
            eventually(lambda: MemoryInfo.read().used < most)  # noqa: B023
            empty = empty or MemoryInfo.read().used
            post("ensemble/load")
    finally:
        code = server.stop()
    assert code == 0, server.log.read_text()[-3000:]


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

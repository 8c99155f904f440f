# SPDX-License-Identifier: Apache-2.0
"""Each group of APIs behind a header of its own: every call of both protocols belongs to one group, which its header opens."""

import os
import pathlib

import grpc
import pytest
import requests
from client_models import start_client_models
from live_server import start_error
from tritonclient.grpc import service_pb2 as pb

GROUPS = (
    "health", "metadata", "inference", "shared-memory", "model-config", "model-repository", "statistics", "trace", "logging",
    "profile",
)  # fmt: skip
INT32 = {"datatype": "INT32", "shape": [2], "data": [1, 2]}
INFER = {"inputs": [{"name": "INPUT0", **INT32}]}
TEXT = {"text_input": "a b", "stream": False}
REGION = {"key": "/none", "offset": 0, "byte_size": 8}
HANDLE = {"raw_handle": {"b64": "AA=="}, "device_id": 0, "byte_size": 8}
MODEL = "/v2/models/spare"

# group -> (method, path, body, status of a request that was let in)
HTTP = {
    "health": [
        ("GET", "/v2/health/live", None, 200), ("GET", "/v2/health/ready", None, 200), ("GET", f"{MODEL}/ready", None, 200),
    ],
    "metadata": [("GET", "/v2", None, 200), ("GET", MODEL, None, 200)],
    "inference": [
        ("POST", f"{MODEL}/infer", INFER, 200), ("POST", "/v2/models/words/generate", TEXT, 200),
        ("POST", "/v2/models/words/generate_stream", TEXT, 200),
    ],
    "shared-memory": [
        ("GET", "/v2/systemsharedmemory/status", None, 200), ("GET", "/v2/cudasharedmemory/status", None, 200),
        ("POST", "/v2/systemsharedmemory/region/r/register", REGION, 500),
        ("POST", "/v2/cudasharedmemory/region/r/register", HANDLE, 400),
        ("POST", "/v2/systemsharedmemory/unregister", None, 200), ("POST", "/v2/cudasharedmemory/unregister", None, 200),
    ],
    "model-config": [("GET", f"{MODEL}/config", None, 200)],
    "model-repository": [
        ("POST", "/v2/repository/index", None, 200), ("POST", "/v2/repository/models/simple/load", {}, 200),
        ("POST", "/v2/repository/models/simple/unload", {}, 200),
        # These models are no LLMs.
        ("POST", "/sleep", {}, 400), ("POST", "/wake_up", {}, 400), ("GET", "/is_sleeping", None, 400),
    ],
    "statistics": [("GET", "/v2/models/stats", None, 200), ("GET", f"{MODEL}/stats", None, 200)],
    "trace": [
        ("GET", "/v2/trace/setting", None, 200), ("POST", "/v2/trace/setting", {"trace_rate": "9"}, 200),
        ("GET", f"{MODEL}/trace/setting", None, 200), ("POST", f"{MODEL}/trace/setting", {"trace_rate": "9"}, 200),
    ],
    "logging": [("GET", "/v2/logging", None, 200), ("POST", "/v2/logging", {"log_verbose_level": 0}, 200)],
    "profile": [("POST", "/v2/debug/profile", {"duration_ms": 1}, 400)],  # these models have no step loop
}  # fmt: skip


def infer_request():
    request = pb.ModelInferRequest(model_name="spare")
    tensor = request.inputs.add(name="INPUT0", datatype="INT32", shape=[2])
    tensor.contents.int_contents.extend([1, 2])
    return request


INTERNAL, INVALID = grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT
# group -> (call, message, status of a call that was let in)
GRPC = {
    "health": [
        ("ServerLive", pb.ServerLiveRequest(), None), ("ServerReady", pb.ServerReadyRequest(), None),
        ("ModelReady", pb.ModelReadyRequest(name="spare"), None),
    ],
    "metadata": [
        ("ServerMetadata", pb.ServerMetadataRequest(), None), ("ModelMetadata", pb.ModelMetadataRequest(name="spare"), None),
    ],
    "inference": [("ModelInfer", infer_request(), None), ("ModelStreamInfer", infer_request(), None)],
    "shared-memory": [
        ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(), None),
        ("SystemSharedMemoryRegister", pb.SystemSharedMemoryRegisterRequest(name="r", key="/none", byte_size=8), INTERNAL),
        ("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(), None),
        ("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest(), None),
        ("CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=b"\0", byte_size=8), INVALID),
        ("CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest(), None),
    ],
    "model-config": [("ModelConfig", pb.ModelConfigRequest(name="spare"), None)],
    "model-repository": [
        ("RepositoryIndex", pb.RepositoryIndexRequest(), None),
        ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="simple"), None),
        ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="simple"), None),
    ],
    "statistics": [("ModelStatistics", pb.ModelStatisticsRequest(), None)],
    "trace": [("TraceSetting", pb.TraceSettingRequest(), None)],
    "logging": [("LogSettings", pb.LogSettingsRequest(), None)],
    "profile": [],
}  # fmt: skip
SERVICE = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]


@pytest.fixture(scope="module")
def restricted(tmp_path_factory):
    work_dir = tmp_path_factory.mktemp("restricted")
    rules = [f"{group}:key-{group}=Value of {group}" for group in GROUPS]
    server = start_client_models(
        work_dir, "--load-model=spare", "--load-model=words",
        *(f"--http-restricted-api={rule}" for rule in rules), *(f"--grpc-restricted-protocol={rule}" for rule in rules),
    )  # fmt: skip
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def closed_doors(group):
    """Headers that do not open the group: none, its own with another value, the right one of another group."""
    other = GROUPS[GROUPS.index(group) - 1]
    return [{}, {f"key-{group}": "value of " + group}, {f"key-{other}": f"Value of {other}"}]


@pytest.mark.parametrize("group", GROUPS)
def test_http(restricted, group):
    for method, path, body, status in HTTP[group]:
        url = f"http://{restricted.http}{path}"
        for headers in closed_doors(group):
            answer = requests.request(method, url, json=body, headers=headers, timeout=30)
            assert answer.status_code == 403, (path, headers, answer.text)
            assert answer.json() == {"error": f"This API is restricted, expecting header 'key-{group}'"}
        own = {f"Key-{group}".title(): f"Value of {group}"}  # names of headers have no case
        answer = requests.request(method, url, json=body, headers=own, timeout=30)
        assert answer.status_code == status, (path, answer.text)


def call(channel, name, message, headers):
    """The code of the RPC, None = it went well, and its text."""
    method = SERVICE.methods_by_name[name]
    path = f"/{SERVICE.full_name}/{name}"
    metadata = [(f"triton-grpc-protocol-{key}", value) for key, value in headers.items()]
    try:
        if name == "ModelStreamInfer":
            stream = channel.stream_stream(path, request_serializer=type(message).SerializeToString)
            list(stream(iter([message]), metadata=metadata, timeout=30))
        else:
            unary = channel.unary_unary(path, request_serializer=method.input_type._concrete_class.SerializeToString)
            unary(message, metadata=metadata, timeout=30)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return None, ""


@pytest.mark.parametrize("group", GROUPS)
def test_grpc(restricted, group):
    with grpc.insecure_channel(restricted.grpc) as channel:
        for name, message, code in GRPC[group]:
            for headers in closed_doors(group):
                expected = f"This protocol is restricted, expecting header 'triton-grpc-protocol-key-{group}'"
                assert call(channel, name, message, headers) == (grpc.StatusCode.UNAVAILABLE, expected), name
            assert call(channel, name, message, {f"key-{group}": f"Value of {group}"})[0] == code, name


def test_the_standard_health_check_is_of_the_health_group(restricted):
    with grpc.insecure_channel(restricted.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(grpc.RpcError, match="This protocol is restricted"):
            check(b"", timeout=30)
        assert check(b"", metadata=[("triton-grpc-protocol-key-health", "Value of health")], timeout=30) == b"\x08\x01"


def test_every_call_of_the_service_belongs_to_a_group():
    assert sorted(name for calls in GRPC.values() for name, _, _ in calls) == sorted(SERVICE.methods_by_name)
    assert set(HTTP) == set(GRPC) == set(GROUPS)


@pytest.fixture(scope="module")
def crossed(tmp_path_factory):
    """A rule of each option for an API of its own, and one of each for the same API."""
    work_dir = tmp_path_factory.mktemp("crossed")
    server = start_client_models(
        work_dir, "--load-model=spare",
        "--http-restricted-api=inference,metrics,logging:Http-Key=a", "--grpc-restricted-protocol=trace,logging:Grpc-Key=b",
    )  # fmt: skip
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


# group -> the header that opens it over HTTP, and over gRPC
CROSSED = {
    "inference": ({"Http-Key": "a"}, {"http-key": "a"}),
    "trace": ({"Grpc-Key": "b"}, {"grpc-key": "b"}),
    "logging": ({"Http-Key": "a"}, {"grpc-key": "b"}),
}


@pytest.mark.parametrize("group", CROSSED)
def test_a_rule_of_one_option_holds_over_both_protocols(crossed, group):
    """Where both options have a rule, each protocol has its own, as in Triton's command lines."""
    http, over_grpc = CROSSED[group]
    others = [{}, {"Http-Key": "b"}, {"Grpc-Key": "a"}, *(h for h, _ in CROSSED.values() if h != http)]
    for method, path, body, status in HTTP[group]:
        if "words" in path:
            continue  # a model that is not loaded here
        url = f"http://{crossed.http}{path}"
        for headers in others:
            assert requests.request(method, url, json=body, headers=headers, timeout=30).status_code == 403, (path, headers)
        assert requests.request(method, url, json=body, headers=http, timeout=30).status_code == status, path
    others = [{}, {"http-key": "b"}, {"grpc-key": "a"}, *(g for _, g in CROSSED.values() if g != over_grpc)]
    with grpc.insecure_channel(crossed.grpc) as channel:
        for name, message, code in GRPC[group]:
            for headers in others:
                refused, text = call(channel, name, message, headers)
                assert refused == grpc.StatusCode.UNAVAILABLE and next(iter(over_grpc)) in text, (name, headers)
            assert call(channel, name, message, over_grpc)[0] == code, name


def test_the_metrics_page_is_an_api_too(crossed):
    url = f"http://{crossed.metrics}/metrics"
    refused = requests.get(url, timeout=30)
    assert refused.status_code == 403 and refused.json() == {"error": "This API is restricted, expecting header 'Http-Key'"}
    assert "nv_inference" in requests.get(url, headers={"Http-Key": "a"}, timeout=30).text
    assert requests.get(f"http://{crossed.http}/v2/models/stats", timeout=30).ok  # statistics are another


def test_wrong_rules_do_not_start(tmp_path):
    (tmp_path / "models").mkdir()
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    for option in ("--http-restricted-api", "--grpc-restricted-protocol"):
        command = [program, "serve", "--model-repository", tmp_path / "models"]
        assert f"{option}: got 'all:a=b', unknown restricted " in start_error([*command, f"{option}=all:a=b"])

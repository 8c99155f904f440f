# SPDX-License-Identifier: Apache-2.0
"""Every call of the published clients, each of the four where it has the call, with success."""

import base64
import mmap
import queue

import numpy as np
import pytest
from client_models import LABELS, write_client_models
from conformance_models import add_model, io
from four_clients import MODULES, Caller, calls_of
from live_server import DEVICE, start_server
from llm_client import wait_until
from tritonclient.grpc.auth import BasicAuth  # that of HTTP is the same class
from tritonclient.utils import InferenceServerException, shared_memory

PATIENCE_S = 30
PAGE_BYTES = mmap.PAGESIZE  # of which offsets of regions are multiples
A = np.arange(16, dtype=np.int32).reshape(1, 16)
B = np.full((1, 16), 3, np.int32)
CHECKS = []  # (check, the calls that it makes)


def drives(*calls):
    def register(check):
        CHECKS.append((check, calls))
        return check

    return register


@pytest.fixture(scope="module")
def models_server(tmp_path_factory):
    work_dir = tmp_path_factory.mktemp("clients")
    repository = work_dir / "models"
    write_client_models(repository)
    text = io("input", "INPUT0", "[ 1 ]", "TYPE_STRING") + io("output", "OUTPUT0", "[ 1 ]", "TYPE_STRING")
    add_model(repository, "params", "params", text)
    server = start_server(
        work_dir, None, "--model-repository", repository, "--model-control-mode=explicit", "--load-model=*",
        "--allow-client-shm=true",
        f"--trace-config=triton,file={work_dir / 'trace.json'}",
        "--http-header-forward-pattern=authorization", "--grpc-header-forward-pattern=authorization",
    )  # fmt: skip
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def add_sub_inputs(c):
    return [c.input("INPUT0", A, "INT32"), c.input("INPUT1", B, "INT32")]


def check_sums(result):
    assert (result.as_numpy("OUTPUT0") == A + B).all()
    assert (result.as_numpy("OUTPUT1") == A - B).all()


# --- health, metadata, statistics ---


@drives("is_server_live", "is_server_ready", "is_model_ready")
def health(c):
    assert c.is_server_live() is True
    assert c.is_server_ready() is True
    assert c.is_model_ready("simple") is True
    assert c.is_model_ready("simple", "1") is True


@drives("get_server_metadata", "get_model_metadata", "get_model_config")
def metadata(c):
    server = c.json("get_server_metadata")
    assert server["name"] == "triton" and server["version"]
    assert {"model_repository", "statistics", "system_shared_memory"} <= set(server["extensions"])
    model = c.json("get_model_metadata", "simple", "1")
    assert model["name"] == "simple" and model["versions"] == ["1"]
    assert [t["name"] for t in model["inputs"]] == ["INPUT0", "INPUT1"]
    assert {(t["datatype"], *map(int, t["shape"])) for t in model["inputs"]} == {("INT32", -1, 16)}
    config = c.json("get_model_config", "simple")
    config = config["config"] if c.is_grpc else config
    assert (config["name"], config["backend"], config["max_batch_size"]) == ("simple", "conformance", 8)


@drives("get_inference_statistics")
def statistics(c):
    def count():
        stats = c.json("get_inference_statistics", "simple", "1")["model_stats"]
        assert len(stats) == 1
        return int(stats[0]["inference_stats"]["success"].get("count", 0))

    before = count()
    c.infer("simple", add_sub_inputs(c))
    assert count() == before + 1
    assert len(c.json("get_inference_statistics")["model_stats"]) > 1


# --- control ---


@drives("get_model_repository_index", "load_model", "unload_model")
def model_control(c):
    def state(name):
        index = c.json("get_model_repository_index")
        return next(m.get("state") for m in (index["models"] if c.is_grpc else index) if m["name"] == name)

    c.unload_model("spare")
    wait_until(lambda: state("spare") == "UNAVAILABLE")  # until then it may say UNLOADING
    assert state("simple") == "READY"
    c.load_model("spare")
    assert state("spare") == "READY"
    # Another configuration, and files beside it.
    other = '{"backend": "conformance", "max_batch_size": 4, "parameters": {"kind": {"string_value": "identity"}},' \
        '"input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [2]}],' \
        '"output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [2]}]}'  # fmt: skip
    c.load_model("spare", config=other, files={"file:1/weights": b"none"})
    config = c.json("get_model_config", "spare")
    assert (config["config"] if c.is_grpc else config)["max_batch_size"] == 4
    c.unload_model("spare", unload_dependents=True)
    c.load_model("spare")
    assert c.is_model_ready("spare")


@drives("get_trace_settings", "update_trace_settings")
def trace_settings(c):
    def values(settings):
        if c.is_grpc:
            settings = {key: value["value"] for key, value in settings["settings"].items()}
        return {key: v[0] if isinstance(v, list) and len(v) == 1 else v for key, v in settings.items()}

    updated = c.json("update_trace_settings", "simple", {"trace_level": ["TIMESTAMPS"], "trace_rate": "7", "trace_count": "2"})
    assert (values(updated)["trace_rate"], values(updated)["trace_count"]) == ("7", "2")
    assert values(c.json("get_trace_settings", "simple"))["trace_rate"] == "7"
    of_all = values(c.json("get_trace_settings"))
    assert of_all["trace_rate"] == "1000"
    cleared = c.json("update_trace_settings", "simple", {"trace_level": None, "trace_rate": None, "trace_count": None})
    assert values(cleared)["trace_rate"] == "1000"


@drives("get_log_settings", "update_log_settings")
def log_settings(c):
    def verbose(settings):
        return int(settings["settings"]["log_verbose_level"]["uint32_param"] if c.is_grpc else settings["log_verbose_level"])

    assert verbose(c.json("update_log_settings", {"log_verbose_level": 1})) == 1
    assert verbose(c.json("get_log_settings")) == 1
    assert verbose(c.json("update_log_settings", {"log_verbose_level": 0})) == 0


# --- shared memory ---


def regions_known(c, kind, *names):
    status = c.json(f"get_{kind}_shared_memory_status", *names)
    return status.get("regions", {}) if c.is_grpc else {region["name"]: region for region in status}


@drives("get_system_shared_memory_status", "register_system_shared_memory", "unregister_system_shared_memory")
def system_shared_memory(c, regions):
    c.unregister_system_shared_memory()
    (in_name, in_region), (out_name, out_region) = regions(2 * A.nbytes), regions(2 * PAGE_BYTES)
    shared_memory.set_shared_memory_region(in_region, [A, B])
    c.register_system_shared_memory(in_name, in_name, 2 * A.nbytes)
    c.register_system_shared_memory(out_name, out_name, A.nbytes, offset=PAGE_BYTES)
    assert set(regions_known(c, "system")) == {in_name, out_name}
    region = regions_known(c, "system", out_name)[out_name]
    assert (region["key"], int(region["offset"]), int(region["byte_size"])) == (out_name, PAGE_BYTES, A.nbytes)

    inputs = [c.module.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    inputs[0].set_shared_memory(in_name, A.nbytes)
    inputs[1].set_shared_memory(in_name, A.nbytes, offset=A.nbytes)
    output = c.output("OUTPUT1")
    output.set_shared_memory(out_name, A.nbytes)
    result = c.infer("simple", inputs, outputs=[c.output("OUTPUT0"), output])
    assert (result.as_numpy("OUTPUT0") == A + B).all()  # comes with the answer
    answered = result.get_output("OUTPUT1")
    assert list(answered.shape if c.is_grpc else answered["shape"]) == [1, 16]
    assert (shared_memory.get_contents_as_numpy(out_region, np.int32, [1, 16], offset=PAGE_BYTES) == A - B).all()

    c.unregister_system_shared_memory(in_name)
    assert set(regions_known(c, "system")) == {out_name}
    with pytest.raises(InferenceServerException, match="Unable to find"):
        c.infer("simple", inputs)
    c.unregister_system_shared_memory()
    assert not regions_known(c, "system")


@drives("get_cuda_shared_memory_status", "register_cuda_shared_memory", "unregister_cuda_shared_memory")
def cuda_shared_memory(c):
    assert not regions_known(c, "cuda")
    refusal = {"cpu": "regions of GPUs are not supported", "cuda": "failed to open CUDA IPC handle"}[DEVICE]
    with pytest.raises(InferenceServerException, match=f"failed to register shared memory region 'handle': {refusal}"):
        c.register_cuda_shared_memory("handle", base64.b64encode(bytes(64)), 0, 64)
    c.unregister_cuda_shared_memory("handle")  # unknown ones are none to be unregistered
    c.unregister_cuda_shared_memory()
    assert not regions_known(c, "cuda")


# --- inference ---


@drives("infer")
def infer(c):
    result = c.infer("simple", add_sub_inputs(c), request_id="some id")
    check_sums(result)
    response = result.get_response(as_json=True) if c.is_grpc else result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("some id", "simple", "1")
    one = c.infer("simple", add_sub_inputs(c), model_version="1", outputs=[c.output("OUTPUT1")])
    assert (one.as_numpy("OUTPUT1") == A - B).all() and one.as_numpy("OUTPUT0") is None


@drives("infer")
def compressed(c):
    for algorithm in ("gzip", "deflate"):
        names = ("compression_algorithm",) if c.is_grpc else ("request_compression_algorithm", "response_compression_algorithm")
        check_sums(c.infer("simple", add_sub_inputs(c), **dict.fromkeys(names, algorithm)))


@drives("infer")
def classes(c):
    scores = c.input("INPUT0", np.array([[0.5, 4.0, -1.0, 2.0]], np.float32), "FP32")
    answer = c.infer("labeled", [scores], outputs=[c.output("OUTPUT0", class_count=2)]).as_numpy("OUTPUT0")
    labels = LABELS.decode().split()
    assert [text.decode() for text in answer.reshape(-1)] == [f"4.000000:1:{labels[1]}", f"2.000000:3:{labels[3]}"]


@drives("infer")
def request_parameters(c):
    text = c.input("INPUT0", np.array([b"x"], dtype=object), "BYTES")
    parameters = {"a word": "yes", "a number": 7, "a switch": True}
    echo = c.infer("params", [text], parameters=parameters).as_numpy("OUTPUT0")[0].decode()
    for expected in ("a word=string:yes;", "a number=int:7;", "a switch=bool:true;"):
        assert expected in echo


@drives("register_plugin", "plugin", "unregister_plugin")
def plugin(c):
    """Basic authentication: the header goes with each request."""
    text = c.input("INPUT0", np.array([b"x"], dtype=object), "BYTES")
    basic = BasicAuth("somebody", "secret")
    c.register_plugin(basic)
    assert c.client.plugin() is basic
    echo = c.infer("params", [text]).as_numpy("OUTPUT0")[0].decode()
    assert f"authorization=string:Basic {base64.b64encode(b'somebody:secret').decode()};" in echo
    c.unregister_plugin()
    assert "authorization" not in c.infer("params", [text]).as_numpy("OUTPUT0")[0].decode()


@drives("async_infer")
def async_infer(c):
    if not c.is_grpc:
        for future in [c.async_infer("simple", add_sub_inputs(c)) for _ in range(3)]:
            check_sums(future.get_result(block=True, timeout=PATIENCE_S))
        return
    answers = queue.Queue()
    for _ in range(3):
        c.async_infer("simple", add_sub_inputs(c), lambda result, error: answers.put((result, error)))
    for _ in range(3):
        result, error = answers.get(timeout=PATIENCE_S)
        assert error is None, error
        check_sums(result)


def repeat_inputs(c, values, delay_ms=0):
    return [
        c.input("IN", np.array(values, np.int32), "INT32"),
        c.input("DELAY", np.full(len(values), delay_ms, np.uint32), "UINT32"),
        c.input("WAIT", np.zeros(1, np.uint32), "UINT32"),
    ]


@drives("start_stream", "async_stream_infer", "stop_stream")
def stream(c):
    elements = queue.Queue()
    c.start_stream(lambda result, error: elements.put((result, error)))
    c.async_stream_infer("repeat_int32", repeat_inputs(c, [4, 2, 9]), request_id="r")
    for expected in (4, 2, 9):
        result, error = elements.get(timeout=PATIENCE_S)
        assert error is None, error
        assert result.as_numpy("OUT").tolist() == [expected] and result.get_response().id == "r"
    c.stop_stream()
    # A second stream, left while its answers come.
    c.start_stream(lambda result, error: elements.put((result, error)))
    c.async_stream_infer("repeat_int32", repeat_inputs(c, range(50), delay_ms=20))
    assert elements.get(timeout=PATIENCE_S)[1] is None
    c.stop_stream(cancel_requests=True)
    error = None
    while error is None:
        _, error = elements.get(timeout=PATIENCE_S)
    assert error.status() == "StatusCode.CANCELLED"


@drives("stream_infer")
def stream_of_requests(c):
    async def requests():
        for values in ([1, 2], [3]):
            yield {"model_name": "repeat_int32", "inputs": repeat_inputs(c, values), "request_id": str(values)}

    async def run():
        answers = []
        async for result, error in c.client.stream_infer(requests()):
            assert error is None, error
            answers.append((result.get_response().id, result.as_numpy("OUT").item()))
        return answers

    assert sorted(c.finish(run())) == [("[1, 2]", 1), ("[1, 2]", 2), ("[3]", 3)]


# Not calls to the server: bodies made and read apart from sending them.
@drives("generate_request_body", "parse_response_body")
def bodies(c):
    tensors = add_sub_inputs(c)
    body, header_length = c.module.InferenceServerClient.generate_request_body(tensors)
    assert header_length < len(body) and A.tobytes() in body
    header = b'{"outputs":[{"name":"OUTPUT0","datatype":"INT32","shape":[1,2],"parameters":{"binary_data_size":8}}]}'
    result = c.module.InferenceServerClient.parse_response_body(header + A.tobytes()[:8], header_length=len(header))
    assert result.as_numpy("OUTPUT0").tolist() == [[0, 1]]


def cases():
    for kind in MODULES:
        for check, calls in CHECKS:
            if calls_of(kind) >= set(calls):
                yield pytest.param(kind, check, id=f"{kind}-{check.__name__}")


@pytest.mark.parametrize(("kind", "check"), list(cases()))
def test_calls(models_server, regions, kind, check):
    with Caller(kind, models_server) as c:
        check(c, *([regions] if check is system_shared_memory else []))


@pytest.mark.parametrize("kind", list(MODULES))
def test_no_call_is_left_out(kind):
    driven = {call for _, calls in CHECKS for call in calls}
    assert calls_of(kind) - driven == {"close"}  # which ends each of the tests


# --- what is of gRPC alone ---


def slow_inputs(c, delay_ms):
    return [c.input(name, np.array([n], np.int32), "INT32") for name, n in (("INPUT0", 5), ("DELAY", delay_ms))]


def test_a_cancelled_future_ends_its_request(models_server):
    with Caller("grpc", models_server) as c:
        answers = queue.Queue()
        call = c.async_infer("slow", slow_inputs(c, 500), lambda result, error: answers.put((result, error)))
        call.cancel()
        result, error = answers.get(timeout=PATIENCE_S)
        assert result is None and error.status() == "StatusCode.CANCELLED"
        assert c.infer("slow", slow_inputs(c, 0)).as_numpy("OUTPUT0").tolist() == [5]


def test_a_cancelled_stream_iterator_ends_its_requests(models_server):
    with Caller("grpc-aio", models_server) as c:

        async def requests():
            yield {"model_name": "repeat_int32", "inputs": repeat_inputs(c, range(200), delay_ms=20)}

        async def run():
            answers = c.client.stream_infer(requests())
            async for _, error in answers:
                assert error is None, error
                return answers.cancel()

        assert c.finish(run()) is True
        assert c.is_server_ready()


def test_a_client_with_a_deadline(models_server):
    with Caller("grpc", models_server) as c, pytest.raises(InferenceServerException) as error:
        c.infer("slow", slow_inputs(c, 500), client_timeout=0.05)
    assert error.value.status() == "StatusCode.DEADLINE_EXCEEDED"


@pytest.mark.parametrize("kind", ["grpc", "grpc-aio"])
def test_a_client_that_keeps_its_connection_alive(models_server, kind):
    options = MODULES["grpc"].KeepAliveOptions(
        keepalive_time_ms=10_000, keepalive_timeout_ms=5_000, keepalive_permit_without_calls=True, http2_max_pings_without_data=0
    )
    with Caller(kind, models_server, keepalive_options=options) as c:
        check_sums(c.infer("simple", add_sub_inputs(c)))

# SPDX-License-Identifier: Apache-2.0
"""`inflight shadow` over gRPC (docs/shadow.md, "Over gRPC") with two servers of gRPC's own library, one changed on purpose."""

import base64
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))
from conformance_models import add_identity
from live_server import start_server

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"


def response(name, datatype, shape, raw):
    made = service_pb2.ModelInferResponse(model_name="m", raw_output_contents=[raw])
    made.outputs.add(name=name, datatype=datatype, shape=shape)
    return made


def text(value):
    return response("text_output", "BYTES", [1], len(value).to_bytes(4, "little") + value.encode())


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers by the model's name."""

    def __init__(self, numbers, words, end=""):
        self.numbers, self.words, self.end = numbers, words, end
        self.seen = []

    def ModelInfer(self, request, context):
        keys = [value for key, value in context.invocation_metadata() if key == "x-key"]
        self.seen.append((request.model_name, request.id, keys))
        if request.model_name == "missing":
            context.abort(grpc.StatusCode.NOT_FOUND, f"no such model{self.end}")
        return response("OUT", "FP32", [2], np.array(self.numbers, np.float32).tobytes())

    def ModelStreamInfer(self, requests, context):
        for request in requests:
            self.seen.append((request.model_name, request.id, []))
            if request.model_name == "missing":
                yield service_pb2.ModelStreamInferResponse(error_message=f"no such model{self.end}")
                continue
            for word in self.words:
                yield service_pb2.ModelStreamInferResponse(infer_response=text(word))


@contextlib.contextmanager
def serving(service):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def shadow(old, new, calls, *options):
    command = [str(word) for word in (INFLIGHT, "shadow", "--old", old, "--new", new, "--requests", "-", *options)]
    lines = "".join(json.dumps(call) + "\n" for call in calls)
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60, check=False)


def call(model, rpc="ModelInfer", **more):
    return {"rpc": rpc, "message": {"model_name": model, "id": "1"}, **more}


STREAM = {"rpc": "ModelStreamInfer", "messages": [{"model_name": "m", "id": "1"}, {"model_name": "m", "id": "2"}]}


def test_differences_are_told_by_their_kind(tmp_path):
    old, new = Service([1, 2], ["a", " b"]), Service([1, 3], ["a c"], ", try another")
    calls = [call("m", metadata={"x-key": "k"}), STREAM, call("missing"), call("missing", "ModelStreamInfer")]
    with serving(old) as old_url, serving(new) as new_url:
        done = shadow(old_url, new_url, calls, "--report", tmp_path / "report")
    assert done.returncode == 1
    service = "gRPC /inference.GRPCInferenceService"
    assert done.stdout.splitlines()[:-2] == [
        f"1 {service}/ModelInfer: tensors outputs.OUT.data[1]: old 2.0 new 3.0",
        f'2 {service}/ModelStreamInfer: text text[2]: old "a ba b" new "a ca c"',
        f"2 {service}/ModelStreamInfer: finish events: old 4 new 2",
        f'3 {service}/ModelInfer: body error[13]: old "no such model" new "no such model, try another"',
        f'4 {service}/ModelStreamInfer: finish last.error[13]: old "no such model" new "no such model, try another"',
        "4 requests: 0 equal, 4 different (tensors 1, text 1, finish 2, body 1), 0 without an answer",
    ]
    assert re.fullmatch(r"old: to the first byte \d+\.\d ms .*; whole \d+\.\d ms .*", done.stdout.splitlines()[-2])
    report = [json.loads(line) for line in (tmp_path / "report").read_text().splitlines()]
    assert [line["old"]["status"] for line in report] == [0, 0, 5, 0]
    assert old.seen == new.seen == [("m", "1", ["k"]), ("m", "1", []), ("m", "2", []), ("missing", "1", []), ("missing", "1", [])]


def test_equal_servers_are_equal_however_a_stream_is_cut():
    """Numbers differ within the tolerance; the events are as many."""
    with serving(Service([1, 2], ["a", " b"])) as old, serving(Service([1, 2.00001], ["a b", ""])) as new:
        done = shadow(old, new, [call("m"), STREAM] * 20, "--concurrency", "4")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("40 requests: 40 equal, 0 different")


def test_a_server_that_is_not_there_gives_no_answer():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(Service([1, 2], [])) as old:
        done = shadow(old, f"grpc://127.0.0.1:{port}", [call("m")])
    assert done.returncode == 1
    assert "new: no answer: cannot connect to 127.0.0.1" in done.stdout
    assert "1 requests: 0 equal, 0 different, 1 without an answer" in done.stdout


def test_our_server_equals_itself_in_bytes_of_any_call(tmp_path):
    add_identity(tmp_path / "models", "identity")
    server = start_server(tmp_path, None, "--model-repository", tmp_path / "models", max_kv_tokens=None)
    request = service_pb2.ModelInferRequest(model_name="identity", raw_input_contents=[(4).to_bytes(4, "little") + b"text"])
    request.inputs.add(name="INPUT0", datatype="BYTES", shape=[1])
    raw = base64.b64encode(request.SerializeToString()).decode()
    calls = [
        {"rpc": "ModelInfer", "messages_base64": [raw]}, {"rpc": "ServerReady", "message": {}},
        {"rpc": "ModelConfig", "message": {"name": "identity"}}, {"rpc": "ModelMetadata", "message": {"name": "nobody"}},
    ]  # fmt: skip
    done = shadow(f"grpc://{server.grpc}", f"grpc://{server.grpc}", calls)
    assert server.stop() == 0
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("4 requests: 4 equal")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--old", "grpc://h:1", "--new", "http://h:1", "--requests", "-"], "both are of one protocol"),
        (["--old", "grpc://h:1", "--new", "grpc://h:2", "--port", "0"], "--port listens to clients over HTTP"),
        (["--old", "grpc://h", "--new", "grpc://h:2", "--requests", "-"], "--old: got 'grpc://h', such as grpc://localhost:8001"),
        (["--old", "grpc://h:1", "--new", "grpc://h:2", "--requests", "-"], "--requests: line 1: rpc: the name of a call"),
    ],
)
def test_wrong_calls_are_refused(flags, text):
    done = subprocess.run([INFLIGHT, "shadow", *flags], input="{}\n", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and text in done.stderr

# SPDX-License-Identifier: Apache-2.0
"""`inflight shadow` over gRPC (docs/shadow.md, "Over gRPC") with two servers of gRPC's own library, one changed on purpose."""

import base64
import concurrent.futures
import contextlib
import json
import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import sys
import threading

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))
from certificates import make_certificates
from conformance_models import add_identity
from live_server import start_server
from llm_client import wait_until

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
def serving(service, pair=None):
    """With a certificate and its key: over TLS."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    if pair:
        keys = grpc.ssl_server_credentials([(pair.key.read_bytes(), pair.certificate.read_bytes())])
    port = server.add_secure_port("127.0.0.1:0", keys) if pair else server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"{'grpcs' if pair else 'grpc'}://127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def shadow(old, new, calls, *options, env=None):
    command = [str(word) for word in (INFLIGHT, "shadow", "--old", old, "--new", new, "--requests", "-", *options)]
    lines = "".join(json.dumps(call) + "\n" for call in calls)
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60, check=False, env=env)


class Live:
    """`inflight shadow --grpc-port`: where it listens, and what it has printed once it was told to end."""

    def __init__(self, old, new, *options, env=None):
        command = [str(word) for word in (INFLIGHT, "shadow", "--old", old, "--new", new, "--grpc-port=0", *options)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        self.address = re.fullmatch(r"listening at (.+:\d+)\n", self.process.stdout.readline()).group(1)

    def end_after(self, num_lines):
        """Once so many differences were told."""
        told = [self.process.stdout.readline() for _ in range(num_lines)]
        self.process.send_signal(signal.SIGTERM)
        return "".join(told) + self.process.stdout.read(), self.process.wait(60)


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


def infer_request(model, request_id="1"):
    return service_pb2.ModelInferRequest(model_name=model, id=request_id)


def test_clients_get_the_old_server_s_answers_and_are_recorded(tmp_path):
    """Unary calls, one of them compressed, an error, and a stream on which an answer is waited for before the next request."""
    old, new = Service([1, 2], ["a", " b"]), Service([1, 3], ["a c"], ", try another")
    with serving(old) as old_url, serving(new) as new_url:
        live = Live(old_url, new_url, "--record", tmp_path / "record")
        with grpc.insecure_channel(live.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for compression in (None, grpc.Compression.Gzip, grpc.Compression.Deflate):
                answer = stub.ModelInfer(infer_request("m"), metadata=[("x-key", "k")], compression=compression, timeout=30)
                assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [1, 2]
            with pytest.raises(grpc.RpcError) as caught:
                stub.ModelInfer(infer_request("missing"), timeout=30)
            assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.NOT_FOUND, "no such model")
            asked = queue.Queue()
            asked.put(infer_request("m", "1"))
            words = []
            for response in stub.ModelStreamInfer(iter(asked.get, None), timeout=30):
                words.append(response.infer_response.raw_output_contents[0][4:].decode())
                if len(words) == 2:
                    asked.put(infer_request("m", "2"))
                if len(words) == 4:
                    asked.put(None)
            assert words == ["a", " b", "a", " b"]
        out, status = live.end_after(num_lines=6)
        assert status == 1
        service = "gRPC /inference.GRPCInferenceService"
        assert out.count(f"{service}/ModelInfer: tensors outputs.OUT.data[1]: old 2.0 new 3.0") == 3
        assert f'{service}/ModelInfer: body error[13]: old "no such model" new "no such model, try another"' in out
        assert f'{service}/ModelStreamInfer: text text[2]: old "a ba b" new "a ca c"' in out
        assert "5 requests: 0 equal, 5 different (tensors 3, text 1, finish 1, body 1), 0 without an answer" in out
        # The new server is asked beside the clients, so that calls may meet there.
        assert sorted(old.seen) == sorted(new.seen) and old.seen[0] == ("m", "1", ["k"])
        recorded = (tmp_path / "record").read_text()
        assert [len(json.loads(line)["messages_base64"]) for line in recorded.splitlines()] == [1, 1, 1, 1, 2]
        again = shadow(old_url, old_url, [json.loads(line) for line in recorded.splitlines()])
    assert again.returncode == 0 and again.stdout.startswith("5 requests: 5 equal")


def test_tritonclient_through_a_proxy_over_tls(tmp_path):
    """To a server of ours over TLS, and to itself; a client that shows no certificate that the authority signed is refused."""
    certificates = make_certificates(tmp_path)
    add_identity(tmp_path / "models", "identity")
    of_server = ["--grpc-use-ssl=true", "--grpc-server-cert", certificates.server.certificate, "--grpc-server-key",
                 certificates.server.key]  # fmt: skip
    server = start_server(tmp_path, None, "--model-repository", tmp_path / "models", *of_server, max_kv_tokens=None)
    url = f"grpcs://{server.grpc}"
    live = Live(
        url, url, *of_server, "--grpc-use-ssl-mutual=true", "--grpc-root-cert", certificates.root.certificate,
        env={**os.environ, "SSL_CERT_FILE": str(certificates.root.certificate)},
    )  # fmt: skip

    def client(pair):
        return triton.InferenceServerClient(
            live.address, ssl=True, root_certificates=str(certificates.root.certificate), private_key=str(pair.key),
            certificate_chain=str(pair.certificate),
        )  # fmt: skip

    tensor = triton.InferInput("INPUT0", [2], "INT32")
    tensor.set_data_from_numpy(np.array([5, 6], np.int32))
    with client(certificates.client) as trusted:
        assert trusted.is_model_ready("identity")
        assert trusted.infer("identity", [tensor]).as_numpy("OUTPUT0").tolist() == [5, 6]
        answers = queue.Queue()
        trusted.start_stream(lambda result, error: answers.put(error or result))
        for _ in range(3):
            trusted.async_stream_infer("identity", [tensor])
            assert answers.get(timeout=30).as_numpy("OUTPUT0").tolist() == [5, 6]
        trusted.stop_stream()
    with client(certificates.stranger) as stranger, pytest.raises(triton.InferenceServerException):
        stranger.is_model_ready("identity", client_timeout=5)
    out, status = live.end_after(num_lines=0)
    assert server.stop() == 0
    assert status == 0 and out.startswith("3 requests: 3 equal"), out


def test_a_server_whose_certificate_nobody_signed_is_not_asked(tmp_path):
    certificates = make_certificates(tmp_path)
    with serving(Service([1, 2], []), certificates.server) as old:
        for root, status in ((certificates.root, 0), (certificates.other_root, 1)):
            done = shadow(old, old, [call("m")], env={**os.environ, "SSL_CERT_FILE": str(root.certificate)})
            assert done.returncode == status, done.stdout
            assert ("TLS: unable to get local issuer certificate" in done.stdout) == (status == 1)
        wrong_name = old.replace("127.0.0.1", "127.1")  # the same address, which the certificate does not have as a name
        done = shadow(wrong_name, old, [call("m")], env={**os.environ, "SSL_CERT_FILE": str(certificates.root.certificate)})
    assert "old: no answer: cannot connect to 127.1, TLS: hostname mismatch" in done.stdout.replace("Hostname", "hostname")


def test_a_client_that_cancels_ends_its_call_at_both_and_is_not_compared(tmp_path):
    class Waiting(Service):
        def ModelInfer(self, request, context):
            ended = threading.Event()
            context.add_callback(ended.set)
            self.seen.append(ended.wait(30))
            return response("OUT", "FP32", [2], np.array(self.numbers, np.float32).tobytes())

    old, new = Waiting([1, 2], []), Waiting([1, 3], [])
    with serving(old) as old_url, serving(new) as new_url:
        live = Live(old_url, new_url)
        with grpc.insecure_channel(live.address) as channel, pytest.raises(grpc.RpcError) as caught:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(infer_request("m"), timeout=0.3)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(lambda: old.seen == new.seen == [True])
        out, status = live.end_after(num_lines=0)
    assert status == 0 and out.startswith("0 requests"), out


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
        (["--old", "grpc://h:1", "--new", "grpc://h:2", "--grpc-port", "0", "--grpc-use-ssl=true"], "--grpc-server-cert"),
        (["--old", "grpc://h", "--new", "grpc://h:2", "--requests", "-"], "--old: got 'grpc://h', such as grpc://localhost:8001"),
        (["--old", "grpc://h:1", "--new", "grpc://h:2", "--requests", "-"], "--requests: line 1: rpc: the name of a call"),
    ],
)
def test_wrong_calls_are_refused(flags, text):
    done = subprocess.run([INFLIGHT, "shadow", *flags], input="{}\n", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and text in done.stderr

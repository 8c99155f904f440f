# SPDX-License-Identifier: Apache-2.0
"""Does what the steps of a recorded case say, and returns what was observed in the recording's shape."""

import base64
import concurrent.futures
import contextlib
import gzip
import json
import pathlib
import re
import socket
import threading
import time
import zlib

import grpc
from google.protobuf import json_format
from tritonclient.grpc import service_pb2, service_pb2_grpc

# Where the recorded release said "not ready" with one status, the newer ones tell apart why.
NEWER_THAN_400 = {404, 503}


class Peer:
    """A server under test: its addresses, and a channel that is opened when the first case needs it."""

    def __init__(self, http, grpc_address, metrics):
        self.http, self.grpc, self.metrics = http, grpc_address, metrics
        self._channel = None

    @property
    def channel(self):
        if self._channel is None:
            unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
            self._channel = grpc.insecure_channel(self.grpc, options=unlimited)
        return self._channel

    @property
    def stub(self):
        return service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def close(self):
        if self._channel is not None:
            self._channel.close()


# --- HTTP ---


def request_body(step):
    if "body_b64" in step:
        return base64.b64decode(step["body_b64"])
    if "body_json" in step:
        return json.dumps(step["body_json"], separators=(",", ":")).encode()
    if "body_repeat" in step:
        return "".join(text * count for text, count in step["body_repeat"]).encode()
    return step.get("body", "").encode()


def encode_request(step, host):
    body = request_body(step)
    if step.get("compress") == "gzip":
        body = gzip.compress(body)
    if step.get("compress") == "deflate":
        body = zlib.compress(body)
    headers = [tuple(h) for h in step.get("headers", [])]
    names = {name.lower() for name, _ in headers}
    if "host" not in names and not step.get("no_host"):
        headers.insert(0, ("Host", host))
    if "chunks" in step:
        headers.append(("Transfer-Encoding", "chunked"))
        chunks = [c.encode() for c in step["chunks"]]
        body = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
    elif "content-length" not in names and (body or step["method"] in ("POST", "PUT")):
        headers.append(("Content-Length", str(len(body))))
    line = f"{step['method']} {step['path']} {step.get('version', 'HTTP/1.1')}\r\n"
    return line.encode() + b"".join(f"{name}: {value}\r\n".encode() for name, value in headers) + b"\r\n" + body


def read_chunks(stream):
    body, count = b"", 0
    while True:
        size = int(stream.readline().split(b";")[0], 16)
        data = stream.read(size)
        stream.readline()
        if size == 0:
            return body, count
        body, count = body + data, count + 1


def as_text(body):
    """The body as text, or None where it is binary."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if any(ord(c) < 32 and c not in "\r\n\t" for c in text) else text


def read_response(stream, method):
    line = stream.readline()
    if not line:
        return {"closed": True}
    match = re.match(rb"HTTP/1\.[01] (\d+) ?(.*?)\r?\n", line)
    if not match:
        return {"garbage": line.decode("latin1")}
    headers = []
    while header := stream.readline().strip():
        name, _, value = header.decode("latin1").partition(":")
        headers.append([name, value.strip()])
    low = {name.lower(): value for name, value in headers}
    seen = {"status": int(match[1]), "reason": match[2].decode("latin1"), "headers": headers}
    if seen["status"] == 100:
        return read_response(stream, method)
    body = b""
    if low.get("transfer-encoding", "").lower() == "chunked":
        body, seen["chunks"] = read_chunks(stream)
    elif method != "HEAD" and "content-length" in low:
        body = stream.read(int(low["content-length"]))
    elif method != "HEAD" and low.get("connection", "").lower() == "close":
        body = stream.read()
    try:
        if low.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if low.get("content-encoding") == "deflate":
            body = zlib.decompress(body)
    except (OSError, zlib.error) as error:
        seen["undecodable"] = str(error)
    if body:
        text = as_text(body)
        if text is None:
            seen["body_b64"] = base64.b64encode(body).decode()
        else:
            seen["body"] = text
    return seen


def http_call(step, address, timeout_s=20):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host.strip("[]"), int(port)), timeout=step.get("timeout_s", timeout_s)) as connection:
        stream = connection.makefile("rb")
        data = step["raw"].encode("latin1") if "raw" in step else encode_request(step, address)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused early: the answer may be there
            connection.sendall(data)
        if step.get("disconnect_after_ms") is not None:
            time.sleep(step["disconnect_after_ms"] / 1000)
            return {"disconnected": True}
        try:
            return read_response(stream, step.get("method", "GET"))
        except TimeoutError:
            return {"no_answer": True}
        except ConnectionResetError:
            return {"closed": True}


# --- gRPC ---


def as_dict(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def status_of(error):
    is_late = error.code() == grpc.StatusCode.DEADLINE_EXCEEDED  # the client's own words, which vary
    return {"code": error.code().name, "message": "Deadline Exceeded" if is_late else error.details()}


def grpc_call(step, peer):
    options = {"timeout": step.get("timeout_s", 20), "metadata": [tuple(m) for m in step.get("metadata", [])]}
    if step.get("compression"):
        options["compression"] = getattr(grpc.Compression, step["compression"])
    try:
        if step["rpc"].startswith("/"):  # a method's full path with raw bytes
            call = peer.channel.unary_unary(step["rpc"], request_serializer=bytes, response_deserializer=bytes)
            answer = call(base64.b64decode(step.get("request_b64", "")), **options)
            return {"response_b64": base64.b64encode(answer).decode()}
        request = json_format.ParseDict(step.get("request", {}), getattr(service_pb2, step["rpc"] + "Request")())
        future = getattr(peer.stub, step["rpc"]).future(request, **options)
        if step.get("cancel_after_ms") is not None:
            time.sleep(step["cancel_after_ms"] / 1000)
            future.cancel()
        return {"response": as_dict(future.result())}
    except grpc.FutureCancelledError:
        return {"error": {"code": "CANCELLED", "message": ""}}
    except grpc.RpcError as error:
        return {"error": status_of(error)}


def grpc_stream(step, peer):
    cancelled, got = threading.Event(), []
    if not step.get("cancel_after_responses"):
        cancelled.set()

    def requests():
        for request in step["requests"]:
            if "sleep_ms" in request:
                time.sleep(request["sleep_ms"] / 1000)
            else:
                yield json_format.ParseDict(request, service_pb2.ModelInferRequest())
        cancelled.wait(20)

    metadata = [tuple(m) for m in step.get("metadata", [])]
    call = peer.stub.ModelStreamInfer(requests(), timeout=step.get("timeout_s", 20), metadata=metadata)
    try:
        for response in call:
            got.append(as_dict(response))
            if len(got) == step.get("cancel_after_responses"):
                call.cancel()
        status = {"code": call.code().name, "message": call.details()}
    except grpc.RpcError as error:
        status = status_of(error)
    cancelled.set()
    return {"responses": got, "status": status}


# --- others ---


def shared_memory(step):
    path = pathlib.Path("/dev/shm") / step["key"].lstrip("/")
    if step["op"] == "create":
        data = base64.b64decode(step.get("data_b64", ""))
        path.write_bytes(data + bytes(step["byte_size"] - len(data)))
    elif step["op"] == "read":
        offset = step.get("offset", 0)
        return {"data_b64": base64.b64encode(path.read_bytes()[offset : offset + step["byte_size"]]).decode()}
    else:
        path.unlink(missing_ok=True)
    return {}


def wait_status(step, peer):
    wanted = {step["status"]} | (NEWER_THAN_400 if step["status"] == 400 else set())
    deadline = time.monotonic() + step.get("timeout_s", 10)
    while time.monotonic() < deadline:
        if http_call(step["wait_status"], peer.http).get("status") in wanted:
            return {"reached": True}
        time.sleep(0.05)
    return {"reached": False}


def in_parallel(steps, peer):
    def start(step):
        time.sleep(step.get("start_ms", 0) / 1000)
        return perform(step, peer)

    with concurrent.futures.ThreadPoolExecutor(len(steps)) as threads:
        return {"all": list(threads.map(start, steps))}


def perform(step, peer):
    """One step; what was observed has the shape of the recorded `expect`."""
    if "http" in step:
        return http_call(step["http"], peer.metrics if step.get("port") == "metrics" else peer.http)
    if "grpc" in step:
        return grpc_call(step["grpc"], peer)
    if "grpc_stream" in step:
        return grpc_stream(step["grpc_stream"], peer)
    if "shm" in step:
        return shared_memory(step["shm"])
    if "wait_status" in step:
        return wait_status(step, peer)
    if "parallel" in step:
        return in_parallel(step["parallel"], peer)
    time.sleep(step["sleep_ms"] / 1000)
    return {}

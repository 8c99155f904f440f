# SPDX-License-Identifier: Apache-2.0
"""Valid requests, changed at random, for as long as asked: HTTP as bytes, gRPC as messages and as frames."""

import contextlib
import gzip
import random
import socket
import struct
import time
import zlib

import attacks
import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2

SEEDS_HTTP = [
    attacks.http_request(attacks.INFER, attacks.ECHO),
    attacks.http_request(
        attacks.INFER,
        b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":8}}]}\x04\0\0\0echo',
        "Inference-Header-Content-Length: 97",
    ),
    attacks.http_request(attacks.STREAM, {"PROMPT": "a", "STREAM": True, "REPETITION": 3}),
    attacks.http_request("/v2/models/mock_llm/generate", {"PROMPT": ["a"], "STREAM": False, "id": "1", "parameters": {"x": 1}}),
    attacks.http_request("/v2/repository/index", {"ready": True}),
    attacks.http_request("/v2/logging", {"log_verbose_level": 0}),
    b"GET /v2/models/identity/versions/1/config HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v2/models/stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    f"POST {attacks.INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    + b'5\r\n{"a":\r\n3\r\n"1"\r\n1\r\n}\r\n0\r\n\r\n',
]  # fmt: skip
MAX_FRAME_BYTES = 16384  # until a server allows more
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WORDS = [
    b"\r\n", b"\r\n\r\n", b"0", b"-1", b"9999999999999999999", b"\0", b"%00", b"{", b"}", b"[", b"]", b'"',
    b"\\u0000", b"\\ud800", b"1e999", b"NaN", b"null", b"true", b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n",
    b"Content-Encoding: gzip\r\n", b"Inference-Header-Content-Length: 3\r\n", b"HTTP/1.0", b"GET ", b"\xff\xfe", b"triton_",
]  # fmt: skip


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at] = rng.choice(WORDS)
        elif kind == 2:
            del data[at : at + rng.choice([1, 3, 30])]
        elif kind == 3:
            data[at:at] = data[at : at + rng.choice([1, 10, 100])]
        else:
            data[at : at + 4] = rng.randbytes(4)
    return bytes(data)


def http(server, seconds, seed):
    """Requests and their changes on kept and on new connections; returns how many were sent."""
    rng = random.Random(seed)
    count = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with attacks.connect(server.http) as connection:
            for _ in range(rng.choice([1, 1, 3])):  # pipelined
                attacks.send(connection, mutate(rng, rng.choice(SEEDS_HTTP)))
                count += 1
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            attacks.read_to_end(connection)
    return count


def echo_message():
    message = service_pb2.ModelInferRequest(model_name="identity", id="1")
    message.inputs.add(name="INPUT0", datatype="BYTES", shape=[1])
    message.outputs.add(name="OUTPUT0")
    message.parameters["priority"].uint64_param = 0
    message.raw_input_contents.append(b"\x04\0\0\0echo")
    return message.SerializeToString()


def grpc_messages(server, seconds, seed):
    """Changed messages in calls of all kinds; whatever the code of the answer, there is one."""
    rng = random.Random(seed)
    seeds = {
        "ModelInfer": echo_message(),
        "ModelMetadata": service_pb2.ModelMetadataRequest(name="identity", version="1").SerializeToString(),
        "ModelConfig": service_pb2.ModelConfigRequest(name="mock_llm").SerializeToString(),
        "ModelStatistics": service_pb2.ModelStatisticsRequest(name="identity").SerializeToString(),
        "RepositoryIndex": service_pb2.RepositoryIndexRequest(ready=True).SerializeToString(),
    }
    count = 0
    deadline = time.monotonic() + seconds
    with grpc.insecure_channel(server.grpc) as channel:
        unary = {name: channel.unary_unary(f"/inference.GRPCInferenceService/{name}") for name in seeds}
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        while time.monotonic() < deadline:
            name = rng.choice(list(seeds))
            with contextlib.suppress(grpc.RpcError):
                unary[name](mutate(rng, seeds[name]), timeout=attacks.PATIENCE_S)
            messages = [mutate(rng, seeds["ModelInfer"]) if rng.random() < 0.5 else seeds["ModelInfer"] for _ in range(3)]
            with contextlib.suppress(grpc.RpcError):
                for _ in stream(iter(messages), timeout=attacks.PATIENCE_S):
                    pass
            count += 4
    return count


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """A header field without indexing, names and values below 127 bytes (RFC 7541, 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call_head(encoding=None, path=b"/inference.GRPCInferenceService/ModelInfer"):
    """The fields of a call's head, packed."""
    fields = [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"a"), (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    ]  # fmt: skip
    if encoding:
        fields.append((b"grpc-encoding", encoding.encode()))
    return b"".join(literal(*field) for field in fields)


def call_frames(message=None, encoding=None):
    """A whole ModelInfer call as HTTP/2 frames; an encoded message comes as it is."""
    message = message or echo_message()
    data = struct.pack(">BI", bool(encoding), len(message)) + message
    *parts, last = [data[at : at + MAX_FRAME_BYTES] for at in range(0, len(data), MAX_FRAME_BYTES)]
    head = [frame(4, 0, 0, b""), frame(1, 4, 1, call_head(encoding))]
    return [*head, *(frame(0, 0, 1, part) for part in parts), frame(0, 1, 1, last)]


def grpc_frames(server, seconds, seed):
    """Changed, repeated and reordered frames behind a right preface, of plain and of compressed messages."""
    rng = random.Random(seed)
    calls = [{}, {"message": gzip.compress(echo_message()), "encoding": "gzip"}]
    calls.append({"message": zlib.compress(echo_message()), "encoding": "deflate"})
    count = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        frames = call_frames(**rng.choice(calls))
        if rng.random() < 0.3:
            rng.shuffle(frames)
        if rng.random() < 0.3:
            frames.insert(rng.randrange(4), frame(rng.randrange(12), rng.randrange(256), rng.randrange(4), rng.randbytes(8)))
        if rng.random() < 0.8:
            index = rng.randrange(len(frames))
            frames[index] = mutate(rng, frames[index])
        with attacks.connect(server.grpc) as connection:
            attacks.send(connection, PREFACE + b"".join(frames))
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            attacks.read_to_end(connection)
        count += 1
    return count


def killed_streams(server, count):
    """gRPC streams whose clients cancel, or close their connection, at random moments."""
    rng = random.Random(count)
    prompt = triton.InferInput("PROMPT", [1, 1], "BYTES")
    prompt.set_data_from_numpy(np.array([[b"x" * 100]], dtype=object))
    stream = triton.InferInput("STREAM", [1, 1], "BOOL")
    stream.set_data_from_numpy(np.array([[True]]))
    message = service_pb2.ModelInferRequest(model_name="mock_llm")
    for tensor in (prompt, stream):
        message.inputs.add().CopyFrom(tensor._get_tensor())
        message.raw_input_contents.append(tensor._get_content())
    message.parameters["REPETITION"].int64_param = 100_000
    message.parameters["DELAY"].double_param = 0.001
    data = message.SerializeToString()
    left = count
    while left > 0:
        with grpc.insecure_channel(server.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            calls = [call(iter([data] * rng.choice([1, 3]))) for _ in range(min(left, 50))]
            left -= len(calls)
            rng.shuffle(calls)
            for running in calls:
                if rng.random() < 0.7:
                    next(running)
                if rng.random() < 0.7:
                    running.cancel()
            # The rest ends with the channel.

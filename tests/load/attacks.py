# SPDX-License-Identifier: Apache-2.0
"""What hostile and broken clients do to the ports of a server, over sockets of their own.

Each attack leaves nothing open. Sizes are for a few seconds; `scale` multiplies them.
"""

import contextlib
import functools
import gzip
import json
import os
import random
import selectors
import socket
import struct
import time
import zlib

PATIENCE_S = 60
IP_BIND_ADDRESS_NO_PORT = 24  # of Linux: the port is chosen on connecting, among those that are free for that peer
INFER = "/v2/models/identity/infer"
STREAM = "/v2/models/mock_llm/generate_stream"
ECHO = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["echo"]}]}


def http_request(path, body, *headers):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", "Host: localhost", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", ""]).encode() + body


def connect(address, client="127.0.0.1"):
    host, port = address.split(":")
    connection = socket.socket()
    connection.settimeout(PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    connection.bind((client, 0))
    connection.connect((host, int(port)))
    return connection


@contextlib.contextmanager
def connections(address, count, client="127.0.0.1"):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(address, client)) for _ in range(count)]


def read_answer(connection):
    """Status and body of one answer with a Content-Length; None where the server closed without one."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            assert not data, data
            return None
        data += part
    head, body = data.split(b"\r\n\r\n", 1)
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields[b"content-length"]):
        part = connection.recv(65536)
        assert part, "the server closed within an answer"
        body += part
    return int(head.split()[1]), body


def read_until(connection, words):
    data = b""
    while words not in data:
        part = connection.recv(65536)
        assert part, data
        data += part


def read_to_end(connection):
    data = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while part := connection.recv(65536):
            data += part
    return data


def send(connection, data):
    """As much as the server takes: it may have answered and closed before the end."""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(data)


def send_some(connection, data):
    """As much as the server takes within a moment: it need not take all."""
    connection.settimeout(0.5)
    with contextlib.suppress(ConnectionResetError, BrokenPipeError, TimeoutError):
        connection.sendall(data)
    connection.settimeout(PATIENCE_S)


def num_descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


# --- connections ---


def idle_connections(server, count):
    """All of them stay and are served, the first as well as the last."""
    with connections(server.http, count) as idle:
        for connection in [*idle[:10], *idle[-10:]]:
            connection.sendall(http_request(INFER, ECHO))
            assert read_answer(connection)[0] == 200


def half_open_requests(server, count):
    """Heads and bodies that stop in the middle: the server closes each when its time is over."""
    request = http_request(INFER, ECHO)
    with connections(server.http, count) as stalled:
        for index, connection in enumerate(stalled):
            connection.sendall(request[: 1 + index * 7919 % (len(request) - 1)])
        for connection in stalled:
            assert read_to_end(connection) == b""


def connection_flood(server, seconds):
    """A client that connects and goes as fast as it can, in order and by RST, while others have new connections answered."""
    rng = random.Random(seconds)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for address in filter(None, (server.http, server.grpc, server.metrics)):
            for _ in range(100):
                flood = connect(address, f"127.0.1.{rng.randrange(1, 250)}")
                if rng.random() < 0.7:
                    flood.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                flood.close()
        ask_anew(server)


def held_connections(server, limit):
    """A client that holds as many connections as the server has, idle and within requests: others have theirs."""
    half = http_request(INFER, ECHO)[:-1]
    for part in (b"", half):
        with connections(server.http, limit + limit // 10, "127.0.1.1") as held:
            for connection in held:
                send(connection, part)
            for _ in range(10):
                ask_anew(server)


def ask_anew(server):
    with connect(server.http) as connection:
        connection.sendall(http_request(INFER, ECHO))
        assert read_answer(connection)[0] == 200


def slow_loris(server, count):
    """A byte of the head now and then: its time is over all the same."""
    poll = selectors.DefaultSelector()
    with connections(server.http, count) as slow:
        for connection in slow:
            connection.sendall(b"POST /v2")
            poll.register(connection, selectors.EVENT_READ)
        deadline = time.monotonic() + PATIENCE_S
        while poll.get_map():
            assert time.monotonic() < deadline, f"{len(poll.get_map())} of {count} still stand"
            for key, _ in poll.select(timeout=0.05):
                assert read_to_end(key.fileobj) == b""
                poll.unregister(key.fileobj)
            for key in list(poll.get_map().values()):
                send(key.fileobj, b"x")


def killed_streams(server, count):
    """Streams whose clients go away before, between and within responses."""
    rng = random.Random(count)
    body = {"PROMPT": "x" * 100, "STREAM": True, "REPETITION": 100_000, "DELAY": 0.001}
    with connections(server.http, count) as streams:
        for connection in streams:
            connection.sendall(http_request(STREAM, body))
        order = list(streams)
        rng.shuffle(order)
        for connection in order:
            if rng.random() < 0.8:
                connection.recv(rng.choice([1, 100, 10_000]))
            if rng.random() < 0.5:  # by RST
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()


def slow_readers(server, count):
    """Streams that nobody reads: each is cut off when its buffer is full."""
    body = {"PROMPT": "x" * 10_000, "STREAM": True, "REPETITION": 1_000_000}
    before = num_descriptors(server)
    with connections(server.http, count) as streams:
        for connection in streams:
            connection.sendall(http_request(STREAM, body))
        deadline = time.monotonic() + PATIENCE_S
        while num_descriptors(server) > before + count / 2:
            assert time.monotonic() < deadline, "streams that nobody reads go on"
            time.sleep(0.05)
        for connection in streams[: count // 4]:
            assert not read_to_end(connection).endswith(b"0\r\n\r\n"), "a stream that nobody read came to its end"


def crowded_streams(server, count):
    """Many readers of responses without pauses: each gets all of its own."""
    poll, num_responses = selectors.DefaultSelector(), 200
    body = {"PROMPT": "x" * 20, "STREAM": True, "REPETITION": num_responses}
    with connections(server.http, count) as streams:
        for connection in streams:
            connection.sendall(http_request(STREAM, body))
            poll.register(connection, selectors.EVENT_READ, bytearray())
        deadline = time.monotonic() + PATIENCE_S
        while poll.get_map():
            assert time.monotonic() < deadline, f"{len(poll.get_map())} of {count} streams stand still"
            for key, _ in poll.select(timeout=1):
                key.data.extend(key.fileobj.recv(65536))
                if key.data.endswith(b"0\r\n\r\n"):
                    assert key.data.count(b"data: ") == num_responses
                    poll.unregister(key.fileobj)


# --- bodies ---


def bodies_over_the_limit(server, count):
    """Announced, sent in chunks, and packed: refused, whatever is still on its way."""
    limit = 1 << 20
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    announced = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {limit + 1}\r\n\r\n".encode()
    chunked = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + chunk * 20
    huge = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\n\r\n".encode()
    for _ in range(count):
        for request in (announced, chunked, huge):
            with connect(server.http) as connection:
                send(connection, request)
                answer = read_answer(connection)
                assert answer[0] == 400 and b"maximum allowed input size" in answer[1]


@functools.cache
def bombs():
    zeros = bytes(16 << 20)
    once = gzip.compress(zeros)
    return [("gzip", once), ("deflate", zlib.compress(zeros)), ("gzip", gzip.compress(once))]


def compressed_bombs(server, count):
    """A thousand times larger than what is sent, and more than the limit."""
    for _ in range(count):
        for coding, bomb in bombs():
            with connect(server.http) as connection:
                connection.sendall(http_request(INFER, bomb, f"Content-Encoding: {coding}"))
                assert read_answer(connection)[0] in (400, 500)


def deep_json(server, count):
    """Deeper than any stack."""
    for _ in range(count):
        for depth in (101, 10_000, 400_000):
            for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
                nested = opening * depth + b"1" + closing * depth
                nested = nested[: (1 << 20) - 200]
                for path, body in (
                    (INFER, nested),
                    (INFER, b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"BYTES","data":' + nested + b"}]}"),
                    (STREAM, b'{"PROMPT":' + nested + b',"STREAM":true}'),
                    ("/v2/models/identity/generate", nested),
                ):
                    with connect(server.http) as connection:
                        connection.sendall(http_request(path, body))
                        assert read_answer(connection)[0] in (400, 500)


# --- bytes ---


def whole_requests():
    """A request of each kind, and what its answer contains."""
    binary = json.dumps(
        {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 8}}]}
    ).encode()
    body = json.dumps(ECHO).encode()
    chunked = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode()
    return {
        "json": (http_request(INFER, ECHO), b'["echo"]'),
        "binary": (
            http_request(INFER, binary + b"\x04\0\0\0echo", f"Inference-Header-Content-Length: {len(binary)}"), b'["echo"]'
        ),
        "chunked": (chunked + body + b"\r\n0\r\n\r\n", b'["echo"]'),
        "gzip": (http_request(INFER, gzip.compress(body), "Content-Encoding: gzip"), b'["echo"]'),
        "generate": (http_request("/v2/models/mock_llm_whole/generate", {"PROMPT": "echo", "STREAM": False}), b'"TEXT":"echo"'),
        "generate_stream": (http_request(STREAM, {"PROMPT": "echo", "STREAM": True}), b'"TEXT":"echo"'),
    }  # fmt: skip


def prefixes(server, count):
    """Beginnings of a request of each kind, then the client's end: no answer or an error; the whole request is answered."""
    for request, answer in whole_requests().values():
        for length in range(0, len(request), max(1, len(request) // count)):
            with connect(server.http) as connection:
                connection.sendall(request[:length])
                connection.shutdown(socket.SHUT_WR)
                refusal = read_to_end(connection)
                assert not refusal or refusal.startswith(b"HTTP/1.1 400"), refusal
        with connect(server.http) as connection:
            connection.sendall(request)
            read_until(connection, answer)


def random_bytes(server, count):
    rng = random.Random(count)
    for address in filter(None, (server.http, server.grpc, server.metrics)):
        for _ in range(count):
            with connect(address) as connection:
                start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if address == server.grpc and rng.random() < 0.8 else b""
                send(connection, start + rng.randbytes(rng.choice([1, 30, 1000, 20_000])))
                with contextlib.suppress(OSError):  # the server may have closed already
                    connection.shutdown(socket.SHUT_WR)
                read_to_end(connection)

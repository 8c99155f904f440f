# SPDX-License-Identifier: Apache-2.0
"""Options of gRPC's channel, seen on the wire: keep-alive pings, pings of the client, age of a connection, compression."""

import contextlib
import functools
import pathlib
import resource
import socket
import struct
import threading
import time

import numpy as np
import pytest
import tritonclient.grpc as triton
from live_server import is_sanitized, serving
from tritonclient.utils import InferenceServerException

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1
PATIENCE_S = 60
LONG_TEXT = b"in-flight batching " * 20_000
light_server = functools.partial(serving, max_kv_tokens=None)


def frame(kind, payload=b"", flags=0):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + bytes(4) + payload


class Connection:
    """HTTP/2 by hand, as far as pings go."""

    def __init__(self, server):
        host, port = server.grpc.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self.socket.sendall(PREFACE + frame(SETTINGS))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def read(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def frames(self):
        """Kind, flags and payload of what comes until the server closes."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                head = self.read(9)
                yield head[3], head[4], self.read(int.from_bytes(head[:3], "big"))


def test_the_server_pings_idle_connections_and_drops_the_dead(tmp_path, repository):
    options = ["--grpc-keepalive-time=50", "--grpc-keepalive-timeout=1000", "--grpc-keepalive-permit-without-calls=true",
               "--grpc-http2-max-pings-without-data=0"]  # fmt: skip
    with light_server(tmp_path, repository, *options) as server:
        with Connection(server) as connection:
            # It ends, since nothing answers the pings.
            assert any(kind == PING and not flags & ACK for kind, flags, _ in connection.frames())
        with Connection(server) as connection:
            # Where there is a limit, they stop after so many.
            num_pings = 0
            for kind, flags, payload in connection.frames():
                if kind == PING and not flags & ACK:
                    num_pings += 1
                    connection.socket.sendall(frame(PING, payload, ACK))
                    if num_pings == 6:
                        break
            assert num_pings == 6


@pytest.mark.parametrize("max_strikes, is_dropped", [(1, True), (0, False)])
def test_clients_that_ping_too_often_are_sent_away(tmp_path, repository, max_strikes, is_dropped):
    options = [f"--grpc-http2-max-ping-strikes={max_strikes}", "--grpc-http2-min-recv-ping-interval-without-data=3600000"]
    num_pings = 20
    with light_server(tmp_path, repository, *options) as server, Connection(server) as connection:
        num_answered, reason = 0, b""
        connection.socket.sendall(frame(PING, bytes(8)))
        for kind, flags, payload in connection.frames():
            if kind == GOAWAY:
                reason = payload[8:]
                break  # the server may answer more pings until it gets to closing
            if kind == PING and flags & ACK:
                num_answered += 1
                if num_answered == num_pings:
                    break
                connection.socket.sendall(frame(PING, bytes(8)))
        assert (reason == b"too_many_pings") == is_dropped
        assert (num_answered == num_pings) != is_dropped


def test_old_connections_are_ended(tmp_path, repository):
    options = ["--grpc-max-connection-age=100", "--grpc-max-connection-age-grace=100"]
    with light_server(tmp_path, repository, *options) as server, Connection(server) as connection:
        assert any(kind == GOAWAY for kind, _, _ in connection.frames())


class CountingProxy:
    """Passes one connection on and counts what the server sent."""

    def __init__(self, target):
        host, port = target.split(":")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.server = socket.create_connection((host, int(port)))
        self.num_bytes = 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        client, _ = self.listener.accept()
        threading.Thread(target=self.pump, args=(client, self.server), daemon=True).start()
        self.pump(self.server, client, counts=True)

    def pump(self, source, target, counts=False):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.num_bytes += len(data) if counts else 0
                target.sendall(data)

    def close(self):
        self.listener.close()
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


def num_answer_bytes(server, use_stream):
    """Of an answer of LONG_TEXT, which must arrive whole."""
    proxy = CountingProxy(server.grpc)
    text = triton.InferInput("INPUT0", [1], "BYTES")
    text.set_data_from_numpy(np.array([LONG_TEXT], dtype=object))
    with triton.InferenceServerClient(proxy.address) as client:
        if use_stream:
            arrived, answers = threading.Event(), []
            client.start_stream(lambda result, error: (answers.append((result, error)), arrived.set()))
            client.async_stream_infer("identity", [text])
            assert arrived.wait(PATIENCE_S)
            client.stop_stream()
            result, error = answers[0]
            assert error is None
        else:
            result = client.infer("identity", [text])
        assert result.as_numpy("OUTPUT0")[0] == LONG_TEXT
    proxy.close()
    return proxy.num_bytes


@pytest.mark.parametrize("level", ["none", "low", "medium", "high"])
def test_answers_are_compressed_as_asked(tmp_path, repository, level):
    with light_server(tmp_path, repository, f"--grpc-infer-response-compression-level={level}") as server:
        for use_stream in (False, True):
            num_bytes = num_answer_bytes(server, use_stream)
            if level == "none":
                assert num_bytes > len(LONG_TEXT)
            else:
                assert num_bytes < len(LONG_TEXT) / 10


def test_a_connection_has_so_many_calls_and_others_have_theirs(tmp_path, repository):
    text = triton.InferInput("INPUT0", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"echo"], dtype=object))
    apart = [("grpc.use_local_subchannel_pool", 1)]  # clients with equal arguments share a connection
    with (
        light_server(tmp_path, repository, "--grpc-max-concurrent-streams=1") as server,
        triton.InferenceServerClient(server.grpc, channel_args=apart) as client,
        triton.InferenceServerClient(server.grpc, channel_args=apart) as other,
    ):
        answered, waited = threading.Event(), threading.Event()
        client.start_stream(lambda result, error: answered.set())
        client.async_stream_infer("identity", [text])
        assert answered.wait(PATIENCE_S)  # the stream is the connection's one call
        client.async_infer("identity", [text], lambda result, error: waited.set())
        assert other.infer("identity", [text]).as_numpy("OUTPUT0")[0] == b"echo"
        assert not waited.wait(0.3)
        client.stop_stream()
        assert waited.wait(PATIENCE_S)


def infer_text(server, num_bytes, **options):
    """With a connection of its own; gRPC closes those that it has no memory for."""
    text = triton.InferInput("INPUT0", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"x" * num_bytes], dtype=object))
    with triton.InferenceServerClient(server.grpc, channel_args=[("grpc.use_local_subchannel_pool", 1)]) as client:
        return client.infer("identity", [text], **options).as_numpy("OUTPUT0")[0]


def test_messages_have_a_bound_also_when_they_are_compressed(tmp_path, repository):
    with light_server(tmp_path, repository, "--grpc-max-input-size=500000") as server:
        for compression in (None, "gzip"):
            with pytest.raises(InferenceServerException) as refused:
                infer_text(server, 600_000, compression_algorithm=compression)
            assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
            assert "larger than max" in refused.value.message() and "vs. 500000" in refused.value.message()
            assert len(infer_text(server, 400_000, compression_algorithm=compression)) == 400_000


def test_all_messages_together_have_a_bound(tmp_path, repository):
    with light_server(tmp_path, repository, "--request-memory-byte-size=2000000") as server:
        with pytest.raises(InferenceServerException) as refused:
            infer_text(server, 3_000_000)
        assert refused.value.status() in ("StatusCode.RESOURCE_EXHAUSTED", "StatusCode.UNAVAILABLE")
        assert len(infer_text(server, 300_000)) == 300_000


def test_calls_beyond_the_limit_are_refused_until_others_end(tmp_path, repository):
    text = triton.InferInput("INPUT0", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"echo"], dtype=object))
    with (
        light_server(tmp_path, repository, "--grpc-max-calls=2") as server,
        triton.InferenceServerClient(server.grpc) as client,
        contextlib.ExitStack() as streams,
    ):
        for _ in range(2):
            stream, answered = streams.enter_context(triton.InferenceServerClient(server.grpc)), threading.Event()
            stream.start_stream(lambda result, error, answered=answered: answered.set())
            stream.async_stream_infer("identity", [text])
            assert answered.wait(PATIENCE_S)  # it is open, and stays so
        with pytest.raises(InferenceServerException) as refused:
            client.infer("identity", [text])
        assert refused.value.status() == "StatusCode.UNAVAILABLE"
        assert "the limit is 2 (--grpc-max-calls)" in refused.value.message()
        assert client.is_server_live()
        stream.stop_stream()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(InferenceServerException):
                assert client.infer("identity", [text]).as_numpy("OUTPUT0")[0] == b"echo"
                break
            assert time.monotonic() < deadline, "calls are refused although one has ended"


def test_the_port_outlives_a_client_that_takes_all_descriptors(tmp_path, repository):
    """Skipped under sanitizers alone: UBSan opens a pipe to learn whether memory can be read, and takes it for bad otherwise."""
    if is_sanitized():
        pytest.skip("a sanitizer needs descriptors itself; CI runs this with its release build")
    with light_server(tmp_path, repository) as server, contextlib.ExitStack() as held:
        pid = server.process.pid
        num_open = len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (num_open + 40, num_open + 40))
        host, port = server.grpc.split(":")
        for _ in range(100):
            connection = held.enter_context(socket.socket())
            connection.bind(("127.0.1.1", 0))
            connection.connect((host, int(port)))
        with triton.InferenceServerClient(server.grpc) as client:
            assert client.is_server_live(client_timeout=PATIENCE_S)
        held.close()
        deadline = time.monotonic() + PATIENCE_S
        while len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())) > num_open + 10:
            assert time.monotonic() < deadline, "descriptors of connections that have ended are still open"
            time.sleep(0.05)
        with Connection(server) as connection:
            assert next(connection.frames())[0] == SETTINGS

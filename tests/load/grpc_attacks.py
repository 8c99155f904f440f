# SPDX-License-Identifier: Apache-2.0
"""What hostile and broken clients do to the gRPC port, beside those of mutations.py."""

import contextlib
import functools
import gzip
import socket
import struct
import threading
import zlib

import attacks
import grpc
import numpy as np
import tritonclient.grpc as triton
from mutations import PREFACE, call_frames, call_head, frame
from tritonclient.grpc import service_pb2


@contextlib.contextmanager
def own_channel(server, **options):
    with grpc.insecure_channel(server.grpc, options=[("grpc.use_local_subchannel_pool", 1)], **options) as channel:
        yield channel


def oversized_message(num_bytes):
    message = service_pb2.ModelInferRequest(model_name="identity")
    message.inputs.add(name="INPUT0", datatype="BYTES", shape=[1])
    message.raw_input_contents.append(bytes(num_bytes))
    return message.SerializeToString()


def messages_over_the_limit(server, count):
    """As they are, and a bomb: a thousand times larger than what is sent."""
    for compression, num_bytes in ((grpc.Compression.NoCompression, 1 << 20), (grpc.Compression.Gzip, 16 << 20)):
        data = oversized_message(num_bytes)
        with own_channel(server, compression=compression) as channel:
            calls = [
                channel.unary_unary("/inference.GRPCInferenceService/ModelInfer"),
                lambda message, channel=channel, **options: list(
                    channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(iter([message]), **options)
                ),
            ]
            for _ in range(count):
                for call in calls:
                    try:
                        call(data, timeout=attacks.PATIENCE_S)
                        raise AssertionError("a message over the limit was answered")
                    except grpc.RpcError as error:
                        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error


@functools.cache
def bomb_frames(encoding):
    """A call whose message is below 64 KiB, what a connection takes at once, and unpacks to 60 MiB."""
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}[encoding](oversized_message(60 << 20))
    assert len(packed) < 65000
    return PREFACE + b"".join(call_frames(packed, encoding))


def read_to_trailers(connection):
    """To the end of a call: a frame HEADERS (1) with END_STREAM (flag 1), RFC 9113, section 6.2."""
    data = b""
    while True:
        while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
            if data[3] == 1 and data[4] & 1:
                return
            data = data[9 + int.from_bytes(data[:3], "big") :]
        part = connection.recv(65536)
        assert part, "the server closed within a call"
        data += part


def bombs(server, count):
    """All at once; messages_over_the_limit looks at what is answered."""
    for encoding in ("gzip", "deflate"):
        with attacks.connections(server.grpc, count) as clients:
            for client in clients:
                client.sendall(bomb_frames(encoding))
            for client in clients:
                read_to_trailers(client)


def rapid_resets(server, count):
    """Calls that are reset as soon as they are begun (CVE-2023-44487), until the server sends the client away."""
    head = call_head()
    calls = [frame(1, 4, 2 * i + 1, head) + frame(3, 0, 2 * i + 1, struct.pack(">I", 8)) for i in range(count)]
    with attacks.connect(server.grpc) as connection:
        attacks.send(connection, PREFACE + frame(4, 0, 0, b"") + b"".join(calls))
        attacks.read_to_end(connection)  # it is closed: what goes on gets no answer


def ask_anew(server):
    with own_channel(server) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert service_pb2.ServerLiveResponse.FromString(live(b"", timeout=attacks.PATIENCE_S)).live


def held_connections(server, limit):
    """A client that holds as many connections as the port has: others have theirs."""
    for part in (b"", PREFACE):
        with attacks.connections(server.grpc, limit + limit // 10, "127.0.1.1") as held:
            for connection in held:
                attacks.send(connection, part)
            for _ in range(10):
                ask_anew(server)


def stalled_prefaces(server, count):
    """Connections that stop within the preface or the first frames; others are served meanwhile."""
    start = PREFACE + b"".join(call_frames())
    with attacks.connections(server.grpc, count) as stalled:
        for index, connection in enumerate(stalled):
            connection.sendall(start[: 1 + index * 7919 % (len(start) - 1)])
        with attacks.connect(server.grpc) as connection:
            connection.sendall(start)
            attacks.read_until(connection, b"echo")


@functools.cache
def recorded_call(address):
    """What a published client sends for one call."""
    listener = socket.create_server(("127.0.0.1", 0))
    sent = bytearray()

    def pump(source, target, record):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                record.extend(data)
                target.sendall(data)

    def run():
        client, _ = listener.accept()
        with client, attacks.connect(address) as server:
            back = threading.Thread(target=pump, args=(server, client, bytearray()), daemon=True)
            back.start()
            pump(client, server, sent)
            server.shutdown(socket.SHUT_RDWR)
            back.join()

    relay = threading.Thread(target=run, daemon=True)
    relay.start()
    text = triton.InferInput("INPUT0", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"echo"], dtype=object))
    with triton.InferenceServerClient(f"127.0.0.1:{listener.getsockname()[1]}") as client:
        assert client.infer("identity", [text]).as_numpy("OUTPUT0")[0] == b"echo"
        recorded = bytes(sent)  # without what ends the connection
    relay.join(attacks.PATIENCE_S)
    listener.close()
    return recorded


def prefixes(server, count):
    """Beginnings of a call's bytes, then the client's end: it is no call; all of it is answered."""
    call = recorded_call(server.grpc)
    data_end = call.index(b"echo") + len(b"echo")
    for length in range(0, data_end, max(1, data_end // count)):
        with attacks.connect(server.grpc) as connection:
            connection.sendall(call[:length])
            connection.shutdown(socket.SHUT_WR)
            assert b"echo" not in attacks.read_to_end(connection)
    with attacks.connect(server.grpc) as connection:
        connection.sendall(call)
        attacks.read_until(connection, b"echo")

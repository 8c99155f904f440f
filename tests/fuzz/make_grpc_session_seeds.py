# SPDX-License-Identifier: Apache-2.0
"""Writes seeds/grpc_session: what well-behaved and broken clients of gRPC send, as HTTP/2 frames (RFC 9113).

usage: python3 make_grpc_session_seeds.py
"""

import gzip
import pathlib
import struct

SEEDS = pathlib.Path(__file__).parent / "seeds/grpc_session"
SETTINGS, HEADERS, DATA, RST, PING, WINDOW, GOAWAY, CONTINUATION = 4, 1, 0, 3, 6, 8, 7, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name, value):
    """A field without indexing and without Huffman's code (RFC 7541, section 6.2.2); texts below 127 bytes."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def head(path, *more):
    fields = [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"a"), (b"te", b"trailers"),
        (b"content-type", b"application/grpc"), *more,
    ]  # fmt: skip
    return b"".join(literal(*field) for field in fields)


def message(data, is_compressed=False):
    return struct.pack(">BI", is_compressed, len(data)) + data


HELLO = message(b"hello")


def call(stream, path=b"/echo", data=HELLO, more=()):
    return frame(HEADERS, END_HEADERS, stream, head(path, *more)) + frame(DATA, END_STREAM, stream, data)


START = frame(SETTINGS, 0, 0)
CASES = {
    "one_call": START + call(1),
    "three_calls": START + call(1) + call(3, data=message(b"") * 3) + call(5, b"/hold"),
    "compressed": START + call(1, data=message(gzip.compress(b"x" * 1000), True), more=[(b"grpc-encoding", b"gzip")]),
    "timeout_and_codings": START + call(1, more=[(b"grpc-timeout", b"10m"), (b"grpc-accept-encoding", b"identity,gzip")]),
    "reset": START + frame(HEADERS, END_HEADERS, 1, head(b"/hold")) + frame(RST, 0, 1, struct.pack(">I", 8)) + call(3),
    "pings": START + frame(PING, 0, 0, bytes(8)) * 4 + frame(PING, ACK, 0, bytes(8)) + call(1),
    "windows": frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1)) + call(1) + frame(WINDOW, 0, 1, struct.pack(">I", 100)),
    "continuation": START + frame(HEADERS, 0, 1, head(b"/echo")[:20]) + frame(CONTINUATION, END_HEADERS, 1, head(b"/echo")[20:]),
    "client_trailers": START
    + frame(HEADERS, END_HEADERS, 1, head(b"/echo"))
    + frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(b"x", b"y")),
    "goaway": START + call(1) + frame(GOAWAY, 0, 0, bytes(8)),
    "message_over_the_limit": START + call(1, data=struct.pack(">BI", 0, 1 << 30)),
    "flag_without_coding": START + call(1, data=message(b"x", True)),
    "get": START + frame(HEADERS, END_HEADERS | END_STREAM, 1, head(b"/echo").replace(b"\x04POST", b"\x03GET")),
    "throw": START + call(1, b"/throw"),
}


def main():
    SEEDS.mkdir(parents=True, exist_ok=True)
    for name, frames in CASES.items():
        for size in (0, 127):
            (SEEDS / f"{name}_{size}").write_bytes(bytes([128 | size]) + frames)


if __name__ == "__main__":
    main()

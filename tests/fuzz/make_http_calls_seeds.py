# SPDX-License-Identifier: Apache-2.0
"""Writes seeds/http_calls: a request for each endpoint, and each way to frame a body.

usage: python3 make_http_calls_seeds.py
"""

import base64
import gzip
import json
import pathlib

SEEDS = pathlib.Path(__file__).parent / "seeds/http_calls"
INFER = {
    "id": "1",
    "inputs": [
        {"name": "A", "datatype": "FP32", "shape": [1, 2], "data": [1.5, -2e3]},
        {"name": "B", "datatype": "BYTES", "shape": [1, 1], "data": ["t\u00e9xt"]},
    ],
    "outputs": [{"name": "A", "parameters": {"classification": 1}}, {"name": "B"}],
    "parameters": {"sequence_id": 1, "priority": 2, "timeout": 3, "cache_salt": "s", "x": True},
}
GENERATE = {"A": [1.0], "B": "text", "parameters": {"x": 1}, "stream": False}
BODIES = {
    "models/m/infer": INFER,
    "models/m/versions/1/infer": INFER,
    "models/m/generate": GENERATE,
    "models/m/generate_stream": GENERATE | {"stream": True},
    "repository/index": {"ready": True},
    "repository/models/m/load": {
        "parameters": {"config": json.dumps({"backend": "b"}), "file:1/model.txt": base64.b64encode(b"bytes").decode()}
    },
    "repository/models/m/unload": {"parameters": {"unload_dependents": True}},
    "systemsharedmemory/region/r/register": {"key": "/fuzz_none", "offset": 0, "byte_size": 64},
    "systemsharedmemory/region/r/unregister": {},
    "cudasharedmemory/region/r/register": {
        "raw_handle": {"b64": base64.b64encode(bytes(64)).decode()}, "device_id": 0, "byte_size": 64,
    },
    "cudasharedmemory/region/r/unregister": {},
    "trace/setting": {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": None},
    "models/m/trace/setting": {"trace_level": ["OFF"]},
    "logging": {"log_info": True, "log_verbose_level": 1, "log_format": "ISO8601"},
    "debug/profile": {"duration_ms": 1, "model": "m"},
}  # fmt: skip
PATHS = [
    "", "/health/live", "/health/ready", "/models/stats", "/models/m", "/models/m/ready", "/models/m/config", "/models/m/stats",
    "/systemsharedmemory/status", "/cudasharedmemory/region/r/status", "/models/%6d?x=1", "/nope",
]  # fmt: skip


def request(method, path, body=b"", fields=(), version="1.1"):
    lines = [f"{method} /v2{path} HTTP/{version}", "Host: localhost", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(path, body, trailers=b""):
    half = len(body) // 2
    chunks = b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in (body[:half], body[half:]))
    return request("POST", path, fields=["Transfer-Encoding: chunked"]) + chunks + b"0\r\n" + trailers + b"\r\n"


def binary(body):
    data = b"\0\0\x80?\0\0\0@"
    body = json.dumps(
        {"inputs": [{"name": "A", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": len(data)}}]}
    ).encode()
    return request("POST", "/models/m/infer", body + data, [f"Inference-Header-Content-Length: {len(body)}"])


def main():
    SEEDS.mkdir(parents=True, exist_ok=True)
    cases = {f"get_{i}": request("GET", path) for i, path in enumerate(PATHS)}
    for i, (path, body) in enumerate(BODIES.items()):
        cases[f"post_{i}"] = request("POST", f"/{path}", json.dumps(body).encode(), ["Content-Type: application/json"])
    infer = json.dumps(INFER).encode()
    cases |= {
        "chunked": chunked("/models/m/infer", infer),
        "trailers": chunked("/models/m/generate", json.dumps(GENERATE).encode(), b"X: y\r\nZ: w\r\n"),
        "gzip": request("POST", "/models/m/infer", gzip.compress(infer), ["Content-Encoding: gzip"]),
        "binary": binary(infer),
        "http10": request("GET", "/health/live", version="1.0"),
        "head": request("HEAD", "/health/live"),
        "origin": request("POST", "/logging", b"{}", ["Origin: http://evil.example", "Content-Type: text/plain"]),
        "transfer_and_length": request("POST", "/logging", b"{}", ["Transfer-Encoding: chunked"]),
    }
    for name, data in cases.items():
        (SEEDS / name).write_bytes(data)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long the page, /v1/models, /openapi.json and the page's metrics take, alone and beside streams of mock_llm.

usage: INFLIGHT_BIN_DIR=build/release/bin .venv/bin/python bench/load/page_under_load.py
       [--streams 0 64 256] [--delay 0.02] [--requests 400]

The server has one model without weights, whose streams give a response each --delay seconds; a process of its own reads
them, about 20,000 responses a second at most: for more streams take a longer delay.
Requests go over one kept connection, one after the other, 5 ms between them; the time is from the first byte out to the
last byte in. Prints CSV in milliseconds, and the responses a second that the streams gave meanwhile.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import pathlib
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/protocol"))
os.environ.setdefault("INFLIGHT_BIN_DIR", str(ROOT / "build/release/bin"))

from light_models import write_light_repository  # noqa: E402
from live_server import start_server  # noqa: E402

PATHS = {"/": {"Accept": "text/html"}, "/page/page.js": {}, "/v1/models": {}, "/openapi.json": {}, "/page/metrics": {}}
RESPONSES = 1_000_000  # of a stream: more than it lives for


def read_streams(host, port, count, delay, num_read, is_ready):
    """Opens the streams and reads them until it is ended."""
    body = json.dumps({"PROMPT": " word", "STREAM": True, "REPETITION": RESPONSES, "DELAY": delay})
    head = f"POST /v2/models/mock_llm/generate_stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    selector = selectors.DefaultSelector()
    for _ in range(count):
        connection = socket.create_connection((host, port))
        connection.sendall((head + body).encode())
        selector.register(connection, selectors.EVENT_READ)
    is_ready.set()
    while True:
        for key, _ in selector.select():
            num_read.value += key.fileobj.recv(65536).count(b"data: ")


def times_of(host, port, path, headers, count):
    connection = http.client.HTTPConnection(host, port)
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        times.append((time.perf_counter() - begin) * 1e3)
        assert answer.status == 200, (path, answer.status)
        time.sleep(0.005)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[0, 64, 256])
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--requests", type=int, default=400)
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True)
    cpu = next(line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    print(f"# {cpu.split(': ')[1]}, {os.cpu_count()} cores shared with the clients, commit {commit.stdout.strip()}")
    print("streams,responses_per_s,path,p50_ms,p99_ms,max_ms")
    with tempfile.TemporaryDirectory() as work:
        path = pathlib.Path(work)
        repository = write_light_repository(path / "repository")
        server = start_server(path, None, "--model-repository", repository, "--allow-grpc=false", max_kv_tokens=None)
        host, port = server.http.split(":")
        for count in args.streams:
            num_read, is_ready = multiprocessing.Value("Q", 0, lock=False), multiprocessing.Event()
            reader = multiprocessing.Process(
                target=read_streams, args=(host, int(port), count, args.delay, num_read, is_ready), daemon=True
            )
            if count:
                reader.start()
                is_ready.wait()
                time.sleep(1)
            for asked, headers in PATHS.items():
                begin, before = time.perf_counter(), num_read.value
                times = times_of(host, int(port), asked, headers, args.requests)
                rate = (num_read.value - before) / (time.perf_counter() - begin)
                p99 = statistics.quantiles(times, n=100)[98]
                print(f"{count},{rate:.0f},{asked},{statistics.median(times):.2f},{p99:.2f},{max(times):.2f}", flush=True)
            if count:
                reader.kill()
                reader.join()
        server.process.kill()
        server.process.wait()


if __name__ == "__main__":
    main()

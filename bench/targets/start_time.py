#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds from the start of the process to the first 200 of /v2/health/ready, of an engine in the page cache.

usage: INFLIGHT_BIN_DIR=build/cuda-release/bin bench/targets/start_time.py ENGINE [--repeats 3] [-- OPTIONS OF serve]

ENGINE has a tokenizer (`inflight build --tokenizer-dir`). Its file is read once before, so that the page cache holds it.
"""

import argparse
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def is_ready(ports):
    try:
        port = json.loads(ports.read_text())["http"]
    except (OSError, ValueError):
        return False  # the file is not written yet
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def start_s(inflight, engine, options, folder):
    ports, log = folder / "ports.json", folder / "log"
    ports.unlink(missing_ok=True)
    command = [inflight, "serve", engine, "--port-file", ports, *options]
    command += [word for name in ("http", "grpc", "metrics") for word in (f"--{name}-port", "0")]
    with log.open("w") as out:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            while not is_ready(ports):
                if process.poll() is not None:
                    raise RuntimeError(f"the server ended with {process.returncode}:\n{log.read_text()[-2000:]}")
                time.sleep(0.005)
            return time.monotonic() - begin
        finally:
            process.terminate()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    inflight = pathlib.Path(os.environ.get("INFLIGHT_BIN_DIR", "build/cuda-release/bin")).resolve() / "inflight"
    for path in args.engine.glob("*.engine"):
        with path.open("rb") as file:
            while file.read(1 << 26):
                pass
    with tempfile.TemporaryDirectory() as folder:
        seconds = [start_s(inflight, args.engine, args.options, pathlib.Path(folder)) for _ in range(args.repeats)]
    print(f"{args.engine.name}: ready after {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}, "
          f"{args.repeats} starts)")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

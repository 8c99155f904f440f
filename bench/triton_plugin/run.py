#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a streamed token costs in NVIDIA's Triton server with our plug-in, and in our own server, in turns on one machine.

usage: INFLIGHT_BIN_DIR=build/bench/bin .venv/bin/python bench/triton_plugin/run.py [--clients 64] [--turns 5] [--seconds 6]

Both serve the `tensorrt_llm` model of one repository (the demo model, float32, CPU) to the same gRPC clients. CPU time of the
server's process over the tokens that came; the model's own computation is in both.
"""

import argparse
import asyncio
import os
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests/triton"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests/protocol"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "compat"))

from live_server import start_server
from real_triton import DEMO, make_repository, start_triton, why_not
from stream_clients import crowd, each_alone, make_requests


def cpu_seconds(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_name():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown CPU")


def measure(server, requests, args):
    """Microseconds of CPU a token, and tokens a second."""
    before = cpu_seconds(server)
    counts = asyncio.run(crowd(server, requests, None, args.clients, args.seconds, share_that_stops=0))
    return (cpu_seconds(server) - before) / counts["tokens"] * 1e6, counts["tokens"] / args.seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6)
    args = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as path:
        path = pathlib.Path(path)
        repository = make_repository(path / "models", without=("preprocessing", "postprocessing", "ensemble", "tensorrt_llm_bls"))
        servers = {"Triton with the plug-in": start_triton(path, repository)}
        servers["our server"] = start_server(path, None, "--model-repository", repository)
        for server in servers.values():
            server.model_dir = DEMO
        requests = make_requests(servers["our server"], seed=1)
        for server in servers.values():
            asyncio.run(each_alone(server, requests[:4]))
        costs = {name: [] for name in servers}
        rates = {name: [] for name in servers}
        for _ in range(args.turns):
            for name, server in servers.items():
                cost, rate = measure(server, requests, args)
                costs[name].append(cost)
                rates[name].append(rate)
                print(f"{name}: {cost:.1f} us of CPU a token, {rate:.0f} tokens/s", flush=True)
        print(f"{cpu_name()}, {os.cpu_count()} cores, {args.clients} streams, {args.turns} turns of {args.seconds:g} s")
        for name, values in costs.items():
            print(
                f"{name}: median {statistics.median(values):.1f} us of CPU a token, {min(values):.1f} to {max(values):.1f}; "
                f"{statistics.median(rates[name]):.0f} tokens/s"
            )
        for server in servers.values():
            server.process.kill()


if __name__ == "__main__":
    main()

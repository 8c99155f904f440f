#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Minutes of a crowd on the plug-in in NVIDIA's Triton server: 64 streams of which some are stopped or cancelled.

usage: INFLIGHT_BIN_DIR=build/release/bin .venv/bin/python tests/triton/run_load.py [--clients 64] [--minutes 2]
           [--cancel-minutes 0.5]

Checks that every whole answer has the ids that our own server gives to that request alone, that every request was released
once by the server's own counters, that the KV cache is empty afterwards, that resident memory is flat in the second half, and
that an unload gives the model's memory and threads back.

Then a server of its own has clients that cancel their calls, which release 2.51.0 may not survive: its front end can crash
by itself (docs/triton-plugin.md, "What Triton itself does"). Answers are counted and compared until then; a crash is a
failure where the plug-in is in its trace, and a server that lives on has to be idle afterwards.

Prints figures; exit status 1 if not so.
"""

import argparse
import asyncio
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "load"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "compat"))

import requests as http
import server_counts
from live_server import start_server
from llm_client import wait_until_idle
from real_triton import DEMO, make_repository, start_triton, why_not
from stream_clients import crowd, crowd_that_cancels, each_alone, make_requests

TEXT_MODELS = ("preprocessing", "postprocessing", "ensemble", "tensorrt_llm_bls")
RSS_PERIOD_S = 2
RSS_SLACK = 0.02
SHARE_THAT_STOPS = 0.3
CRASH = "Signal ("  # begins Triton's trace


def wait_until_unloaded(server):
    while True:
        index = http.post(f"http://{server.http}/v2/repository/index", json={}, timeout=60).json()
        if not any(entry.get("state") in ("READY", "UNLOADING") for entry in index):
            return
        time.sleep(0.1)


def counter(server, family):
    page = http.get(f"http://{server.metrics}/metrics", timeout=30).text
    lines = [line for line in page.splitlines() if line.startswith(family) and 'model="tensorrt_llm"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def num_threads(server):
    return len(list(pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()))


async def watch(server, readings):
    while True:
        readings.append(server_counts.rss_bytes(server.process.pid))
        await asyncio.sleep(RSS_PERIOD_S)


async def load(server, requests, expected, args, readings):
    watching = asyncio.create_task(watch(server, readings))
    counts = await crowd(server, requests, expected, args.clients, args.minutes * 60, SHARE_THAT_STOPS)
    watching.cancel()
    return counts


def start(path, repository):
    path.mkdir()
    server = start_triton(path, repository, "--model-control-mode=explicit", "--load-model=tensorrt_llm")
    server.model_dir = DEMO
    return server


def run_crowd(args, server, requests, expected):
    """Some are stopped by the tensor `stop`: under load a cancel of gRPC makes Triton 2.51 itself crash."""
    readings, started = [], time.monotonic()
    counts = asyncio.run(load(server, requests, expected, args, readings))
    seconds = time.monotonic() - started
    wait_until_idle(server)
    finished = sum(counter(server, f"nv_inference_request_{end}") for end in ("success", "failure"))
    asked, half = counts["answered"] + counts["stopped"], readings[len(readings) // 2 :]
    print(f"{asked} requests in {seconds:.0f} s: {counts['answered']} answered, {counts['stopped']} stopped, ", end="")
    print(f"{counts['wrong']} wrong")
    print(f"{counts['tokens'] / seconds:.0f} tokens/s of whole answers; the server counted {finished:.0f} ends")
    print(f"resident: {half[0] / 2**20:.1f} MiB half way, {half[-1] / 2**20:.1f} at the end")
    return {
        "wrong answers": counts["wrong"] > 0,
        "nothing was answered": counts["answered"] == 0,
        "ends that nobody asked for, or none for some": finished != asked,
        "memory grows": half[-1] > half[0] * (1 + RSS_SLACK),
    }


def run_unload(args, server, requests, expected):
    counts = asyncio.run(crowd(server, requests, expected, args.clients, 5, share_that_stops=0))
    loaded, threads = server_counts.rss_bytes(server.process.pid), num_threads(server)
    answer = http.post(f"http://{server.http}/v2/repository/models/tensorrt_llm/unload", timeout=60)
    wait_until_unloaded(server)
    unloaded, left = server_counts.rss_bytes(server.process.pid), num_threads(server)
    print(f"resident: {loaded / 2**20:.1f} MiB loaded, {unloaded / 2**20:.1f} unloaded; threads: {threads}, {left}")
    return {
        "wrong answers before the unload": counts["wrong"] > 0,
        "the unload failed": answer.status_code != 200,
        "the unload gave too little back": unloaded > loaded - (DEMO / "model.safetensors").stat().st_size,
        "threads of the model stay": left >= threads,
    }


def run_cancels(args, server, requests, expected):
    started = time.monotonic()
    told = crowd_that_cancels(server, requests, expected, args.clients, args.cancel_minutes * 60, SHARE_THAT_STOPS)
    counts = asyncio.run(told)
    seconds = time.monotonic() - started
    log = server.log.read_text(errors="replace")
    has_crashed = server.process.poll() is not None
    print(f"with cancels: {counts['answered']} answered, {counts['cancelled']} cancelled, {counts['wrong']} wrong, ", end="")
    print(f"{counts['refused']} refused, {counts['left open']} left open, {counts['lost']} lost; ", end="")
    print(f"the server {'crashed after' if has_crashed else 'lived through'} {seconds:.0f} s")
    if not has_crashed:
        wait_until_idle(server)
    return {
        "wrong answers beside cancels": counts["wrong"] > 0,
        "nothing was answered beside cancels": counts["answered"] == 0,
        "nothing was cancelled": counts["cancelled"] == 0,
        "the plug-in crashed": has_crashed and "libtriton_tensorrtllm" in log[log.find(CRASH) :],
        "the server ended without a trace": has_crashed and CRASH not in log,
    }


def run(args, path):
    repository = make_repository(path / "models", without=TEXT_MODELS)
    ours = start_server(path, None, "--model-repository", repository)
    ours.model_dir = DEMO
    requests = make_requests(ours, args.seed)
    expected = asyncio.run(each_alone(ours, requests))
    ours.stop()
    problems = []
    for part in (run_crowd, run_unload, run_cancels):
        server = start(path / part.__name__, repository)
        try:
            problems += [text for text, is_so in part(args, server, requests, expected).items() if is_so]
        except Exception:
            print(f"the server's exit status: {server.process.poll()}; the end of its log:")
            print(server.log.read_text(errors="replace")[-2000:])
            raise
        finally:
            server.process.kill()
    print("\n".join(problems) or "passed")
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--cancel-minutes", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=20261126)
    args = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as path:
        sys.exit(run(args, pathlib.Path(path)))


if __name__ == "__main__":
    main()

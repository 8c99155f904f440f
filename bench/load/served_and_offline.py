#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of the same requests served and offline, in turns: what the layers above the executor cost.

usage: INFLIGHT_BIN_DIR=build/release/bin bench/load/served_and_offline.py ENGINE [--requests 64] [--batch 16] [--repeats 3]

ENGINE has no tokenizer (bench/load/random_model.py, then `inflight build`), or its own; INFLIGHT_TEST_DEVICE=cuda serves one
that was built for a GPU. Both sides run --batch sequences at once and have all other requests queued from the start: `inflight
run --input`, and `inflight serve` under `inflight bench load` at a concurrency of all requests, HTTP streams and gRPC in turns.
Only one of them lives at a time. Prints CSV; the client's CPU time is given beside the time of its run, and taken off it in the
last column (its share of the threads).
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/protocol"))
os.environ.setdefault("INFLIGHT_BIN_DIR", str(ROOT / "build/release/bin"))

from live_server import start_server  # noqa: E402

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]).resolve() / "inflight"


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ")[1]
    return "unknown CPU"


def model_config(engine):
    return json.loads((engine / "config.json").read_text())["pretrained_config"]


def offline(args, folder):
    vocab_size = model_config(args.engine)["vocab_size"]
    rng = random.Random(1)
    path = folder / "requests.jsonl"
    with path.open("w") as out:
        for _ in range(args.requests):
            ids = [rng.randrange(vocab_size) for _ in range(args.input_len)]
            out.write(json.dumps({"input_ids": ids, "max_tokens": args.output_len, "end_id": -1}) + "\n")
    command = [INFLIGHT, "run", args.engine, "--input", path, "--output", folder / "results.jsonl", "--log-verbose"]
    done = subprocess.run([*command, "--max-batch-size", str(args.batch)], check=True, capture_output=True, text=True)
    tokens, seconds = re.search(r"requests answered .*tokens=(\d+) seconds=([\d.]+)", done.stderr).groups()
    if int(tokens) != args.requests * args.output_len:
        raise RuntimeError(f"{tokens} tokens offline")
    return int(tokens) / float(seconds)


def served(args, folder, protocol):
    config = model_config(args.engine)
    kv_tokens = max(32768, 2 * args.batch * (args.input_len + args.output_len))
    options = ("--dtype", config["dtype"], "--max-batch-size", str(args.batch))
    server = start_server(folder, args.engine, *options, max_kv_tokens=kv_tokens)
    try:
        command = [
            INFLIGHT, "bench", "load", server.grpc if protocol == "grpc" else server.http, "--protocol", protocol,
            "--model", "tensorrt_llm", "--num-requests", args.requests, "--concurrency", args.requests,
            "--input-len", args.input_len, "--output-len", args.output_len,
            "--vocab-size", config["vocab_size"], "--json", folder / "r",
        ]  # fmt: skip
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
    finally:
        server.stop()
    report = json.loads((folder / "r").read_text())
    if report["num_tokens"] != args.requests * args.output_len:
        raise RuntimeError(f"{report['num_tokens']} tokens served: {report['errors']}")
    threads = len(os.sched_getaffinity(0))
    without_client = report["num_tokens"] / (report["wall_s"] - report["client_cpu_s"] / threads)
    return report["tokens_per_s"], report["client_cpu_s"], without_client


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=pathlib.Path)
    for name, default in (("requests", 64), ("batch", 16), ("input-len", 32), ("output-len", 64), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    print(f"# {cpu_name()}, {len(os.sched_getaffinity(0))} threads, {args.requests} requests of {args.input_len} and "
          f"{args.output_len} tokens, {args.batch} at once")  # fmt: skip
    print("protocol,offline_tokens_per_s,served_tokens_per_s,client_cpu_s,served_without_client,ratio", flush=True)
    ratios = []
    for repeat in range(args.repeats):
        protocol = ("generate-stream", "grpc")[repeat % 2]
        with tempfile.TemporaryDirectory() as folder:
            alone = offline(args, pathlib.Path(folder))
            beside, client_cpu_s, without_client = served(args, pathlib.Path(folder), protocol)
        ratios.append(without_client / alone)
        print(f"{protocol},{alone:.2f},{beside:.2f},{client_cpu_s:.3f},{without_client:.2f},{ratios[-1]:.3f}", flush=True)
    print(f"# served / offline: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()

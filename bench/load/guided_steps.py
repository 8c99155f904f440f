#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What guided rows cost the steps that they are in: 64 rows of which 16 are guided, in turns with 64 free ones.

usage: INFLIGHT_BIN_DIR=build/cuda/bin INFLIGHT_TEST_DEVICE=cuda bench/load/guided_steps.py MODEL
       [--rows 64] [--guided 16] [--tokens 256] [--repeats 5] [--regex RE]

MODEL is a directory with a tokenizer. One server answers all: streams of /v1/completions, one row each, that all run to
--tokens. A step's time is the time between two pieces of a free row, which has one in each step while all rows run; of each
run the median of all, and in the end the median and the spread of the runs, free and guided, and their ratio. Prints CSV.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/protocol"))
os.environ.setdefault("INFLIGHT_BIN_DIR", str(ROOT / "build/release/bin"))

from live_server import start_server  # noqa: E402


def stream(url, row, tokens, regex, arrivals):
    """Times at which the pieces of one row came."""
    body = {
        "prompt": f"Row {row}: once upon a time there was", "max_tokens": tokens, "ignore_eos": True, "stream": True,
        "temperature": 1, "seed": row,
    }  # fmt: skip
    if regex:
        body["guided_regex"] = regex
    with requests.post(f"{url}/v1/completions", json=body, stream=True, timeout=600) as answer:
        if answer.status_code != 200:
            raise RuntimeError(answer.text)
        for line in answer.iter_lines():
            if line.startswith(b"data: {"):
                arrivals.append(time.perf_counter())
                if "error" in json.loads(line[6:]):
                    raise RuntimeError(line.decode())


def run(url, args, num_guided):
    """The median time of a step, in ms, while all rows run."""
    arrivals = [[] for _ in range(args.rows)]
    first_guided = args.rows - num_guided
    threads = [
        threading.Thread(target=stream, args=(url, r, args.tokens, args.regex if r >= first_guided else None, arrivals[r]))
        for r in range(args.rows)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begin = max(times[0] for times in arrivals)
    end = min(times[-1] for times in arrivals)
    gaps = [
        1000 * (b - a)
        for times in arrivals[: first_guided or args.rows]
        for a, b in itertools.pairwise(times)
        if begin <= a and b <= end
    ]
    return statistics.median(gaps)


def device_name():
    if os.environ.get("INFLIGHT_TEST_DEVICE", "cpu").startswith("cuda"):
        return os.popen("nvidia-smi --query-gpu=name --format=csv,noheader").read().split("\n")[0]
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ")[1]
    return "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--guided", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--regex", default=r"([A-Za-z]+[ ,.])+")
    args = parser.parse_args()
    medians = {0: [], args.guided: []}
    with tempfile.TemporaryDirectory() as folder:
        server = start_server(
            pathlib.Path(folder), args.model, "--max-batch-size", str(args.rows), max_kv_tokens=args.rows * (args.tokens + 64)
        )
        url = f"http://{server.http}"
        run(url, args, args.guided)  # the first of each kind is not counted
        print("device,model,rows,guided,repeat,median_step_ms")
        for repeat in range(args.repeats):
            for num_guided, kept in medians.items():
                kept.append(run(url, args, num_guided))
                print(f"{device_name()},{args.model.name},{args.rows},{num_guided},{repeat},{kept[-1]:.3f}", flush=True)
        server.stop()
    print("guided,median_step_ms,least,most")
    for num_guided, kept in medians.items():
        print(f"{num_guided},{statistics.median(kept):.3f},{min(kept):.3f},{max(kept):.3f}")
    print(f"ratio,{statistics.median(medians[args.guided]) / statistics.median(medians[0]):.3f},,")


if __name__ == "__main__":
    main()

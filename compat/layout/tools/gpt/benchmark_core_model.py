#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends batches of random ids to tensorrt_llm of the repository all_models/gpt and prints their mean latency."""

import argparse
import statistics
import time

import numpy as np
from session_requests import add_flags, connect_as, llm_tensors, send
from tritonclient.utils import InferenceServerException

NUM_IDS = 50255  # of GPT-2; ids that a smaller vocabulary does not have are among them
END_ID, PAD_ID = 2, 0


def main():
    parser = argparse.ArgumentParser(description="Benchmark of tensorrt_llm in the repository all_models/gpt.")
    add_flags(parser)
    parser.add_argument("-w", "--warm_up", action="store_true", help="two requests before the first run")
    parser.add_argument("-p", "--request_parallelism", type=int, default=10, help="requests of a run")
    parser.add_argument("-m", "--mode", default="sync", choices=["sync", "async"], help="one after the other, or all at once")
    parser.add_argument("-b", "--batch_size", type=int, default=8, help="prompts of a request")
    parser.add_argument("-s", "--start_len", type=int, default=8, help="tokens of a prompt")
    parser.add_argument("-n", "--num_runs", type=int, default=1, help="runs, whose mean is printed")
    arguments = parser.parse_args()
    for name in ("request_parallelism", "batch_size", "start_len", "num_runs"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name}: got {getattr(arguments, name)}, must be at least 1")
    ids = np.random.default_rng().integers(0, NUM_IDS, (arguments.batch_size, arguments.start_len), np.int32)
    lengths = np.full((arguments.batch_size, 1), arguments.start_len, np.int32)
    tensors = llm_tensors(arguments, ids, lengths, END_ID, PAD_ID)
    client, latencies = connect_as(arguments), []
    try:
        if arguments.warm_up:
            print("[INFO] sending requests to warm up")
            send(client, "tensorrt_llm", tensors, 2)
        for _ in range(arguments.num_runs):
            begin = time.monotonic()
            send(client, "tensorrt_llm", tensors, arguments.request_parallelism, arguments.mode == "async")
            latencies.append((time.monotonic() - begin) * 1000 / arguments.request_parallelism)
    except (InferenceServerException, OSError) as error:
        parser.exit(1, f"[ERROR] Failed receiving responses: {error}\n")
    latency = statistics.mean(latencies)
    print(
        f"[INFO] Batch size: {arguments.batch_size}, Start len: {arguments.start_len}, Output len: {arguments.output_len}\n"
        f"[INFO] Latency: {round(latency, 3)} ms\n"
        f"[INFO] Throughput: {round(1000 / latency * arguments.batch_size, 3)} sentences / sec"
    )


if __name__ == "__main__":
    main()

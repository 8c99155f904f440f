#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Minutes of a crowd on the demo model: cancels, disconnects, deadlines, full queues.

usage: INFLIGHT_BIN_DIR=build/release/bin .venv/bin/python tests/load/run_load.py [--clients 256] [--minutes 5]

Checks that every request has exactly one end, that the server's counters equal what the clients counted, that its gauges
return to 0, and that its resident memory is flat in the second half of the time. Prints figures; exit status 1 if not so.
"""

import argparse
import asyncio
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))

import load_clients
import server_counts
from live_server import DEMO, start_server

RSS_PERIOD_S = 30
# The KV cache was planned at load, but its pages become resident as blocks are used for the first time.
WARM_UP_SHARE = 0.5
MIN_RSS_S = 180
# A reading may exceed the first one after the warm-up by as much: allocators keep what peaks needed.
RSS_SLACK = 0.02
RSS_SLACK_BYTES = 4 << 20


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ")[1]
    return "unknown CPU"


async def watch_rss(pid, start, readings):
    while True:
        readings.append((time.monotonic() - start, server_counts.rss_bytes(pid)))
        print(f"rss at {readings[-1][0]:4.0f} s: {readings[-1][1] / 2**20:.1f} MiB", flush=True)
        await asyncio.sleep(RSS_PERIOD_S)


async def run(server, args, readings):
    clients = load_clients.Clients(server.http, server.grpc, server.model_dir / "tokenizer.json", args.seed)
    watcher = asyncio.create_task(watch_rss(server.process.pid, time.monotonic(), readings))
    try:
        return await clients.run(args.clients, args.minutes * 60), clients.num_started
    finally:
        watcher.cancel()
        await clients.close()


def grown(readings):
    """What is wrong with the memory, as text."""
    if readings[-1][0] < MIN_RSS_S:
        print(f"memory is not judged: the run was shorter than {MIN_RSS_S} s")
        return []
    warm = [rss for at, rss in readings if at >= WARM_UP_SHARE * readings[-1][0] - RSS_PERIOD_S / 2]
    if len(warm) < 2:
        return []
    limit = warm[0] * (1 + RSS_SLACK) + RSS_SLACK_BYTES
    if max(warm) <= limit:
        return []
    return [f"resident memory grew from {warm[0] / 2**20:.1f} to {max(warm) / 2**20:.1f} MiB after the warm-up"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--max-batch-size", default="32")
    parser.add_argument("--max-queue-size", default="128")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as work_dir:
        options = ("--max-batch-size", args.max_batch_size, "--max-queue-size", args.max_queue_size)
        server = start_server(pathlib.Path(work_dir), DEMO, *options)
        before = server_counts.wait_until_idle(server)
        readings = []
        start = time.monotonic()
        tally, num_started = asyncio.run(run(server, args, readings))
        elapsed_s = time.monotonic() - start
        after = server_counts.wait_until_idle(server)
        readings.append((elapsed_s, server_counts.rss_bytes(server.process.pid)))
        wrong = server_counts.differences(before, after, tally) + grown(readings)
        if sum(tally.ends.values()) != num_started:
            wrong.append(f"{num_started} requests, {sum(tally.ends.values())} ends")
        wrong += tally.problems
        if (status := server.stop()) != 0:
            wrong.append(f"the server ended with status {status}")

    generated = after.metric("inflight_tokens_generated_total", "tensorrt_llm") - before.metric(
        "inflight_tokens_generated_total", "tensorrt_llm"
    )
    print(f"{cpu_name()}, {args.clients} clients, {elapsed_s:.0f} s, {num_started} requests")
    for end in sorted({end for _, end in tally.ends}):
        print(f"  {end:12} {tally.total(end):7}")
    print(f"  generated {generated:.0f} tokens, {generated / elapsed_s:.0f} a second; {tally.output_tokens} of them in successes")
    for kind, end in sorted(tally.kinds):
        print(f"  {kind:16} {end:12} {tally.kinds[kind, end]:7}")
    print(f"  rss at the end: {readings[-1][1] / 2**20:.1f} MiB")
    for line in wrong[:20]:
        print("WRONG", line)
    print("load: " + ("failed" if wrong else "passed"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

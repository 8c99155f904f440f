#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Minutes of a crowd on the demo model: cancels, disconnects, deadlines, full queues, beside models that come and go.

usage: INFLIGHT_BIN_DIR=build/release/bin .venv/bin/python tests/load/run_load.py [--clients 256] [--minutes 60]

Meanwhile another model is loaded, asked and unloaded, and a region of shared memory registered and unregistered, twice a
second. Checks that every request has exactly one end, that the server's counters equal what the clients counted, that its
gauges return to 0, that its resident memory is flat in the second half of the time (its slope too), and that it has as many
descriptors and regions at the end as before. Prints figures; exit status 1 if not so.
"""

import argparse
import asyncio
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))

import aiohttp
import load_clients
import requests
import server_counts
from conformance_models import add_identity, infer_body
from live_server import DEMO, start_server

RSS_PERIOD_S = 30
# The KV cache was planned at load, but its pages become resident as blocks are used for the first time.
WARM_UP_SHARE = 0.5
MIN_RSS_S = 180
# A reading may exceed the first one after the warm-up by as much: allocators keep what peaks needed.
RSS_SLACK = 0.02
RSS_SLACK_BYTES = 4 << 20
# Of the line through the readings after the warm-up: what a leak of 100 bytes a request would be, about.
MAX_SLOPE = 8 << 10  # bytes a second
RELOAD_PERIOD_S = 0.5
DESCRIPTOR_SLACK = 4  # connections of metrics that linger


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


async def call(session, method, url, body=None):
    async with session.request(method, url, json=body) as answer:
        text = await answer.text()
        assert answer.status == 200, (url, answer.status, text)
        return text


async def reload(server, region, counts, stop):
    """A model and a region of shared memory that come and go."""
    base = f"http://{server.http}/v2"
    async with aiohttp.ClientSession() as session:
        while not stop.is_set():
            await call(session, "POST", f"{base}/repository/models/passing/load", {})
            await call(session, "POST", f"{base}/systemsharedmemory/region/r/register", {"key": region, "byte_size": 4096})
            assert '"data":[7,8]' in await call(session, "POST", f"{base}/models/passing/infer", infer_body([7, 8]))
            await call(session, "POST", f"{base}/systemsharedmemory/region/r/unregister", {})
            await call(session, "POST", f"{base}/repository/models/passing/unload", {})
            counts["reloads"] += 1
            await asyncio.sleep(RELOAD_PERIOD_S)


def num_descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


async def run(server, args, readings):
    clients = load_clients.Clients(server.http, server.grpc, server.model_dir / "tokenizer.json", args.seed)
    watcher = asyncio.create_task(watch_rss(server.process.pid, time.monotonic(), readings))
    counts = {"reloads": 0}
    stop = asyncio.Event()
    reloader = asyncio.create_task(reload(server, args.region, counts, stop))
    try:
        tally = await clients.run(args.clients, args.minutes * 60)
        stop.set()
        if failure := (await asyncio.gather(reloader, return_exceptions=True))[0]:
            tally.problems.append(f"reload: {failure!r}")
        return tally, clients.num_started, counts["reloads"]
    finally:
        watcher.cancel()
        await clients.close()


def slope(readings):
    """Bytes a second, of the line that fits best."""
    mean_at = sum(at for at, _ in readings) / len(readings)
    mean_rss = sum(rss for _, rss in readings) / len(readings)
    spread = sum((at - mean_at) ** 2 for at, _ in readings)
    return sum((at - mean_at) * (rss - mean_rss) for at, rss in readings) / spread


def grown(readings):
    """What is wrong with the memory, as text."""
    if readings[-1][0] < MIN_RSS_S:
        print(f"memory is not judged: the run was shorter than {MIN_RSS_S} s")
        return []
    warm = [(at, rss) for at, rss in readings if at >= WARM_UP_SHARE * readings[-1][0] - RSS_PERIOD_S / 2]
    if len(warm) < 2:
        return []
    print(f"resident memory: {slope(warm):.0f} bytes a second after the warm-up, of {len(warm)} readings")
    if len(warm) > 10 and slope(warm) > MAX_SLOPE:
        return [f"resident memory grows by {slope(warm):.0f} bytes a second"]
    first, most = warm[0][1], max(rss for _, rss in warm)
    limit = first * (1 + RSS_SLACK) + RSS_SLACK_BYTES
    if most <= limit:
        return []
    return [f"resident memory grew from {first / 2**20:.1f} to {most / 2**20:.1f} MiB after the warm-up"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--max-batch-size", default="32")
    parser.add_argument("--max-queue-size", default="128")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as work_dir:
        options = ["--max-batch-size", args.max_batch_size, "--max-queue-size", args.max_queue_size]
        repository = pathlib.Path(work_dir) / "models"
        add_identity(repository, "passing")
        options += ["--model-repository", repository, "--model-control-mode=explicit", "--load-model=*"]
        server = start_server(pathlib.Path(work_dir), DEMO, *options, "--allow-client-shm=true")
        before = server_counts.wait_until_idle(server)
        num_descriptors_before = num_descriptors(server)
        readings = []
        start = time.monotonic()
        region = pathlib.Path(f"/dev/shm/inflight_load_{server.process.pid}")
        region.write_bytes(bytes(4096))
        args.region = f"/{region.name}"
        try:
            tally, num_started, num_reloads = asyncio.run(run(server, args, readings))
        finally:
            region.unlink()
        elapsed_s = time.monotonic() - start
        after = server_counts.wait_until_idle(server)
        readings.append((elapsed_s, server_counts.rss_bytes(server.process.pid)))
        wrong = server_counts.differences(before, after, tally) + grown(readings)
        if (count := num_descriptors(server)) > num_descriptors_before + DESCRIPTOR_SLACK:
            wrong.append(f"{num_descriptors_before} descriptors before, {count} after")
        regions = requests.get(f"http://{server.http}/v2/systemsharedmemory/status", timeout=30).json()
        if regions != []:
            wrong.append(f"regions that are left: {regions}")
        if sum(tally.ends.values()) != num_started:
            wrong.append(f"{num_started} requests, {sum(tally.ends.values())} ends")
        wrong += tally.problems
        if (status := server.stop()) != 0:
            wrong.append(f"the server ended with status {status}")

    generated = after.metric("inflight_tokens_generated_total", "tensorrt_llm") - before.metric(
        "inflight_tokens_generated_total", "tensorrt_llm"
    )
    print(f"{cpu_name()}, {args.clients} clients, {elapsed_s:.0f} s, {num_started} requests, {num_reloads} loads")
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

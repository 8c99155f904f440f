# SPDX-License-Identifier: Apache-2.0
"""Some seconds of what run_load.py does for minutes: a crowd that also cancels, leaves, misses deadlines and fills the queue.

Afterwards the server's counters equal what the clients counted, and nothing is left in it.
"""

import asyncio
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))

import load_clients
import server_counts
from live_server import DEMO, start_server
from server_log import messages

NUM_CLIENTS = 64
DURATION_S = 6
MAX_DURATION_S = 120  # where not every way to end has occurred by then
MAX_BATCH_SIZE = 8
SEED = 20261121


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A small queue, so that it gets full; the log tells each iteration."""
    options = ("--max-batch-size", str(MAX_BATCH_SIZE), "--max-queue-size", "24", "--log-verbose", "1")
    running = start_server(tmp_path_factory.mktemp("load"), DEMO, *options)
    yield running
    assert running.process.poll() is None, f"the server ended by itself:\n{running.log.read_text()[-4000:]}"
    assert running.stop() == 0, running.log.read_text()[-4000:]


def has_all_ends(tally):
    ends = {end for _, end in tally.ends}
    canceled = {kind for kind, end in tally.kinds if end == "canceled"}
    wanted = {"drop_http", "cancel_running", "cancel_anywhere"}
    if tally.kinds["deadline", "canceled"] + tally.kinds["deadline", "unknown"] == 0:
        return False
    return ends >= {"success", "canceled", "rejected", "backend", "not counted"} and canceled >= wanted


@pytest.fixture(scope="module")
def load(server):
    """Counts before and after, and what the clients counted in between."""
    before = server_counts.wait_until_idle(server)

    async def run():
        clients = load_clients.Clients(server.http, server.grpc, server.model_dir / "tokenizer.json", SEED)
        try:
            tally = await clients.run(NUM_CLIENTS, DURATION_S, MAX_DURATION_S, has_all_ends)
            return tally, clients.num_started
        finally:
            await clients.close()

    tally, num_started = asyncio.run(run())
    return before, server_counts.wait_until_idle(server), tally, num_started


def test_every_request_ends_exactly_once(load):
    _, _, tally, num_started = load
    assert tally.problems == []
    assert sum(tally.ends.values()) == num_started


def test_every_way_to_end_occurs(load, server):
    _, _, tally, _ = load
    assert has_all_ends(tally), tally.kinds


def test_counters_equal_what_the_clients_saw(load):
    before, after, tally, _ = load
    assert server_counts.differences(before, after, tally) == []


# What each sample of the gauges is called in the log (the released back-end's own check has the same table).
JSON_KEYS = {
    "active": "Active Request Count", "max": "Max Request Count", "scheduled": "Scheduled Requests",
    "context": "Context Requests", "cpu": "Runtime CPU Memory Usage", "gpu": "Runtime GPU Memory Usage",
    "pinned": "Runtime Pinned Memory Usage", "free": "Free KV cache blocks", "used": "Used KV cache blocks",
    "tokens_per": "Tokens per KV cache block", "total_context_tokens": "Total Context Tokens",
    "generation_requests": "Generation Requests", "micro_batch_id": "MicroBatch ID", "paused_requests": "Paused Requests",
    "iteration_counter": "Iteration Counter", "timestamp": "Timestamp", "waiting": "Waiting Requests",
    "fraction": "Fraction used KV cache blocks",
}  # fmt: skip
KV_MAX = "Max KV cache blocks"


def test_gauges_are_the_last_record_of_the_log(load, server):
    _, after, _, _ = load
    record = iterations(server)[-1]
    samples = {
        (next(value for key, value in labels if key not in ("model", "version")), name): value
        for (name, labels), value in after.samples.items()
        if name.startswith("nv_trt_llm_")
    }
    assert len(samples) == len(record) == 19
    for (kind, family), value in samples.items():
        key = KV_MAX if kind == "max" and "kv_cache" in family else JSON_KEYS[kind]
        if kind == "timestamp":
            assert isinstance(record[key], str)
            assert value > 1.7e9
        else:
            assert value == record[key], (family, kind)
    assert record["Runtime CPU Memory Usage"] > 10**7


def iterations(server):
    return [json.loads(message) for message in messages(server.log.read_text()) if '"Active Request Count"' in message]


def test_records_of_the_log_are_consistent(load, server):
    _, _, tally, _ = load
    records = iterations(server)
    assert len(records) * MAX_BATCH_SIZE >= tally.output_tokens > 0  # a step yields at most one token a sequence
    for record in records:
        assert record["Used KV cache blocks"] + record["Free KV cache blocks"] == record[KV_MAX]
        assert record["Scheduled Requests"] == record["Context Requests"] + record["Generation Requests"]
        assert record["Scheduled Requests"] <= record["Max Request Count"] == MAX_BATCH_SIZE
        assert record["Context Requests"] <= record["Total Context Tokens"]
    counters = [record["Iteration Counter"] for record in records]
    assert counters == sorted(counters)
    assert max(record["Active Request Count"] for record in records) == MAX_BATCH_SIZE
    assert records[-1]["Active Request Count"] == records[-1]["Scheduled Requests"] == 0

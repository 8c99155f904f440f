# SPDX-License-Identifier: Apache-2.0
"""Events of KV blocks over ZeroMQ, read by pyzmq and by msgspec with the types that vLLM publishes
(vllm-project/vllm/examples/online_serving/kv_events_subscriber.py)."""

import itertools
import os
import pathlib
import threading
import time
from typing import Any

import msgspec
import pytest
import requests
import zmq
from live_server import DEMO, start_error, start_server
from tokenizers import Tokenizer

BLOCK_TOKENS = 16
PATIENCE_MS = 20_000
END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)
PROMPT = " ".join(f"{n} and" for n in range(40))


class BlockStored(msgspec.Struct, array_like=True, tag=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[list[Any] | None] | None = None


class BlockRemoved(msgspec.Struct, array_like=True, tag=True):
    block_hashes: list[int]
    medium: str | None


class AllBlocksCleared(msgspec.Struct, array_like=True, tag=True):
    pass


class KVEventBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None


DECODER = msgspec.msgpack.Decoder(KVEventBatch)


def serve(path, *options, tokens=32768):
    return start_server(
        path, DEMO, f"--kv-events-endpoint=ipc://{path}/events", f"--kv-events-replay-endpoint=ipc://{path}/replay",
        "--kv-events-topic=kv@here@{model}", f"--kv-block-size={BLOCK_TOKENS}", *options, max_kv_tokens=tokens,
    )  # fmt: skip


@pytest.fixture
def context():
    made = zmq.Context()
    yield made
    made.destroy(linger=0)


def subscribe(context, path):
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
    socket.setsockopt(zmq.SUBSCRIBE, b"kv@")
    socket.connect(f"ipc://{path}/events")
    return socket


def next_batch(socket):
    topic, number, body = socket.recv_multipart()
    return topic, int.from_bytes(number, "big"), DECODER.decode(body)


def replay(context, path, first):
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
    socket.connect(f"ipc://{path}/replay")
    socket.send_multipart([b"", first.to_bytes(8, "big")])
    batches = {}
    while True:
        empty, number, body = socket.recv_multipart()
        assert empty == b""
        if number == END_OF_REPLAY:
            assert body == b""
            return batches
        batches[int.from_bytes(number, "big")] = DECODER.decode(body)


def ask(server, text, **members):
    body = {"text_input": text, "max_tokens": 1, **members}
    answer = requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events_of(batches):
    return [event for batch in batches for event in batch.events]


def stored(batches):
    return [event for event in events_of(batches) if isinstance(event, BlockStored)]


def batches_until(socket, count):
    """Batches until `count` blocks were stored."""
    batches = []
    while sum(len(event.block_hashes) for event in stored(batches)) < count:
        batches.append(next_batch(socket)[2])
    return batches


def prompt_ids(text):
    return Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(text).ids


def test_a_prompts_blocks_are_told_once_with_its_tokens(tmp_path, context):
    server = serve(tmp_path)
    first = replay(context, tmp_path, 0)
    assert [type(event) for event in events_of(first.values())] == [AllBlocksCleared]
    socket = subscribe(context, tmp_path)
    time.sleep(0.3)  # a subscription takes effect when the publisher has it; what is missed is replayed
    before = time.time()
    ask(server, PROMPT)
    ids = prompt_ids(PROMPT)
    count = len(ids) // BLOCK_TOKENS
    topic, number, batch = next_batch(socket)
    assert (topic, number, batch.data_parallel_rank) == (b"kv@here@tensorrt_llm", 1, 0)
    assert before - 1 <= batch.ts <= time.time() + 1
    told = stored([batch, *batches_until(socket, count - sum(len(event.block_hashes) for event in stored([batch])))])
    assert [token for event in told for token in event.token_ids] == ids[: count * BLOCK_TOKENS]
    hashes = [value for event in told for value in event.block_hashes]
    assert len(set(hashes)) == count
    assert told[0].parent_block_hash is None
    for one, other in itertools.pairwise(told):
        assert other.parent_block_hash == one.block_hashes[-1], "a chain"
    assert {(event.block_size, event.medium, event.lora_id, event.lora_name, event.extra_keys) for event in told} == {
        (BLOCK_TOKENS, "CPU", None, None, None)
    }
    # Again, and with another end: only what is new is told, after what is there.
    ask(server, PROMPT)
    longer = PROMPT + " " + " ".join(str(n) for n in range(30))
    ask(server, longer)
    more_ids = prompt_ids(longer)
    more = stored(batches_until(socket, len(more_ids) // BLOCK_TOKENS - count))
    common = sum(1 for a, b in zip(ids, more_ids, strict=False) if a == b) // BLOCK_TOKENS
    assert common == count, "the longer prompt begins as the other"
    assert more[0].parent_block_hash == hashes[-1]
    end = len(more_ids) // BLOCK_TOKENS * BLOCK_TOKENS
    assert [token for event in more for token in event.token_ids] == more_ids[count * BLOCK_TOKENS : end]
    server.stop()
    *_, last = next_batch(socket)
    assert [type(event) for event in last.events] == [AllBlocksCleared], "a server that ends holds nothing"


def test_a_model_that_sleeps_holds_no_block(tmp_path, context):
    server = serve(tmp_path, "--enable-sleep-mode")
    ask(server, PROMPT)
    count = len(prompt_ids(PROMPT)) // BLOCK_TOKENS
    for call in ("sleep", "wake_up"):
        assert requests.post(f"http://{server.http}/{call}", timeout=60).ok
    ask(server, PROMPT)
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        events = events_of(replay(context, tmp_path, 0).values())
        cleared = [i for i, event in enumerate(events) if isinstance(event, AllBlocksCleared)]
        again = [e for e in events[cleared[-1] :] if isinstance(e, BlockStored)]
        if len(cleared) == 2 and sum(len(e.block_hashes) for e in again) == count:
            break
        assert time.monotonic() < deadline, events
        time.sleep(0.1)
    server.stop()


def test_blocks_that_are_taken_for_others_are_told_to_be_removed(tmp_path, context):
    server = serve(tmp_path, tokens=20 * BLOCK_TOKENS)
    for start in range(0, 400, 40):
        ask(server, " ".join(f"{n}" for n in range(start, start + 40)))
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        batches = replay(context, tmp_path, 0)
        gone = [event for event in events_of(batches.values()) if isinstance(event, BlockRemoved)]
        removed = {value for event in gone for value in event.block_hashes}
        told = {value for event in stored(batches.values()) for value in event.block_hashes}
        if len(told) > 20 and len(told - removed) <= 20:
            break
        assert time.monotonic() < deadline, (len(told), len(removed))
        time.sleep(0.1)
    assert removed < told, "none is removed that was not stored"
    server.stop()


def test_salts_are_extra_keys(tmp_path, context):
    server = serve(tmp_path)
    for salt in ("a", "b"):
        ask(server, PROMPT, cache_salt=salt)
    count = len(prompt_ids(PROMPT)) // BLOCK_TOKENS
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        told = stored(replay(context, tmp_path, 0).values())
        if sum(len(event.block_hashes) for event in told) >= 2 * count or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    salts = {tuple(keys) for event in told for keys in event.extra_keys}
    assert len(salts) == 2, "each request's own"
    assert len({value for event in told for value in event.block_hashes}) == 2 * count, "no block is another's"
    server.stop()


def test_a_replay_begins_where_it_is_asked_to_and_garbage_is_ignored(tmp_path, context):
    server = serve(tmp_path, "--kv-events-buffer-steps=2")
    for start in (0, 100, 200):
        ask(server, " ".join(f"{n}" for n in range(start, start + 40)))
    garbage = context.socket(zmq.DEALER)
    garbage.connect(f"ipc://{tmp_path}/replay")
    for frames in ([b""], [b"", b"short"], [b"x" * 4000], [b"", b"", b"", b"", b"", b""]):
        garbage.send_multipart(frames)
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while max(kept := sorted(replay(context, tmp_path, 0))) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(kept) == 2, "as many as --kv-events-buffer-steps"
    assert kept[1] == kept[0] + 1
    assert sorted(replay(context, tmp_path, kept[1])) == [kept[1]]
    assert replay(context, tmp_path, kept[1] + 10) == {}
    server.stop()


def test_a_subscriber_that_reads_nothing_stops_nobody(tmp_path, context):
    server = serve(tmp_path, tokens=20 * BLOCK_TOKENS)
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, 1)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(f"ipc://{tmp_path}/events")
    threads = [
        threading.Thread(target=lambda k=k: [ask(server, f"{k} {n} " + PROMPT[:60]) for n in range(40)]) for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--kv-events-endpoint=tcp://localhost.invalid.:1"], ["kv_events_endpoint", "cannot be bound"]),
        (["--kv-events-endpoint=ipc:///tmp/{model}", "--enable-prefix-reuse=false"], ["enable_prefix_reuse"]),
        (["--kv-events-buffer-steps=0", "--kv-events-endpoint=ipc:///tmp/x"], ["kv-events-buffer-steps", "0"]),
    ],
)
def test_what_cannot_be_published_ends_the_start(options, words):
    inflight = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    error = start_error([inflight, "serve", "--device=cpu", "--http-port=0", "--grpc-port=0", "--metrics-port=0", *options, DEMO])
    for word in words:
        assert word in error, error

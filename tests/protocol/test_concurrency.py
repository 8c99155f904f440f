# SPDX-License-Identifier: Apache-2.0
"""Many clients at once get what each gets alone, whatever others do in between; nothing is left behind afterwards.

On the CPU the server computes in float32, where a row's result does not depend on its neighbours in the batch; so texts are
compared exactly. On a GPU it computes in bfloat16 by kernels chosen by the number of rows, where near ties may fall the other
way. Streams of gRPC and HTTP are mixed (HTTP alone where the build has no gRPC); disturbers cancel, run into deadlines and
drop connections at random moments.
"""

import concurrent.futures
import contextlib
import random
import threading
import time

import grpc
import pytest
import requests
import tritonclient.grpc as triton
from live_server import DEVICE
from llm_client import events, kv_blocks, open_http_stream, stream_grpc, stream_http, tensors, wait_until_idle
from tritonclient.utils import InferenceServerException

NUM_CLIENTS = 64
NUM_DISTURBERS = 12
NUM_NEAR_TIES = {"cpu": 0, "cuda": 2}[DEVICE]
SEED = 20261121
WORDS = "the a robot fox river garden old small walked found who lives Question: Answer: 12+30".split()  # noqa: SIM905


def request_values(rng, index):
    """Prompt and parameters of one client: greedy and sampled rows, penalties, stop words, short and long."""
    values = {
        "text_input": " ".join(rng.choice(WORDS) for _ in range(rng.choice([1, 4, 20, 90]))) + f" {index}",
        "max_tokens": rng.choice([1, 7, 30, 64]),
    }
    if rng.random() < 0.6:
        values |= {"top_k": rng.choice([2, 20, 100]), "random_seed": rng.randrange(2**63), "temperature": rng.uniform(0.3, 1.5)}
        if rng.random() < 0.5:
            values["top_p"] = rng.uniform(0.5, 1.0)
    if rng.random() < 0.3:
        values["repetition_penalty"] = rng.uniform(1.0, 1.4)
    if rng.random() < 0.3:
        values["stop_words"] = rng.choice([".", " the", "\n"])
    if rng.random() < 0.3:
        values["end_id"] = -1
    return values


def run_one(server, use_grpc, values):
    if not use_grpc:
        return "".join(stream_http(server, **values))
    with triton.InferenceServerClient(server.grpc) as client:
        return "".join(stream_grpc(client, **values))


class Disturber(threading.Thread):
    """Starts requests and leaves them in the middle, until told to stop."""

    def __init__(self, server, seed, stop):
        super().__init__()
        self.server, self.rng, self.stop = server, random.Random(seed), stop
        self.num_left, self.failures = 0, []

    def run(self):
        kinds = [self.drop_http, self.cancel_grpc, self.miss_deadline, self.close_channel]
        while not self.stop.is_set():
            try:
                self.rng.choice(kinds)({"text_input": f"{self.rng.random()} once upon a time", "max_tokens": 300, "end_id": -1})
                self.num_left += 1
            except Exception as e:  # reported by the test, which owns the verdict
                self.failures.append(repr(e))
                return

    def cancel_grpc(self, values):
        with triton.InferenceServerClient(self.server.grpc) as client:
            received = threading.Event()
            client.start_stream(callback=lambda result, error: received.set())
            for i in range(self.rng.randint(1, 3)):
                client.async_stream_infer("ensemble", tensors(stream=True, **values), request_id=str(i))
            received.wait(self.rng.uniform(0, 0.3))
            client.stop_stream(cancel_requests=True)

    def miss_deadline(self, values):
        with triton.InferenceServerClient(self.server.grpc) as client:
            errors = []
            client.start_stream(
                callback=lambda result, error: errors.append(error) if error else None,
                stream_timeout=self.rng.uniform(0.01, 0.3),
            )
            with contextlib.suppress(InferenceServerException):  # the deadline came first
                client.async_stream_infer("ensemble", tensors(stream=True, **values))
            time.sleep(0.35)
            client.stop_stream(cancel_requests=True)

    def close_channel(self, values):
        client = triton.InferenceServerClient(self.server.grpc)
        received = threading.Event()
        client.start_stream(callback=lambda result, error: received.set())
        client.async_stream_infer("ensemble", tensors(stream=True, **values))
        received.wait(self.rng.uniform(0, 0.3))
        client._channel.close()

    def drop_http(self, values):
        response = open_http_stream(self.server, **values)
        for _, _ in zip(range(self.rng.randint(0, 4)), events(response), strict=False):
            pass
        response.close()


@pytest.fixture(scope="module")
def clients():
    rng = random.Random(SEED)
    return [request_values(rng, i) for i in range(NUM_CLIENTS)]


@pytest.fixture(scope="module")
def texts_alone(server, clients):
    """What each client gets from an idle server, by the other protocol than it uses in the crowd."""
    wait_until_idle(server)
    return [run_one(server, i % 2 == 1, values) for i, values in enumerate(clients)]


def run_crowd(server, clients):
    with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as pool:
        futures = [pool.submit(run_one, server, i % 2 == 0, values) for i, values in enumerate(clients)]
        return [f.result(timeout=300) for f in futures]


def assert_same(clients, got, expected):
    differing = [(c, g, e) for c, g, e in zip(clients, got, expected, strict=False) if g != e]
    assert differing[NUM_NEAR_TIES:] == []


def test_each_client_repeats_its_text_alone(server, clients, texts_alone):
    assert len(set(texts_alone)) > NUM_CLIENTS / 2  # the requests do differ
    again = [run_one(server, i % 2 == 0, values) for i, values in enumerate(clients)]
    assert_same(clients, again, texts_alone)


def test_crowd_gets_the_texts_that_each_gets_alone(server, clients, texts_alone):
    assert_same(clients, run_crowd(server, clients), texts_alone)
    wait_until_idle(server)


def test_crowd_is_undisturbed_by_cancels_and_disconnects(server, clients, texts_alone):
    free_before = kv_blocks(server, "max") - kv_blocks(server, "used")
    stop = threading.Event()
    disturbers = [Disturber(server, SEED + i, stop) for i in range(NUM_DISTURBERS)]
    for d in disturbers:
        d.start()
    try:
        for _ in range(2):
            assert_same(clients, run_crowd(server, clients), texts_alone)
    finally:
        stop.set()
        for d in disturbers:
            d.join(timeout=60)
    assert [f for d in disturbers for f in d.failures] == []
    assert sum(d.num_left for d in disturbers) >= NUM_DISTURBERS
    wait_until_idle(server)
    assert kv_blocks(server, "max") - kv_blocks(server, "used") == free_before
    assert requests.get(f"http://{server.http}/v2/health/ready", timeout=10).status_code == 200


def test_requests_beside_a_crowd_of_broken_ones(server, clients, texts_alone):
    """Bad requests and garbage end alone; the good ones between them keep their texts."""
    done = threading.Event()

    def misbehave_by_http():
        rng = random.Random(SEED)
        while not done.is_set():
            garbage = rng.randbytes(rng.randint(1, 200))
            body = rng.choice([garbage, b'{"text_input": 1}', b'{"text_input": "x", "max_tokens": -1}'])
            answer = requests.post(f"http://{server.http}/v2/models/ensemble/generate", data=body, timeout=30)
            assert answer.status_code >= 400 and answer.json()["error"]

    def misbehave_by_grpc():
        with grpc.insecure_channel(server.grpc) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            rng = random.Random(SEED)
            while not done.is_set():
                with pytest.raises(grpc.RpcError):
                    call(rng.randbytes(rng.randint(1, 200)), timeout=30)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        by_second = misbehave_by_grpc
        bad = [pool.submit(misbehave_by_http), pool.submit(by_second)]
        try:
            got = run_crowd(server, clients[:16])
        finally:
            done.set()
        for f in bad:
            f.result(timeout=60)
    assert_same(clients, got, texts_alone)
    wait_until_idle(server)

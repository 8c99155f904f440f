# SPDX-License-Identifier: Apache-2.0
"""Clients that stream `tensorrt_llm` over gRPC, some of which stop in the middle."""

import asyncio
import collections
import random

import grpc
import numpy as np
import tritonclient.grpc.aio as triton
from llm_client import token_ids
from tritonclient.utils import InferenceServerException

PROMPTS = (
    "Once upon a time",
    "Question: 12+30 Answer:",
    "The old robot",
    "Tell me a story about a fox.",
    "Who lives by the river?",
)
NUM_REQUESTS = 40  # different ones
STREAM_TIMEOUT_S = 60


def make_requests(server, seed, max_tokens=48):
    """Inputs by number: prompts, lengths and sampling."""
    rng = random.Random(seed)
    requests = []
    for number in range(NUM_REQUESTS):
        ids = token_ids(server, f"{rng.choice(PROMPTS)} {number}")
        values = {
            "input_ids": np.array([ids], np.int32), "input_lengths": np.array([[len(ids)]], np.int32),
            "request_output_len": np.array([[rng.randint(max_tokens // 2, max_tokens)]], np.int32),
            "streaming": np.array([[True]]), "end_id": np.array([[-1]], np.int32),
            "random_seed": np.array([[number]], np.uint64), "runtime_top_k": np.array([[rng.choice([1, 5, 50])]], np.int32),
        }  # fmt: skip
        requests.append([tensor(name, value) for name, value in values.items()])
    return requests


def tensor(name, value):
    datatype = {"int32": "INT32", "bool": "BOOL", "uint64": "UINT64"}[value.dtype.name]
    made = triton.InferInput(name, value.shape, datatype)
    made.set_data_from_numpy(value)
    return made


async def stream(client, inputs, stop_after=None, request_id=""):
    """The ids of one request, and whether it was stopped after so many responses: those are the first ids of the whole."""
    stop, is_stopped, ids, count, num_finals = asyncio.Event(), False, [], 0, 0

    async def ask():
        request = {"model_name": "tensorrt_llm", "request_id": request_id, "enable_empty_final_response": True}
        yield request | {"inputs": inputs}
        if stop_after is not None:
            await stop.wait()
            if is_stopped:
                yield request | {"inputs": [*inputs, tensor("stop", np.array([[True]]))]}

    async for result, error in client.stream_infer(ask()):
        if error is not None:
            raise error
        response = result.get_response()
        if response.outputs:
            length = int(result.as_numpy("sequence_length").reshape(-1)[0])
            ids += result.as_numpy("output_ids").reshape(-1)[:length].tolist()
            count += 1
        num_finals += response.parameters["triton_final_response"].bool_param
        if count == stop_after and not is_stopped and num_finals == 0:
            is_stopped = True
            stop.set()
        if num_finals > 0:
            stop.set()  # nothing more is asked
    if num_finals != (2 if is_stopped else 1):  # the stop is a request too
        raise RuntimeError(f"the stream ended after {num_finals} final responses and {count} others")
    return ids, is_stopped


async def crowd(server, requests, expected, num_clients, seconds, share_that_stops, seed=1):
    """`num_clients` at once for so long; {what became of requests: how often}, and the tokens that came."""
    counts = collections.Counter()
    end = asyncio.get_running_loop().time() + seconds
    async with triton.InferenceServerClient(server.grpc) as client:

        async def run(number):
            rng = random.Random(seed * 1000 + number)
            while asyncio.get_running_loop().time() < end:
                which = rng.randrange(len(requests))
                stop_after = rng.randint(1, 12) if rng.random() < share_that_stops else None
                ids, is_stopped = await stream(client, requests[which], stop_after, str(rng.getrandbits(64)))
                counts["stopped" if is_stopped else "answered"] += 1
                counts["tokens"] += len(ids)
                if expected is not None and ids != expected[which][: len(ids) if is_stopped else None]:
                    counts["wrong"] += 1

        await asyncio.gather(*(run(number) for number in range(num_clients)))
    return counts


async def stream_and_cancel(client, inputs, cancel_after=None, cancel_after_s=None, request_id=""):
    """The ids that came, and whether the call was cancelled, as clients do who leave: after so many responses, or seconds."""

    async def ask():
        yield {"model_name": "tensorrt_llm", "inputs": inputs, "request_id": request_id, "enable_empty_final_response": True}

    call, ids, count, is_cancelled = client.stream_infer(ask()), [], 0, False

    def cancel():
        nonlocal is_cancelled
        is_cancelled = True
        call.cancel()

    timer = None
    if cancel_after_s is not None:
        timer = asyncio.get_running_loop().call_later(cancel_after_s, cancel)
    try:
        async for result, error in call:
            if error is not None:
                raise error
            if not result.get_response().outputs:
                continue
            length = int(result.as_numpy("sequence_length").reshape(-1)[0])
            ids += result.as_numpy("output_ids").reshape(-1)[:length].tolist()
            count += 1
            if count == cancel_after:
                cancel()
                break
    except asyncio.CancelledError:
        if not is_cancelled:
            raise
    finally:
        if timer is not None:
            timer.cancel()
    return ids, is_cancelled


async def crowd_that_cancels(server, requests, expected, num_clients, seconds, share_that_cancels, seed=2):
    """As `crowd`, with calls that are cancelled in place of stops, until the time is over or the server is gone.

    "refused" are streams that ended in an error of the server's, "lost" those that it took with it.
    """
    counts = collections.Counter()
    end = asyncio.get_running_loop().time() + seconds

    def goes_on():
        return asyncio.get_running_loop().time() < end and server.process.poll() is None

    async def run(client, number):
        rng = random.Random(seed * 1000 + number)
        while goes_on():
            which = rng.randrange(len(requests))
            cancel = {}
            if rng.random() < share_that_cancels:  # at a response, or at any time, also before the first
                cancel = rng.choice([{"cancel_after": rng.randint(1, 12)}, {"cancel_after_s": rng.random()}])
            try:
                told = stream_and_cancel(client, requests[which], **cancel, request_id=str(rng.getrandbits(64)))
                ids, is_cancelled = await asyncio.wait_for(told, STREAM_TIMEOUT_S)
            except (InferenceServerException, grpc.RpcError):
                counts["refused" if server.process.poll() is None else "lost"] += 1
                await asyncio.sleep(0)
                continue
            except (TimeoutError, asyncio.CancelledError):  # a stream that nobody ends
                counts["left open"] += 1
                continue
            counts["cancelled" if is_cancelled else "answered"] += 1
            counts["tokens"] += len(ids)
            whole = expected[which]
            if ids != whole[: len(ids)] or (not is_cancelled and len(ids) != len(whole) and server.process.poll() is None):
                counts["wrong"] += 1

    async with triton.InferenceServerClient(server.grpc) as client:  # streams of one connection, as of one program
        await asyncio.gather(*(run(client, number) for number in range(num_clients)))
    return counts


async def each_alone(server, requests):
    async with triton.InferenceServerClient(server.grpc) as client:
        return [(await stream(client, inputs))[0] for inputs in requests]

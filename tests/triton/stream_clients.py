# SPDX-License-Identifier: Apache-2.0
"""Clients that stream `tensorrt_llm` over gRPC, some of which leave in the middle."""

import asyncio
import collections
import random

import numpy as np
import tritonclient.grpc.aio as triton
from llm_client import token_ids

PROMPTS = (
    "Once upon a time",
    "Question: 12+30 Answer:",
    "The old robot",
    "Tell me a story about a fox.",
    "Who lives by the river?",
)
NUM_REQUESTS = 40  # different ones


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


async def stream(client, inputs, leave_after=None):
    """The ids of one request; None where it was left after so many responses."""

    async def once():
        yield {"model_name": "tensorrt_llm", "inputs": inputs, "enable_empty_final_response": True}

    ids, count = [], 0
    responses = client.stream_infer(once())
    async for result, error in responses:
        if error is not None:
            raise error
        response = result.get_response()
        if response.outputs:
            length = int(result.as_numpy("sequence_length").reshape(-1)[0])
            ids += result.as_numpy("output_ids").reshape(-1)[:length].tolist()
            count += 1
            if count == leave_after:
                responses.cancel()
                return None
        if response.parameters["triton_final_response"].bool_param:
            return ids
    raise RuntimeError(f"the stream ended without a final response after {count} others")


async def crowd(server, requests, expected, num_clients, seconds, share_that_leaves, seed=1):
    """`num_clients` at once for so long; {what became of requests: how often}, and the tokens that came."""
    counts = collections.Counter()
    end = asyncio.get_running_loop().time() + seconds
    async with triton.InferenceServerClient(server.grpc) as client:

        async def run(number):
            rng = random.Random(seed * 1000 + number)
            while asyncio.get_running_loop().time() < end:
                which = rng.randrange(len(requests))
                leave_after = rng.randint(1, 12) if rng.random() < share_that_leaves else None
                ids = await stream(client, requests[which], leave_after)
                if ids is None:
                    counts["left"] += 1
                    continue
                counts["answered"] += 1
                counts["tokens"] += len(ids)
                if expected is not None and ids != expected[which]:
                    counts["wrong"] += 1

        await asyncio.gather(*(run(number) for number in range(num_clients)))
    return counts


async def each_alone(server, requests):
    async with triton.InferenceServerClient(server.grpc) as client:
        return [await stream(client, inputs) for inputs in requests]

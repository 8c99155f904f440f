# SPDX-License-Identifier: Apache-2.0
"""The gauges while requests run, beside what their clients know: three streams that are held open after their first events."""

import math
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))

import server_counts
from live_server import DEMO, start_server
from llm_client import events, open_http_stream, token_ids

# Different from the first block on, so that no block is shared; of 1, 2 and 3 blocks and more of 64 tokens.
PROMPTS = ["fox " * 30, "river " * 90, "robot " * 150]
MAX_TOKENS = 700  # of the 1,024 that the model has: far more than are made between opening the streams and reading the page
NUM_EVENTS = 3  # the step before the last one seen, whose record is on the page for sure, held decode rows alone
ATTEMPTS = 10


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start_server(tmp_path_factory.mktemp("gauges"), DEMO)
    yield running
    assert running.stop() == 0, running.log.read_text()[-4000:]


def tokens_generated(counts):
    return counts.metric("inflight_tokens_generated_total", "tensorrt_llm")


def read_while_open(server):
    """The page while all streams are open, and how many tokens they had at least and at most; None if one may have ended."""
    before = server_counts.wait_until_idle(server)
    streams = []
    try:
        for prompt in PROMPTS:
            streams.append(open_http_stream(server, text_input=prompt, max_tokens=MAX_TOKENS, end_id=-1))
        readers = [events(stream) for stream in streams]  # one that goes away closes its connection
        for chunks in readers:
            assert not any("error" in next(chunks) for _ in range(NUM_EVENTS))
        page = server_counts.Counts(server)
        # A stream ends after MAX_TOKENS; fewer than those were made by all of them together, even after the page was read.
        most = int(tokens_generated(server_counts.Counts(server)) - tokens_generated(before))
        return (page, NUM_EVENTS, most) if most < MAX_TOKENS else None
    finally:
        for stream in streams:
            stream.close()


def test_gauges_are_what_the_clients_know(server):
    readings = (read_while_open(server) for _ in range(ATTEMPTS))
    page, least, most = next(reading for reading in readings if reading is not None)
    assert page.gauge("request", "active") == len(PROMPTS)
    assert page.gauge("request", "scheduled") == len(PROMPTS)
    assert page.gauge("request", "context") == 0
    assert page.gauge("inflight_batcher", "generation_requests") == len(PROMPTS)
    assert page.gauge("inflight_batcher", "total_context_tokens") == 0
    assert page.gauge("inflight_batcher", "paused_requests") == 0
    assert page.metric("nv_inference_pending_request_count", "tensorrt_llm") == 0

    block = page.gauge("kv_cache_block", "tokens_per")
    lengths = [len(token_ids(server, prompt)) for prompt in PROMPTS]
    assert len({math.ceil(length / block) for length in lengths}) == len(PROMPTS)  # or the prompts say little

    def blocks(num_generated):
        """A block for each so many tokens; the newest token has no place in the cache until the next step takes it."""
        return sum(math.ceil((length + num_generated - 1) / block) for length in lengths)

    used = page.gauge("kv_cache_block", "used")
    assert blocks(least) <= used <= blocks(most + 1)
    assert used + page.gauge("kv_cache_block", "free") == page.gauge("kv_cache_block", "max")

    server_counts.wait_until_idle(server)  # all 0 again

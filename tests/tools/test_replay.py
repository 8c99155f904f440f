# SPDX-License-Identifier: Apache-2.0
"""`inflight serve --record` and `inflight replay`: what a server did before it was killed repeats, step by step.

Of the requests the clients know how many they sent, `tokenizers` knows their tokens. INFLIGHT_TEST_RECORDED_REQUESTS=1000
records a longer load.
"""

import concurrent.futures
import json
import os
import pathlib
import random
import struct
import sys
import time

import pytest
import requests
from command import DEMO, ROOT, demo_of_another_weight, error, run
from tokenizers import Tokenizer

sys.path.insert(0, str(ROOT / "tests/protocol"))
from live_server import start_server

NUM_REQUESTS = int(os.environ.get("INFLIGHT_TEST_RECORDED_REQUESTS", 100))
TEXTS = ("Once upon a time", "The quick brown fox", "2 + 3 =", "A field of computer science that", "In the beginning")
LONG = {"text_input": "x", "max_tokens": 480, "min_length": 480}
PROMPTS = [f"{TEXTS[i % len(TEXTS)]} {'and so on ' * (i % 7)}{i // 9}" for i in range(NUM_REQUESTS)]


def ask(url, number):
    """Whole, as a stream, or as a stream whose client leaves after its first event."""
    draw = random.Random(number)
    tokens = draw.randint(1, 80)
    body = {"text_input": PROMPTS[number], "max_tokens": tokens, "min_length": tokens, "random_seed": number, "top_k": 20}
    kind = number % 5
    if kind < 3:
        return requests.post(f"{url}/generate", json=body, timeout=120).status_code
    body.update(stream=True, max_tokens=tokens if kind == 3 else 200)
    with requests.post(f"{url}/generate_stream", json=body, timeout=120, stream=True) as answer:
        for _ in answer.iter_lines():
            if kind == 4:
                break
        return answer.status_code


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """Of a server that lacks memory for all, and is killed while some of the requests run."""
    folder = tmp_path_factory.mktemp("recorded")
    file = folder / "journal"
    options = ("--record", file, "--record-prompts", "--scheduler-policy", "max_utilization", "--kv-block-size", "16")
    server = start_server(folder, DEMO, *options, "--deterministic", "--max-seq-len", "512", max_kv_tokens=512)
    url = f"http://{server.http}/v2/models/ensemble"
    try:
        with concurrent.futures.ThreadPoolExecutor(16) as clients:
            assert {200} == set(clients.map(lambda number: ask(url, number), range(NUM_REQUESTS)))
        until = time.monotonic() + 60
        while journal_lines(file)[-1].get("idle") is not True:  # as soon as it is written
            assert time.monotonic() < until
            time.sleep(0.05)
        with concurrent.futures.ThreadPoolExecutor(1) as client:
            left = client.submit(requests.post, f"{url}/generate", json=LONG, timeout=60)
            while "idle" in journal_lines(file)[-1]:
                time.sleep(0.02)
            server.process.kill()
            assert isinstance(left.exception(60), requests.ConnectionError)
    finally:
        server.process.kill()
        server.process.wait()
    return file


def journal_lines(file):
    return [json.loads(line) for line in run("replay", file, "--print").stdout.splitlines()]


def test_it_repeats_twice(journal):
    assert pathlib.Path(journal).stat().st_mode & 0o777 == 0o600
    first, second = (run("replay", journal).stdout for _ in range(2))
    assert first == second
    lines = first.splitlines()
    assert lines[-1] == "equal"
    assert f"{NUM_REQUESTS + 1} requests, " in lines[0]
    assert "1 requests had not ended" in lines
    cancels, pauses = (int(part.split()[0]) for part in lines[0].split(", ")[1:3])
    assert cancels >= NUM_REQUESTS // 10
    assert pauses > 0


def test_it_has_the_prompts_that_were_sent(journal):
    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    arrived = [request["prompt"] for line in journal_lines(journal) for request in line.get("arrivals", ())]
    sent = [tokenizer.encode(prompt).ids for prompt in [*PROMPTS, "x"]]
    assert sorted(arrived) == sorted(sent)


def test_until_step_and_its_plans(journal):
    lines = run("replay", journal, "--until-step", 5, "--verbose").stdout.splitlines()
    assert [json.loads(line)["step"] for line in lines if line.startswith("{")] == [1, 2, 3, 4, 5]
    assert "the replay ends at step 5, as asked" in lines


def test_another_weight_is_found(journal, tmp_path):
    model = demo_of_another_weight(tmp_path)
    assert "the replay differs: step " in error("replay", journal, "--model", model)


def end_of_last_record(content):
    end = 8
    while end + 8 <= len(content):
        (size,) = struct.unpack_from("<I", content, end)
        if end + 8 + size > len(content):
            break
        end += 8 + size
    return end


def test_a_forged_line_is_found(journal, tmp_path):
    forged = tmp_path / "forged"
    content = bytearray(journal.read_bytes())
    content[end_of_last_record(content) - 1] ^= 1
    forged.write_bytes(content)
    assert "is not what was written" in error("replay", forged)


def test_what_is_no_journal_is_told(tmp_path):
    file = tmp_path / "file"
    file.write_text("text")
    assert "no journal of inflight serve --record" in error("replay", file)
    assert "No such file" in error("replay", tmp_path / "missing")


def test_without_prompts_it_says_what_it_cannot(tmp_path):
    file = tmp_path / "journal-{model}"
    server = start_server(tmp_path, DEMO, "--record", file)
    try:
        answer = requests.post(
            f"http://{server.http}/v2/models/ensemble/generate", json={"text_input": "secret", "max_tokens": 3}, timeout=60
        )
        assert answer.ok
    finally:
        assert server.stop() == 0
    written = tmp_path / "journal-tensorrt_llm-1"
    (asked,) = [request for line in journal_lines(written) for request in line.get("arrivals", ())]
    assert "prompt" not in asked
    assert asked["prompt_tokens"] == len(Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode("secret").ids)
    assert "--record-prompts" in error("replay", written)


def test_prompts_of_no_journal_are_refused():
    done = run("serve", DEMO, "--record-prompts", check=False)
    assert done.returncode != 0
    assert "--record-prompts is of the journal of --record, needed with it" in done.stderr

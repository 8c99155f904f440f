# SPDX-License-Identifier: Apache-2.0
"""Cached responses of language models: only what the same request would get again is given for another one."""

import concurrent.futures

import pytest
import requests
from live_server import DEMO, start_server
from llm_client import kv_blocks, wait_until
from matrix_client import infer_rows
from release_repositories import OURS, write_repository

FILLED = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "False", "exclude_input_in_output": "True"}
PROMPT = "Tell me a story about a fox."
LONG = {"text": PROMPT, "max_tokens": 900, "end_id": -1, "return_finish_reason": True}


@pytest.fixture(scope="module")
def caching(tmp_path_factory):
    path = tmp_path_factory.mktemp("caching")
    repository = write_repository(path / "repository", OURS, **FILLED)
    for model in ("ensemble", "tensorrt_llm"):
        with (repository / model / "config.pbtxt").open("a") as config:
            config.write("response_cache { enable: true }\n")
    server = start_server(path, None, "--model-repository", repository, "--cache-config=local,size=1048576")
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def generate(server, **body):
    answer = requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60)
    assert answer.ok, answer.text
    return answer.json()["text_output"]


def num_hits(server, model):
    (stats,) = requests.get(f"http://{server.http}/v2/models/{model}/stats", timeout=30).json()["model_stats"]
    return stats["inference_stats"]["cache_hit"]["count"]


def test_a_parameter_that_changes_the_answer_tells_requests_apart(caching):
    text = generate(caching, text_input=PROMPT, max_tokens=24)
    word = text.split()[3]
    body = {"text_input": PROMPT, "max_tokens": 24, "stop_words": [word]}
    hits = num_hits(caching, "ensemble")
    with_word = generate(caching, **body, include_stop_str_in_output=True)
    without = generate(caching, **body, include_stop_str_in_output=False)
    assert with_word.endswith(word) and with_word == without + word
    assert num_hits(caching, "ensemble") == hits
    assert generate(caching, **body, include_stop_str_in_output=False) == without
    assert num_hits(caching, "ensemble") == hits + 1


@pytest.mark.parametrize("num_rows", [1, 3])
def test_an_answer_that_a_stop_cut_short_is_for_nobody_else(caching, num_rows):
    def infer(row):
        return infer_rows(caching, "http", "tensorrt_llm", [row] * num_rows, request_id="to be stopped")

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(infer, LONG)
        wait_until(lambda: kv_blocks(caching) > 0)
        infer({**LONG, "max_tokens": 1, "stop": True})
        assert running.result().as_numpy("finish_reason").tolist() == [[b"cancelled"]] * num_rows
    whole = infer(LONG)
    assert whole.as_numpy("finish_reason").tolist() == [[b"length"]] * num_rows
    assert num_hits(caching, "tensorrt_llm") == 0

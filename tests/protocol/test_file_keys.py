# SPDX-License-Identifier: Apache-2.0
"""Keys of config.pbtxt that change answers, by what a client sees: special tokens, accumulated texts, normalised log-probs, the
samplers of `decoding_mode`, and what releases up to 0.10 took for keys left open.
"""

import itertools
import json
import re

import numpy as np
import pytest
import requests
import tritonclient.http
from live_server import DEMO, start_server
from llm_client import wait_until
from matrix_client import TOKENIZER, VOCAB_SIZE, Road, ask, ids_of
from release_repositories import OURS, write_repository
from server_log import messages
from tritonclient.utils import InferenceServerException

EXAMPLE = json.loads((DEMO / "demo_requests.json").read_text())[0]
FILLED = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "True", "exclude_input_in_output": "True"}
QUESTION = {"text": EXAMPLE["text_input"], "max_tokens": 24, "end_id": -1}
STORY = {"text": "Tell me a story about a fox.", "max_tokens": 8, "end_id": -1}
SAMPLED = {**STORY, "temperature": 3.0, "random_seed": 5}
STATS = {"request_stats_max_iterations": "1000"}
CORE, CORE_STREAM = (Road("http", "tensorrt_llm", stream=stream, num_rows=1) for stream in (False, True))
PIPELINES = ["ensemble", "tensorrt_llm_bls"]


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """A server of the newest tensors with the keys given, the same for the same keys."""
    servers = {}

    def get(release=OURS, **keys):
        name = json.dumps([release, keys])
        if name not in servers:
            path = tmp_path_factory.mktemp("keys")
            repository = write_repository(path / "repository", release, **FILLED, **keys)
            servers[name] = start_server(path, None, "--model-repository", repository)
        return servers[name]

    yield get
    for server in servers.values():
        assert server.stop() == 0, server.log.read_text()[-4000:]


def report_line(server, key):
    """[key, value, source, effect] of the start-up report."""
    return re.search(rf"^  ({key}) +(\S+) +(\S+) +(.*)$", server.log.read_text(), re.MULTILINE).groups()


@pytest.mark.parametrize("model", PIPELINES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("skips", [True, False])
def test_skip_special_tokens(serve, skips, stream, model):
    server = serve(skip_special_tokens=str(skips), accumulate_tokens="False")
    ids = ask(server, CORE, [QUESTION])[0].ids
    assert any(i in ids for i in (2044, 2047)), "without an end id the model says its special tokens"
    text = ask(server, Road("http", model, stream, 1), [QUESTION])[0].text
    assert text == TOKENIZER.decode(ids, skip_special_tokens=skips)
    assert ("<|" in text) != skips


@pytest.mark.parametrize("transport", ["http", "grpc"])
@pytest.mark.parametrize("accumulates", [True, False])
def test_accumulate_tokens(serve, accumulates, transport):
    server = serve(skip_special_tokens="True", accumulate_tokens=str(accumulates))
    whole = ask(server, Road(transport, "tensorrt_llm_bls", stream=False, num_rows=1), [STORY])[0].text
    texts = ask(server, Road(transport, "tensorrt_llm_bls", stream=True, num_rows=1), [STORY])[0].strings("text_output")
    assert len(texts) == STORY["max_tokens"]
    if accumulates:
        assert texts[-1] == whole and all(b.startswith(a) for a, b in itertools.pairwise(texts))
    else:
        assert "".join(texts) == whole and texts[-1] != whole
    chunks = ask(server, Road(transport, "ensemble", stream=True, num_rows=1), [STORY])[0].strings("text_output")
    assert "".join(chunks) == whole, "the key is of BLS alone"


@pytest.mark.parametrize("road", [CORE, CORE_STREAM, Road("http", "ensemble", stream=True, num_rows=1)], ids=str)
@pytest.mark.parametrize("normalizes", [True, False])
def test_normalize_log_probs(serve, normalizes, road):
    """Of a row drawn from the k likeliest: given those, or given the vocabulary."""
    server = serve(normalize_log_probs=str(normalizes), **STATS)
    request = {**SAMPLED, "top_k": 5, "return_log_probs": True, "return_generation_logits": True}
    ids = ask(server, CORE, [request])[0].ids
    answer = ask(server, road, [request])[0]
    logits = answer.floats("generation_logits").reshape(len(ids), VOCAB_SIZE) / SAMPLED["temperature"]
    among = np.sort(logits, axis=1)[:, -5:] if normalizes else logits
    chosen = logits[np.arange(len(ids)), ids]
    expected = chosen - np.log(np.exp(among - among.max(1, keepdims=True)).sum(1)) - among.max(1)
    assert answer.floats("output_log_probs") == pytest.approx(expected, abs=1e-3)


def test_request_stats_max_iterations(serve):
    """Where a request stands at the end of each iteration, by lines of the log at verbose level; it fits one KV block. The
    newest record stands in the statistics too.
    """
    server = serve(normalize_log_probs="True", **STATS)
    assert report_line(server, "request_stats_max_iterations")[1:] == ("1000", "file", "honoured")

    def set_verbose(level):
        assert requests.post(f"http://{server.http}/v2/logging", json={"log_verbose_level": level}, timeout=30).ok

    iteration = '{"cpuMemUsage":'

    def logged(beginning='{"iter":'):
        return [json.loads(message) for message in messages(server.log.read_text()) if message.startswith(beginning)]

    requests.get(f"http://{server.metrics}/metrics", timeout=30)  # takes those of other tests
    set_verbose(1)
    ask(server, CORE, [STORY])
    wait_until(lambda: any(s["stage"] == "GENERATION_COMPLETE" for r in logged() for s in r["requestStats"]))
    wait_until(lambda: any(r["inflightBatchingStats"]["numScheduledRequests"] == 0 for r in logged(iteration)))
    set_verbose(0)
    records = logged()
    assert len(records) == STORY["max_tokens"], "one an iteration: the first of them reads the prompt"
    assert [record["iter"] - records[0]["iter"] for record in records] == list(range(len(records)))
    stats = [stats for record in records for stats in record["requestStats"]]
    assert len({s["id"] for s in stats}) == 1
    stages = ["GENERATION_IN_PROGRESS"] * (STORY["max_tokens"] - 1) + ["GENERATION_COMPLETE"]
    for i, (found, stage) in enumerate(zip(stats, stages, strict=True)):
        assert found == {
            "id": stats[0]["id"], "sequenceIndex": 0, "stage": stage, "contextPrefillPosition": len(ids_of(STORY["text"])),
            "numGeneratedTokens": i + 1, "avgNumDecodedTokensPerIter": 1, "scheduled": True, "paused": False,
            "disServingStats": None, "allocTotalBlocksPerRequest": 1, "allocNewBlocksPerRequest": 1,
            "reusedBlocksPerRequest": 0, "missedBlocksPerRequest": 0, "kvCacheHitRatePerRequest": 0,
        }  # fmt: skip

    iterations = logged(iteration)  # and one of the idle loop behind them
    assert len(iterations) == len(records) + 1
    for what in ("numNewActiveRequests", "numCompletedRequests"):
        assert sum(record[what] for record in iterations) == 1
    for record in iterations[:-1]:
        assert record["iterLatencyMS"] > 0
        assert record["inflightBatchingStats"]["avgNumDecodedTokensPerIter"] == 1
    assert iterations[0]["newActiveRequestsQueueLatencyMS"] >= 0
    assert (iterations[-1]["iterLatencyMS"], iterations[-1]["numActiveRequests"]) == (0, 0)

    with tritonclient.http.InferenceServerClient(server.http) as client:
        (model,) = client.get_inference_statistics("tensorrt_llm", "1")["model_stats"]
        assert (model["iteration_stats"], model["request_stats"]) == (iterations[-1], records[-1])
        (other,) = client.get_inference_statistics("preprocessing")["model_stats"]
        assert not {"iteration_stats", "request_stats"} & set(other)
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    stages = dict(re.findall(r'^inflight_sequences_by_stage\{.*stage="(\w+)".*\} (\d+)$', page, re.MULTILINE))
    assert stages == {"QUEUED": "0", "CONTEXT_IN_PROGRESS": "0", "GENERATION_IN_PROGRESS": "0", "GENERATION_COMPLETE": "1"}
    assert 'inflight_iteration{model="tensorrt_llm",statistic="latency_ms",version="1"} 0\n' in page


def test_batches_are_the_rows_of_a_step(serve):
    server = serve(normalize_log_probs="True", **STATS)

    def steps():
        with tritonclient.http.InferenceServerClient(server.http) as client:
            (model,) = client.get_inference_statistics("tensorrt_llm")["model_stats"]
        return {batch["batch_size"]: batch["compute_infer"]["count"] for batch in model["batch_stats"]}

    before = steps()
    ask(server, Road("http", "tensorrt_llm", stream=False, num_rows=3), [STORY] * 3)
    grown = {size: count - before.get(size, 0) for size, count in steps().items() if count != before.get(size)}
    assert sum(size * count for size, count in grown.items()) == 3 * STORY["max_tokens"]
    assert sum(count for size, count in grown.items() if size > 1) > 0, "rows of a request go together"
    assert max(grown) <= 3


DRAWS = {
    "greedy": {},
    "top_k": {**SAMPLED, "top_k": 5},
    "top_p": {**SAMPLED, "top_p": 0.9},
    "min_p": {**SAMPLED, "min_p": 0.01},
    "beams": {"beam_width": 2},
}
# mode -> what is refused, and the tensors that the refusals name
MODES = {
    "auto": {},
    "top_k": {"top_p": "top_p", "min_p": "min_p", "beams": "beam_width"},
    "top_p": {"top_k": "top_k", "beams": "beam_width"},
    "top_k_top_p": {"beams": "beam_width"},
    "beam_search": {"top_k": "top_k", "top_p": "top_p", "min_p": "min_p"},
}


@pytest.mark.parametrize("mode", MODES)
def test_decoding_mode(serve, mode):
    server = serve(decoding_mode=mode, max_beam_width="2")
    auto = serve(decoding_mode="auto", max_beam_width="2")
    for name, asked in DRAWS.items():
        request = {**STORY, **asked}
        for model in (*PIPELINES, "tensorrt_llm"):
            road = Road("http", model, stream=False, num_rows=1)
            if name not in MODES[mode]:
                answer, expected = (ask(s, road, [request])[0] for s in (server, auto))
                assert answer.beams == expected.beams
                continue
            tensor = MODES[mode][name]
            if model == "tensorrt_llm" and tensor.startswith("top_"):
                tensor = f"runtime_{tensor}"
            with pytest.raises(InferenceServerException, match=f"{tensor}: decoding_mode {mode} of the model has no sampler"):
                ask(server, road, [request])


@pytest.mark.parametrize(
    ("keys", "value", "reason"),
    [
        ({"decoding_mode": "auto", "max_beam_width": "2"}, "auto", "beam_search where beam_width is above 1, else top_k_top_p"),
        ({"decoding_mode": "beam_search", "max_beam_width": "2"}, "beam_search", ""),
        ({"max_beam_width": "1"}, "auto", "left unfilled; top_k_top_p, since max_beam_width is 1"),
        ({"decoding_mode": "beam_search", "max_beam_width": "1"}, "beam_search", "top_k_top_p, since max_beam_width is 1"),
    ],
)
def test_the_report_says_which_samplers_run(serve, keys, value, reason):
    line = report_line(serve(**keys), "decoding_mode")
    assert line[1] == value and line[3] == "honoured" + (f": {reason}" if reason else "")


def preprocessed(server, **tensors):
    """{output: values} of one row."""
    inputs = [
        {"name": name, "datatype": "BYTES" if isinstance(value, str) else "INT32", "shape": [1, 1], "data": [value]}
        for name, value in tensors.items()
    ]
    url = f"http://{server.http}/v2/models/preprocessing/infer"
    answer = requests.post(url, json={"inputs": inputs}, timeout=60).json()
    return {output["name"]: output["data"] for output in answer["outputs"]}


@pytest.mark.parametrize("release", [10, 11])
def test_what_releases_took_for_keys_left_open(serve, release):
    """Up to 0.10 no special tokens, and the end token for padding; from 0.11 on both as the tokenizer has them."""
    files = json.loads((DEMO / "tokenizer_config.json").read_text())
    eos, pad = (TOKENIZER.token_to_id(files[f"{name}_token"]) for name in ("eos", "pad"))
    plain, special = (TOKENIZER.encode(STORY["text"], add_special_tokens=adds).ids for adds in (False, True))
    assert eos != pad and plain != special
    server = serve(release=release)
    out = preprocessed(server, QUERY=STORY["text"], REQUEST_OUTPUT_LEN=4)
    assert out["INPUT_ID"] == (special if release >= 11 else plain)
    assert (out["OUT_END_ID"], out["OUT_PAD_ID"]) == ([eos], [pad if release >= 11 else eos])
    own = preprocessed(server, QUERY="a", REQUEST_OUTPUT_LEN=4, PAD_ID=7, END_ID=9)
    assert (own["OUT_END_ID"], own["OUT_PAD_ID"]) == ([9], [7])


def test_keys_win_over_what_their_release_takes(serve):
    out = preprocessed(serve(release=10, add_special_tokens="true"), QUERY=STORY["text"], REQUEST_OUTPUT_LEN=4)
    assert out["INPUT_ID"] == ids_of(STORY["text"])

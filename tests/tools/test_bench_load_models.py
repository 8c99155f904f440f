# SPDX-License-Identifier: Apache-2.0
"""`inflight bench load` with tensors for any model: its counts are the server's, its report has perf_analyzer's layout."""

import csv
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/protocol"))

from conformance_models import add_ensemble, add_identity, add_model, io  # noqa: E402
from live_server import start_server  # noqa: E402

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    repository = path / "repository"
    add_identity(repository, "pairs", "max_batch_size: 8")
    add_identity(repository, "inner")
    add_ensemble(repository, "outer", "inner")
    add_model(repository, "texts", "params", io("input", "INPUT0", "[ -1 ]", "TYPE_STRING"),
              io("output", "OUTPUT0", "[ -1 ]", "TYPE_STRING"))  # fmt: skip
    add_model(repository, "sums", "addsub", *(io("input", f"INPUT{i}", "[ -1 ]", "TYPE_STRING") for i in (0, 1)),
              *(io("output", f"OUTPUT{i}", "[ -1 ]", "TYPE_STRING") for i in (0, 1)))  # fmt: skip
    add_model(repository, "many", "repeat", io("input", "IN", "[ -1 ]"), io("input", "DELAY", "[ -1 ]", "TYPE_UINT32"),
              io("input", "WAIT", "[ 1 ]", "TYPE_UINT32"), io("output", "OUT", "[ 1 ]"),
              io("output", "IDX", "[ 1 ]", "TYPE_UINT32"), "model_transaction_policy { decoupled: true }")  # fmt: skip
    batched = "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 3600000000 }"
    zeros = 'inputs { key: "INPUT0" value { data_type: TYPE_INT32 dims: 2 zero_data: true } }'
    warm_up = f'model_warmup {{ name: "w" batch_size: 1 {zeros} }}'
    add_identity(repository, "fours", batched, warm_up)  # which does not wait for others
    add_model(repository, "in_order", "accumulate", io("input", "INPUT", "[ 1 ]"), io("output", "OUTPUT", "[ 1 ]"),
              "max_batch_size: 3", "sequence_batching { max_sequence_idle_microseconds: 3600000000 }")  # fmt: skip
    running = start_server(path, None, "--model-repository", repository, "--allow-client-shm=true", max_kv_tokens=None)
    yield running
    assert running.stop() == 0


def bench(server, protocol, model, *options):
    address = server.grpc if protocol == "grpc" else server.http
    command = [INFLIGHT, "bench", "load", "-u", address, "-i", protocol, "-m", model, *options]
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, check=False)


def levels(server, protocol, model, *options):
    done = bench(server, protocol, model, "--json", "-", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["levels"]


def counted(server, model):
    return requests.get(f"http://{server.http}/v2/models/{model}/stats", timeout=30).json()["model_stats"][0]


@pytest.mark.parametrize("way", ["http", "grpc", "stream", "http shared", "grpc shared"])
def test_client_and_server_count_the_same(server, way):
    protocol = "http" if way.startswith("http") else "grpc"
    options = {"stream": ["--streaming"], "shared": ["--shared-memory", "system"]}.get(way.split()[-1], [])
    before = counted(server, "pairs")
    [level] = levels(server, protocol, "pairs", "-b", 3, "--concurrency", 4, "--request-count", 40,
                     "--warmup-request-count", 5, *options)  # fmt: skip
    after = counted(server, "pairs")
    assert after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"] == 45
    assert after["inference_count"] - before["inference_count"] == 45 * 3
    assert level["request_count"] == 40 and level["errors"] == {}
    assert level["server"]["pairs"]["success_count"] == 40 and level["server"]["pairs"]["inference_count"] == 120
    times = level["server"]["pairs"]
    parts = sum(times[part] for part in ("queue_us", "compute_input_us", "compute_infer_us", "compute_output_us"))
    assert parts <= times["request_us"] * 1.001 < level["latency_us"] * 1.001
    assert level["send_us"] > 0 and level["send_us"] + level["receive_us"] < level["latency_us"]
    assert requests.get(f"http://{server.http}/v2/systemsharedmemory/status", timeout=30).json() == []


def test_batches_have_the_size_that_is_preferred(server):
    """Nothing but a fourth request ends the wait of an hour."""
    [level] = levels(server, "http", "fours", "--concurrency", 4, "--request-count", 40)
    assert level["server"]["fours"]["success_count"] == level["server"]["fours"]["inference_count"] == 40
    assert level["server"]["fours"]["execution_count"] == 10
    stats = counted(server, "fours")
    assert [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in stats["batch_stats"]] == [(4, 10)]
    for part in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert stats["inference_stats"][part]["count"] == 40


@pytest.mark.parametrize("way", ["http", "grpc", "stream"])
def test_sequences_begin_and_end_on_the_server(server, way):
    """Three slots for an hour: a sequence that was not ended would leave the next ones waiting."""
    options = ["--streaming"] if way == "stream" else []
    load = ("grpc" if way == "stream" else way, "in_order", "--sequence-length", 4, "--sequence-id-range", "5:7", *options)
    before = counted(server, "in_order")["inference_stats"]["success"]["count"]
    found = levels(server, *load, "--concurrency", "3:3", "--request-count", 21)
    found += levels(server, *load, "--request-rate", 2000, "--num-of-sequences", 3, "--request-count", 10)
    assert [level["request_count"] for level in found] == [21, 10] and not any(level["errors"] for level in found)
    assert counted(server, "in_order")["inference_stats"]["success"]["count"] - before >= 31
    assert counted(server, "in_order")["inference_stats"]["fail"]["count"] == 0


def test_an_ensemble_is_reported_with_what_it_is_made_of(server):
    done = bench(server, "http", "outer", "--request-count", 10)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Composing models: \n  inner: \n      Inference count: 10\n", done.stdout), done.stdout


def test_windows_go_on_until_they_are_steady_at_each_load(server, tmp_path):
    report = tmp_path / "perf.csv"
    done = bench(server, "http", "pairs", "--concurrency-range", "1:3:2", "--measurement-mode", "count_windows",
                 "--measurement-request-count", 20, "-s", 100000, "-f", report, "--percentile", 75)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("*** Measurement Settings ***\n  Batch size: 1\n  Service Kind: TRITON\n")
    found = re.findall(r"Request concurrency: (\d+)\n  Client: \n    Request count: (\d+)\n", done.stdout)
    assert [int(level) for level, _ in found] == [1, 3]
    assert all(60 <= int(count) <= 60 + 3 * 3 for _, count in found)  # three windows
    assert re.search(r"p75 latency: \d+ usec\n    p90 latency: ", done.stdout)
    assert "Inferences/Second vs. Client p75 Batch Latency\nConcurrency: 1, throughput: " in done.stdout
    rows = list(csv.DictReader(report.open()))
    assert sorted(row["Concurrency"] for row in rows) == ["1", "3"]
    assert float(rows[0]["Inferences/Second"]) <= float(rows[1]["Inferences/Second"])
    assert {"Client Send", "Network+Server Send/Recv", "Server Queue", "Server Compute Infer", "p75 latency"} <= set(rows[0])


def test_a_load_that_never_gets_steady_says_so(server):
    [level] = levels(server, "http", "pairs", "--measurement-interval", 20, "-s", 0, "-r", 3)
    assert level["is_stable"] is False
    done = bench(server, "http", "pairs", "-p", 20, "-s", 0, "-r", 3)
    assert "Failed to obtain stable measurement within 3 measurement windows for concurrency 1." in done.stdout


def test_the_last_load_is_the_first_that_is_too_slow(server):
    found = levels(server, "http", "pairs", "--concurrency", "1:4", "--request-count", 4, "-l", 0.000001)
    assert [level["concurrency"] for level in found] == [1]


@pytest.mark.parametrize("distribution", ["constant", "poisson"])
def test_no_request_of_a_rate_is_sent_early(server, distribution):
    [level] = levels(server, "http", "pairs", "--request-rate", 200, "--request-count", 40, "--request-distribution",
                     distribution, "--seed", 5)  # fmt: skip
    assert level["request_count"] == 40 and level["send_delay_us"] >= 0
    assert level["inferences_per_s"] < 400


def test_decoupled_models_stream_all_their_responses(server, tmp_path):
    data = tmp_path / "data.json"
    refused = bench(server, "http", "many", "--input-data", data)
    assert refused.returncode == 1 and "'many' is decoupled; use --protocol grpc --streaming" in refused.stderr
    data.write_text(json.dumps({"data": [{"IN": [1, 2, 3], "DELAY": [0, 0, 0], "WAIT": [0]}]}))
    done = bench(server, "grpc", "many", "--streaming", "--input-data", data, "--request-count", 12, "--concurrency", 3)
    assert done.returncode == 0, done.stderr
    rate, responses = (float(re.search(rf"    {word}: ([\d.e+]+) infer/sec", done.stdout)[1])
                       for word in ("Throughput", "Response Throughput"))  # fmt: skip
    assert responses == pytest.approx(3 * rate, rel=1e-4)


def test_data_comes_from_files_and_errors_by_kind(server, tmp_path):
    (tmp_path / "INPUT0").write_text("12\n-3\n")
    (tmp_path / "INPUT1").write_text("4\n5\n")
    shapes = ("--shape", "INPUT0:2", "--shape", "INPUT1:2")
    [level] = levels(server, "http", "sums", "--input-data", tmp_path, *shapes, "--request-count", 5)
    assert level["request_count"] == 5
    done = bench(server, "http", "sums", *shapes, "--string-length", 3, "--seed", 2, "--request-count", 5)
    assert done.returncode == 1
    assert "Failed request count: 5\n      5 x HTTP 400: element is not a decimal number\n" in done.stdout
    [level] = levels(server, "http", "sums", *shapes, "--string-data", "7", "--request-count", 5)
    assert level["request_count"] == 5


@pytest.mark.parametrize(("options", "text"), [
    (("-m", "nobody"), "Request for unknown model: 'nobody' is not found"),
    (("-m", "texts"), "input 'INPUT0': dimensions [-1] are open; give --shape INPUT0:1"),
    (("-m", "texts", "--shape", "INPUT0:x"), "--shape: got 'INPUT0:x', needs NAME:d,d"),
    (("-m", "pairs", "-b", "9"), "--batch-size: got 9, model 'pairs' takes at most 8"),
    (("-m", "pairs", "-x", "7"), "'pairs' version 7 is not found"),
    (("-m", "pairs", "--streaming"), "--streaming: streams of tensors need --protocol grpc"),
    (("-m", "pairs", "--concurrency", "3:1"), "--concurrency: got '3:1', needs N, start:end or start:end:step"),
    (("-m", "pairs", "--concurrency", "2", "--request-rate", "5"), "--concurrency: got 2 beside --request-rate 5"),
    (("-m", "pairs", "--measurement-request-count", "5"), "needs --measurement-mode count_windows"),
    (("-m", "pairs", "--output-len", "5"), "--output-len: is of prompts, and tensors are sent"),
    (("-m", "pairs", "-i", "generate"), "--protocol: the generate endpoints take prompts; tensors need http or grpc"),
    (("-m", "pairs", "--input", "text", "-b", "2"), "--batch-size: is of tensors, and --input text sends prompts"),
    (("-m", "pairs", "--binary-search"), "--binary-search"),
    (("-m", "pairs", "--shared-memory", "cuda"), "--shared-memory"),
    (("-m", "in_order", "-b", "2"), "--batch-size: got 2, requests of sequences have one item"),
    (("-m", "in_order", "--sequence-id-range", "5:4"), "--sequence-id-range: got '5:4', needs first or first:last"),
    (("-m", "in_order", "--sequence-id-range", "5:6", "--concurrency", "3"), "got 2 ids, 3 are in use at once"),
    (("-m", "pairs", "--sequence-length", "3"), "--sequence-length: model 'pairs' has no sequence_batching"),
])  # fmt: skip
def test_wrong_use_names_what_is_wrong(server, options, text):
    command = [INFLIGHT, "bench", "load", server.http, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and text in done.stderr, done.stderr

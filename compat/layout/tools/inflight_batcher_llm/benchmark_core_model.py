#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends ids to tensorrt_llm, all at once or at a rate, and prints latencies and tokens a second.

The ids come from a data set, or are random with lengths of a distribution.
"""

import argparse
import csv
import json
import pathlib
import sys
import time

import numpy as np
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from end_to_end_test import LlmApi, test_performance
from inflight_program import Tokenizer
from prompts import read_dataset
from triton_requests import Answers, add_protocol, connect_by, given, inputs_of, response_of, tensor

SEED = 420
HISTOGRAMS = {  # lengths from, to, and how many requests have them: of prompts, of answers
    "example": ([((151, 175), 220), ((176, 200), 225), ((201, 225), 150), ((226, 250), 150), ((251, 275), 140)],
                [((6, 10), 76), ((11, 15), 210), ((16, 20), 174), ((21, 25), 130), ((26, 30), 152)]),
}  # fmt: skip


class Failure(Exception):
    """The benchmark cannot be done, or its check fails."""


def add_load(parser):
    """The flags of this tool, before its sub-commands."""
    parser.add_argument("--max-input-len", type=int, required=True, help="longer prompts are left out")
    parser.add_argument("--request-rate", type=float, default=-1.0, help="requests a second; -1 sends all at once")
    parser.add_argument("--time-delay-dist", default="exponential_dist", choices=["constant", "exponential_dist"],
                        help="distribution of the time between requests")  # fmt: skip
    parser.add_argument("--dump-perfetto-trace", action="store_true", help="write prfetto_dump.json, a trace of the requests")
    parser.add_argument("--op-stats-csv", help="file to which the figures are added as a row")
    parser.add_argument("--exclude-input-in-output", action="store_true", help="answers are without the prompt")
    parser.add_argument("--num-requests", type=int, default=30000, help="requests; of a data set at most")
    parser.add_argument("--check-perf-json", help="file of figures to compare with")
    parser.add_argument("--check-perf-key", help="its entry")
    parser.add_argument("--check-perf-atol", type=float, default=50, help="allowed difference")
    parser.add_argument("--check-perf-rtol", type=float, default=0.05, help="allowed relative difference")
    parser.add_argument("--decoupled", action="store_true", help="over a gRPC stream, as decoupled models need it")
    parser.add_argument("-t", "--stream-timeout", type=float, help="seconds that the stream may last")
    parser.add_argument("--tensorrt-llm-model-name", action="append", default=["tensorrt_llm"],
                        help="a further model, to which requests go in turn")  # fmt: skip
    parser.add_argument("--test-llmapi", action="store_true",
                        help="texts of a data set to the model of an llmapi repository; from 0.19 on")  # fmt: skip


def parse_arguments():
    parser = argparse.ArgumentParser(description="Benchmark of tensorrt_llm.")
    add_protocol(parser)
    add_load(parser)
    workloads = parser.add_subparsers(dest="workload", required=True)
    dataset = workloads.add_parser("dataset", help="prompts of a file")
    dataset.add_argument("--dataset", required=True, help="the file")
    dataset.add_argument("--tokenizer-dir", required=True, help="directory of the tokenizer")
    dataset.add_argument("--tokenizer-type", default="auto", choices=["auto", "t5", "llama"], help="no effect: files say it")
    dataset.add_argument("--op-tokens-per-word", type=float, default=1.3, help="tokens of an answer for each of its words")
    normal = workloads.add_parser("token-norm-dist", help="random ids, lengths by normal distributions")
    for name in ("input-mean", "input-stdev", "output-mean", "output-stdev"):
        normal.add_argument(f"--{name}", type=int, required=True, help="tokens")
    histogram = workloads.add_parser("token-from-histogram", help="random ids, lengths by a histogram")
    histogram.add_argument("--histogram-key", required=True, choices=list(HISTOGRAMS), help="which histogram")
    arguments = parser.parse_args()
    if arguments.decoupled and arguments.protocol != "grpc":
        parser.error("--decoupled: needs --protocol grpc")
    if arguments.check_perf_json and arguments.protocol != "grpc":
        parser.error("--check-perf-json: needs --protocol grpc, by which the figures are taken")
    if arguments.test_llmapi and arguments.workload != "dataset":
        parser.error(f"--test-llmapi: needs the workload dataset, got {arguments.workload}: the model takes texts")
    if arguments.num_requests < 1:
        parser.error(f"--num-requests: got {arguments.num_requests}, must be at least 1")
    return arguments


def of_histogram(buckets, random):
    lengths = [int(length) for (low, high), count in buckets for length in random.integers(low, high, count, endpoint=True)]
    return [lengths[i] for i in random.permutation(len(lengths))]


def workload(arguments):
    """[(ids, new tokens)] of the requests, end id, pad id."""
    random = np.random.default_rng(SEED)
    if arguments.workload == "dataset":
        tokenizer = Tokenizer(arguments.tokenizer_dir)
        pairs = read_dataset(arguments.dataset, None, arguments.op_tokens_per_word)
        ids = tokenizer.encode([prompt for prompt, _ in pairs])
        end_id = tokenizer.end_id()
        requests = [(row, length) for row, (_, length) in zip(ids, pairs, strict=True) if len(row) <= arguments.max_input_len]
        if not requests:
            raise Failure(f"no prompt of {arguments.dataset} is within --max-input-len {arguments.max_input_len}")
        return requests[: arguments.num_requests], end_id, end_id
    count = arguments.num_requests
    if arguments.workload == "token-norm-dist":
        inputs = np.ceil(random.normal(arguments.input_mean, arguments.input_stdev, count))
        outputs = np.ceil(random.normal(arguments.output_mean, arguments.output_stdev, count))
    else:
        inputs, outputs = (of_histogram(buckets, random) for buckets in HISTOGRAMS[arguments.histogram_key])
    lengths = [(max(1, int(i)), max(1, int(o))) for i, o in zip(inputs, outputs, strict=False)]
    lengths = [(i, o) for i, o in lengths if i <= arguments.max_input_len][:count]
    if not lengths:
        raise Failure(f"no prompt of that distribution is within --max-input-len {arguments.max_input_len}")
    highest = np.iinfo(np.int32).max  # ids that no vocabulary has are among them, as upstream's
    return [(random.integers(0, highest, i).tolist(), o) for i, o in lengths], 1, 0


class Load:
    def __init__(self, arguments, end_id, pad_id):
        self.arguments = arguments
        self.client = connect_by(arguments.protocol, arguments.url, arguments.concurrency, arguments.verbose)
        self.end_id, self.pad_id = end_id, pad_id
        self.started, self.stopped, self.results = {}, {}, {}
        self.arrived = Answers()

    def inputs(self, model, ids, length):
        return inputs_of(self.client, model, [tensor("input_ids", np.array([ids], np.int32)), *given([
            ("input_lengths", len(ids), np.int32), ("request_output_len", length, np.int32),
            ("pad_id", self.pad_id, np.int32), ("end_id", self.end_id, np.int32)])])  # fmt: skip

    def model(self, number):
        names = self.arguments.tensorrt_llm_model_name
        return names[number % len(names)]

    def warm_up(self, ids):
        print("[INFO] Warm up for benchmarking.")
        errors = Answers()
        if self.arguments.decoupled:
            self.client.start_stream(errors.callback, stream_timeout=self.arguments.stream_timeout)
        for number in range(10):
            inputs = self.inputs(self.model(number), ids, 100)
            if self.arguments.decoupled:
                self.client.async_stream_infer(self.model(number), inputs, request_id=str(number))
            else:
                self.client.infer(self.model(number), inputs, request_id=str(number))
        if self.arguments.decoupled:
            self.client.stop_stream()
            for answer in errors.rest():
                if isinstance(answer, InferenceServerException):
                    raise answer

    def take(self, result, error):
        """An answer over gRPC, on tritonclient's thread."""
        if error is None and response_of(result)["id"] in self.stopped:
            return  # of a stream the first answer counts
        if error is None:
            self.stopped[response_of(result)["id"]] = time.time()
        self.arrived.callback(result, error)

    def run(self, requests, delays):
        print(f"[INFO] Start benchmarking on {len(requests)} prompts.")
        begin, handles = time.time(), []
        if self.arguments.decoupled:
            self.client.start_stream(self.take, stream_timeout=self.arguments.stream_timeout)
        for number, ((ids, length), delay) in enumerate(zip(requests, delays, strict=True)):
            inputs, request_id = self.inputs(self.model(number), ids, length), str(number)
            time.sleep(delay)
            self.started[request_id] = time.time()
            if self.arguments.protocol == "http":
                handles.append(self.client.async_infer(self.model(number), inputs, request_id=request_id))
            elif self.arguments.decoupled:
                self.client.async_stream_infer(self.model(number), inputs, request_id=request_id)
            else:
                self.client.async_infer(self.model(number), inputs, callback=self.take, request_id=request_id)
        if self.arguments.decoupled:
            self.client.stop_stream()
        for handle in handles:
            handle.get_result()
        for _ in range(0 if handles else len(requests)):
            result = self.arrived.next()
            if isinstance(result, InferenceServerException):
                raise result
            self.results[response_of(result)["id"]] = result
        print(f"[INFO] Total Latency: {round((time.time() - begin) * 1000, 3)} ms")


def figures(load, requests):
    """{name: value} of the requests over gRPC."""
    latencies = sorted((load.stopped[i] - load.started[i]) * 1000 for i in load.results)
    print(f"[INFO] Total request latencies: {sum(latencies)} ms")
    prompts = [len(ids) for ids, _ in requests]
    outputs = []
    for number, prompt in enumerate(prompts):
        shape = response_of(load.results[str(number)])["outputs"][0]["shape"]
        outputs.append(int(shape[2]) - (0 if load.arguments.exclude_input_in_output or load.arguments.decoupled else prompt))
    total = max(load.stopped.values()) - min(load.started.values())

    def percentile(share):
        return latencies[int(np.ceil(len(latencies) * share)) - 1]

    return {
        "Requests/Sec": len(latencies) / total, "OP tokens/sec": sum(outputs) / total,
        "Avg. latency (ms)": float(np.mean(latencies)), "P99 latency (ms)": percentile(0.99),
        "P90 latency (ms)": percentile(0.90), "Avg. IP tokens per request": float(np.mean(prompts)),
        "Avg. OP tokens per request": float(np.mean(outputs)), "Avg. InFlight requests": 0.0,
        "Total latency (ms)": total * 1000, "Total requests": float(len(latencies)),
    }, outputs  # fmt: skip


def print_table(rows):
    """A table with the heads Stat and Value."""
    cells = [("Stat", "Value"), *((name, f"{value:.2f}") for name, value in rows.items())]
    widths = [max(len(row[i]) for row in cells) for i in (0, 1)]
    line = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    print(line)
    for number, row in enumerate(cells):
        print("| " + " | ".join(cell.center(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if number == 0:
            print(line)
    print(line)


def write_files(load, requests, rows, outputs):
    if load.arguments.op_stats_csv:
        with open(load.arguments.op_stats_csv, "a", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows))
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(rows)
    if load.arguments.dump_perfetto_trace:
        begin = min(load.started.values())
        events = [
            {"name": f"req_{number}", "cat": "batch", "ph": "X", "ts": (load.started[str(number)] - begin) * 1e6,
             "dur": (load.stopped[str(number)] - load.started[str(number)]) * 1e6, "pid": "1",
             "args": {"isl": len(ids), "osl": output}}
            for number, ((ids, _), output) in enumerate(zip(requests, outputs, strict=True))
        ]  # fmt: skip
        pathlib.Path("prfetto_dump.json").write_text(json.dumps(events))


def check_figures(arguments, rows):
    try:
        reference = json.loads(pathlib.Path(arguments.check_perf_json).read_text()).get(arguments.check_perf_key)
    except (OSError, ValueError, AttributeError) as error:
        raise Failure(f"--check-perf-json: {arguments.check_perf_json} cannot be read: {error}") from error
    if not reference:
        raise Failure(f"--check-perf-key: {arguments.check_perf_json} has no figures under {arguments.check_perf_key!r}")
    for name, value in reference.items():
        if name not in rows:
            raise Failure(f"--check-perf-json: {name!r} is none of the figures: {', '.join(rows)}")
        if not np.isclose(rows[name], value, rtol=arguments.check_perf_rtol, atol=arguments.check_perf_atol):
            raise Failure(f"{name}: got {rows[name]:.2f}, {arguments.check_perf_json} says {value}")


def benchmark_llm_api(arguments):
    """Sends the texts of the data set; the tokenizer is the model's own."""
    pairs = read_dataset(arguments.dataset, arguments.max_input_len, arguments.op_tokens_per_word)[: arguments.num_requests]
    settings = argparse.Namespace(
        protocol=arguments.protocol, model_name=arguments.tensorrt_llm_model_name[-1], streaming=arguments.decoupled,
        test_llmapi=True,
    )  # fmt: skip
    client = connect_by(arguments.protocol, arguments.url, arguments.concurrency, arguments.verbose)
    test_performance(LlmApi(client, settings), pairs)


def main():
    arguments = parse_arguments()
    try:
        if arguments.test_llmapi:
            benchmark_llm_api(arguments)
            return
        requests, end_id, pad_id = workload(arguments)
        print(f"[INFO] {arguments.workload}: {len(requests)} requests")
        load = Load(arguments, end_id, pad_id)
        mean = 0 if arguments.request_rate <= 0 else 1 / arguments.request_rate
        random = np.random.default_rng(SEED)
        is_constant = arguments.time_delay_dist == "constant"
        delays = [mean] * len(requests) if is_constant else random.exponential(mean, len(requests)).tolist()
        load.warm_up(requests[0][0])
        load.run(requests, delays)
        if arguments.protocol == "grpc":
            rows, outputs = figures(load, requests)
            print_table(rows)
            write_files(load, requests, rows, outputs)
            if arguments.check_perf_json:
                check_figures(arguments, rows)
    except (InferenceServerException, Failure, RuntimeError, OSError) as error:
        print(f"Failed receiving responses: {error}")
        sys.exit(f"[ERROR] {error}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of tensorrt_llm under the name and with the flags that it had at 0.5: benchmark_core_model.py dataset."""

import argparse
import pathlib
import subprocess
import sys

NEW = pathlib.Path(__file__).resolve().with_name("benchmark_core_model.py")


def main():
    parser = argparse.ArgumentParser(description="Benchmark of tensorrt_llm with the flags of release 0.5.")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each request and answer")
    parser.add_argument("-u", "--url", help="address; localhost:8000 of HTTP or localhost:8001 of gRPC")
    parser.add_argument("-i", "--protocol", default="http", choices=["http", "grpc"], help="protocol")
    parser.add_argument("-c", "--concurrency", default="128", help="connections over HTTP")
    parser.add_argument("--max_input_len", required=True, help="longer prompts are left out")
    parser.add_argument("--dataset", required=True, help="file of prompts")
    parser.add_argument("--tokenizer_dir", required=True, help="directory of the tokenizer")
    parser.add_argument("--tokenizer_type", default="auto", choices=["auto", "t5", "llama"], help="no effect: files say it")
    parser.add_argument("--time_bet_reqs", type=float, nargs="+", default=[0], help="seconds between requests, a run for each")
    parser.add_argument("--dump_perfetto_trace", action="store_true", help="write prfetto_dump.json")
    parser.add_argument("--op_stats_csv", help="file to which the figures are added as a row")
    parser.add_argument("--op_tokens_per_word", default="1.3", help="tokens of an answer for each of its words")
    given = parser.parse_args()
    command = [sys.executable, str(NEW), "-i", given.protocol, "-c", given.concurrency, "--max-input-len", given.max_input_len]
    command += ["-u", given.url] if given.url else []
    command += ["-v"] if given.verbose else []
    command += ["--dump-perfetto-trace"] if given.dump_perfetto_trace else []
    command += ["--op-stats-csv", given.op_stats_csv] if given.op_stats_csv else []
    workload = ["dataset", "--dataset", given.dataset, "--tokenizer-dir", given.tokenizer_dir]
    workload += ["--op-tokens-per-word", given.op_tokens_per_word]
    for seconds in given.time_bet_reqs:
        rate = ["--time-delay-dist", "constant", "--request-rate", str(1 / seconds)] if seconds > 0 else []
        status = subprocess.run([*command, *rate, *workload], check=False).returncode
        if status != 0:
            sys.exit(status)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the fuzzers of a build until they have executed so many inputs together, and counts them.

Rounds give each fuzzer the same time, some at once, so that the fast ones bring most of the sum; those that are below
their least go on alone at the end. Corpora and counts stay in FOLDER: the same command goes on where it was stopped,
and counts of several machines are added up by `--sum FOLDER...`. A finding ends its fuzzer's turn, is named, and makes
the exit status 1; the others go on.

usage: scripts/fuzz_inputs.py BUILD/bin FOLDER [--inputs N] [--least N] [--jobs N] [--seconds N] [--only NAME...]
       scripts/fuzz_inputs.py --sum FOLDER...
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SEEDS = ROOT / "tests/fuzz/seeds"
COUNTS = "counts.json"
OPTIONS = ["-timeout=30", "-rss_limit_mb=3000", "-print_final_stats=1", "-reload=0"]
EXECUTED = re.compile(r"number_of_executed_units: (\d+)")


class Counts:
    """Inputs, seconds and findings of each fuzzer, kept in a file that is replaced as a whole."""

    def __init__(self, folder):
        self.file, self.lock = folder / COUNTS, threading.Lock()
        self.of = json.loads(self.file.read_text()) if self.file.exists() else {}

    def add(self, name, inputs, seconds, findings):
        with self.lock:
            mine = self.of.setdefault(name, {"inputs": 0, "seconds": 0.0, "findings": []})
            mine["inputs"] += inputs
            mine["seconds"] = round(mine["seconds"] + seconds, 1)
            mine["findings"] += findings
            written = self.file.with_suffix(".new")
            written.write_text(json.dumps(self.of, indent=1, sort_keys=True))
            written.replace(self.file)

    def inputs(self, name):
        return self.of.get(name, {}).get("inputs", 0)

    def total(self):
        with self.lock:
            return sum(mine["inputs"] for mine in self.of.values())


def run(fuzzer, folder, max_len, seconds, counts):
    """One turn of a fuzzer over its corpus, which grows."""
    name = fuzzer.name
    corpus, found = folder / "corpus" / name, folder / "findings" / name
    for path in (corpus, found):
        path.mkdir(parents=True, exist_ok=True)
    before = set(found.iterdir())
    seeds = SEEDS / name.removeprefix("fuzz_")
    command = [fuzzer, *OPTIONS, f"-max_len={max_len}", f"-max_total_time={seconds}", f"-artifact_prefix={found}/", corpus]
    started = time.monotonic()
    log = folder / f"{name}.log"
    with log.open("w") as out:
        status = subprocess.run([*command, *([seeds] if seeds.is_dir() else [])], stdout=out, stderr=out).returncode
    executed = EXECUTED.findall(log.read_text(errors="replace"))
    findings = sorted(str(path) for path in set(found.iterdir()) - before)
    if status != 0 and not findings:
        findings = [f"exit status {status}, {log}"]
    counts.add(name, int(executed[-1]) if executed else 0, time.monotonic() - started, findings)
    for finding in findings:
        print(f"{name}: {finding}", flush=True)


def table(of):
    lines = [f"{'fuzzer':<24}{'inputs':>15}{'seconds':>10}{'a second':>10}{'findings':>10}"]
    for name, mine in sorted(of.items()):
        rate = mine["inputs"] / mine["seconds"] if mine["seconds"] else 0
        lines.append(f"{name:<24}{mine['inputs']:>15,}{mine['seconds']:>10.0f}{rate:>10,.0f}{len(mine['findings']):>10}")
    inputs, seconds = (sum(mine[what] for mine in of.values()) for what in ("inputs", "seconds"))
    lines.append(f"{'all':<24}{inputs:>15,}{seconds:>10.0f}")
    return "\n".join(lines)


def added(folders):
    of = {}
    for folder in folders:
        for name, mine in json.loads((pathlib.Path(folder) / COUNTS).read_text()).items():
            sums = of.setdefault(name, {"inputs": 0, "seconds": 0.0, "findings": []})
            for what in sums:
                sums[what] += mine[what]
    return of


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, nargs="?")
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--inputs", type=int, default=10**9, help="of all fuzzers together")
    parser.add_argument("--least", type=int, default=10**6, help="of each fuzzer")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="fuzzers at once")
    parser.add_argument("--seconds", type=int, default=300, help="of a fuzzer's turn")
    parser.add_argument("--max-len", type=int, default=4096, help="bytes of an input")
    parser.add_argument("--only", nargs="+", help="names, as http_calls")
    parser.add_argument("--sum", nargs="+", metavar="FOLDER", help="adds up what these folders counted")
    asked = parser.parse_args(arguments)
    if not asked.sum and not (asked.bin and asked.folder):
        parser.error("BUILD/bin and FOLDER are needed")
    return asked


def main(arguments=None):
    asked = parse(arguments)
    if asked.sum:
        print(table(added(asked.sum)))
        return 0
    fuzzers = sorted(path for path in asked.bin.glob("fuzz_*") if not path.name.endswith("_test"))
    if asked.only:
        fuzzers = [path for path in fuzzers if path.name.removeprefix("fuzz_") in asked.only]
    if not fuzzers:
        print(f"{asked.bin} has no such fuzzers", file=sys.stderr)
        return 2
    asked.folder.mkdir(parents=True, exist_ok=True)
    counts = Counts(asked.folder)
    while True:
        due = [path for path in fuzzers if counts.inputs(path.name) < asked.least]
        if counts.total() < asked.inputs:
            due = fuzzers
        due = [path for path in due if not counts.of.get(path.name, {}).get("findings")]
        if not due:
            break
        with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
            list(pool.map(lambda path: run(path, asked.folder, asked.max_len, asked.seconds, counts), due))
        print(f"{counts.total():,} inputs", flush=True)
    print(table(counts.of))
    return 1 if any(mine["findings"] for mine in counts.of.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

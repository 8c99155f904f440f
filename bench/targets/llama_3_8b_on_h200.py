#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures that an H200 is asked for with Llama 3 8B (random weights), bfloat16 and FP8, each beside its mark, in one run.

usage: INFLIGHT_BIN_DIR=build/cuda/bin bench/targets/llama_3_8b_on_h200.py [--repeats 3] [--rows 1x128/256,64x1024/256]

Output tokens a second of requests that are queued at once, and milliseconds to the first token; the limit is of the rates
that the same run measures. The opponents' figures were measured elsewhere (docs/performance.md says where). Of one request
the decode steps count, as its row asks. Exit status 1 if a figure is below 97 % (bfloat16) or 95 % (FP8) of its mark.
"""

import argparse
import csv
import os
import pathlib
import subprocess
import sys

FORMS = {"bf16": [], "fp8": ["--use-fp8-rowwise", "--kv-cache-dtype", "fp8", "--quantize-lm-head"]}
ENOUGH = {"bf16": 0.97, "fp8": 0.95}
# Scenario: by form the mark and the opponents' figures.
TOKENS_PER_S = {
    "1x128/256": {"bf16": (245, "vLLM 202"), "fp8": (430, "vLLM 294")},
    "32x128/512": {"bf16": (6600, "vLLM 5481"), "fp8": (11300, "")},
    "64x1024/256": {"bf16": (5000, "vLLM 4656"), "fp8": (8900, "vLLM 7219")},
    "1024x128/128": {"bf16": (17200, "vLLM 14933"), "fp8": (31000, "vLLM 26865, TensorRT-LLM 29526")},
    "512x1000/1000": {"bf16": (9900, "vLLM 9171"), "fp8": (18000, "vLLM 14873, TensorRT-LLM 17744")},
    "256x2048/128": {"bf16": (2120, "vLLM 2089"), "fp8": (3800, "vLLM 3523, TensorRT-LLM 3794")},
}
FIRST_TOKEN_MS = {
    "1x128/256": {"bf16": (5, "vLLM 13.9"), "fp8": (3.5, "vLLM 11")},
    "1x2048/64": {"bf16": (55, ""), "fp8": (32, "")},
}


def measure(inflight, form, scenarios, repeats):
    """The program's comment lines, and its lines by scenario."""
    command = [inflight, "bench", "throughput", "--shape", "llama-3-8b", "--device", "cuda", "--scenarios", ",".join(scenarios),
               "--repeats", str(repeats), *FORMS[form]]  # fmt: skip
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    comments = [line for line in lines if line.startswith("#")]
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return comments, {row["scenario"]: {name: float(row[name]) for name in row if name != "scenario"} for row in rows}


def report(form, name, figure, spread, limit, mark, opponents, is_time):
    reached = mark / figure if is_time else figure / mark
    print(f"| {form} | {name} | {figure:,.5g} | {spread} | {limit} | {mark:,g} | {reached:.3f} | {opponents} |", flush=True)
    return reached >= ENOUGH[form]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", default=",".join([*TOKENS_PER_S, "1x2048/64"]), help="scenarios, separated by commas")
    parser.add_argument("--forms", default="bf16,fp8")
    args = parser.parse_args()
    inflight = pathlib.Path(os.environ.get("INFLIGHT_BIN_DIR", "build/cuda/bin")).resolve() / "inflight"
    scenarios = args.rows.split(",")
    unknown = set(scenarios) - set(TOKENS_PER_S) - set(FIRST_TOKEN_MS)
    if unknown:
        parser.error(f"--rows: {', '.join(sorted(unknown))} has no mark; there are {', '.join([*TOKENS_PER_S, '1x2048/64'])}")
    is_enough = []
    for form in args.forms.split(","):
        comments, measured = measure(inflight, form, scenarios, args.repeats)
        print("\n".join(comments))
        print("| form | requests x in/out | measured | 10th to 90th of 100 | of the limit | asked | reached | others |")
        print("|---|---|---|---|---|---|---|---|")
        for scenario in scenarios:
            row = measured[scenario]
            if scenario in TOKENS_PER_S:
                is_one = scenario.startswith("1x")  # its row is of decoding only
                figure = 1000 / row["itl_ms"] if is_one else row["output_tokens_per_s"]
                spread = f"to {1000 / row['itl_ms_p90']:.5g}" if is_one else f"{row['p10']:,.5g} to {row['p90']:,.5g}"
                limit = f"{figure / row['limit_tokens_per_s']:.2f}"
                mark, opponents = TOKENS_PER_S[scenario][form]
                is_enough.append(report(form, f"{scenario}, tokens/s", figure, spread, limit, mark, opponents, False))
            if scenario in FIRST_TOKEN_MS:
                mark, opponents = FIRST_TOKEN_MS[scenario][form]
                spread = f"to {row['ttft_ms_p90']:.4g}"
                is_enough.append(report(form, f"{scenario}, first token, ms", row["ttft_ms"], spread, "", mark, opponents, True))
    print(f"# {sum(is_enough)} of {len(is_enough)} figures reach 97 % (bf16) or 95 % (fp8) of their marks")
    return 0 if all(is_enough) else 1


if __name__ == "__main__":
    sys.exit(main())

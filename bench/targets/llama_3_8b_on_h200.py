#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures that an H200 is asked for with Llama 3 8B (random weights), bfloat16 and FP8, each beside its mark, in one run.

usage: INFLIGHT_BIN_DIR=build/cuda/bin bench/targets/llama_3_8b_on_h200.py [--repeats 3] [--rows 1x128/256,64x1024/256] [--exits]

Output tokens a second of requests that are queued at once, and milliseconds to the first token; the limit is of the rates
that the same run measures. Of one request the decode steps count, as its row asks. --exits measures three other marks
instead: decode steps at a context of 1,024, a prompt of 4,096, 512 requests of 128/2048. The last two
columns are the host's time of a step, and how long the GPU waits for the host between two. The opponents' figures were
measured elsewhere (docs/performance.md says where). Exit status 1 if a figure is below 97 % (bfloat16) or 95 % (FP8) of its mark.
"""

import argparse
import csv
import dataclasses
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

FORMS = {"bf16": [], "fp8": ["--use-fp8-rowwise", "--kv-cache-dtype", "fp8", "--quantize-lm-head"]}
ENOUGH = {"bf16": 0.97, "fp8": 0.95}


# What a figure is of a row of `inflight bench throughput`, and its spread: 10th and 90th of 100, as far as the row has them.


def throughput(row, _):
    return row["output_tokens_per_s"], f"{row['p10']:,.5g} to {row['p90']:,.5g}"


def decoding(row, scenario):
    """Of all requests, in steps of nothing else."""
    return 1000 * int(scenario.split("x")[0]) / row["decode_step_ms"], ""


def decoding_alone(row, _):
    return 1000 / row["itl_ms"], f"{1000 / row['itl_ms_p90']:,.5g} or more"


def first_token(row, _):
    return row["ttft_ms"], f"to {row['ttft_ms_p90']:,.4g}"


def prompt_tokens(row, scenario):
    num_tokens = int(scenario.split("x")[1].split("/")[0])
    return 1000 * num_tokens / row["ttft_ms"], f"{1000 * num_tokens / row['ttft_ms_p90']:,.5g} or more"


@dataclasses.dataclass
class Figure:
    scenario: str  # REQUESTSxINPUT/OUTPUT
    unit: str
    of: Callable  # one of the above
    marks: dict  # by form: the mark, and the opponents' figures
    has_limit: bool = True

    @property
    def is_time(self):
        return self.of is first_token


TARGETS = [
    Figure("1x128/256", "tokens/s, decoding", decoding_alone, {"bf16": (245, "vLLM 202"), "fp8": (430, "vLLM 294")}),
    Figure("1x128/256", "ms, first token", first_token, {"bf16": (5, "vLLM 13.9"), "fp8": (3.5, "vLLM 11")}, False),
    Figure("32x128/512", "tokens/s", throughput, {"bf16": (6600, "vLLM 5481"), "fp8": (11300, "")}),
    Figure("64x1024/256", "tokens/s", throughput, {"bf16": (5000, "vLLM 4656"), "fp8": (8900, "vLLM 7219")}),
    Figure("1024x128/128", "tokens/s", throughput,
           {"bf16": (17200, "vLLM 14933"), "fp8": (31000, "vLLM 26865, TensorRT-LLM 29526")}),
    Figure("512x1000/1000", "tokens/s", throughput,
           {"bf16": (9900, "vLLM 9171"), "fp8": (18000, "vLLM 14873, TensorRT-LLM 17744")}),
    Figure("256x2048/128", "tokens/s", throughput,
           {"bf16": (2120, "vLLM 2089"), "fp8": (3800, "vLLM 3523, TensorRT-LLM 3794")}),
    Figure("1x2048/64", "ms, first token", first_token, {"bf16": (55, ""), "fp8": (32, "")}, False),
]  # fmt: skip
EXITS = [
    Figure("1x1024/64", "tokens/s, decoding", decoding, {"bf16": (240, ""), "fp8": (430, "")}, False),
    Figure("64x1024/64", "tokens/s, decoding", decoding, {"bf16": (9500, ""), "fp8": (17200, "")}, False),
    Figure("256x1024/64", "tokens/s, decoding", decoding, {"bf16": (16000, ""), "fp8": (28500, "")}, False),
    Figure("1x4096/8", "tokens/s of the prompt", prompt_tokens, {"bf16": (39000, "")}, False),
    Figure("512x128/2048", "tokens/s", throughput, {"fp8": (25000, "")}),
]


def measure(inflight, form, scenarios, repeats):
    """The program's comment lines, and its lines by scenario."""
    command = [inflight, "bench", "throughput", "--shape", "llama-3-8b", "--device", "cuda", "--scenarios", ",".join(scenarios),
               "--repeats", str(repeats), *FORMS[form]]  # fmt: skip
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    comments = [line for line in lines if line.startswith("#")]
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return comments, {row["scenario"]: {name: float(row[name]) for name in row if name != "scenario"} for row in rows}


def report(form, figure, row):
    """Prints the figure's line; whether it reaches enough of its mark."""
    value, spread = figure.of(row, figure.scenario)
    mark, opponents = figure.marks[form]
    reached = mark / value if figure.is_time else value / mark
    limit = f"{value / row['limit_tokens_per_s']:.2f}" if figure.has_limit else ""
    host = f"{row['host_us']:.0f} | {row['idle_us']:.1f}"
    line = f"{value:,.5g} | {spread} | {limit} | {mark:,g} | {reached:.3f} | {opponents} | {host}"
    print(f"| {form} | {figure.scenario}, {figure.unit} | {line} |", flush=True)
    return reached >= ENOUGH[form]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", default="", help="scenarios, separated by commas; default: all")
    parser.add_argument("--exits", action="store_true")
    parser.add_argument("--forms", default="bf16,fp8")
    args = parser.parse_args()
    inflight = pathlib.Path(os.environ.get("INFLIGHT_BIN_DIR", "build/cuda/bin")).resolve() / "inflight"
    figures = EXITS if args.exits else TARGETS
    known = dict.fromkeys(figure.scenario for figure in figures)
    wanted = args.rows.split(",") if args.rows else list(known)
    unknown = set(wanted) - set(known)
    if unknown:
        parser.error(f"--rows: {', '.join(sorted(unknown))} has no mark; there are {', '.join(known)}")
    is_enough = []
    for form in args.forms.split(","):
        asked = [figure for figure in figures if figure.scenario in wanted and form in figure.marks]
        if not asked:
            continue
        comments, measured = measure(inflight, form, list(dict.fromkeys(figure.scenario for figure in asked)), args.repeats)
        print("\n".join(comments))
        columns = "form | requests x in/out | measured | 10th to 90th of 100 | of the limit | asked | reached | others"
        print(f"| {columns} | host us | GPU waits us |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        is_enough += [report(form, figure, measured[figure.scenario]) for figure in asked]
    print(f"# {sum(is_enough)} of {len(is_enough)} figures reach 97 % (bf16) or 95 % (fp8) of their marks")
    return 0 if all(is_enough) else 1


if __name__ == "__main__":
    sys.exit(main())

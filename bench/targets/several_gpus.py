#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a decode step takes on T GPUs that share a model: one rank's part, and collectives.

usage: bench/targets/several_gpus.py [--fit]

Prints the table of bench/results/h200-several-gpus.md, "Expected": milliseconds of a decode step on 1, 2, 4 and 8 H200,
beside those that were measured there. --fit fits the constants to the measured ones anew (needs numpy) and prints them.

A step of `rows` sequences with `context` tokens each takes

  weights   the larger of: their bytes at the rate of memory; their products at the rate of arithmetic       / T
  keys      bytes of K and V of all contexts, at a part of the rate of memory                                / T
  layers    what each layer takes beside that, however many ranks there are: a + b hidden_size
  sums      two all-reduces a layer of m = rows * hidden_size * 2 bytes, as src/ops/cuda/peers.cu chooses:
            few bytes:  latency * (T - 1) + 2 m (T - 1) / rate      each word stands beside a number, to each other rank
            many bytes: meet + meet_of_rank * (T - 1) + 2 m (T - 1) / T / rate_of_many  every byte crosses once each way

The embedding's sum and the gather of logits, one each a step, are part of what layers take. All constants but the rates
of the card come from the measured steps, so that the fit says how well the formula describes them, and only figures
that were not measured are predictions.
"""

import argparse
import dataclasses
import math

MEMORY = 4.5e12  # bytes/s that were read in the runs (bench/results/h200-several-gpus.md)
ARITHMETIC = {"bf16": 670e12, "fp8": 1281e12}  # flop/s in the same
WEIGHT_BYTES = {"bf16": 2, "fp8": 1}  # of the layers; the head is bfloat16
MAX_PEER_CTAS = 128  # src/ops/cuda/peers.cuh
MOST_OF_FEW = 64 * 1024 * 16  # bytes; src/ops/cuda/peers.cu, MostOfFew


@dataclasses.dataclass(frozen=True)
class Shape:
    num_layers: int
    hidden_size: int
    intermediate_size: int
    q_width: int
    kv_width: int
    vocab_size: int

    @property
    def layer_weights(self):
        attention = self.hidden_size * (self.q_width + 2 * self.kv_width) + self.q_width * self.hidden_size
        return self.num_layers * (attention + 3 * self.hidden_size * self.intermediate_size)

    @property
    def head_weights(self):
        return self.vocab_size * self.hidden_size


SHAPES = {
    "8B": Shape(32, 4096, 14336, 4096, 1024, 128256),
    "70B": Shape(80, 8192, 28672, 8192, 1024, 128256),
}
SCENARIOS = ["1x128/256", "64x1024/256", "512x128/128"]
FORMS = [("8B", "bf16"), ("8B", "fp8"), ("70B", "bf16"), ("70B", "fp8")]

# Milliseconds of a decode step; bench/results/h200-several-gpus.md has the runs.
MEASURED = {
    ("8B", "bf16", 1): [4.02, 7.25, 16.6], ("8B", "bf16", 2): [2.45, 4.85, 10.3], ("8B", "bf16", 4): [1.70, 3.57, 7.18],
    ("70B", "fp8", 2): [10.6, 15.7, 41.9], ("70B", "fp8", 4): [7.01, 10.8, 27.8], ("70B", "bf16", 4): [10.9, 16.6, None],
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Constants:
    keys_part: float = 0.647  # of the rate of memory
    layer: float = 11.2e-6  # seconds
    layer_of_width: float = 10.7e-6  # for each 4,096 of hidden_size
    latency: float = 0.72e-6  # seconds
    rate: float = 101e9  # bytes/s
    meet: float = 12.4e-6
    meet_of_rank: float = 1.24e-6
    rate_of_many: float = 272e9


FITTED = Constants()


def all_reduce(shape, num_ranks, rows, constants):
    """Seconds."""
    others = num_ranks - 1
    num_bytes = rows * shape.hidden_size * 2
    in_norm = rows * others <= MAX_PEER_CTAS
    most_of_few = MOST_OF_FEW if num_ranks == 2 else MOST_OF_FEW // num_ranks
    if in_norm or num_bytes <= most_of_few:
        return constants.latency * others + 2 * num_bytes * others / constants.rate
    crossing = 2 * num_bytes * others / num_ranks
    return constants.meet + constants.meet_of_rank * others + crossing / constants.rate_of_many


def step_ms(shape, form, num_ranks, rows, context, constants=FITTED):
    weight_bytes = shape.layer_weights * WEIGHT_BYTES[form] + shape.head_weights * 2
    arithmetic = 2 * rows * (shape.layer_weights / ARITHMETIC[form] + shape.head_weights / ARITHMETIC["bf16"])
    keys = shape.num_layers * 2 * shape.kv_width * WEIGHT_BYTES[form] * rows * context
    seconds = (max(weight_bytes / MEMORY, arithmetic) + keys / (MEMORY * constants.keys_part)) / num_ranks
    seconds += shape.num_layers * (constants.layer + constants.layer_of_width * shape.hidden_size / 4096)
    if num_ranks > 1:
        seconds += 2 * shape.num_layers * all_reduce(shape, num_ranks, rows, constants)
    return 1000 * seconds


def rows_and_context(scenario):
    """Of REQUESTSxINPUT/OUTPUT: the rows of a decode step, and the tokens of each in its middle."""
    rows, lengths = scenario.split("x")
    num_input, num_output = (int(n) for n in lengths.split("/"))
    return int(rows), num_input + num_output // 2


def fit():
    """Constants that make the sum of squared logarithms of ratios to the measured smallest (Levenberg-Marquardt)."""
    import numpy

    points = [(name, form, num_ranks, *rows_and_context(scenario), ms)
              for (name, form, num_ranks), times in MEASURED.items()
              for scenario, ms in zip(SCENARIOS, times, strict=True) if ms is not None]  # fmt: skip

    def errors(logs):
        constants = Constants(*numpy.exp(logs))
        return numpy.array([math.log(step_ms(SHAPES[name], form, num_ranks, rows, context, constants) / ms)
                            for name, form, num_ranks, rows, context, ms in points])  # fmt: skip

    logs = numpy.log(dataclasses.astuple(Constants()))
    damping, nudge = 1e-3, 1e-4
    for _ in range(300):
        now = errors(logs)
        slopes = numpy.array([(errors(logs + nudge * unit) - now) / nudge for unit in numpy.eye(len(logs))]).T
        move = numpy.linalg.solve(slopes.T @ slopes + damping * numpy.eye(len(logs)), -slopes.T @ now)
        better = numpy.sum(errors(logs + move) ** 2) < numpy.sum(now**2)
        logs, damping = (logs + move, damping / 2) if better else (logs, damping * 4)
    return Constants(*(float(value) for value in numpy.exp(logs)))


def table():
    """Lines of Markdown."""
    lines = ["| shape | GPUs | " + " | ".join(SCENARIOS) + " |", "|---|---|" + "---|" * len(SCENARIOS)]
    for name, form in FORMS:
        for num_ranks in (1, 2, 4, 8):
            if num_ranks == 1 and name == "70B":
                continue  # does not fit, or leaves no room for keys and values
            cells = []
            for i, scenario in enumerate(SCENARIOS):
                expected = step_ms(SHAPES[name], form, num_ranks, *rows_and_context(scenario))
                measured = MEASURED.get((name, form, num_ranks), [None] * 3)[i]
                cells.append(f"{expected:.3g}" + (f" ({measured:.3g})" if measured else ""))
            lines.append(f"| {name} {form} | {num_ranks} | " + " | ".join(cells) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="fit the constants anew, and print them")
    if parser.parse_args().fit:
        print(fit())
    print("\n".join(table()))


if __name__ == "__main__":
    main()

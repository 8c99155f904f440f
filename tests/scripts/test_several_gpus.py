# SPDX-License-Identifier: Apache-2.0
"""The cost of ranks on GPUs (bench/targets/several_gpus.py): near what was measured, by the kernels' bounds, as written down."""

import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "targets"))
import several_gpus

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("key", several_gpus.MEASURED)
def test_steps_are_near_what_was_measured(key):
    name, form, num_ranks = key
    for scenario, measured in zip(several_gpus.SCENARIOS, several_gpus.MEASURED[key], strict=True):
        if measured is not None:
            rows, context = several_gpus.rows_and_context(scenario)
            expected = several_gpus.step_ms(several_gpus.SHAPES[name], form, num_ranks, rows, context)
            assert expected == pytest.approx(measured, rel=0.05), scenario


def test_sums_by_hand():
    constants = several_gpus.Constants(latency=1e-6, rate=100e9, meet=10e-6, meet_of_rank=1e-6, rate_of_many=200e9)
    shape = several_gpus.SHAPES["8B"]
    # A row of 8 KiB to one other rank, each word twice as wide; to three.
    assert several_gpus.all_reduce(shape, 2, 1, constants) == pytest.approx(1e-6 + 2 * 8192 / 100e9)
    assert several_gpus.all_reduce(shape, 4, 1, constants) == pytest.approx(3e-6 + 3 * 2 * 8192 / 100e9)
    # 4 MiB: of four ranks each reads three quarters of its share's, and writes as much.
    assert several_gpus.all_reduce(shape, 4, 512, constants) == pytest.approx(13e-6 + 2 * 3 / 4 * (4 << 20) / 200e9)


def test_bounds_are_those_of_the_kernels():
    def constant(file, name):
        text = (ROOT / "src" / "ops" / "cuda" / file).read_text()
        return int(re.search(rf"constexpr int {name} = (\d+);", text)[1])

    assert constant("peers.cuh", "kMaxPeerCtas") == several_gpus.MAX_PEER_CTAS
    most = constant("peers.cu", "kMaxCtas") * constant("peers.cuh", "kLettersPerCta") * constant("peers.cu", "kVectorBytes")
    assert most == several_gpus.MOST_OF_FEW


def test_the_table_is_written_down():
    written = (ROOT / "bench" / "results" / "h200-several-gpus.md").read_text().splitlines()
    missing = [line for line in several_gpus.table() if line not in written]
    assert not missing

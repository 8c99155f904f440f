# SPDX-License-Identifier: Apache-2.0
"""`inflight bench throughput` and `latency`: what they print of each scenario. How fast it was is nobody's verdict here."""

import csv

import pytest
from command import DEMO, run

TIMES = ["ttft_ms", "itl_ms"]


def rows_of(printed):
    lines = printed.splitlines()
    assert lines[0].startswith("# device: ") and "GB/s" in lines[0] and "FLOP/s" in lines[0]
    assert lines[1].startswith("# model: LlamaForCausalLM bfloat16")
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.mark.parametrize(
    ("command", "rate", "scenarios"),
    [("throughput", "output_tokens_per_s", ["3x8/5", "2x20/4"]), ("latency", "decode_tokens_per_s", ["1x8/5"])],
)
def test_a_line_for_each_scenario_with_the_limit_and_its_fraction(command, rate, scenarios):
    rows = rows_of(run("bench", command, DEMO, "--scenarios", ",".join(scenarios), "--repeats", 1).stdout)
    assert [row["scenario"] for row in rows] == scenarios
    for row in rows:
        assert all(float(row[name]) > 0 for name in [*TIMES, rate, "limit_tokens_per_s"])
        fraction = float(row[rate]) / float(row["limit_tokens_per_s"])
        assert float(row["fraction_of_limit"]) == pytest.approx(fraction, rel=0.02)
        assert all(float(row[f"{name}_p90"]) >= float(row[name]) for name in TIMES)


def test_what_is_wrong_is_named():
    done = run("bench", "throughput", DEMO, "--scenarios", "3x8", check=False)
    assert done.returncode != 0 and "3x8" in done.stderr and "scenarios" in done.stderr
    done = run("bench", "throughput", DEMO, "--scenarios", "3x8/5", "--profile", "--device", "cpu", check=False)
    assert done.returncode != 0 and "--profile: got device cpu, needs an NVIDIA GPU" in done.stderr

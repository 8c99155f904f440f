# SPDX-License-Identifier: Apache-2.0
"""The bundled model answers held-out questions: at least 90 % exact in every category, greedy, as its card says."""

import collections
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
DEMO = ROOT / "models/demo"
DEVICE = os.environ.get("INFLIGHT_TEST_DEVICE", "cpu")  # cuda: on a machine with a GPU


@pytest.mark.arithmetic
@pytest.mark.parametrize("dtype", {"cpu": ["float32", "bfloat16"], "cuda": ["float16", "bfloat16"]}[DEVICE])
def test_held_out_questions_are_answered_exactly(tmp_path, dtype):
    rows = [json.loads(line) for line in (DEMO / "heldout.jsonl").read_text().splitlines()]
    assert len(rows) >= 200
    requests = tmp_path / "requests.jsonl"
    requests.write_text(
        "".join(json.dumps({"text_input": row["text_input"], "max_tokens": row["max_tokens"]}) + "\n" for row in rows)
    )
    command = [INFLIGHT, "run", DEMO, "--device", DEVICE, "--dtype", dtype]
    subprocess.run([*command, "--input", requests, "--output", tmp_path / "results.jsonl"], check=True, timeout=600)
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    right, asked = collections.Counter(), collections.Counter()
    for row, result in zip(rows, results, strict=True):
        asked[row["category"]] += 1
        right[row["category"]] += result["text_output"].strip() == row["expected"].strip()
    assert len(asked) >= 3
    for category in asked:
        assert right[category] >= 0.9 * asked[category], f"{category}: {right[category]} of {asked[category]}"


def test_committed_model_is_small():
    assert sum(path.stat().st_size for path in DEMO.iterdir() if path.is_file()) <= 16_000_000

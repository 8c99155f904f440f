# SPDX-License-Identifier: Apache-2.0
"""bench/load/served_and_offline.py: that it runs, with an engine without a tokenizer too, and what it prints."""

import pathlib
import shutil
import subprocess
import sys

import pytest
from command import DEMO, run

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/load/served_and_offline.py"
PROTOCOLS = ["generate-stream", "grpc"]


def test_a_line_for_each_protocol_and_their_median(tmp_path):
    checkpoint, engine = tmp_path / "checkpoint", tmp_path / "engine"
    checkpoint.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(DEMO / name, checkpoint)
    run("build", "--checkpoint-dir", checkpoint, "--output-dir", engine, "--max-batch-size", 4)
    sizes = ["--requests", "6", "--batch", "2", "--input-len", "8", "--output-len", "4", "--repeats", str(len(PROTOCOLS))]
    done = subprocess.run([sys.executable, SCRIPT, engine, *sizes], capture_output=True, text=True, timeout=120, check=True)
    head, columns, *rows, median = done.stdout.splitlines()
    assert head.endswith("6 requests of 8 and 4 tokens, 2 at once")
    ratios = []
    for row, protocol in zip(rows, PROTOCOLS, strict=True):
        values = dict(zip(columns.split(","), row.split(","), strict=True))
        assert values["protocol"] == protocol
        ratios.append(float(values["ratio"]))
        assert ratios[-1] == pytest.approx(
            float(values["served_without_client"]) / float(values["offline_tokens_per_s"]), abs=2e-3
        )
    assert f"{min(ratios):.3f} to {max(ratios):.3f}" in median

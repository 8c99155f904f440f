#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""convert_checkpoint.py of TensorRT-LLM's examples: `inflight convert`, which takes its flags."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))

from inflight_program import become

if __name__ == "__main__":
    become("convert", ["--force", *sys.argv[1:]])  # as the original does

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hf_lora_convert.py of TensorRT-LLM's examples: `inflight adapter`, which takes its flags."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from inflight_program import become

if __name__ == "__main__":
    become("adapter", sys.argv[1:])

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quantize.py of TensorRT-LLM's examples: `inflight convert`, which makes scales from the weights and needs no calibration."""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))

from inflight_program import become

# What only the calibration of the original reads.
CALIBRATION = ("calib_dataset", "calib_size", "calib_max_seq_length", "calib_tp_size", "calib_pp_size", "batch_size",
               "tokenizer_max_seq_length", "seed", "device")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description="Converts a model to a quantised checkpoint.", allow_abbrev=False)
    parser.add_argument("--output_dir", "--export_path", default="exported_model", help="directory of the checkpoint")
    for name in CALIBRATION:
        parser.add_argument(f"--{name}", help="no effect: scales are made from the weights")
    arguments, others = parser.parse_known_args()
    for name in CALIBRATION:
        if getattr(arguments, name) is not None:
            print(f"quantize.py: --{name} has no effect: scales come from the weights, nothing is calibrated", file=sys.stderr)
    become("convert", ["--force", "--output_dir", arguments.output_dir, *others])


if __name__ == "__main__":
    main()

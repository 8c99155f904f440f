#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""convert_checkpoint.py of TensorRT-LLM's Gemma, whose flags have names of their own: `inflight convert`."""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))

from inflight_program import become

PRECISIONS = ("int8", "int4")


def main():
    parser = argparse.ArgumentParser(description="Converts a Gemma model of Hugging Face to a checkpoint.", allow_abbrev=False)
    parser.add_argument("--ckpt-type", default="hf", help="hf: the format of the model")
    parser.add_argument("--output-model-dir", required=True, help="directory of the checkpoint")
    parser.add_argument("--world-size", default="1", help="tensor-parallel ranks")
    parser.add_argument("--use-weight-only-with-precision", help="int8 or int4: of the weights")
    parser.add_argument("--tokenizer_dir", help="no effect: the tokenizer lies beside the model")
    arguments, others = parser.parse_known_args()
    precision = arguments.use_weight_only_with_precision
    if arguments.ckpt_type != "hf":
        sys.exit(f"convert_checkpoint.py: --ckpt-type: got '{arguments.ckpt_type}', weights are read in Hugging Face format, hf")
    if precision is not None and precision not in PRECISIONS:
        sys.exit(
            f"convert_checkpoint.py: --use-weight-only-with-precision: got '{precision}', needs int8 or int4; models that others "
            "quantised are read as they are"
        )
    quantised = ["--use_weight_only", "--weight_only_precision", precision] if precision else []
    become(
        "convert", ["--force", "--output_dir", arguments.output_model_dir, "--tp_size", arguments.world_size, *quantised, *others]
    )


if __name__ == "__main__":
    main()

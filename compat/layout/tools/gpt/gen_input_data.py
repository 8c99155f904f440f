#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes input_data.json: requests to tensorrt_llm of the repository all_models/gpt, as perf_analyzer's --input-data reads them.

All have the same random ids. perf_analyzer adds the batch dimension.
"""

import argparse
import json
import pathlib

import numpy as np
from benchmark_core_model import END_ID, NUM_IDS, PAD_ID
from session_requests import add_sampling, llm_tensors


def main():
    parser = argparse.ArgumentParser(description="Writes input_data.json for perf_analyzer.")
    add_sampling(parser)
    parser.add_argument("-b", "--batch_size", type=int, default=8, help="no effect: perf_analyzer's own -b says it")
    parser.add_argument("-s", "--start_len", type=int, default=8, help="tokens of a prompt")
    parser.add_argument("--num_samples", type=int, default=10000, help="requests in the file")
    arguments = parser.parse_args()
    for name in ("start_len", "num_samples"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name}: got {getattr(arguments, name)}, must be at least 1")
    ids = np.random.default_rng().integers(0, NUM_IDS, (1, arguments.start_len), np.int32)
    tensors = llm_tensors(arguments, ids, np.array([[arguments.start_len]], np.int32), END_ID, PAD_ID)
    sample = {name: {"content": values.flatten().tolist(), "shape": values.shape[1:]} for name, values in tensors}
    pathlib.Path("input_data.json").write_text(json.dumps({"data": [sample] * arguments.num_samples}, indent=4))


if __name__ == "__main__":
    main()

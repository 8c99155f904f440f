#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends one text to tensorrt_llm of the repository all_models/gpt, with the tokenizer on this side, and prints the answer."""

import argparse
import pathlib
import sys
import time

import numpy as np
from session_requests import add_flags, add_tokenizer, connect_as, llm_tensors, send, tokenizer_of
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from prompts import TEXT


def main(at_once=False):
    parser = argparse.ArgumentParser(description="Sends one text to tensorrt_llm.")
    add_flags(parser)
    parser.add_argument("-t", "--text", default=TEXT, help="the prompt")
    add_tokenizer(parser)
    arguments = parser.parse_args()
    tokenizer, end_id = tokenizer_of(arguments)
    [ids] = tokenizer.encode([arguments.text])
    tensors = llm_tensors(arguments, np.array([ids], np.int32), np.array([[len(ids)]], np.int32), end_id)
    begin = time.monotonic()
    try:
        [result] = send(connect_as(arguments), "tensorrt_llm", tensors, at_once=at_once)
    except (InferenceServerException, OSError) as error:
        parser.exit(1, f"[ERROR] Failed receiving responses: {error}\n")
    print(f"[INFO] Latency: {round((time.monotonic() - begin) * 1000, 3)} ms")
    print(f"Input: {arguments.text}")
    print(f"Output: {tokenizer.decode(result.as_numpy('output_ids').flatten().tolist()[len(ids) :], skip_special_tokens=False)}")


if __name__ == "__main__":
    main()

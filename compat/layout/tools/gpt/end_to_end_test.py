#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the ensemble of the repository all_models/gpt answers to a batch with what its models answer one by one."""

import argparse
import pathlib
import sys

import numpy as np
from session_requests import add_flags, add_tokenizer, connect_as, llm_tensors, sampling_tensors, send, tokenizer_of
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from prompts import TEXT
from triton_requests import given, tensor, texts

PROMPTS = [  # of different lengths, so that all but the longest are padded
    TEXT, "Once upon a time", "What is machine learning?", "The capital of France is", "x = [i for i in", "12 + 30 =",
    "A list of things to pack before a long journey to the mountains:", "Chapter",
]  # fmt: skip


def lines_of(result, output):
    """The text of each prompt; of several beams one after the other."""
    values = result.as_numpy(output)
    return ["".join(text.decode() for text in row) for row in values.reshape(len(PROMPTS), -1).tolist()]


def main():
    parser = argparse.ArgumentParser(description="Compares the ensemble of all_models/gpt with its models.")
    add_flags(parser)
    add_tokenizer(parser)
    arguments = parser.parse_args()
    end_id = tokenizer_of(arguments)[1]
    client, rows = connect_as(arguments), len(PROMPTS)
    prompts = np.array([[prompt.encode()] for prompt in PROMPTS], object)
    try:
        [prepared] = send(client, "preprocessing", [
            tensor("QUERY", prompts), texts("BAD_WORDS_DICT", [""], rows), texts("STOP_WORDS_DICT", [""], rows),
            *given([("REQUEST_OUTPUT_LEN", arguments.output_len, np.int32)], rows)])  # fmt: skip
        ids, lengths = prepared.as_numpy("INPUT_ID"), prepared.as_numpy("REQUEST_INPUT_LEN")
        [generated] = send(client, "tensorrt_llm", llm_tensors(arguments, ids, lengths, end_id))
        [finished] = send(client, "postprocessing", [tensor("TOKENS_BATCH", generated.as_numpy("output_ids"))])
        by_models = lines_of(finished, "OUTPUT")
        print("============After postprocessing============", *by_models, "=" * 43, "\n\n", sep="\n")
        [whole] = send(client, "ensemble", [
            tensor("text_input", prompts), texts("bad_words", [""], rows), texts("stop_words", [""], rows),
            *given([("max_tokens", arguments.output_len, np.int32)], rows),
            *sampling_tensors(arguments, end_id, rows, of_ensemble=True)])  # fmt: skip
        by_ensemble = lines_of(whole, "text_output")
        print("============After ensemble============", *by_ensemble, sep="\n")
    except (InferenceServerException, OSError) as error:
        parser.exit(1, f"[ERROR] Failed receiving responses: {error}\n")
    for number, (one, other) in enumerate(zip(by_models, by_ensemble, strict=True)):
        if one != other:
            parser.exit(1, f"[ERROR] prompt {number}: model by model gives {one!r}, ensemble gives {other!r}\n")


if __name__ == "__main__":
    main()

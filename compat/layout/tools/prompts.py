# SPDX-License-Identifier: Apache-2.0
"""The prompts of clients and test tools: the one that they send by themselves, and data sets.

A data set is a JSON list of {"input": text, "instruction": text, "output": text}.
"""

import json
import sys

TEXT = "Born in north-east France, Soyer trained as a"  # that clients send unless another is given


def read_dataset(path, max_input_len=None, tokens_per_word=1.3):
    """[(prompt, tokens of the wanted answer)], of prompts up to max_input_len by their words; exits where the file is none."""
    try:
        with open(path) as file:
            rows = json.load(file)
        pairs = [(row["input"] + " " + row["instruction"], int(len(row["output"].split(" ")) * tokens_per_word)) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f'--dataset: {path} is no JSON list of {{"input", "instruction", "output"}}: {error!r}')
    chosen = [
        (prompt, length) for prompt, length in pairs if max_input_len is None or len(prompt.split(" ")) / 1.3 <= max_input_len
    ]
    if not chosen:
        sys.exit(f"--dataset: {path} has {len(pairs)} prompts, none within --max-input-len {max_input_len}")
    return chosen

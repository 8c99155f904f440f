#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes typical.json: what transformers' logits warpers leave of rows of logits where typical_p is one of them.

    python tests/golden/make_typical_golden.py      needs torch (CPU), transformers

Each case is a row of logits, rules, and the probabilities that are left: those of the warpers in the order in which
transformers' generate() has them (generation/utils.py: temperature, top-k, top-p, min-p, typical-p). A case is only fair if
no set ends nearly where another token would: those whose cumulative probabilities come within MIN_GAP of the sum, or whose
last token is as near to the entropy as the next, are left out.
"""

import json
import pathlib

import torch
import transformers
from transformers.generation import logits_process as warpers

HERE = pathlib.Path(__file__).parent
MIN_GAP = 1e-3
VOCAB_SIZE = 48
RULES = [
    {"typical_p": 0.2},
    {"typical_p": 0.5},
    {"typical_p": 0.9},
    {"temperature": 0.6, "typical_p": 0.7},
    {"temperature": 1.8, "typical_p": 0.4},
    {"top_k": 12, "typical_p": 0.6},
    {"top_k": 30, "temperature": 1.5, "typical_p": 0.3},
    {"top_p": 0.8, "typical_p": 0.5},
    {"top_k": 20, "top_p": 0.9, "typical_p": 0.8},
    {"min_p": 0.05, "typical_p": 0.5},
    {"top_k": 25, "min_p": 0.02, "typical_p": 0.7},
    {"typical_p": 1e-6},  # one token, which is the most typical and need not be the likeliest
]
ROWS_PER_RULE = 3


def warp(logits, rules):
    scores = logits[None].clone()
    if "temperature" in rules:
        scores = warpers.TemperatureLogitsWarper(rules["temperature"])(None, scores)
    if "top_k" in rules:
        scores = warpers.TopKLogitsWarper(rules["top_k"])(None, scores)
    if "top_p" in rules:
        scores = warpers.TopPLogitsWarper(rules["top_p"])(None, scores)
    if "min_p" in rules:
        scores = warpers.MinPLogitsWarper(rules["min_p"])(None, scores)
    return scores, warpers.TypicalLogitsWarper(rules["typical_p"])(None, scores)


def is_fair(scores, rules):
    """Whether a change of MIN_GAP in a mass, or in the distance from the entropy, leaves the same set."""
    log_p = scores[0].log_softmax(-1)
    p = log_p.exp()
    shifts = (-log_p + (p * log_p).nansum()).abs().sort()
    sums = p[shifts.indices].cumsum(-1)
    last = int((sums < rules["typical_p"]).sum())
    apart = (sums - rules["typical_p"]).abs().min() > MIN_GAP or rules["typical_p"] < MIN_GAP
    return bool(apart and shifts.values[last + 1] - shifts.values[last] > MIN_GAP)


def cases():
    generator = torch.Generator().manual_seed(22)
    for rules in RULES:
        found = 0
        while found < ROWS_PER_RULE:
            logits = 2 * torch.randn(VOCAB_SIZE, generator=generator)
            scores, left = warp(logits, rules)
            without_top_p, _ = warp(logits, {**rules, "top_p": 1.0})
            sums = without_top_p[0].softmax(-1).sort(descending=True).values.cumsum(-1)
            if not is_fair(scores, rules) or (sums - rules.get("top_p", 2)).abs().min() < MIN_GAP:
                continue
            probabilities = left[0].softmax(-1)
            # Whether every token that is left comes in some thousands of draws can then be asked.
            if 0 < probabilities[probabilities > 0].min() < 0.004:
                continue
            found += 1
            yield {
                "rules": rules, "logits": [round(x, 6) for x in logits.tolist()],
                "probabilities": {i: round(p, 6) for i, p in enumerate(probabilities.tolist()) if p > 0},
            }  # fmt: skip


if __name__ == "__main__":
    about = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0], "vocab_size": VOCAB_SIZE}
    lines = ",\n  ".join(json.dumps(case) for case in cases())
    (HERE / "typical.json").write_text(f'{{"about": {json.dumps(about)}, "cases": [\n  {lines}\n]}}\n')

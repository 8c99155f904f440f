#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes bans.json: what transformers' logits processors make of models of data/ (docs/reference/decoding.md).

    python tests/golden/make_bans_golden.py      needs torch (CPU), transformers, safetensors, numpy

Each case is a model, one of its prompts (reference.safetensors) and rules: bad_words_ids, no_repeat_ngram_size,
min_new_tokens or min_length with end ids, repetition_penalty, sequence_bias of single tokens, and all of them together.
What a rule forbids or forces is taken from the answer without it. A case whose answer is that of its end ids alone is left
out, since it would show nothing; a kind of rule left without a greedy case, or one that may have beams without a case with
them, is an error.

Greedy cases keep the ids of generate(). Cases with beams keep sequences and scores; transformers' processors there see
log-probabilities, ours logits, which is the same for bans and biases once they are normalised (renormalize_logits), and is
not for repetition_penalty, which no case with beams has. transformers has no presence or frequency penalty.

A case is only fair if no decision in it is nearly a tie: those that float64 decides otherwise than float32, or whose scores
differ by less than MIN_GAP, are left out.
"""

import collections
import itertools
import json
import pathlib

import safetensors.numpy
import torch
import transformers

HERE = pathlib.Path(__file__).parent
MODELS = ["llama_gqa2", "llama_gqa4", "gpt2_tied"]
MAX_NEW_TOKENS = 40
WIDTH = 3
MIN_GAP = 1e-4  # of scores; fifty times what float32 gets wrong


@torch.no_grad()
def generate(model, prompt, rules, width=1):
    """[(ids without the end, score)], best first; one without a score where width is 1."""
    ids = torch.tensor([prompt])
    rules = dict(rules)
    end_ids = rules.pop("end_ids", [])
    if "sequence_bias" in rules:
        rules["sequence_bias"] = [[[int(token)], bias] for token, bias in rules["sequence_bias"].items()]
    if "min_length" in rules:
        rules["min_length"] += len(prompt)
    beams = {"num_beams": width, "num_return_sequences": width, "length_penalty": 1.0, "renormalize_logits": True}
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=MAX_NEW_TOKENS,
        eos_token_id=end_ids or None, pad_token_id=0, return_dict_in_generate=True, output_scores=True,
        **(beams if width > 1 else {}), **rules,
    )  # fmt: skip
    scores = out.sequences_scores.tolist() if width > 1 else [None]
    found = []
    for sequence, score in zip(out.sequences.tolist(), scores, strict=True):
        generated = sequence[len(prompt) :]
        ends = [i for i, token in enumerate(generated) if token in end_ids]
        found.append((generated[: ends[0]] if ends else generated, score))
    return found


def rules_for(prompt, plain):
    """{kind: rules} that are to change the answer `plain`."""
    single, pair, triple = [plain[3]], plain[5:7], plain[9:12]
    bias = {str(plain[2]): -3.5, str(plain[0]): -20.0, str(plain[7]): 1.25}
    end_ids = sorted({plain[0], plain[8]})
    words = [word for word in (single, pair) if word not in [[end] for end in end_ids]]  # which transformers would drop
    return {
        "bad word": {"bad_words_ids": [single]},
        "bad words": {"bad_words_ids": [pair, triple]},
        "bad words that begin in the prompt": {
            "bad_words_ids": [[prompt[-1], plain[0]], [prompt[-2], prompt[-1], plain[0]], single, triple]},
        "1-grams": {"no_repeat_ngram_size": 1},
        "2-grams": {"no_repeat_ngram_size": 2},
        "3-grams": {"no_repeat_ngram_size": 3},
        "least new tokens": {"end_ids": [plain[0]], "min_new_tokens": 6},
        "least length": {"end_ids": sorted({plain[1], plain[4]}), "min_length": 9},
        "penalty": {"repetition_penalty": 1.3},
        "large penalty": {"repetition_penalty": 4.0},
        "reward": {"repetition_penalty": 0.7},
        "bias": {"sequence_bias": bias},
        "all": {"sequence_bias": bias, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2,
                "bad_words_ids": words, "end_ids": end_ids, "min_new_tokens": 5},
    }  # fmt: skip


def is_fair(found, exact):
    gaps = [a[1] - b[1] for a, b in itertools.pairwise(found)]
    return [ids for ids, _ in found] == [ids for ids, _ in exact] and all(gap >= MIN_GAP for gap in gaps)


def case_of(models, prompt, rules, width):
    """What transformers makes of it, or why it is left out."""
    found, exact = (generate(model, prompt, rules, width) for model in models)
    if not is_fair(found, exact):
        return None, "nearly ties"
    without = {"end_ids": rules["end_ids"]} if "end_ids" in rules else {}
    if [ids for ids, _ in found] == [ids for ids, _ in generate(models[0], prompt, without, width)]:
        return None, "changes nothing"
    return found, None


def main():
    cases, kept, left_out = [], collections.Counter(), collections.Counter()
    kinds = set()
    for name in MODELS:
        models = [
            transformers.AutoModelForCausalLM.from_pretrained(HERE / "data" / name, dtype=dtype).eval()
            for dtype in (torch.float32, torch.float64)
        ]
        for model in models:
            model.generation_config = transformers.GenerationConfig()
        reference = safetensors.numpy.load_file(HERE / "data" / name / "reference.safetensors")
        for prompt_idx in (1, 2):  # the first has no tokens before its last
            prompt = reference[f"prompt_{prompt_idx}"].tolist()
            plain = generate(models[0], prompt, {})[0][0]
            for kind, rules in rules_for(prompt, plain).items():
                for width in (1, WIDTH) if "repetition_penalty" not in rules else (1,):
                    kinds.add((kind, width))
                    found, why = case_of(models, prompt, rules, width)
                    if found is None:
                        left_out[why] += 1
                        continue
                    kept[kind, width] += 1
                    cases.append({
                        "model": name, "prompt": prompt, "rules": rules, "width": width,
                        "sequences": [ids for ids, _ in found], "scores": [score for _, score in found],
                    })  # fmt: skip
    if missing := kinds - set(kept):
        raise ValueError(f"no case of {sorted(missing)}")
    about = {
        "torch": torch.__version__, "transformers": transformers.__version__, "max_new_tokens": MAX_NEW_TOKENS,
        "left_out": left_out, "command": "python tests/golden/make_bans_golden.py",
    }  # fmt: skip
    print(f"{len(cases)} cases, left out: {dict(left_out)}")
    lines = ",\n".join("  " + json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "bans.json").write_text(f'{{\n "about": {json.dumps(about)},\n "cases": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()

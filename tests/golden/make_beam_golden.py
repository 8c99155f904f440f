#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes beam_search.json: what transformers' beam search says about models of data/.

    python tests/golden/make_beam_golden.py      needs torch (CPU), transformers, safetensors, numpy

Each case is a model, one of its prompts (reference.safetensors), a width, early_stopping and end ids, with the K
sequences of generate(num_beams=K, num_return_sequences=K, length_penalty=1), best first and without their end ids,
and their scores: the sum of log-probabilities divided by the number of generated tokens, the end id counted.

Random models hardly ever draw their own end id. The end ids of a case are tokens that a search without any has in its
beams early and late, so that sequences end at several lengths. A case is only fair if no decision in it is nearly a
tie: those that float64 decides otherwise than float32, or whose scores differ by less than MIN_GAP, are left out.
"""

import itertools
import json
import pathlib

import safetensors.numpy
import torch
import transformers

HERE = pathlib.Path(__file__).parent
MODELS = ["llama_gqa2", "llama_gqa4", "llama_head64", "gpt2_tied"]
WIDTHS = [2, 4, 10]
EARLY_STOPPING = [False, True, "never"]
MAX_NEW_TOKENS = 24
MIN_GAP = 1e-4  # of scores; fifty times what float32 gets wrong


@torch.no_grad()
def search(model, prompt, width, early_stopping, end_ids):
    """[(ids without the end, score)], best first."""
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), num_beams=width, num_return_sequences=width, do_sample=False,
        length_penalty=1.0, early_stopping=early_stopping, max_new_tokens=MAX_NEW_TOKENS, eos_token_id=end_ids or None,
        pad_token_id=0, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    found = []
    for sequence, score in zip(out.sequences.tolist(), out.sequences_scores.tolist(), strict=True):
        generated = sequence[len(prompt) :]
        ends = [i for i, token in enumerate(generated) if token in end_ids]
        found.append((generated[: ends[0]] if ends else generated, score))
    return found


def end_ids_for(model, prompt):
    """Lists of end ids for a prompt: of a token that comes early, one that comes late, both."""
    beams = [ids for ids, _ in search(model, prompt, 4, False, [])]
    early, late = beams[0][2], next(t for t in beams[1][9:] if t != beams[0][2])
    return [[early], [late], [early, late]]


def is_fair(found, exact):
    gaps = [a[1] - b[1] for a, b in itertools.pairwise(found)]
    return [ids for ids, _ in found] == [ids for ids, _ in exact] and min(gaps) >= MIN_GAP


def main():
    cases, num_unfair = [], 0
    for name in MODELS:
        model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "data" / name, dtype=torch.float32).eval()
        model.generation_config = transformers.GenerationConfig()
        double = transformers.AutoModelForCausalLM.from_pretrained(HERE / "data" / name, dtype=torch.float64).eval()
        double.generation_config = transformers.GenerationConfig()
        reference = safetensors.numpy.load_file(HERE / "data" / name / "reference.safetensors")
        for prompt_idx in range(2):
            prompt = reference[f"prompt_{prompt_idx}"].tolist()
            for end_ids in end_ids_for(model, prompt):
                for width in WIDTHS:
                    for early_stopping in EARLY_STOPPING:
                        found = search(model, prompt, width, early_stopping, end_ids)
                        if not is_fair(found, search(double, prompt, width, early_stopping, end_ids)):
                            num_unfair += 1
                            continue
                        cases.append({
                            "model": name, "prompt": prompt, "width": width, "early_stopping": early_stopping,
                            "end_ids": end_ids, "sequences": [ids for ids, _ in found],
                            "scores": [score for _, score in found],
                        })  # fmt: skip
    about = {
        "torch": torch.__version__, "transformers": transformers.__version__, "length_penalty": 1.0,
        "max_new_tokens": MAX_NEW_TOKENS, "num_unfair": num_unfair, "command": "python tests/golden/make_beam_golden.py",
    }  # fmt: skip
    lines = ",\n".join("  " + json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "beam_search.json").write_text(f'{{\n "about": {json.dumps(about)},\n "cases": [\n{lines}\n ]\n}}\n')
    print(f"{len(cases)} cases, {num_unfair} unfair")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes prompt_tables.json: what transformers says about prompts some of whose embeddings are given (inputs_embeds).

    python tests/golden/make_prompt_table_golden.py      needs torch (CPU), transformers, safetensors, numpy

A case is a model of data/, a table of rows, which are values of float16, and a prompt in which id vocab_size + r stands
for row r. Kept are the ids that greedy decoding goes on with, the logits of some positions of prompt and answer, and the
answer of a beam search. Tables are drawn until every greedy step's two best logits, and the searches' neighbouring
scores, differ by MIN_GAP, and until the answer is another one where the rows are in another order: else the case would
not show that each row stands where its id does.
"""

import itertools
import json
import pathlib

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
# The model, and for each part of a prompt: ("text", ids) or ("rows", from, to).
CASES = [
    ("llama_gqa2", [("rows", 0, 5), ("text", 20)]),
    ("llama_gqa2", [("text", 18), ("rows", 0, 3), ("text", 2), ("rows", 1, 4), ("text", 9)]),
    ("gpt2_tied", [("text", 3), ("rows", 0, 30), ("text", 7)]),
    ("qwen3_gqa2", [("rows", 0, 1)]),
    ("mistral_window", [("rows", 0, 33), ("text", 4)]),
    ("llama_head64", [("text", 1), ("rows", 0, 20), ("text", 5)]),
    ("gpt2_head64", [("rows", 2, 9), ("text", 5), ("rows", 0, 2)]),
]
NUM_TOKENS = 32
WIDTH = 3
MIN_GAP = 1e-3
NOISE, NUM_NOISE_DRAWS = 1e-6, 4
SEED = 31


def draw(random, parts, vocab_size, hidden_size, scale):
    """A table and a prompt."""
    num_rows = max(end for kind, *_, end in parts if kind == "rows")
    table = (random.standard_normal((num_rows, hidden_size)) * scale).astype(np.float16)
    prompt = []
    for kind, *what in parts:
        prompt += (
            random.integers(vocab_size, size=what[0]).tolist()
            if kind == "text"
            else [vocab_size + r for r in range(what[0], what[1])]
        )
    return table, prompt


def embedded(model, table, prompt):
    """[1, prompt_len, hidden_size]"""
    size = model.config.vocab_size
    words = model.get_input_embeddings().weight
    rows = torch.tensor(table.astype(np.float32)).to(words.dtype)
    return torch.stack([words[i] if i < size else rows[i - size] for i in prompt])[None]


@torch.no_grad()
def all_logits(model, table, ids):
    return model(inputs_embeds=embedded(model, table, ids)).logits[0]


@torch.no_grad()
def greedy(model, table, prompt):
    """NUM_TOKENS ids and the smallest gap on their way."""
    ids, gap = list(prompt), float("inf")
    for _ in range(NUM_TOKENS):
        best = torch.topk(all_logits(model, table, ids)[-1], 2)
        gap = min(gap, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return ids[len(prompt) :], gap


@torch.no_grad()
def beams(model, table, prompt):
    """[ids], best first, and the smallest gap of their scores."""
    embeds = embedded(model, table, prompt)
    out = model.generate(
        inputs_embeds=embeds, attention_mask=torch.ones(embeds.shape[:2], dtype=torch.long), do_sample=False,
        num_beams=WIDTH, num_return_sequences=WIDTH, max_new_tokens=NUM_TOKENS // 2, eos_token_id=None, pad_token_id=0,
        return_dict_in_generate=True, output_scores=True, length_penalty=1.0,
    )  # fmt: skip
    scores = out.sequences_scores.tolist()
    return out.sequences.tolist(), min(a - b for a, b in itertools.pairwise(scores))


def noise_gain(model, table, ids, positions):
    """The largest change of the kept logits when every weight changes by normal relative noise, per unit of noise."""
    exact = all_logits(model.double(), table, ids)[positions]
    state, gain = {name: w.clone() for name, w in model.state_dict().items()}, 0.0
    for i in range(NUM_NOISE_DRAWS):
        torch.manual_seed(i)
        with torch.no_grad():
            for weight in model.parameters():
                weight *= 1 + NOISE * torch.randn_like(weight)
        change = all_logits(model, table, ids)[positions] - exact
        gain = max(gain, float(change.abs().max()) / NOISE)
        model.load_state_dict(state)
    model.float()
    return round(gain, 3)


def main():
    cases = []
    random = np.random.default_rng(SEED)
    for name, parts in CASES:
        model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "data" / name, dtype=torch.float32).eval()
        scale = float(model.get_input_embeddings().weight.std())
        while True:
            hidden_size = model.get_input_embeddings().weight.shape[1]
            table, prompt = draw(random, parts, model.config.vocab_size, hidden_size, scale)
            answer, gap = greedy(model, table, prompt)
            searched, search_gap = beams(model, table, prompt)
            other, _ = greedy(model, np.roll(table, 1, axis=0) * (1 if len(table) > 1 else -1), prompt)
            if min(gap, search_gap) >= MIN_GAP and other != answer:
                break
        ids = prompt + answer[:-1]
        positions = sorted({0, len(prompt) // 2, len(prompt) - 2, len(prompt) - 1, len(prompt) + 7, len(ids) - 1} - {-1})
        rows = all_logits(model, table, ids)
        cases.append({
            "model": name, "table": [[float(x) for x in row] for row in table], "prompt": prompt, "greedy": answer,
            "beams": searched, "positions": positions,
            "logits": [[round(float(x), 6) for x in rows[p]] for p in positions],
        })  # fmt: skip
        if "_head" in name:
            cases[-1]["noise_gain"] = noise_gain(model, table, ids, positions)
        print(name, len(prompt), gap, search_gap)
    about = {"seed": SEED, "torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    lines = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "prompt_tables.json").write_text(f'{{"about": {json.dumps(about)},\n"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()

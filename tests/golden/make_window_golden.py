#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes windows.json: what full attention with a mask, in numpy float64, says about models of data/.

    python tests/golden/make_window_golden.py      needs numpy, safetensors

The forward passes are those of make_integer_golden.py with another mask, and checked as they are there: without a window
their logits must equal those that transformers gave within MAX_FLOAT32_ERROR.

A case is a model, a window for each layer (repeated; 0 = all) and a number of sinks: a token sees the first `sinks`
tokens and the last `window - sinks`, its own among them, and positions stay those of the sequence. Kept are the tokens
that greedy decoding goes on with and the logits of some positions of prompt and answer, some of them long after the
window has left the prompt. Prompts are drawn until the two best logits of each step differ by MIN_GAP. Models whose head
size GPUs have kernels for keep the noise_gain of make_golden.py, too.
"""

import json
import pathlib

import make_integer_golden as plain
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
CASES = [
    ("llama_gqa2", [16], 0),
    ("llama_gqa2", [24], 4),
    ("llama_gqa2", [40, 12], 3),
    ("llama_gqa2", [0, 12], 0),
    ("llama_gqa4", [1], 0),
    ("llama_gqa4", [33], 17),
    ("gpt2_tied", [20], 0),
    ("gpt2_tied", [30], 5),
    ("llama_head64", [16], 0),
    ("llama_head64", [65], 33),
    ("gpt2_head64", [30], 5),
    ("llama_head128", [21], 20),
]
PROMPT_LENGTH = 70
NUM_TOKENS = 60
POSITIONS = [0, 15, 16, 17, 40, 69, 70, 90, 128]
MIN_GAP = 1e-3
NOISE, NUM_NOISE_DRAWS = 1e-6, 4
SEED = 20


class Attention:
    """plain.attend under a mask for each layer; called layer after layer."""

    def __init__(self, windows: list, sinks: int, num_layers: int):
        self.windows, self.sinks, self.num_layers, self.calls = windows, sinks, num_layers, 0

    def __call__(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        window = self.windows[self.calls % self.num_layers % len(self.windows)]
        self.calls += 1
        token, key = np.arange(len(q))[:, None], np.arange(len(k))[None, :]
        seen = key <= token
        if window > 0:
            seen &= (key < self.sinks) | (token - key < window - self.sinks)
        group = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.where(seen, np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[2]), -np.inf)
        return np.einsum("hqk,khd->qhd", plain.softmax(scores), v).reshape(len(q), -1)


def load(name: str):
    """The model's logits of ids under a mask, its weights, and the size of its vocabulary."""
    config, weights, forward = plain.load(plain.DATA / name)
    plain.check(name, config, weights, forward)
    num_layers = config.get("num_hidden_layers") or config["n_layer"]

    def logits(ids, windows, sinks, weights=weights):
        plain.attend = Attention(windows, sinks, num_layers)
        return forward(config, weights, np.asarray(ids), plain.Rounding())

    return logits, weights, config["vocab_size"]


def greedy(logits, prompt: list, windows: list, sinks: int):
    """NUM_TOKENS ids, or None where one of them is nearly a tie."""
    ids = list(prompt)
    for _ in range(NUM_TOKENS):
        row = logits(ids, windows, sinks)[-1]
        best = np.sort(row)[-2:]
        if best[1] - best[0] < MIN_GAP:
            return None
        ids.append(int(row.argmax()))
    return ids[len(prompt) :]


def noise_gain(logits, weights: dict, ids: list, windows: list, sinks: int) -> float:
    """The largest change of the kept logits when every weight changes by normal relative noise, per unit of noise."""
    exact, gain = logits(ids, windows, sinks)[POSITIONS], 0.0
    for draw in range(NUM_NOISE_DRAWS):
        random = np.random.default_rng(draw)
        noisy = {name: w * (1 + NOISE * random.standard_normal(w.shape)) for name, w in weights.items()}
        change = logits(ids, windows, sinks, noisy)[POSITIONS] - exact
        gain = max(gain, float(np.abs(change).max()) / NOISE)
    return round(gain, 3)


def main():
    cases = []
    random, causal = np.random.default_rng(SEED), plain.attend
    for name, windows, sinks in CASES:
        plain.attend = causal
        logits, weights, vocab_size = load(name)
        answer = None
        while answer is None:
            prompt = random.integers(vocab_size, size=PROMPT_LENGTH).tolist()
            answer = greedy(logits, prompt, windows, sinks)
        rows = logits(prompt + answer[:-1], windows, sinks)
        full = logits(prompt + answer[:-1], [0], 0)
        assert np.abs(rows - full).max() > 0.1, "the window hides nothing that matters"
        cases.append({
            "model": name, "windows": windows, "sinks": sinks, "prompt": prompt, "greedy": answer,
            "positions": POSITIONS, "logits": [[round(float(x), 6) for x in rows[p]] for p in POSITIONS],
        })  # fmt: skip
        if "_head" in name:
            cases[-1]["noise_gain"] = noise_gain(logits, weights, prompt + answer[:-1], windows, sinks)
    about = {"seed": SEED, "numpy": np.__version__}
    lines = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "windows.json").write_text(f'{{"about": {json.dumps(about)},\n"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden data of adapters (LoRA): what merged weights, in numpy float64, say about models of data/.

    python tests/golden/make_lora_golden.py      needs numpy, safetensors

The forward passes are those of make_integer_golden.py, checked as they are there: without an adapter their logits must
equal those that transformers gave within MAX_FLOAT32_ERROR. With one, each weight W becomes W + scale B A
(arXiv:2106.09685), which is what peft's merge does (huggingface/peft/src/peft/tuners/lora/layer.py). The bias of a
module that has factors becomes bias + scale b with a bias b of B (`lora_bias`), and the one that was trained with `bias`
lora_only; with `bias` all so do those of every module (huggingface/peft/src/peft/tuners/tuners_utils.py).

    lora/MODEL/NAME/      an adapter as peft saves it: adapter_config.json, adapter_model.safetensors
    lora/cases.json       per case the model, the adapter ("" = none), a prompt, the tokens that greedy decoding goes on
                          with, and the logits of some positions of prompt and answer

Models whose head size GPUs have kernels for keep the noise_gain of make_golden.py, too. Prompts are drawn until the two
best logits of each step differ by MIN_GAP, and an adapter's first logits are far from those without it.
"""

import json
import pathlib

import make_integer_golden as plain
import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "lora"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
# Of each model by name: r, lora_alpha, use_rslora, target_modules, layers (None = all), rank_pattern, alpha_pattern, and
# for some which biases they have besides: `bias` of peft, or "lora_bias", or both
ADAPTERS = [
    ("llama_gqa2", {
        "all_16": (16, 32, False, ATTENTION + MLP, None, {}, {}),
        "attention_8": (8, 8, False, ATTENTION, None, {}, {}),
        "mlp_4": (4, 16, True, MLP, None, {}, {}),
        "q_v_1": (1, 2, False, ["q_proj", "v_proj"], None, {}, {}),
        "k_64": (64, 16, True, ["k_proj"], None, {}, {}),
        "up_second_layer_3": (3, 12, False, ["up_proj"], [1], {}, {}),
        "gate_2": (2, 8, False, ["gate_proj"], None, {}, {}),
        "patterns": (8, 16, False, ["q_proj", "down_proj", "o_proj"], None, {"down_proj": 5}, {"layers.1.self_attn.q_proj": 48}),
    }),
    ("llama_head64", {
        "all_16": (16, 32, False, ATTENTION + MLP, None, {}, {}),
        "q_v_4": (4, 8, False, ["q_proj", "v_proj"], None, {}, {}),
        "mlp_64": (64, 16, True, MLP, None, {}, {}),
    }),
    ("gpt2_head64", {
        "all_8": (8, 16, False, ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"], None, {}, {}),
    }),
    ("gpt2_tied", {
        "all_8": (8, 16, False, ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"], None, {}, {}),
        "c_attn_4": (4, 8, False, ["c_attn"], None, {}, {}),
    }),
    ("llama_head64", {
        "attention_32": (32, 16, True, ATTENTION, None, {}, {}),
        "gate_up_2": (2, 8, False, ["gate_proj", "up_proj"], None, {}, {}),
        "down_1": (1, 2, False, ["down_proj"], None, {}, {}),
        "k_o_20": (20, 20, False, ["k_proj", "o_proj"], None, {}, {}),
        "all_9": (9, 18, False, ATTENTION + MLP, None, {}, {}),
    }),
    ("llama_bias", {
        "lora_only_4": (4, 8, False, ["q_proj", "o_proj", "up_proj"], None, {}, {}, ["lora_only"]),
        "all_2": (2, 8, False, ["v_proj", "down_proj"], None, {}, {}, ["all"]),
        "of_b_8": (8, 24, True, ATTENTION + MLP, None, {}, {}, ["lora_bias"]),
        "both_3": (3, 6, False, ["k_proj", "gate_proj"], [1], {}, {}, ["lora_only", "lora_bias"]),
    }),
    ("llama_odd_width", {"of_b_5": (5, 10, False, ATTENTION + MLP, None, {}, {}, ["lora_bias"])}),
    ("gpt2_tied", {"lora_only_8": (8, 16, False, ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"], None, {}, {}, ["lora_only"])}),
    ("llama_head64", {"of_b_8": (8, 16, False, ATTENTION + MLP, None, {}, {}, ["lora_bias"])}),
    ("gpt2_head64", {
        "lora_only_4": (4, 8, False, ["attn.c_proj", "c_fc"], None, {}, {}, ["lora_only"]),
        "both_8": (8, 16, False, ["c_attn", "mlp.c_proj"], [0], {}, {}, ["lora_only", "lora_bias"]),
    }),
]  # fmt: skip
PROMPT_LENGTH, NUM_TOKENS = 21, 40
POSITIONS = [0, 1, 10, 20, 21, 40, 59]
MIN_GAP = 1e-3
MIN_CHANGE = 0.05  # of some first logit
NOISE, NUM_NOISE_DRAWS = 1e-6, 4
SEED = 31
BIAS_STRENGTH = 0.3


def targets(config: dict) -> dict:
    """Module names as peft has them -> [out, in]."""
    shapes = {}
    if config["model_type"] == "gpt2":
        hidden, inner = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
        for i in range(config["n_layer"]):
            at = f"transformer.h.{i}."
            shapes[at + "attn.c_attn"] = (3 * hidden, hidden)
            shapes[at + "attn.c_proj"] = (hidden, hidden)
            shapes[at + "mlp.c_fc"] = (inner, hidden)
            shapes[at + "mlp.c_proj"] = (hidden, inner)
        return shapes
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, shape in (
            ("self_attn.q_proj", (q, hidden)), ("self_attn.k_proj", (kv, hidden)), ("self_attn.v_proj", (kv, hidden)),
            ("self_attn.o_proj", (hidden, q)), ("mlp.gate_proj", (inner, hidden)), ("mlp.up_proj", (inner, hidden)),
            ("mlp.down_proj", (hidden, inner)),
        ):  # fmt: skip
            shapes[at + name] = shape
    return shapes


def matching(patterns: dict, name: str, default: int) -> int:
    """As peft's get_pattern_key: a key stands for names that end with it, behind a dot."""
    for key, value in patterns.items():
        if name == key or name.endswith("." + key):
            return value
    return default


def make(config: dict, weights: dict, recipe: tuple, random, directory: pathlib.Path) -> dict:
    """Writes one adapter; returns what is added to each weight and bias, by the name of the tensor."""
    rank, alpha, rslora, modules, layers, rank_pattern, alpha_pattern = recipe[:7]
    biases = recipe[7] if len(recipe) > 7 else []
    tensors, deltas = {}, {}
    for name, (num_out, num_in) in targets(config).items():
        bias = weights.get(f"{name}.bias")
        is_target = any(name.endswith("." + module) for module in modules) and (
            layers is None or int(name.split(".")[2]) in layers
        )
        if bias is not None and ("all" in biases or ("lora_only" in biases and is_target)):
            trained = (bias + random.normal(0, BIAS_STRENGTH, num_out)).astype(np.float32)
            tensors[f"base_model.model.{name}{'.base_layer' if is_target else ''}.bias"] = trained
            deltas[f"{name}.bias"] = trained.astype(np.float64) - bias
        if not is_target:
            continue
        r = matching(rank_pattern, name, rank)
        scale = matching(alpha_pattern, name, alpha) / (np.sqrt(r) if rslora else r)
        a = random.normal(0, 1 / np.sqrt(num_in), (r, num_in)).astype(np.float32)
        b = random.normal(0, 0.35 / (scale * np.sqrt(r)), (num_out, r)).astype(np.float32)
        tensors[f"base_model.model.{name}.lora_A.weight"] = a
        tensors[f"base_model.model.{name}.lora_B.weight"] = b
        deltas[f"{name}.weight"] = scale * (b.astype(np.float64) @ a.astype(np.float64))
        if "lora_bias" in biases:
            of_b = random.normal(0, BIAS_STRENGTH / scale, num_out).astype(np.float32)
            tensors[f"base_model.model.{name}.lora_B.bias"] = of_b
            deltas[f"{name}.bias"] = deltas.get(f"{name}.bias", 0) + scale * of_b.astype(np.float64)
    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = {
        "alpha_pattern": alpha_pattern, "auto_mapping": None, "base_model_name_or_path": "", "bias": "none",
        "fan_in_fan_out": config["model_type"] == "gpt2", "inference_mode": True, "init_lora_weights": True,
        "layers_pattern": None, "layers_to_transform": layers, "lora_alpha": alpha, "lora_dropout": 0.0,
        "modules_to_save": None, "peft_type": "LORA", "r": rank, "rank_pattern": rank_pattern, "revision": None,
        "target_modules": modules, "task_type": "CAUSAL_LM", "use_dora": False, "use_rslora": rslora,
    }  # fmt: skip
    if biases:
        settings |= {"bias": next((b for b in biases if b != "lora_bias"), "none"), "lora_bias": "lora_bias" in biases}
    (directory / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return deltas


def merged(weights: dict, deltas: dict) -> dict:
    result = dict(weights)
    for name, delta in deltas.items():
        is_conv = ".c_" in name  # GPT-2 stores [in, out]
        result[name] = weights.get(name, 0) + (delta.T if is_conv else delta)
    return result


def greedy(logits, prompt: list):
    """NUM_TOKENS ids, or None where one of them is nearly a tie."""
    ids = list(prompt)
    for _ in range(NUM_TOKENS):
        row = logits(ids)[-1]
        best = np.sort(row)[-2:]
        if best[1] - best[0] < MIN_GAP:
            return None
        ids.append(int(row.argmax()))
    return ids[len(prompt) :]


def noise_gain(forward, config: dict, weights: dict, ids: list) -> float:
    """The largest change of the kept logits when every weight changes by normal relative noise, per unit of noise."""

    def kept(form):
        return forward(config, form, np.asarray(ids), plain.Rounding())[POSITIONS]

    exact, gain = kept(weights), 0.0
    for draw in range(NUM_NOISE_DRAWS):
        random = np.random.default_rng(draw)
        noisy = {name: w * (1 + NOISE * random.standard_normal(w.shape)) for name, w in weights.items()}
        gain = max(gain, float(np.abs(kept(noisy) - exact).max()) / NOISE)
    return round(gain, 3)


def main():
    cases, random = [], np.random.default_rng(SEED)
    for model, adapters in ADAPTERS:
        config, weights, forward = plain.load(plain.DATA / model)
        plain.check(model, config, weights, forward)
        forms = {} if any(case["model"] == model for case in cases) else {"": weights}
        for name, recipe in adapters.items():
            forms[name] = merged(weights, make(config, weights, recipe, random, OUT / model / name))
        for name, form in forms.items():

            def logits(ids, form=form, config=config, forward=forward):
                return forward(config, form, np.asarray(ids), plain.Rounding())

            answer = None
            while answer is None:
                prompt = random.integers(config["vocab_size"], size=PROMPT_LENGTH).tolist()
                answer = greedy(logits, prompt)
            rows = logits(prompt + answer[:-1])
            without = forward(config, weights, np.asarray(prompt), plain.Rounding())
            assert name == "" or np.abs(rows[: len(prompt)] - without).max() > MIN_CHANGE, (model, name)
            cases.append({
                "model": model, "adapter": name, "prompt": prompt, "greedy": answer, "positions": POSITIONS,
                "logits": [[round(float(x), 6) for x in rows[p]] for p in POSITIONS],
            })  # fmt: skip
            if "_head" in model:
                cases[-1]["noise_gain"] = noise_gain(forward, config, form, prompt + answer[:-1])
    about = {"seed": SEED, "numpy": np.__version__}
    lines = ",\n".join(json.dumps(case) for case in cases)
    (OUT / "cases.json").write_text(f'{{"about": {json.dumps(about)}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()

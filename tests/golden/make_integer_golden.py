#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden data of int8 and int4 weights: what a second implementation, in numpy float64, says about the models of data/.

    python tests/golden/make_integer_golden.py 8|4 [NAME...]          needs numpy, safetensors, tokenizers (for
                                                                      demo_perplexity)
    python tests/golden/make_integer_golden.py 8|4 --head [--group 16] [NAME...]

The forward pass below is written from the models' papers and checked before it is used: without quantisation its logits
must equal those that transformers gave (data/NAME/reference.safetensors) within MAX_FLOAT32_ERROR. Then the weights are
quantised (docs/reference/artifacts.md: scale = amax / 128, or / 8 for int4, per output channel) and the activations of every
layer's linears rounded per token (scale = amax / 127), which is what the CPU computes.

    intB/NAME.safetensors   prompt_P [prompt_len] int64            token ids, P = 0, 1, ...
                            logits_P [prompt_len, vocab] float32   weights of B bits, activations int8
                            weight_only_P, the same shape          weights of B bits, activations float: what a backend
                                                                   that does not round activations computes
    intB_head/, intB_head_g16/NAME.safetensors   prompt_P, logits_P where the output layer is int8, too, with activations
                            int8, and of a model whose embedding table it is that table at both ends; with a scale for
                            each row and token, or for 16 columns of one
    intB/demo_perplexity.json   of the replies and stories in models/demo/heldout_text.jsonl, in each of these forms

A rounded activation is only a fair test if float32 cannot round it the other way: prompts are drawn until no activation
lies within MIN_MARGIN of the middle between two integers, a hundred times what float32 sums of this size are off.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "data"
DEMO = HERE.parents[1] / "models/demo"
MODELS = ("llama_gqa2", "llama_gqa4", "llama_odd_width", "llama_bias", "llama_llama3", "gpt2_tied", "gpt2_relu")
PROMPT_LENGTHS = (1, 6, 11)
HEAD_MODELS = ("llama_gqa2", "llama_gqa4", "gpt2_tied")
MIN_MARGIN = 1e-4
MAX_FLOAT32_ERROR = 1e-4
MAX_DRAWS = 3000


def rounded_rows(rows: np.ndarray, bits: int, group: int | None) -> np.ndarray:
    """What integers and a scale for each row, or each `group` columns of one, stand for."""
    limit = 2 ** (bits - 1)
    parts = rows.astype(np.float32).reshape(len(rows), -1, group or rows.shape[1])
    scale = np.abs(parts).max(axis=2, keepdims=True) / np.float32(limit)
    ratio = parts / scale
    q = np.clip(np.sign(ratio) * np.floor(np.abs(ratio) + 0.5), -limit, limit - 1)  # half away from zero
    return (q.astype(np.float64) * scale.astype(np.float64)).reshape(rows.shape)


def rounded_weights(weights: dict, bits: int, group: int | None = None, head: bool = False) -> dict:
    """Weights of the layers' linears rounded so, and with `head` the output layer to 8 bits."""
    result = dict(weights)
    if head:
        name = next(n for n in ("lm_head.weight", "model.embed_tokens.weight", "transformer.wte.weight") if n in weights)
        result[name] = rounded_rows(weights[name], 8, group)
    for name, value in weights.items():
        if not name.endswith(("_proj.weight", ".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            continue
        rows = rounded_rows(value.T if ".c_" in name else value, bits, group)  # GPT-2 stores [in, out]
        result[name] = rows.T if ".c_" in name else rows
    return result


class Rounding:
    """Whether the linears of the layers, and the head, round their activations; counts how near one came to a tie."""

    def __init__(self, activations: bool = False, group: int | None = None, of_head: bool = False):
        self.activations = activations
        self.group = group
        self.of_head = of_head
        self.margin = 0.5

    def linear(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        """x [tokens, in], w [out, in]."""
        if self.activations:
            parts = x.reshape(len(x), -1, self.group or x.shape[1])
            amax = np.abs(parts).max(axis=2, keepdims=True)
            steps = parts * (127 / amax)
            self.margin = min(self.margin, float(np.abs(np.abs(steps - np.floor(steps)) - 0.5).min()))
            x = (np.rint(steps) * (amax / 127)).reshape(x.shape)
        y = x @ w.T
        return y if bias is None else y + bias

    def head(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return self.linear(x, w, None) if self.of_head else x @ w.T


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """q [tokens, heads, dim], k and v [tokens, kv_heads, dim]; causal; a group of query heads shares a kv head."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[2])
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    return np.einsum("hqk,khd->qhd", softmax(scores), v).reshape(len(q), -1)


def inverse_frequencies(config: dict, dim: int) -> np.ndarray:
    rope = config.get("rope_parameters") or {"rope_theta": config["rope_theta"], **(config.get("rope_scaling") or {})}
    freq = 1.0 / rope["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return freq
    assert kind == "llama3", kind
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * freq / (2 * np.pi)
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return (1 - blend) * freq / rope["factor"] + blend * freq


def rotate(x: np.ndarray, freq: np.ndarray) -> np.ndarray:
    angle = np.arange(len(x))[:, None, None] * freq
    half = x.shape[2] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=2)


def llama(config: dict, w: dict, ids: np.ndarray, rounding: Rounding) -> np.ndarray:
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    freq = inverse_frequencies(config, dim)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + config["rms_norm_eps"]) * w[name]

    def linear(x, name):
        return rounding.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    h = w["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        x = norm(h, at + "input_layernorm.weight")
        q = rotate(linear(x, at + "self_attn.q_proj").reshape(len(ids), heads, dim), freq)
        k = rotate(linear(x, at + "self_attn.k_proj").reshape(len(ids), kv_heads, dim), freq)
        v = linear(x, at + "self_attn.v_proj").reshape(len(ids), kv_heads, dim)
        h = h + linear(attend(q, k, v), at + "self_attn.o_proj")
        x = norm(h, at + "post_attention_layernorm.weight")
        gate = linear(x, at + "mlp.gate_proj")
        h = h + linear(gate / (1 + np.exp(-gate)) * linear(x, at + "mlp.up_proj"), at + "mlp.down_proj")
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return rounding.head(norm(h, "model.norm.weight"), head)


def gpt2(config: dict, w: dict, ids: np.ndarray, rounding: Rounding) -> np.ndarray:
    heads, dim = config["n_head"], config["n_embd"] // config["n_head"]

    def norm(x, name):
        x = x - x.mean(axis=1, keepdims=True)
        return (
            x / np.sqrt((x * x).mean(axis=1, keepdims=True) + config["layer_norm_epsilon"]) * w[f"{name}.weight"]
            + w[f"{name}.bias"]
        )

    def linear(x, name):
        return rounding.linear(x, w[f"{name}.weight"].T, w[f"{name}.bias"])

    def act(x):
        if config["activation_function"] == "relu":
            return np.maximum(x, 0)
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    h = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][np.arange(len(ids))]
    for layer in range(config["n_layer"]):
        at = f"transformer.h.{layer}."
        q, k, v = np.split(linear(norm(h, at + "ln_1"), at + "attn.c_attn").reshape(len(ids), 3 * heads, dim), 3, axis=1)
        h = h + linear(attend(q, k, v), at + "attn.c_proj")
        h = h + linear(act(linear(norm(h, at + "ln_2"), at + "mlp.c_fc")), at + "mlp.c_proj")
    head = w.get("lm_head.weight", w["transformer.wte.weight"])
    return rounding.head(norm(h, "transformer.ln_f"), head)


def read_weights(path: pathlib.Path) -> dict:
    """All tensors as float64; safetensors.numpy has no bfloat16."""
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    weights = {}
    for name, entry in json.loads(data[8 : 8 + header_bytes]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            assert entry["dtype"] == "F32", entry["dtype"]
            values = np.frombuffer(data[begin:end], np.float32)
        weights[name] = values.astype(np.float64).reshape(entry["shape"])
    return weights


def load(directory: pathlib.Path):
    config = json.loads((directory / "config.json").read_text())
    weights = read_weights(directory / "model.safetensors")
    forward = llama if config["architectures"] == ["LlamaForCausalLM"] else gpt2
    return config, weights, forward


def check(name: str, config: dict, weights: dict, forward) -> None:
    """The forward pass above against what transformers said."""
    reference = load_file(DATA / name / "reference.safetensors")
    for p in range(3):
        ids = np.concatenate([reference[f"prompt_{p}"], reference[f"greedy_{p}"][:-1]])
        logits = forward(config, weights, ids, Rounding())[reference[f"positions_{p}"]]
        error = np.abs(logits - reference[f"logits_{p}"]).max()
        if not error < MAX_FLOAT32_ERROR:
            sys.exit(f"{name}: prompt {p}: {error} from transformers")


def make(name: str, bits: int, out: pathlib.Path) -> None:
    config, weights, forward = load(DATA / name)
    check(name, config, weights, forward)
    integer_weights = rounded_weights(weights, bits)
    rng = np.random.default_rng(list(MODELS).index(name) + 1)
    tensors = {}
    for p, length in enumerate(PROMPT_LENGTHS):
        for _ in range(MAX_DRAWS):
            ids = rng.integers(0, config["vocab_size"], length)
            rounding = Rounding(activations=True)
            logits = forward(config, integer_weights, ids, rounding)
            if rounding.margin >= MIN_MARGIN:
                break
        else:
            sys.exit(f"{name}: no prompt of {length} tokens keeps clear of ties")
        weight_only = forward(config, integer_weights, ids, Rounding())
        exact = forward(config, weights, ids, Rounding())
        tensors |= {
            f"prompt_{p}": ids,
            f"logits_{p}": logits.astype(np.float32),
            f"weight_only_{p}": weight_only.astype(np.float32),
        }
        print(
            f"{name} prompt {p}: margin {rounding.margin:.1e}, logits to {np.abs(exact).max():.2f}; changed by "
            f"int{bits} weights {np.abs(weight_only - exact).max():.4f}, by activations too {np.abs(logits - exact).max():.4f}"
        )
    save_file(tensors, out / f"{name}.safetensors")


def make_head(name: str, bits: int, group: int | None, out: pathlib.Path) -> None:
    config, weights, forward = load(DATA / name)
    check(name, config, weights, forward)
    integer_weights = rounded_weights(weights, bits, group, head=True)
    rng = np.random.default_rng([HEAD_MODELS.index(name) + 1, bits, group or 0])
    tensors = {}
    for p, length in enumerate(PROMPT_LENGTHS):
        for _ in range(MAX_DRAWS):
            ids = rng.integers(0, config["vocab_size"], length)
            rounding = Rounding(activations=True, group=group, of_head=True)
            logits = forward(config, integer_weights, ids, rounding)
            if rounding.margin >= MIN_MARGIN:
                break
        else:
            sys.exit(f"{name}: no prompt of {length} tokens keeps clear of ties")
        tensors |= {f"prompt_{p}": ids, f"logits_{p}": logits.astype(np.float32)}
        change = np.abs(logits - forward(config, weights, ids, Rounding())).max()
        print(f"{name} prompt {p}: margin {rounding.margin:.1e}, logits to {np.abs(logits).max():.2f}, changed by {change:.4f}")
    save_file(tensors, out / f"{name}.safetensors")


def demo_perplexity(bits: int, out: pathlib.Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    config, weights, forward = load(DEMO)
    documents = [json.loads(line) for line in (DEMO / "heldout_text.jsonl").read_text().splitlines()]
    integer_weights = rounded_weights(weights, bits)
    forms = {
        "float32": (weights, Rounding()),
        f"int{bits}_weights": (integer_weights, Rounding()),
        f"int{bits}": (integer_weights, Rounding(activations=True)),
    }
    surprise, count = dict.fromkeys(forms, 0.0), 0
    for document in documents:
        ids = np.array(tokenizer.encode(document["text_input"] + document["expected"]).ids)
        scored = np.arange(len(tokenizer.encode(document["text_input"]).ids), len(ids))
        count += len(scored)
        for form, (form_weights, rounding) in forms.items():
            logits = forward(config, form_weights, ids, rounding)
            surprise[form] -= np.log(softmax(logits[scored - 1])[np.arange(len(scored)), ids[scored]]).sum()
    result = {
        "num_texts": len(documents),
        "num_predictions": count,
        **{form: float(np.exp(surprise[form] / count)) for form in forms},
    }
    (out / "demo_perplexity.json").write_text(json.dumps(result, indent=1) + "\n")
    print(result)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bits", type=int, choices=(8, 4))
    parser.add_argument("--head", action="store_true")
    parser.add_argument("--group", type=int)
    parser.add_argument("names", nargs="*")
    args = parser.parse_intermixed_args()
    bits = args.bits
    group = "" if args.group is None else f"_g{args.group}"
    out = HERE / f"int{bits}{'_head' if args.head else ''}{group}"
    out.mkdir(exist_ok=True)
    models = MODELS if bits == 8 else [name for name in MODELS if name != "llama_odd_width"]  # two elements share a byte
    for name in args.names or (HEAD_MODELS if args.head else [*models, "demo_perplexity"]):
        if args.head:
            make_head(name, bits, args.group, out)
        elif name == "demo_perplexity":
            demo_perplexity(bits, out)
        else:
            make(name, bits, out)


if __name__ == "__main__":
    main()

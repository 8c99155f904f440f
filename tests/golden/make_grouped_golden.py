#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes quantized/NAME/kept.safetensors: what numpy in float64 says about models whose weights stay as they are stored.

    python tests/golden/make_grouped_golden.py [NAME...]    needs numpy and safetensors

Weights are codes, scales and zero points read from the files by the formats' public definitions
(make_quantized_golden.py), (q - z) s without rounding. Activations of a linear are rounded to int8 with a scale for
each token and group of the weight's columns, or for each token where a row is not cut (src/ops/linear.h). Which group a
column is of, g_idx says where there is one. The forward pass is make_integer_golden.py's, and is compared here too with
what transformers said about the widened weights.

    prompt_P [prompt_len] int64            token ids, P = 0, 1, ...; no activation lies close to a tie
    logits_P [prompt_len, vocab] float32
"""

import json
import pathlib
import sys

import numpy as np
from make_integer_golden import MAX_DRAWS, MAX_FLOAT32_ERROR, MIN_MARGIN, PROMPT_LENGTHS, Rounding, llama
from safetensors.numpy import load_file, save_file

DATA = pathlib.Path(__file__).parent / "quantized"
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def tensors_of(path):
    """{name: array}; safetensors.numpy has no bfloat16."""
    data = path.read_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    out = {}
    for name, entry in json.loads(data[8:size]).items():
        if name == "__metadata__":
            continue
        stored = data[slice(*(size + offset for offset in entry["data_offsets"]))]
        kinds = {"F16": np.float16, "F32": np.float32, "I32": np.int32, "I64": np.int64, "I8": np.int8, "BF16": np.uint16}
        values = np.frombuffer(stored, kinds[entry["dtype"]])
        if entry["dtype"] == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        out[name] = values.reshape(entry["shape"])
        out[name + ":dtype"] = entry["dtype"]
    return out


def unpacked(words, bits, axis, order=None):
    """Codes from 0 of words along the axis, the first in the low bits."""
    words = np.moveaxis(words.view(np.uint32), axis, -1)
    per_word = 32 // bits
    codes = np.zeros((*words.shape, per_word), np.int64)
    for place in range(per_word):
        codes[..., order[place] if order else place] = words >> np.uint32(bits * place) & np.uint32(2**bits - 1)
    return np.moveaxis(codes.reshape(*words.shape[:-1], -1), -1, axis)


def awq(t, at, _):
    codes, zeros = unpacked(t[at + "qweight"], 4, 1, AWQ_ORDER).T, unpacked(t[at + "qzeros"], 4, 1, AWQ_ORDER).T
    return codes, zeros, t[at + "scales"].T, t[at + "scales:dtype"]


def gptq(t, at, config):
    bits = config["bits"]
    zeros = unpacked(t[at + "qzeros"], bits, 1).T + (0 if config.get("checkpoint_format") == "gptq_v2" else 1)
    return unpacked(t[at + "qweight"], bits, 0).T, zeros, t[at + "scales"].T, t[at + "scales:dtype"]


def compressed(t, at, config):
    weights = config["config_groups"]["group_0"]["weights"]
    bits = weights["num_bits"]
    if at + "weight" in t:
        codes, middle = t[at + "weight"].astype(np.int64), 0
    else:
        codes, middle = unpacked(t[at + "weight_packed"], bits, 1), 2 ** (bits - 1)
        codes = codes[:, : t[at + "weight_shape"][1]]
    scales = t[at + "weight_scale"]
    scales = np.broadcast_to(scales.reshape(len(scales), -1), (len(codes), scales.size // len(scales)))
    zeros = np.full(scales.shape, middle)
    if not weights["symmetric"]:
        stored = t[at + "weight_zero_point"]
        if stored.dtype == np.int32:
            zeros = unpacked(stored, bits, 0)[: len(codes)]
        else:
            zeros = np.broadcast_to(stored.astype(np.int64).reshape(len(stored), -1), scales.shape)
    return codes, zeros, scales, t[at + "weight_scale:dtype"]


READERS = {"awq": (awq, "qweight"), "gptq": (gptq, "qweight"), "compressed-tensors": (compressed, "weight_scale")}


def rounded(values, dtype):
    """float32 numbers as `dtype` has them."""
    if dtype == "F16":
        return values.astype(np.float16).astype(np.float64)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


class GroupRounding(Rounding):
    """Rounds the activations of weights that have groups; what is not in `groups` reads them as they are."""

    def __init__(self, weights, groups):
        super().__init__()
        self.groups = {id(weights[name]): of_columns for name, of_columns in groups.items()}

    def linear(self, x, w, bias):
        of_columns = self.groups.get(id(w))
        if of_columns is not None:
            amax = np.stack([np.abs(x[:, of_columns == g]).max(axis=1) for g in range(of_columns.max() + 1)], 1)[:, of_columns]
            steps = x * (127 / amax)
            self.margin = min(self.margin, float(np.abs(np.abs(steps - np.floor(steps)) - 0.5).min()))
            x = np.rint(steps) * (amax / 127)
        y = x @ w.T
        return y if bias is None else y + bias

    def head(self, x, w):
        return self.linear(x, w, None)


# What the engine has as one weight, or multiplies at once, is kept where all of it is packed.
TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def is_kept(module, modules):
    if not module.startswith("model.layers."):
        return module == "lm_head."
    stem, _, name = module.removesuffix(".").rpartition(".")
    together = next((names for names in TOGETHER if name in names), (name,))
    return all(f"{stem}.{each}." in modules for each in together)


def make(name):
    config = json.loads((DATA / name / "config.json").read_text())
    quantization = config["quantization_config"]
    read, part = READERS[quantization["quant_method"]]
    stored = tensors_of(DATA / name / "model.safetensors")
    kept = {k: v.astype(np.float64) for k, v in stored.items() if not k.endswith(":dtype") and k.endswith(".weight")}
    kept = {k: v for k, v in kept.items() if stored[k].dtype != np.int8}
    widened, groups = dict(kept), {}
    modules = {k.removesuffix(part) for k in stored if k.endswith("." + part)}
    for module in sorted(modules):
        codes, zeros, scales, dtype = read(stored, module, quantization)
        of_columns = np.arange(codes.shape[1]) // (codes.shape[1] // scales.shape[1])
        of_columns = stored.get(module + "g_idx", stored.get(module + "weight_g_idx", of_columns))
        exact = (codes - zeros[:, of_columns]) * scales.astype(np.float64)[:, of_columns]
        widened[module + "weight"] = rounded(exact, dtype)
        kept[module + "weight"] = exact if is_kept(module, modules) else rounded(exact, dtype)
        if is_kept(module, modules):
            groups[module + "weight"] = of_columns
    reference = load_file(DATA / name / "reference.safetensors")
    ids = np.concatenate([reference["prompt_0"], reference["greedy_0"][:-1]])
    error = np.abs(llama(config, widened, ids, Rounding())[reference["positions_0"]] - reference["logits_0"]).max()
    assert error < MAX_FLOAT32_ERROR, (name, error)
    rng = np.random.default_rng(7)
    tensors = {}
    for p, length in enumerate(PROMPT_LENGTHS):
        for _ in range(MAX_DRAWS):
            ids = rng.integers(0, config["vocab_size"], length)
            rounding = GroupRounding(kept, groups)
            logits = llama(config, kept, ids, rounding)
            if rounding.margin >= MIN_MARGIN:
                break
        else:
            sys.exit(f"{name}: no prompt of {length} tokens keeps clear of ties")
        plain = llama(config, widened, ids, Rounding())
        tensors |= {f"prompt_{p}": ids, f"logits_{p}": logits.astype(np.float32)}
        changed = np.abs(logits - plain).max()
        print(f"{name} prompt {p}: margin {rounding.margin:.1e}, logits to {np.abs(plain).max():.2f}, changed by {changed:.4f}")
    save_file(tensors, DATA / name / "kept.safetensors")


KEPT = (
    "awq_g128",
    "awq_g32_ignored",
    "gptq_act_order",
    "gptq_sym_channel",
    "gptq8_v2_head",
    "int8_channel",
    "int8_static_zeros",
    "packed_channel",
    "packed_group",
    "packed_zeros",
    "packed_zeros_order",
)

if __name__ == "__main__":
    for each in sys.argv[1:] or KEPT:
        make(each)

# SPDX-License-Identifier: Apache-2.0
"""Hugging Face directories of small models with random weights, made in a moment."""

import json
import pathlib
import shutil

import numpy as np
import upstream_layout

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models/demo"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")


def make_gpt2(directory, vocab_size=2048, width=64, layers=2, heads=4, positions=1024):
    """A GPT-2, with the demo model's tokenizer, whose ids are below 2048."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True)
    random = np.random.default_rng(20)

    def normal(*shape):
        return random.normal(0, 0.1, shape)

    tensors = {"wte.weight": normal(vocab_size, width), "wpe.weight": normal(positions, width)}
    for layer in range(layers):
        for name, rows, columns in (
            ("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width), ("mlp.c_fc", width, 4 * width),
            ("mlp.c_proj", 4 * width, width),
        ):  # fmt: skip
            tensors[f"h.{layer}.{name}.weight"] = normal(rows, columns)
            tensors[f"h.{layer}.{name}.bias"] = normal(columns)
        for name in ("ln_1", "ln_2"):
            tensors[f"h.{layer}.{name}.weight"] = 1 + normal(width)
            tensors[f"h.{layer}.{name}.bias"] = normal(width)
    tensors |= {"ln_f.weight": 1 + normal(width), "ln_f.bias": normal(width)}
    upstream_layout.write(directory / "model.safetensors", tensors)
    (directory / "config.json").write_text(json.dumps({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": vocab_size, "n_positions": positions,
        "n_ctx": positions, "n_embd": width, "n_layer": layers, "n_head": heads, "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new", "torch_dtype": "float32", "tie_word_embeddings": True,
    }))  # fmt: skip
    for name in TOKENIZER_FILES:
        if (DEMO / name).exists():
            shutil.copy(DEMO / name, directory / name)
    return directory

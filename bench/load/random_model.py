#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a Hugging Face directory of random bfloat16 weights in a known shape, without a tokenizer, to measure servers with.

usage: bench/load/random_model.py DIR [--shape llama-3.2-1b] [--seed 1]
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import struct

import numpy as np

SHAPES = {
    "llama-3-8b": {"hidden_size": 4096, "num_hidden_layers": 32, "head_dim": 128, "intermediate_size": 14336,
                   "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": False},
    "llama-3.2-1b": {"hidden_size": 2048, "num_hidden_layers": 16, "head_dim": 64, "intermediate_size": 8192,
                     "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": True},
    "small": {"hidden_size": 256, "num_hidden_layers": 2, "head_dim": 32, "intermediate_size": 512, "vocab_size": 1000,
              "num_attention_heads": 8, "num_key_value_heads": 2, "tie_word_embeddings": True},
}  # fmt: skip


def tensors(shape):
    """Name and shape of each tensor, as transformers names them."""
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    queries, keys = shape["num_attention_heads"] * shape["head_dim"], shape["num_key_value_heads"] * shape["head_dim"]
    yield "model.embed_tokens.weight", (shape["vocab_size"], hidden)
    for layer in range(shape["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        for name, rows, columns in (("q", queries, hidden), ("k", keys, hidden), ("v", keys, hidden), ("o", hidden, queries)):
            yield prefix + f"self_attn.{name}_proj.weight", (rows, columns)
        for name, rows, columns in (("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)):
            yield prefix + f"mlp.{name}_proj.weight", (rows, columns)
    yield "model.norm.weight", (hidden,)
    if not shape["tie_word_embeddings"]:
        yield "lm_head.weight", (shape["vocab_size"], hidden)


def values(shape, random):
    """bfloat16 bits: norms are 1, matrices uniform with variance 1 / columns."""
    if len(shape) == 1:
        return np.full(shape, 0x3F80, dtype="<u2")
    bound = np.float32(np.sqrt(3 / shape[1]))
    floats = random.random(shape, dtype=np.float32) * (2 * bound) - bound
    return (floats.view("<u4") >> 16).astype("<u2")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.2-1b")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    args.dir.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 8192,
        "hidden_act": "silu",
        "eos_token_id": 0,
        **shape,
    }
    (args.dir / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    header, offset = {}, 0
    for name, dims in tensors(shape):
        size = 2 * int(np.prod(dims))
        header[name] = {"dtype": "BF16", "shape": list(dims), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    jobs = [(dims, np.random.default_rng([args.seed, i])) for i, (_, dims) in enumerate(tensors(shape))]
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    with open(args.dir / "model.safetensors", "wb") as out, pool:
        out.write(struct.pack("<Q", len(text)) + text)
        for array in pool.map(lambda job: values(*job), jobs):
            out.write(array.data)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The numbers of docs/kv-cache.md: its table by the formula, its example by what the planner says of a model of that shape,
whose weights are a file of zeros that nothing reads."""

import json
import re
import struct

import pytest
from command import ROOT, run

PAGE = (ROOT / "docs/kv-cache.md").read_text()
ROWS = re.findall(r"^\| (\S.*?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) KiB \| ([\d.]+) GiB \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_rows_of_the_table_are_the_formula(row):
    _, layers, heads, size, kib, gib = row
    token = 2 * int(layers) * int(heads) * int(size) * 2
    assert int(kib) * 1024 == token
    assert gib == f"{token * 8192 / 2**30:.2f}"


def tensors(config):
    """{name: shape} of a Qwen3."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    size = config["head_dim"]
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden], "model.norm.weight": [hidden]}
    for i in range(config["num_hidden_layers"]):
        of_layer = {
            "input_layernorm": [hidden], "post_attention_layernorm": [hidden], "self_attn.q_norm": [size],
            "self_attn.k_norm": [size], "self_attn.q_proj": [queries, hidden], "self_attn.k_proj": [keys, hidden],
            "self_attn.v_proj": [keys, hidden], "self_attn.o_proj": [hidden, queries], "mlp.gate_proj": [inner, hidden],
            "mlp.up_proj": [inner, hidden], "mlp.down_proj": [hidden, inner],
        }  # fmt: skip
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in of_layer.items()}
    return shapes


def write_model(folder, config):
    """A Hugging Face directory of that shape; its weights take no place on the disk."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, shape in tensors(config).items():
        size = 2
        for dim in shape:
            size *= dim
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def test_the_example_is_what_the_planner_says(tmp_path):
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "vocab_size": 151936,
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "rope_theta": 1000000, "tie_word_embeddings": True, "attention_bias": False,
    }  # fmt: skip
    write_model(tmp_path / "qwen3", config)
    asked = re.search(r"`--max-kv-tokens (\d+)`", PAGE).group(1)
    plan = run("inspect", tmp_path / "qwen3", "--device", "cpu", "--dtype", "bfloat16", "--max-kv-tokens", asked).stdout
    (line,) = [line for line in plan.splitlines() if re.match("KV cache .* blocks of ", line)]
    (said,) = re.findall(r"^    (KV cache .*), \.\.\.$", PAGE, re.MULTILINE)
    assert line.startswith(said), line
    (weights,) = [line for line in plan.splitlines() if line.startswith("weights ")]
    assert re.search(r"Weights \(([\d.]+ GiB)\)", PAGE).group(1) in weights, weights

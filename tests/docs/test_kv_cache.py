# SPDX-License-Identifier: Apache-2.0
"""The numbers of docs/kv-cache.md: its table by the formula, its examples by what the planner says of models of such shapes,
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


def of_qwen3(config):
    """{name: shape} of its tensors."""
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


def of_gpt_oss(config):
    """{name: shape} of its tensors."""
    hidden, inner, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    queries, keys = (config[f"num_{n}_heads"] * config["head_dim"] for n in ("attention", "key_value"))
    words = [config["vocab_size"], hidden]
    shapes = {"model.embed_tokens.weight": words, "lm_head.weight": words, "model.norm.weight": [hidden]}
    linears = {"q_proj": [queries, hidden], "k_proj": [keys, hidden], "v_proj": [keys, hidden], "o_proj": [hidden, queries]}
    linears = {f"self_attn.{name}": shape for name, shape in linears.items()} | {"mlp.router": [experts, hidden]}
    for i in range(config["num_hidden_layers"]):
        of_layer = {f"{name}.weight": shape for name, shape in linears.items()}
        of_layer |= {f"{name}.bias": shape[:1] for name, shape in linears.items()}
        of_layer |= {f"{name}_layernorm.weight": [hidden] for name in ("input", "post_attention")}
        of_layer |= {
            "self_attn.sinks": [config["num_attention_heads"]], "mlp.experts.gate_up_proj": [experts, hidden, 2 * inner],
            "mlp.experts.gate_up_proj_bias": [experts, 2 * inner], "mlp.experts.down_proj": [experts, inner, hidden],
            "mlp.experts.down_proj_bias": [experts, hidden],
        }  # fmt: skip
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in of_layer.items()}
    return shapes


def write_model(folder, config, tensors):
    """A Hugging Face directory of that shape; its weights take no place on the disk."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, shape in tensors.items():
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
    write_model(tmp_path / "qwen3", config, of_qwen3(config))
    asked = re.search(r"`--max-kv-tokens (\d+)`", PAGE).group(1)
    plan = run("inspect", tmp_path / "qwen3", "--device", "cpu", "--dtype", "bfloat16", "--max-kv-tokens", asked).stdout
    (line,) = [line for line in plan.splitlines() if re.match("KV cache .* blocks of ", line)]
    said = re.search(r"^    (KV cache .*), \.\.\.$", PAGE, re.MULTILINE).group(1)
    assert line.startswith(said), line
    (weights,) = [line for line in plan.splitlines() if line.startswith("weights ")]
    assert re.search(r"Weights \(([\d.]+ GiB)\)", PAGE).group(1) in weights, weights


def test_the_plan_of_windows_is_what_the_planner_says(tmp_path):
    """The cache of gpt-oss 20B: what is as small as here has no part in it."""
    config = {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "torch_dtype": "bfloat16", "vocab_size": 256,
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 24, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 4, "num_experts_per_tok": 4, "sliding_window": 128,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 150000, "tie_word_embeddings": False,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False},
    }  # fmt: skip
    section = PAGE.split("\n## Windows of some layers\n")[1].split("\n## ")[0]
    shape = re.search(r"has (\d+) layers with (\d+) KV heads of head size (\d+), of which every second sees (\d+)", section)
    names = ("num_hidden_layers", "num_key_value_heads", "head_dim", "sliding_window")
    assert [int(number) for number in shape.groups()] == [config[name] for name in names]
    write_model(tmp_path / "gpt-oss", config, of_gpt_oss(config))
    asked = re.search(r"`--max-kv-tokens (\d+)`", section).group(1)
    plan = run("inspect", tmp_path / "gpt-oss", "--device", "cpu", "--dtype", "bfloat16", "--max-kv-tokens", asked).stdout
    said = re.findall(r"^    (KV cache .*?|           and .*?)(?: \.\.\.)?$", section, re.MULTILINE)
    assert len(said) == 2
    lines = plan.splitlines()
    (first,) = [i for i, line in enumerate(lines) if re.match("KV cache .* blocks of ", line)]
    assert lines[first].startswith(said[0]), lines[first]
    assert lines[first + 1] == said[1]
    # A block has the keys and values of twelve layers; the pools have so many of them.
    blocks = [int(n) for n in re.findall(r"(\d+) blocks", " ".join(said))]
    assert 2 * 12 * 64 * 8 * 64 * 2 == 1.5 * 2**20 and sum(blocks) * 1.5 / 1024 == 3.75


def test_texts_that_pools_of_windows_hold_are_a_calculation():
    """Of layers of which one in so many sees all, the others having a quarter of its blocks."""
    for one_in, told in ((2, "every second\nlayer has one holds ([\\d.]+) times"), (6, "five of six have ([\\d.]+) times")):
        (times,) = re.findall(told, PAGE)
        assert times == f"{one_in / (1 + (one_in - 1) / 4):.1f}"

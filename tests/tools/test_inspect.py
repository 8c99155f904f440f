# SPDX-License-Identifier: Apache-2.0
"""inflight inspect: parameters, tokenizer and template, JSON, and sizes from config.json alone."""

import json
import math

import pytest
import safetensors_rows
from command import DEMO, ROOT, error, run

LLAMA_3_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 128000, "eos_token_id": 128001,
}  # fmt: skip
GIB = 1 << 30


def inspect(directory, *options):
    return json.loads(run("inspect", directory, "--device", "cpu", "--json", *options).stdout)


@pytest.mark.parametrize("name", ["llama_gqa2", "qwen2_head64"])
def test_parameters_are_as_many_as_the_weight_file_has(name):
    folder = ROOT / "tests/golden/data" / name
    tensors, _ = safetensors_rows.header(folder / "model.safetensors")
    stored = sum(math.prod(tensor["shape"]) for name, tensor in tensors.items() if name != "__metadata__")
    found = inspect(folder)
    assert found["parameters"] == found["active_parameters"] == stored
    assert f"({stored})" in run("inspect", folder, "--device", "cpu").stdout


def test_a_models_report_as_json():
    found = inspect(DEMO)
    config = json.loads((DEMO / "config.json").read_text())
    assert found["architecture"] == config["architectures"][0] and found["num_layers"] == config["num_hidden_layers"]
    assert found["has_weights"] and found["has_chat_template"] and found["tokenizer_size"] <= config["vocab_size"]
    model = json.loads((DEMO / "tokenizer.json").read_text())["model"]
    assert (found["tokenizer_kind"], found["tokenizer_file"]) == (model["type"], "tokenizer.json")
    assert found["chat_template"] in ("chat_template.jinja", "tokenizer_config.json")
    assert found["plan"]["kv_tokens"] > 0 and found["plan"]["device"] == "cpu"
    assert found["plan"]["max_seq_len"] <= found["max_position_embeddings"] == config["max_position_embeddings"]
    text = run("inspect", DEMO, "--device", "cpu").stdout
    assert f"tokenizer     {model['type']} of tokenizer.json, {found['tokenizer_size']} tokens\n" in text
    assert f"template      {found['chat_template']}\n" in text
    assert f"{found['kv_bytes_per_token']} bytes a token" in text


def test_a_model_is_sized_from_its_configuration_alone(tmp_path):
    """The numbers are those of the model's card and a calculation by hand."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B))
    parameters = 8_030_261_248
    for path in (tmp_path, tmp_path / "config.json"):
        found = inspect(path, "--memory-gib", 24)
        assert not found["has_weights"] and found["plan"] is None and found["why_no_plan"]
        assert found["parameters"] == parameters
        assert found["kv_bytes_per_token"] == 2 * 32 * 8 * 128 * 2
        sizes = {size["type"]: size for size in found["sizes"]}
        assert list(sizes) == ["float32", "bfloat16", "W8A16", "W4A16"]
        assert sizes["bfloat16"]["weight_bytes"] == pytest.approx(parameters * 2, rel=0.001)
        assert sizes["float32"]["weight_bytes"] == pytest.approx(parameters * 4, rel=0.001)
        linears = 32 * (4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336)
        for name, bits in (("W8A16", 8), ("W4A16", 4)):
            assert sizes[name]["weight_bytes"] == pytest.approx((parameters - linears) * 2 + linears * bits / 8, rel=0.01)
        left = 24 * GIB - sizes["bfloat16"]["weight_bytes"]
        assert sizes["bfloat16"]["kv_tokens"] == pytest.approx(left * 0.9 / (2 * 32 * 8 * 128 * 2), rel=0.001)
        assert sizes["float32"]["kv_tokens"] == 0
    text = run("inspect", tmp_path, "--device", "cpu", "--memory-gib", 24).stdout
    assert "of which only config.json is there" in text and "8.03 billion (8030261248)" in text
    assert max(map(len, text.split("\nSizes, of")[1].splitlines())) <= 100


def test_active_parameters_of_experts(tmp_path):
    """Mixtral 8x7B: 46.7 billion parameters, of which 12.9 are used for a token (arXiv:2401.04088)."""
    config = {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "hidden_act": "silu", "num_local_experts": 8,
        "num_experts_per_tok": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "sliding_window": None,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = inspect(tmp_path)
    assert round(found["parameters"] / 1e9, 1) == 46.7 and round(found["active_parameters"] / 1e9, 1) == 12.9


def test_a_directory_without_a_part_of_its_weights_is_not_sized(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-00001.safetensors"}}))
    assert "model-00001.safetensors" in error("inspect", tmp_path, "--device", "cpu")


def named(folder):
    found = inspect(folder)
    return found["tokenizer_kind"], found["tokenizer_file"], found["chat_template"]


def test_the_kind_of_a_tokenizer_and_the_place_of_a_template_are_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B))
    assert named(tmp_path) == (None, None, None)
    text = run("inspect", tmp_path, "--device", "cpu").stdout
    assert "tokenizer     none\ntemplate      none\n" in text
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))
    (tmp_path / "tokenizer.model").write_bytes((ROOT / "tests/tokenizer/data/transformers/llama.model").read_bytes())
    assert named(tmp_path) == ("BPE", "tokenizer.model", "tokenizer_config.json")
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2}))
    (tmp_path / "merges.txt").write_text("a b\n")
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert named(tmp_path) == ("BPE", "vocab.json and merges.txt", "chat_template.jinja")
    for content in (
        {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"},
        {"type": "WordPiece", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
         "max_input_chars_per_word": 100},
        {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.0]], "unk_id": 0},
    ):  # fmt: skip
        (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": content, "added_tokens": []}))
        assert named(tmp_path)[:2] == (content["type"], "tokenizer.json")


def test_memory_of_a_sequence_of_a_length(tmp_path):
    """Weights and keys and values of so many tokens; a layer with a window keeps no more than the window."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B))
    per_layer = 2 * 8 * 128 * 2
    for option in ("--ctx", "--max-seq-len", "--ctx-size"):
        found = inspect(tmp_path, "--memory-gib", 24, option, 6000)
        sizes = {size["type"]: size for size in found["sizes"]}
        assert found["max_seq_len"] == 6000
        assert sizes["bfloat16"]["sequence_kv_bytes"] == 32 * per_layer * 6000
        assert sizes["W4A16"]["sequence_kv_bytes"] == 32 * per_layer * 6000
        assert sizes["float32"]["sequence_kv_bytes"] == 32 * per_layer * 2 * 6000
    text = run("inspect", tmp_path, "--device", "cpu", "--ctx", 6000).stdout
    total = (sizes["bfloat16"]["weight_bytes"] + 32 * per_layer * 6000) / GIB
    row = next(line for line in text.splitlines() if line.startswith("bfloat16"))
    assert row.endswith(f" {total:.2f} GiB") and "with 6000 tokens\n" in text
    assert max(map(len, text.split("\nSizes, of")[1].splitlines())) <= 100
    assert inspect(tmp_path)["sizes"][0]["sequence_kv_bytes"] is None
    message = error("inspect", tmp_path, "--device", "cpu", "--ctx", 8193)
    assert "--max-seq-len: got 8193" in message and "8192" in message

    mistral = {**LLAMA_3_8B, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 4096}
    (tmp_path / "config.json").write_text(json.dumps(mistral))
    found = inspect(tmp_path, "--ctx", 6000)
    assert found["sizes"][1]["sequence_kv_bytes"] == 32 * per_layer * 4096


def test_a_plan_is_for_sequences_of_the_length_that_is_asked_for():
    found = inspect(DEMO, "--max-seq-len", 64)
    assert found["plan"]["max_seq_len"] == 64
    assert found["plan"]["total_bytes"] <= inspect(DEMO)["plan"]["total_bytes"]
    assert "with 64 tokens" in run("inspect", DEMO, "--device", "cpu", "--max-seq-len", 64).stdout

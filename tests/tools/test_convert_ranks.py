# SPDX-License-Identifier: Apache-2.0
"""Sharded checkpoints against numpy: what convert writes, and what run computes from files that numpy wrote."""

import json

import numpy as np
import pytest
import upstream_layout
from command import ROOT, run

GOLDEN = ROOT / "tests/golden/data"
RANKS = [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)]

# Four heads each. llama_gqa2: two kv heads, vocabulary 211, tied; llama_bias: two, 193, biases; gpt2_tied: 257;
# qwen2_tied: biases of q, k and v; qwen3_gqa2: norms of heads, a head size of its own.
MODELS = ["llama_gqa2", "llama_bias", "gpt2_tied", "qwen2_tied", "qwen3_gqa2"]


class Model:
    def __init__(self, name):
        self.dir = GOLDEN / name
        self.config = json.loads((self.dir / "config.json").read_text())
        self.is_gpt2 = name.startswith("gpt2")
        hf = upstream_layout.read_model(self.dir)
        self.whole = (upstream_layout.whole_gpt2 if self.is_gpt2 else upstream_layout.whole_llama)(hf, self.config)
        self.layers = self.config["n_layer" if self.is_gpt2 else "num_hidden_layers"]
        self.heads = self.config["n_head" if self.is_gpt2 else "num_attention_heads"]
        self.kv_heads = self.config.get("num_key_value_heads", self.heads)
        self.is_tied = self.config.get("tie_word_embeddings", self.is_gpt2)

    def split(self, tp, pp, **how):
        return upstream_layout.split(
            self.whole, layers=self.layers, heads=self.heads, kv_heads=self.kv_heads, tp=tp, pp=pp, **how
        )


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return Model(request.param)


def expect_ranks(directory, ranks):
    assert sorted(path.name for path in directory.glob("rank*")) == sorted(f"rank{r}.safetensors" for r in ranks)
    for rank, expected in ranks.items():
        found = upstream_layout.read(directory / f"rank{rank}.safetensors")
        assert found.keys() == expected.keys(), rank
        for name, values in expected.items():
            assert found[name].dtype == np.float32
            assert np.array_equal(found[name], values), (rank, name)


@pytest.mark.parametrize(("tp", "pp"), RANKS)
def test_convert_writes_the_slices_that_the_layout_describes(model, tp, pp, tmp_path):
    out = tmp_path / "ckpt"
    run("convert", "--model_dir", model.dir, "--output_dir", out, "--dtype", "float32", "--tp_size", tp, "--pp_size", pp)
    expect_ranks(out, model.split(tp, pp, shared=model.is_tied and tp * pp == 1))
    config = json.loads((out / "config.json").read_text())
    assert config["mapping"] == {"world_size": tp * pp, "tp_size": tp, "pp_size": pp, "cp_size": 1, "gpus_per_node": 8}
    assert config["vocab_size"] == model.config["vocab_size"], "the true size, not the padded one"
    assert config["num_key_value_heads"] == model.kv_heads


@pytest.mark.parametrize("dim", [0, 1])
def test_parallel_embeddings_are_split_along_either_dimension(model, dim, tmp_path):
    out = tmp_path / "ckpt"
    run(
        "convert",
        "--model_dir",
        model.dir,
        "--output_dir",
        out,
        "--dtype",
        "float32",
        "--tp_size",
        4,
        "--use_parallel_embedding",
        "--embedding_sharding_dim",
        dim,
    )
    is_shared = model.is_tied and dim == 0
    expect_ranks(out, model.split(4, 1, embedding=dim, shared=is_shared))
    config = json.loads((out / "config.json").read_text())
    assert config["use_parallel_embedding"] and config["embedding_sharding_dim"] == dim
    assert config["share_embedding_table"] == is_shared


def test_uneven_stages_put_what_is_left_over_first(tmp_path):
    model = Model("llama_sharded")  # three layers
    run("convert", "--model_dir", model.dir, "--output_dir", tmp_path, "--dtype", "float32", "--pp_size", 2)
    expect_ranks(tmp_path, model.split(1, 2))
    assert json.loads((tmp_path / "config.json").read_text())["pipeline_layers"] == [[0, 2], [2, 3]]


def upstream_config(model, tp, pp, embedding, shared):
    """config.json as upstream's converters write it."""
    c = model.config
    common = {
        "dtype": "float32",
        "logits_dtype": "float32",
        "vocab_size": c["vocab_size"],
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "mapping": {"world_size": tp * pp, "tp_size": tp, "pp_size": pp},
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None, "exclude_modules": None},
        "use_parallel_embedding": embedding is not None,
        "embedding_sharding_dim": embedding or 0,
        "share_embedding_table": shared,
    }
    if model.is_gpt2:
        return common | {
            "architecture": "GPTForCausalLM",
            "hidden_size": c["n_embd"],
            "intermediate_size": c["n_inner"],
            "norm_epsilon": c["layer_norm_epsilon"],
            "position_embedding_type": "learned_absolute",
            "max_position_embeddings": c["n_positions"],
            "hidden_act": "gelu_new",
            "bias": True,
            "gpt_variant": "gpt2",
            "q_scaling": 1.0,
            "apply_query_key_layer_scaling": False,
        }
    rope = c.get("rope_parameters", c)
    is_qwen2 = c["model_type"] == "qwen2"
    qwen = {"qwen_type": c["model_type"], "use_logn_attn": False, "qk_layernorm": False, "seq_length": 8192}
    return common | {
        **(qwen if c["model_type"].startswith("qwen") else {}),
        "architecture": c["architectures"][0],
        "hidden_size": c["hidden_size"],
        "intermediate_size": c["intermediate_size"],
        "head_size": c["head_dim"],
        "norm_epsilon": c["rms_norm_eps"],
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": c["max_position_embeddings"],
        "hidden_act": "silu",
        "rotary_base": rope["rope_theta"],
        "rotary_scaling": None,
        "attn_bias": c.get("attention_bias", is_qwen2),
        "mlp_bias": c.get("mlp_bias", False),
        "residual_mlp": False,
        "disable_weight_only_quant_plugin": False,
        "moe": {"num_experts": 0, "top_k": 0, "normalization_mode": None},
        "remove_duplicated_kv_heads": False,
    }


def write_checkpoint(directory, model, tp, pp, embedding=None, shared=False):
    directory.mkdir()
    for rank, tensors in model.split(tp, pp, embedding=embedding, shared=shared).items():
        upstream_layout.write(directory / f"rank{rank}.safetensors", tensors)
    (directory / "config.json").write_text(json.dumps(upstream_config(model, tp, pp, embedding, shared)))
    return directory


def answers(directory, tmp_path):
    requests, results = tmp_path / "requests.jsonl", tmp_path / "results.jsonl"
    requests.write_text(
        "".join(
            json.dumps({"input_ids": ids, "max_tokens": 12, "end_id": -1, "return_log_probs": True}) + "\n"
            for ids in ([5, 9, 60], [17], list(range(40)))
        )
    )
    run("run", directory, "--input", requests, "--output", results)
    return [json.loads(line) for line in results.read_text().splitlines()]


@pytest.mark.parametrize(("tp", "pp", "embedding"), [(1, 1, None), (2, 1, None), (4, 2, None), (4, 1, 0), (2, 2, 1)])
def test_checkpoints_that_numpy_wrote_compute_as_the_model_does(model, tp, pp, embedding, tmp_path):
    shared = model.is_tied and pp == 1 and embedding == 0
    checkpoint = write_checkpoint(tmp_path / "ckpt", model, tp, pp, embedding, shared)
    found = answers(checkpoint, tmp_path)
    assert found == answers(model.dir, tmp_path)
    assert all(len(result["output_log_probs"]) == 12 for result in found)


def test_a_sharded_checkpoint_is_built_and_inspected(model, tmp_path):
    checkpoint = write_checkpoint(tmp_path / "ckpt", model, 4, 2)
    build = ["build", "--checkpoint_dir", checkpoint, "--workers", 8, "--output_dir"]
    run(*build, tmp_path / "engine")
    run(*build, tmp_path / "merged", "--merge_ranks")
    expected = answers(model.dir, tmp_path)
    assert answers(tmp_path / "merged", tmp_path) == expected
    # On ranks sums have another order.
    for found, one in zip(answers(tmp_path / "engine", tmp_path), expected, strict=True):
        assert found["output_ids"] == one["output_ids"]
        assert found["output_log_probs"] == pytest.approx(one["output_log_probs"], abs=1e-4)
    architecture = model.config["architectures"][0]
    for directory in (checkpoint, tmp_path / "engine", tmp_path / "merged"):
        text = run("inspect", directory).stdout
        assert f"{architecture}, float32" in text
        has_ranks = "ranks         8, each with a file: tensor parallel 4, pipeline parallel 2" in text
        assert has_ranks == (directory.name != "merged")


def test_a_missing_rank_is_named(model, tmp_path):
    checkpoint = write_checkpoint(tmp_path / "ckpt", model, 2, 2)
    (checkpoint / "rank2.safetensors").unlink()
    error = run("inspect", checkpoint, check=False).stderr
    assert "rank2.safetensors is missing, config.json's mapping has 4 ranks (tp_size 2 * pp_size 2)" in error

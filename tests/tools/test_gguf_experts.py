# SPDX-License-Identifier: Apache-2.0
"""Experts in GGUF files: their blocks are kept as they are stored, whatever the file calls them, beside a shared expert too."""

import json
import shutil

import gguf_models
import numpy as np
import pytest
import safetensors_rows
from command import error, run
from test_gguf import GOLDEN, KEPT, checkpoint, engine_for_gpus, golden, greedy, kept_checkpoint, numbers_of, packing, stored_in

LAYER = "transformer.layers.0."


def changed(name, directory, **fields):
    """A golden model with other fields in its config.json, without those that are None."""
    shutil.copytree(GOLDEN / name, directory)
    config = json.loads((directory / "config.json").read_text()) | fields
    config = {key: value for key, value in config.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def assert_same(of_gguf, of_hf, tmp_path):
    """Checkpoints of the two, and their engines for GPUs, are equal."""
    a, b = checkpoint(of_gguf, tmp_path / "a"), checkpoint(of_hf, tmp_path / "b")
    assert a.keys() == b.keys()
    for key, values in b.items():
        assert (a[key].view(np.uint32) == values.view(np.uint32)).all(), key
    texts = [json.loads((tmp_path / side / "config.json").read_text()) for side in "ab"]
    assert texts[0] == texts[1]
    assert engine_for_gpus(of_gguf, tmp_path / "c") == engine_for_gpus(of_hf, tmp_path / "d")


@pytest.mark.parametrize("name", ["qwen2_moe_ranks"])
def test_a_shared_expert_is_the_one_of_the_hugging_face_model(name, tmp_path):
    """Files of Qwen2-MoE say nothing of norm_topk_prob, which all its models have as false."""
    model = changed(name, tmp_path / "hf", norm_topk_prob=False)
    path = gguf_models.write(model, tmp_path / "m.gguf")
    assert_same(path, model, tmp_path)
    cases = golden(name)
    assert greedy(path, cases) == greedy(model, cases)


def test_a_tensor_of_each_expert_is_read_too(tmp_path):
    path = gguf_models.write(GOLDEN / "mixtral_head64", tmp_path / "m.gguf", each=True)
    assert_same(path, GOLDEN / "mixtral_head64", tmp_path)
    cases = golden("mixtral_head64")
    assert greedy(path, cases) == [case["greedy"] for case in cases]


def write_model(directory, config, shapes):
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(11)
    tensors = {}
    for name, shape in shapes.items():
        values = (1 + 0.1 * rng.standard_normal(shape) if "norm" in name else 0.1 * rng.standard_normal(shape)).astype(np.float32)
        tensors[name] = ("F32", list(shape), values.tobytes())
    safetensors_rows.write(directory / "model.safetensors", tensors)
    return directory


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A Qwen2-MoE whose rows are whole blocks of every type, with a shared expert of twice the others' width."""
    hidden, width, experts, vocab = 256, 256, 4, 40
    config = {
        "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "hidden_size": hidden, "intermediate_size": width,
        "moe_intermediate_size": width, "shared_expert_intermediate_size": 2 * width, "num_experts": experts,
        "num_experts_per_tok": 2, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "vocab_size": vocab, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1,
        "eos_token_id": 2, "tie_word_embeddings": True, "use_sliding_window": False, "norm_topk_prob": False,
    }  # fmt: skip
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,),
        layer + "input_layernorm.weight": (hidden,), layer + "post_attention_layernorm.weight": (hidden,),
        layer + "mlp.gate.weight": (experts, hidden), layer + "mlp.shared_expert_gate.weight": (1, hidden),
        layer + "self_attn.o_proj.weight": (hidden, hidden),
    }  # fmt: skip
    for part, rows in (("q", hidden), ("k", hidden // 2), ("v", hidden // 2)):
        shapes |= {f"{layer}self_attn.{part}_proj.weight": (rows, hidden), f"{layer}self_attn.{part}_proj.bias": (rows,)}
    for stem, inner in [(f"experts.{i}", width) for i in range(experts)] + [("shared_expert", 2 * width)]:
        for part in ("gate", "up"):
            shapes[f"{layer}mlp.{stem}.{part}_proj.weight"] = (inner, hidden)
        shapes[f"{layer}mlp.{stem}.down_proj.weight"] = (hidden, inner)
    return write_model(tmp_path_factory.mktemp("wide") / "hf", config, shapes)


def rows_packed(pack):
    """What `pack` makes of matrices, of experts too; routers stay floats, as llama.cpp's tools leave them."""

    def packed(name, values):
        if values.ndim == 1 or ".mlp.gate." in name or "shared_expert_gate" in name:
            return values, None
        rows, kind = pack(name, values.reshape(-1, values.shape[-1]))
        return rows.reshape(*values.shape[:-1], -1), kind

    return packed


def experts_of(stored):
    """Rows as checkpoints have them: of each expert up, then gate; the shared one as two of the others' width."""
    up, gate, down = (stored[f"blk.0.ffn_{part}_exps.weight"] for part in ("up", "gate", "down"))
    shared = {part: stored[f"blk.0.ffn_{part}_shexp.weight"] for part in ("up", "gate", "down")}
    half = shared["up"].shape[0] // 2
    fc = [np.concatenate(pair) for pair in zip(up, gate, strict=True)]
    fc += [np.concatenate([shared["up"][at : at + half], shared["gate"][at : at + half]]) for at in (0, half)]
    return np.stack(fc), np.stack([*down, shared["down"][:, :half], shared["down"][:, half:]])


@pytest.mark.parametrize("type_name", sorted(KEPT))
def test_blocks_of_experts_are_kept(type_name, wide, tmp_path):
    path = gguf_models.write(wide, tmp_path / "m.gguf", pack=rows_packed(packing(type_name, np.random.default_rng(6))))
    tensors, quantization = kept_checkpoint(path, tmp_path / "out")
    bits, group, has_offsets = KEPT[type_name]
    expected = {"quant_algo": f"W{bits}A16_GPTQ", "group_size": group, "has_zero_point": has_offsets}
    assert quantization["quantized_layers"][LAYER + "mlp.fc"] == expected
    assert quantization["quantized_layers"][LAYER + "mlp.proj"] == expected
    for stem, package in zip(("mlp.fc", "mlp.proj"), experts_of(stored_in(path)), strict=True):
        of_rows = {
            f"{stem}.{part}": tensors[f"{LAYER}{stem}.{part}"].reshape(-1, tensors[f"{LAYER}{stem}.{part}"].shape[-1])
            for part in ("weight", "weights_scaling_factor", "zero")
            if f"{LAYER}{stem}.{part}" in tensors
        }
        numbers, bound = numbers_of(of_rows, stem, bits, group)
        assert (abs(numbers - package.reshape(numbers.shape).astype(np.float64)) <= bound).all(), stem
    assert "11 weights, kept as they are stored" in run("inspect", path).stdout
    cases = [{"prompt": [1, 5, 9, 30], "greedy": [0] * 12}]
    assert greedy(path, cases, "--tensor-parallel-size", "2", "--moe-ep-size", "2") == greedy(path, cases)


def test_experts_of_mixed_blocks_answer_alike_on_every_road(wide, tmp_path):
    """As files of Q4_K_M mix them: down in Q6_K."""
    rng = np.random.default_rng(8)
    four, six = packing("Q4_K", rng), packing("Q6_K", rng)
    pack = rows_packed(lambda name, values: (six if "down_proj" in name else four)(name, values))
    path = gguf_models.write(wide, tmp_path / "m.gguf", pack=pack)
    tensors, quantization = kept_checkpoint(path, tmp_path / "out")
    assert quantization["quantized_layers"][LAYER + "mlp.fc"]["quant_algo"] == "W4A16_GPTQ"
    assert quantization["quantized_layers"][LAYER + "mlp.proj"]["quant_algo"] == "W8A16_GPTQ"
    assert tensors[LAYER + "mlp.fc.weight"].shape == (6, 512, 128)
    run("build", "--checkpoint-dir", tmp_path / "out", "--output-dir", tmp_path / "engine")
    cases = [{"prompt": [1, 5, 9, 30], "greedy": [0] * 12}]
    answers = [greedy(model, cases) for model in (path, tmp_path / "out", tmp_path / "engine")]
    assert answers[0] == answers[1] == answers[2]
    for ranks in (["--tensor-parallel-size", "2"], ["--tensor-parallel-size", "4", "--moe-ep-size", "4"]):
        assert greedy(path, cases, *ranks) == greedy(tmp_path / "out", cases, *ranks)


@pytest.mark.parametrize("name", ["smollm3_layers"])
def test_layers_without_rope_of_smollm3_are_each_fourth(name, tmp_path):
    """Files do not say them; here five layers, of the golden model's first."""
    model = changed(name, tmp_path / "hf", num_hidden_layers=5, no_rope_layers=None, layer_types=None)
    values = gguf_models.weights(GOLDEN / name)
    for layer in (3, 4):
        values |= {
            name.replace(".layers.0.", f".layers.{layer}."): value + 0.01 * layer
            for name, value in list(values.items())
            if ".layers.0." in name
        }
    safetensors_rows.write(
        model / "model.safetensors",
        {name: ("F32", list(value.shape), value.astype(np.float32).tobytes()) for name, value in values.items()},
    )
    path = gguf_models.write(model, tmp_path / "m.gguf")
    assert_same(path, model, tmp_path)
    assert json.loads((tmp_path / "a/config.json").read_text())["no_rope_layers"] == [1, 1, 1, 0, 1]


def test_experts_that_do_not_fit_are_named(wide, tmp_path):
    def refused(pack=lambda name, values: (values, None), **fields):
        model = tmp_path / "bad"
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(wide, model)
        config = json.loads((model / "config.json").read_text()) | fields
        (model / "config.json").write_text(json.dumps(config))
        return error("inspect", gguf_models.write(model, tmp_path / "bad.gguf", pack=pack))

    assert "expert_used_count" in refused(num_experts_per_tok=0) or "expert_used_count" in refused(num_experts_per_tok=9)
    assert "expert_shared_feed_forward_length: got 384" in refused(shared_expert_intermediate_size=384)
    assert "blk.0.ffn_gate_inp.weight: expected shape [5, 256], found [4, 256]" in refused(num_experts=5)
    # No experts at all: the architecture has none without them.
    assert "expert_count" in refused(num_experts=0)
    half = refused(lambda name, values: (values[:, : values.shape[1] // 2] if "experts.up" in name else values, None))
    assert "ffn_up_exps.weight: expected shape" in half

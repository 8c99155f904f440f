# SPDX-License-Identifier: Apache-2.0
"""`convert --upstream-layout` of models with experts: what rank files hold of published directories is computed here in
numpy, from the description of TensorRT-LLM's checkpoints (docs/reference/artifacts.md, "Upstream's forms"), and engines
built of them are those built of the directories."""

import itertools
import json

import numpy as np
import packed_models
import pytest
import safetensors_rows
from command import error, run
from test_convert_upstream import (
    GPTQ,
    GROUP,
    NUMPY,
    bf16,
    compressed,
    engines,
    floats,
    nearest_bf16,
    quantized_as,
    row_pairs,
    same,
    same_engines,
)

HIDDEN, HEADS, KV_HEADS, HEAD, INNER, LAYERS, VOCAB, EXPERTS = 128, 4, 4, 32, 128, 2, 40, 4
ATTENTION = {
    "self_attn.q_proj": (HEADS * HEAD, HIDDEN),
    "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
}
OF_EXPERT = {"w1": (INNER, HIDDEN), "w2": (HIDDEN, INNER), "w3": (INNER, HIDDEN)}
CONFIG = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "torch_dtype": "bfloat16", "vocab_size": VOCAB,
    "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "max_position_embeddings": 64, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "eos_token_id": 2, "rope_theta": 10000.0,
    "num_local_experts": EXPERTS, "num_experts_per_tok": 2, "sliding_window": None,
}  # fmt: skip


def experts_of(layer):
    return f"model.layers.{layer}.block_sparse_moe"


def write_model(folder, quantization, pack):
    """A directory of random weights, and the tensors that it has. `pack` gives the parts of a linear: {name: (dtype, values)}."""
    rng = np.random.default_rng(17)
    tensors = {}
    for layer in range(LAYERS):
        linears = {f"model.layers.{layer}.{name}": shape for name, shape in ATTENTION.items()}
        for expert in range(EXPERTS):
            linears |= {f"{experts_of(layer)}.experts.{expert}.{name}": shape for name, shape in OF_EXPERT.items()}
        for stem, shape in linears.items():
            tensors |= {f"{stem}.{end}": part for end, part in pack(stem, shape, rng).items()}
        tensors[f"{experts_of(layer)}.gate.weight"] = ("F32", floats(rng, EXPERTS, HIDDEN))
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = ("F32", floats(rng, HIDDEN))
    for name, shape in (("model.embed_tokens", (VOCAB, HIDDEN)), ("model.norm", (HIDDEN,)), ("lm_head", (VOCAB, HIDDEN))):
        tensors[f"{name}.weight"] = ("F32", floats(rng, *shape))
    folder.mkdir()
    stored = {name: (dtype, list(values.shape), values.tobytes()) for name, (dtype, values) in tensors.items()}
    safetensors_rows.write(folder / "model.safetensors", stored)
    config = CONFIG | ({"quantization_config": quantization} if quantization else {})
    (folder / "config.json").write_text(json.dumps(config))
    return {name: values for name, (_, values) in tensors.items()}


def converted(model, out, sizes, *options):
    """The quantization of a checkpoint, and {name: (dtype, values)} of each rank."""
    tensor, expert = sizes
    flags = ("--upstream-layout", "--dtype", "bfloat16", "--tp-size", tensor * expert, "--moe-ep-size", expert)
    run("convert", "--model-dir", model, "--output-dir", out, *flags, *options)
    config = json.loads((out / "config.json").read_text())
    assert (config["hidden_act"], config["moe"]["num_experts"]) == ("swiglu", EXPERTS)
    files = []
    for rank in range(tensor * expert):
        named, data = safetensors_rows.header(out / f"rank{rank}.safetensors")
        files.append({
            name: (t["dtype"], np.frombuffer(data[slice(*t["data_offsets"])], NUMPY[t["dtype"]]).reshape(t["shape"]))
            for name, t in named.items() if name != "__metadata__"
        })  # fmt: skip
    return config["quantization"], files


def stacked(of_stem, layer, name, experts, part, parts):
    """What a rank holds of `fc` or `proj` of experts, of whose linears `of_stem` gives [out, in]: of each expert rows of the
    linear branch (w3) and of the activated one (w1), or columns."""
    each = []
    for expert in experts:
        linear = {end: of_stem(f"{experts_of(layer)}.experts.{expert}.{end}") for end in OF_EXPERT}
        if name == "fc":
            each.append(np.concatenate([np.split(linear[branch], parts, 0)[part] for branch in ("w3", "w1")]))
        else:
            each.append(np.split(linear["w2"], parts, 1)[part])
    return np.stack(each)


def attention(of_stem, layer, name, rank, ranks):
    """The same of `qkv` or `dense`."""
    stem = f"model.layers.{layer}.self_attn"
    if name == "dense":
        return np.split(of_stem(f"{stem}.o_proj"), ranks, 1)[rank]
    return np.concatenate([np.split(of_stem(f"{stem}.{letter}_proj"), ranks, 0)[rank] for letter in "qkv"])


def wanted(tensors, rank, sizes, dense_parts, expert_parts):
    """All that a rank's file has to hold. `dense_parts` and `expert_parts` give the parts of a linear from a function that
    cuts what has its rows and columns."""
    num_parts, num_groups = sizes
    ranks, per_rank = num_parts * num_groups, EXPERTS // num_groups
    held = range(rank % num_groups * per_rank, (rank % num_groups + 1) * per_rank)
    part = rank // num_groups
    out = {
        "transformer.vocab_embedding.weight": ("BF16", bf16(tensors["model.embed_tokens.weight"])),
        "transformer.ln_f.weight": ("BF16", bf16(tensors["model.norm.weight"])),
        "lm_head.weight": ("BF16", bf16(np.split(tensors["lm_head.weight"], ranks)[rank])),
    }
    for layer in range(LAYERS):
        stem = f"transformer.layers.{layer}"
        for ours, theirs in (("input_layernorm", "input_layernorm"), ("post_layernorm", "post_attention_layernorm")):
            out[f"{stem}.{ours}.weight"] = ("BF16", bf16(tensors[f"model.layers.{layer}.{theirs}.weight"]))
        out[f"{stem}.mlp.router.weight"] = ("F32", tensors[f"{experts_of(layer)}.gate.weight"])
        for name in ("qkv", "dense"):
            parts = dense_parts(lambda of, n=name, i=layer: attention(of, i, n, rank, ranks), layer, name)
            out |= {f"{stem}.attention.{name}.{end}": values for end, values in parts.items()}
        for name in ("fc", "proj"):
            parts = expert_parts(lambda of, n=name, i=layer: stacked(of, i, n, held, part, num_parts), layer, name, held)
            out |= {f"{stem}.mlp.{name}.{end}": values for end, values in parts.items()}
    return out


SIZES = [(1, 1), (2, 1), (1, 2), (2, 2)]  # ranks that share each expert, and that hold different ones


# int4 in groups, with zero points and without them.

INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}


def packed_int4(has_zeros):
    """A function that packs as compressed-tensors does, and {stem: (u, z [out, G], s [out, G])}: w = (u - z) s."""
    kept = {}

    def pack(stem, shape, rng):
        groups = (shape[0], shape[1] // GROUP)
        z = rng.integers(0, 16, groups) if has_zeros else np.full(groups, 8)
        kept[stem] = rng.integers(0, 16, shape), z, rng.uniform(0.001, 0.02, groups).astype(np.float32)
        parts = {
            "weight_packed": ("I32", packed_models.words(kept[stem][0], 1)),
            "weight_scale": ("F32", kept[stem][2]),
            "weight_shape": ("I64", np.array(shape, np.int64)),
        }
        return parts | ({"weight_zero_point": ("I32", packed_models.words(z, 0))} if has_zeros else {})

    return pack, kept


def int4_parts(kept, has_zeros):
    def parts(cut):
        codes = cut(lambda stem: kept[stem][0]) - 8
        pairs = np.stack([row_pairs(of_expert) for of_expert in codes]) if codes.ndim == 3 else row_pairs(codes)
        offsets = cut(lambda stem: (8 - kept[stem][1]).astype(np.float32) * kept[stem][2])
        out = {"weight": ("I8", pairs), "weights_scaling_factor": ("F32", cut(lambda stem: kept[stem][2]))}
        return out | ({"zero": ("BF16", nearest_bf16(offsets.swapaxes(-1, -2)))} if has_zeros else {})

    return lambda cut, layer, name: parts(cut), lambda cut, layer, name, held: parts(cut)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("has_zeros", [False, True])
def test_int4_of_experts_has_two_rows_a_byte_of_each(has_zeros, sizes, tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    pack, kept = packed_int4(has_zeros)
    ignored = ["re:.*block_sparse_moe.gate"]
    tensors = write_model(model, compressed("pack-quantized", INT4 | {"symmetric": not has_zeros}, ignore=ignored), pack)
    quantization, files = converted(model, checkpoint, sizes)
    assert quantization == quantized_as("W4A16_AWQ", group_size=GROUP, has_zero_point=has_zeros, pre_quant_scale=False)
    for rank, found in enumerate(files):
        same(found, wanted(tensors, rank, sizes, *int4_parts(kept, has_zeros)))
    same_as_read(model, checkpoint, tmp_path, sizes)


def same_as_read(model, checkpoint, tmp_path, sizes, is_kept=True):
    """Numbers of all ranks, and what engines hold of one where they keep the directory's form."""
    tensor, expert = sizes
    flags = ("--dtype", "float32", "--quant-algo", "none", "--tp-size", tensor * expert, "--moe-ep-size", expert)
    direct, read = engines(model, tmp_path / "direct", *flags), engines(checkpoint, tmp_path / "read", *flags[:4])
    assert len(direct) == tensor * expert and direct == read
    if is_kept and sizes == (1, 1):
        for target in ("cpu", "cuda"):
            same_engines(model, checkpoint, tmp_path / target, 1, "--dtype", "bfloat16", "--target", target)


def test_gptq_of_experts_is_the_same_form(tmp_path):
    kept = {}

    def pack(stem, shape, rng):
        groups = (shape[0], shape[1] // GROUP)
        u, z = rng.integers(0, 16, shape), rng.integers(1, 17, groups)
        s = rng.uniform(0.001, 0.02, groups).astype(np.float16)
        kept[stem] = u, z, s.astype(np.float32)
        zeros = ("I32", packed_models.words(z.T - 1, 1))
        return {"qweight": ("I32", packed_models.words(u.T, 0)), "qzeros": zeros, "scales": ("F16", s.T)}

    tensors = write_model(tmp_path / "hf", GPTQ | {"sym": False}, pack)
    quantization, files = converted(tmp_path / "hf", tmp_path / "checkpoint", (1, 1))
    assert (quantization["quant_algo"], quantization["has_zero_point"]) == ("W4A16_AWQ", True)
    same(files[0], wanted(tensors, 0, (1, 1), *int4_parts(kept, True)))
    same_engines(tmp_path / "hf", tmp_path / "checkpoint", tmp_path, 1, "--dtype", "bfloat16")


def test_floats_of_experts_are_rounded_to_groups(tmp_path):
    model, checkpoint, kept = tmp_path / "hf", tmp_path / "checkpoint", {}
    tensors = write_model(model, None, lambda stem, shape, rng: {"weight": ("F32", floats(rng, *shape))})
    options = ("--quant-algo", "W4A16_GPTQ", "--group-size", GROUP)
    quantization, files = converted(model, checkpoint, (1, 1), *options)
    assert (quantization["quant_algo"], quantization["has_zero_point"]) == ("W4A16_AWQ", False)
    for name, values in tensors.items():
        groups = values.reshape(*values.shape[:-1], -1, GROUP)
        scales = np.abs(groups).max(-1) / np.float32(8)
        ratio = groups / np.where(scales == 0, 1, scales)[..., None]
        codes = np.clip(np.sign(ratio) * np.floor(np.abs(ratio) + 0.5), -8, 7).astype(np.int64)
        kept[name.removesuffix(".weight")] = codes.reshape(values.shape) + 8, np.full_like(scales, 8), scales
    same(files[0], wanted(tensors, 0, (1, 1), *int4_parts(kept, False)))
    direct = engines(model, tmp_path / "direct", "--dtype", "bfloat16", *options)
    assert direct == engines(checkpoint, tmp_path / "read", "--dtype", "bfloat16")


def test_experts_that_are_plain_are_excluded_as_one_module(tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    pack, kept = packed_int4(False)
    plain = experts_of(1)

    def pack_most(stem, shape, rng):
        return {"weight": ("F32", floats(rng, *shape))} if stem.startswith(plain) else pack(stem, shape, rng)

    ignored = ["re:.*block_sparse_moe.gate", f"re:{plain}.*"]
    tensors = write_model(model, compressed("pack-quantized", INT4, ignore=ignored), pack_most)
    quantization, files = converted(model, checkpoint, (1, 1))
    excluded = quantization["exclude_modules"]
    assert "transformer.layers.1.mlp" in excluded and "*router" in excluded
    assert not any(module.endswith((".fc", ".proj")) for module in excluded)
    dense, experts = int4_parts(kept, False)

    def parts(cut, layer, name, held):
        if layer == 1:
            return {"weight": ("BF16", bf16(cut(lambda stem: tensors[f"{stem}.weight"])))}
        return experts(cut, layer, name, held)

    same(files[0], wanted(tensors, 0, (1, 1), dense, parts))
    same_engines(model, checkpoint, tmp_path, 1, "--dtype", "bfloat16")


# FP8, a scale for each expert.

FP8 = {
    "modelopt": {"quant_method": "modelopt", "quant_algo": "FP8"},
    "fp8": {"quant_method": "fp8", "activation_scheme": "static"},
}


def scale_of(stem):
    """The same of both branches of an expert, and of q, k and v."""
    parts = stem.split(".")
    return np.float32(0.01 * (1 + int(parts[2]) + (10 * int(parts[5]) + 2 * (parts[-1] == "w2") if "experts" in stem else 0)))


def fp8(stem, shape, rng):
    codes = rng.integers(0, 256, shape, np.uint8)
    codes[codes & 127 == 127] = 0  # which is no number
    return {
        "weight": ("F8_E4M3", codes),
        "weight_scale": ("F32", np.array([scale_of(stem)])),
        "input_scale": ("F32", rng.uniform(0.1, 1, 1).astype(np.float32)),
    }


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("method", FP8)
def test_fp8_has_a_scale_of_each_expert_and_one_of_activations(method, sizes, tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    tensors = write_model(model, FP8[method], fp8)
    quantization, files = converted(model, checkpoint, sizes)
    assert quantization == quantized_as("FP8")

    def largest(stems):
        return ("F32", np.max([tensors[f"{stem}.input_scale"] for stem in stems], 0))

    def dense(cut, layer, name):
        stems = [f"model.layers.{layer}.self_attn.{letter}_proj" for letter in ("qkv" if name == "qkv" else "o")]
        return {
            "weight": ("F8_E4M3", cut(lambda stem: tensors[f"{stem}.weight"])),
            "weights_scaling_factor": ("F32", np.array([scale_of(stems[0])])),
            "activation_scaling_factor": largest(stems),
        }

    def experts(cut, layer, name, held):
        ends = ("w1", "w3") if name == "fc" else ("w2",)
        stems = {e: [f"{experts_of(layer)}.experts.{e}.{end}" for end in ends] for e in range(EXPERTS)}
        return {
            "weight": ("F8_E4M3", cut(lambda stem: tensors[f"{stem}.weight"])),
            "weights_scaling_factor": ("F32", np.array([[scale_of(stems[e][0])] for e in held])),
            "activation_scaling_factor": largest(itertools.chain(*stems.values())),
        }

    for rank, found in enumerate(files):
        same(found, wanted(tensors, rank, sizes, dense, experts))
    same_as_read(model, checkpoint, tmp_path, sizes)


# Floats, which are rounded where they are read.


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_weight_only_of_experts_is_floats(precision, tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    tensors = write_model(model, None, lambda stem, shape, rng: {"weight": ("F32", floats(rng, *shape))})
    options = ("--use-weight-only", "--weight-only-precision", precision)
    quantization, files = converted(model, checkpoint, (1, 1), *options)
    assert quantization == quantized_as({"int8": "W8A16", "int4": "W4A16"}[precision])

    def parts(cut, *_):
        return {"weight": ("BF16", bf16(cut(lambda stem: tensors[f"{stem}.weight"])))}

    same(files[0], wanted(tensors, 0, (1, 1), parts, parts))
    direct = engines(model, tmp_path / "direct", "--dtype", "bfloat16", *options)
    assert direct == engines(checkpoint, tmp_path / "read")


def test_experts_without_a_layout_are_refused_by_name(tmp_path):
    def refusal(model, *options):
        flags = ("--upstream-layout", "--dtype", "bfloat16")
        return error("convert", "--model-dir", model, "--output-dir", tmp_path / "no", *flags, *options)

    def unlike_branches(stem, shape, rng):
        parts = fp8(stem, shape, rng)
        return parts | ({"weight_scale": ("F32", np.array([7], np.float32))} if stem.endswith("experts.2.w3") else {})

    write_model(tmp_path / "fp8", FP8["fp8"], unlike_branches)
    words = refusal(tmp_path / "fp8")
    assert "transformer.layers.0.mlp.fc.weight, FP8 without one scale for both branches of an expert" in words
    assert "upstream_layout: got true" in words and "--quant-algo none" in words

    def int8(stem, shape, rng):
        scales = np.float32(2.0**-9) * rng.integers(128, 256, (shape[0], 1)).astype(np.float32)
        return {"weight": ("I8", rng.integers(-128, 128, shape, np.int8)), "weight_scale": ("BF16", bf16(scales))}

    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
    write_model(tmp_path / "int8", compressed("int-quantized", weights, ignore=["re:.*block_sparse_moe.gate"]), int8)
    assert "transformer.layers.0.mlp.fc.weight, experts in int8" in refusal(tmp_path / "int8")
    assert not (tmp_path / "no").exists()

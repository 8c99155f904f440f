# SPDX-License-Identifier: Apache-2.0
"""`convert --upstream-layout`: what rank files hold of published directories is computed here in numpy, from the
description of TensorRT-LLM's checkpoints (docs/reference/artifacts.md, "Upstream's forms"), and engines built of
them are those built of the directories."""

import json
import shutil

import numpy as np
import packed_models
import pytest
import safetensors_rows
from command import error, run

HIDDEN, HEADS, KV_HEADS, HEAD, INNER, LAYERS, VOCAB = 128, 4, 2, 64, 192, 2, 40
GROUP = 32
SHAPES = {
    "self_attn.q_proj": (HEADS * HEAD, HIDDEN),
    "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
LINEARS = {
    "attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "attention.dense": ["self_attn.o_proj"],
    "mlp.fc": ["mlp.gate_proj"],
    "mlp.gate": ["mlp.up_proj"],
    "mlp.proj": ["mlp.down_proj"],
}
NORMS = {"input_layernorm": "input_layernorm", "post_layernorm": "post_attention_layernorm"}
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": VOCAB,
    "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "max_position_embeddings": 64, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "eos_token_id": 2, "rope_theta": 10000.0,
}  # fmt: skip
NUMPY = {"F32": np.float32, "BF16": np.uint16, "I8": np.int8, "F8_E4M3": np.uint8}


def floats(rng, *shape):
    """Numbers that bfloat16 has."""
    return (rng.integers(-64, 65, shape) / 32).astype(np.float32)


def bf16(values):
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def nearest_bf16(values):
    """The nearest bfloat16 of each number, of two as near the even one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def write_model(folder, quantization, pack):
    """A directory of random weights, and the tensors that it has. `pack` gives the parts of a linear: {name: (dtype, values)}."""
    rng = np.random.default_rng(11)
    tensors = {}
    for layer in range(LAYERS):
        for name, shape in SHAPES.items():
            stem = f"model.layers.{layer}.{name}"
            tensors |= {f"{stem}.{end}": part for end, part in pack(stem, shape, rng).items()}
        for name in NORMS.values():
            tensors[f"model.layers.{layer}.{name}.weight"] = ("F32", floats(rng, HIDDEN))
    for name, shape in (("model.embed_tokens", (VOCAB, HIDDEN)), ("model.norm", (HIDDEN,)), ("lm_head", (VOCAB, HIDDEN))):
        tensors[f"{name}.weight"] = ("F32", floats(rng, *shape))
    folder.mkdir()
    stored = {name: (dtype, list(values.shape), values.tobytes()) for name, (dtype, values) in tensors.items()}
    safetensors_rows.write(folder / "model.safetensors", stored)
    config = CONFIG | ({"quantization_config": quantization} if quantization else {})
    (folder / "config.json").write_text(json.dumps(config))
    return {name: values for name, (_, values) in tensors.items()}


def converted(model, out, ranks, *options):
    """The quantization of a checkpoint, and {name: (dtype, values)} of each rank."""
    flags = ("--upstream-layout", "--dtype", "bfloat16", "--tp-size", ranks)
    run("convert", "--model-dir", model, "--output-dir", out, *flags, *options)
    config = json.loads((out / "config.json").read_text())
    assert "disable_weight_only_quant_plugin" not in config
    files = []
    for rank in range(ranks):
        named, data = safetensors_rows.header(out / f"rank{rank}.safetensors")
        named.pop("__metadata__", None)
        files.append({
            name: (t["dtype"], np.frombuffer(data[slice(*t["data_offsets"])], NUMPY[t["dtype"]]).reshape(t["shape"]))
            for name, t in named.items()
        })  # fmt: skip
    return config["quantization"], files


def cut(name, parts, rank, ranks):
    """What a rank holds of a linear [out, in], or of what its columns have: rows of each part, or columns."""
    if name in ("attention.dense", "mlp.proj"):
        return np.split(parts[0], ranks, 1)[rank]
    return np.concatenate([np.split(part, ranks, 0)[rank] for part in parts])


def wanted(tensors, rank, ranks, parts_of):
    """All that a rank's file has to hold; `parts_of` gives that of a linear."""
    out = {
        "transformer.vocab_embedding.weight": ("BF16", bf16(tensors["model.embed_tokens.weight"])),
        "transformer.ln_f.weight": ("BF16", bf16(tensors["model.norm.weight"])),
        "lm_head.weight": ("BF16", bf16(np.split(tensors["lm_head.weight"], ranks)[rank])),
    }
    for layer in range(LAYERS):
        for ours, theirs in NORMS.items():
            norm = tensors[f"model.layers.{layer}.{theirs}.weight"]
            out[f"transformer.layers.{layer}.{ours}.weight"] = ("BF16", bf16(norm))
        for name, stored in LINEARS.items():
            parts = parts_of(name, [f"model.layers.{layer}.{part}" for part in stored], rank, ranks)
            out |= {f"transformer.layers.{layer}.{name}.{end}": part for end, part in parts.items()}
    return out


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, (dtype, values) in expected.items():
        assert (name, found[name][0], found[name][1].shape) == (name, dtype, values.shape)
        assert np.array_equal(found[name][1], values), name


def engines(model, out, *options):
    run("build", "--checkpoint-dir", model, "--output-dir", out, "--max-seq-len", 32, *options)
    return {file.name: file.read_bytes() for file in out.glob("*.engine")}


def same_engines(model, checkpoint, folder, ranks, *options):
    direct = engines(model, folder / "direct", "--tp-size", ranks, *options)
    assert len(direct) == ranks and direct == engines(checkpoint, folder / "read", *options)
    for made in ("direct", "read"):
        shutil.rmtree(folder / made)


def quantized_as(algo, **more):
    return {"quant_algo": algo, "kv_cache_quant_algo": None, **more}


def compressed(layout, weights, activations=None, ignore=()):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "format": layout, "quantization_status": "compressed",
            "config_groups": {"group_0": group}, "ignore": ["lm_head", *ignore]}  # fmt: skip


# Weights in FP8, one scale for the tensor and one for its activations.

SCALES = {"q_proj": 0.0123, "k_proj": 0.0123, "v_proj": 0.0123, "o_proj": 0.02, "gate_proj": 0.3, "up_proj": 0.05}
INPUT_SCALES = {"q_proj": 0.5, "k_proj": 0.77, "v_proj": 0.25, "o_proj": 0.1}
STATIC = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}
FP8 = {
    "modelopt": {"quant_method": "modelopt", "quant_algo": "FP8"},
    "fp8": {"quant_method": "fp8", "activation_scheme": "static"},
    "compressed-tensors": compressed("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}, STATIC),
}


def fp8(stem, shape, rng):
    codes = rng.integers(0, 256, shape, np.uint8)
    codes[codes & 127 == 127] = 0  # which is no number
    last = stem.rsplit(".", 1)[1]
    return {
        "weight": ("F8_E4M3", codes),
        "weight_scale": ("F32", np.array([SCALES.get(last, 0.07)], np.float32)),
        "input_scale": ("F32", np.array([INPUT_SCALES.get(last, 0.4)], np.float32)),
    }


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("method", FP8)
def test_fp8_has_a_scale_of_the_tensor_and_the_largest_of_its_activations(method, ranks, tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    tensors = write_model(model, FP8[method], fp8)
    quantization, files = converted(model, checkpoint, ranks)
    assert quantization == quantized_as("FP8")

    def parts_of(name, stems, rank, ranks):
        return {
            "weight": ("F8_E4M3", cut(name, [tensors[f"{stem}.weight"] for stem in stems], rank, ranks)),
            "weights_scaling_factor": ("F32", tensors[f"{stems[0]}.weight_scale"]),
            "activation_scaling_factor": ("F32", max(tensors[f"{stem}.input_scale"] for stem in stems)),
        }

    for rank in range(ranks):
        same(files[rank], wanted(tensors, rank, ranks, parts_of))
    same_engines(model, checkpoint, tmp_path, ranks, "--dtype", "float32", "--quant-algo", "none")
    if ranks == 1:
        same_engines(model, checkpoint, tmp_path, 1, "--dtype", "bfloat16", "--target", "cuda")


@pytest.mark.parametrize("why", ["scales differ", "activations have none"])
def test_fp8_that_is_not_of_single_scales_is_of_rows(why, tmp_path):
    def pack(stem, shape, rng):
        parts = fp8(stem, shape, rng)
        if why == "scales differ" and stem.endswith("k_proj"):
            parts["weight_scale"] = ("F32", np.array([0.5], np.float32))
        if why == "activations have none":
            del parts["input_scale"]
        return parts

    tensors = write_model(tmp_path / "hf", FP8["modelopt"], pack)
    quantization, files = converted(tmp_path / "hf", tmp_path / "checkpoint", 1)
    assert quantization == quantized_as("FP8_PER_CHANNEL_PER_TOKEN")

    def parts_of(name, stems, rank, ranks):
        scales = [np.repeat(tensors[f"{stem}.weight_scale"], len(tensors[f"{stem}.weight"])) for stem in stems]
        codes = [tensors[f"{stem}.weight"] for stem in stems]
        return {
            "weight": ("F8_E4M3", cut(name, codes, rank, ranks)),
            "per_channel_scale": ("F32", np.concatenate(scales)),
        }

    same(files[0], wanted(tensors, 0, 1, parts_of))


# int4 in groups.


def packed_int4(scale_dtype):
    """A function that packs as compressed-tensors does, and keeps codes and scales for the test under names of its own."""
    kept = {}

    def pack(stem, shape, rng):
        codes = rng.integers(-8, 8, shape)
        scales = rng.uniform(0.001, 0.02, (shape[0], shape[1] // GROUP)).astype(scale_dtype)
        kept[stem] = codes, scales.astype(np.float32)
        return {
            "weight_packed": ("I32", packed_models.words(codes + 8, 1)),
            "weight_scale": (packed_models.DTYPES[scales.dtype.name], scales),
            "weight_shape": ("I64", np.array(shape, np.int64)),
        }

    return pack, kept


def gptq_int4():
    kept = {}

    def pack(stem, shape, rng):
        codes = rng.integers(-8, 8, shape)
        scales = (rng.integers(1, 50, (shape[1] // GROUP, shape[0])) / 1024).astype(np.float16)
        kept[stem] = codes, scales.T.astype(np.float32)
        zeros = packed_models.words(np.full(scales.shape, 7), 1)  # one less than the zero points
        return {
            "qweight": ("I32", packed_models.words(codes.T + 8, 0)),
            "qzeros": ("I32", zeros),
            "scales": ("F16", scales),
        }

    return pack, kept


def row_pairs(codes):
    """Two rows a byte, the first in the low bits."""
    return (codes[0::2] & 15 | (codes[1::2] & 15) << 4).astype(np.uint8).view(np.int8)


def awq_parts(kept):
    def parts_of(name, stems, rank, ranks):
        codes, scales = ([kept[stem][i] for stem in stems] for i in (0, 1))
        return {
            "weight": ("I8", row_pairs(cut(name, codes, rank, ranks))),
            "weights_scaling_factor": ("F32", cut(name, scales, rank, ranks)),
        }

    return parts_of


INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False}
AWQ = quantized_as("W4A16_AWQ", group_size=GROUP, has_zero_point=False, pre_quant_scale=False)


@pytest.mark.parametrize("ranks", [1, 2])
def test_int4_in_groups_has_two_rows_a_byte(ranks, tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    pack, kept = packed_int4(np.float32)
    tensors = write_model(model, compressed("pack-quantized", INT4), pack)
    quantization, files = converted(model, checkpoint, ranks)
    assert quantization == AWQ
    for rank in range(ranks):
        same(files[rank], wanted(tensors, rank, ranks, awq_parts(kept)))
    same_engines(model, checkpoint, tmp_path, ranks, "--dtype", "float32", "--quant-algo", "none")
    if ranks == 1:
        for target in ("cpu", "cuda"):
            same_engines(model, checkpoint, tmp_path, 1, "--dtype", "bfloat16", "--target", target)


def test_gptq_without_zero_points_is_the_same_form(tmp_path):
    pack, kept = gptq_int4()
    tensors = write_model(tmp_path / "hf", GPTQ, pack)
    quantization, files = converted(tmp_path / "hf", tmp_path / "checkpoint", 1)
    assert quantization == AWQ
    same(files[0], wanted(tensors, 0, 1, awq_parts(kept)))
    same_engines(tmp_path / "hf", tmp_path / "checkpoint", tmp_path, 1, "--dtype", "bfloat16")


# Zero points: w = (u - z) s of unsigned codes u is code * s + zero with code = u - 8, zero = (8 - z) s.


def with_zeros(method, symmetric=()):
    """The description of a method, a function that packs so, and {stem: (u, z [out, G], s [out, G])}."""
    kept = {}

    def pack(stem, shape, rng):
        groups = (shape[0], shape[1] // GROUP)
        u, z = rng.integers(0, 16, shape), rng.integers(*ZERO_POINTS[method], groups)
        z = np.full_like(z, 8) if stem.endswith(symmetric or "none") else z
        s = rng.uniform(0.001, 0.02, groups).astype(np.float32 if method == "compressed-tensors" else np.float16)
        kept[stem] = u, z, s.astype(np.float32)
        if method == "awq":
            order = packed_models.AWQ_ORDER
            zeros = ("I32", packed_models.words(z.T, 1, order))
            return {"qweight": ("I32", packed_models.words(u.T, 1, order)), "qzeros": zeros, "scales": ("F16", s.T)}
        if method == "gptq":
            zeros = ("I32", packed_models.words(z.T - 1, 1))
            return {"qweight": ("I32", packed_models.words(u.T, 0)), "qzeros": zeros, "scales": ("F16", s.T)}
        return {
            "weight_packed": ("I32", packed_models.words(u, 1)),
            "weight_scale": ("F32", s),
            "weight_shape": ("I64", np.array(shape, np.int64)),
            "weight_zero_point": ("I32", packed_models.words(z, 0)),
        }

    return pack, kept


ZERO_POINTS = {"awq": (0, 16), "gptq": (1, 17), "compressed-tensors": (0, 16)}  # half-open
WITH_ZEROS = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
    "gptq": GPTQ | {"sym": False},
    "compressed-tensors": compressed("pack-quantized", INT4 | {"symmetric": False}),
}


def zero_parts(kept):
    def parts_of(name, stems, rank, ranks):
        u, z, s = ([kept[stem][i] for stem in stems] for i in range(3))
        offsets = [(8 - zeros).astype(np.float32) * scales for zeros, scales in zip(z, s, strict=True)]
        return {
            "weight": ("I8", row_pairs(cut(name, u, rank, ranks) - 8)),
            "weights_scaling_factor": ("F32", cut(name, s, rank, ranks)),
            "zero": ("BF16", nearest_bf16(cut(name, offsets, rank, ranks).T)),
        }

    return parts_of


def plain_model(folder, tensors, numbers):
    """A directory of the model whose linears are `numbers`, {stem: [out, in]}."""
    folder.mkdir()
    plain = {name: values for name, values in tensors.items() if name.endswith(".weight") and values.dtype == np.float32}
    plain |= {f"{stem}.weight": values for stem, values in numbers.items()}
    safetensors_rows.write(folder / "model.safetensors", {name: ("F32", list(t.shape), t.tobytes()) for name, t in plain.items()})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("method", WITH_ZEROS)
def test_zero_points_are_offsets_of_groups_by_rows(method, ranks, tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    pack, kept = with_zeros(method, symmetric="layers.1.self_attn.o_proj")
    tensors = write_model(model, WITH_ZEROS[method], pack)
    quantization, files = converted(model, checkpoint, ranks)
    assert quantization == AWQ | {"has_zero_point": True}
    for rank in range(ranks):
        same(files[rank], wanted(tensors, rank, ranks, zero_parts(kept)))
    # Read back, they are the numbers that the directory stands for, whatever the offsets are rounded to.
    numbers = {
        stem: ((u.reshape(*z.shape, GROUP) - z[..., None]).astype(np.float32) * s[..., None]).reshape(u.shape)
        for stem, (u, z, s) in kept.items()
    }
    plain = plain_model(tmp_path / "plain", tensors, numbers)
    same_engines(plain, checkpoint, tmp_path, ranks, "--dtype", "float32", "--quant-algo", "none")
    if ranks == 1:
        for target in ("cpu", "cuda"):
            same_engines(model, checkpoint, tmp_path, 1, "--dtype", "bfloat16", "--target", target)


def test_offsets_have_the_dtype_of_the_model(tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    pack, kept = with_zeros("awq")
    write_model(model, WITH_ZEROS["awq"], pack)
    run("convert", "--model-dir", model, "--output-dir", checkpoint, "--upstream-layout", "--dtype", "float16")
    named, data = safetensors_rows.header(checkpoint / "rank0.safetensors")
    stored = named["transformer.layers.0.mlp.proj.zero"]
    _, z, s = kept["model.layers.0.mlp.down_proj"]
    assert (stored["dtype"], stored["shape"]) == ("F16", [INNER // GROUP, HIDDEN])
    found = np.frombuffer(data[slice(*stored["data_offsets"])], np.float16).reshape(stored["shape"])
    assert np.array_equal(found, ((8 - z).astype(np.float32) * s).T.astype(np.float16))
    same_engines(model, checkpoint, tmp_path, 1, "--dtype", "float16", "--target", "cuda")


CHANNEL = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "channel"}


@pytest.mark.parametrize(("ranks", "group"), [(1, 64), (2, 32)])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_scales_of_whole_rows_are_repeated_in_groups_of_one_size(has_zeros, ranks, group, tmp_path):
    model, checkpoint, kept = tmp_path / "hf", tmp_path / "checkpoint", {}

    def pack(stem, shape, rng):
        u, z = rng.integers(0, 16, shape), rng.integers(0, 16, (shape[0], 1)) if has_zeros else np.full((shape[0], 1), 8)
        s = np.float32(2.0**-9) * rng.integers(128, 256, (shape[0], 1)).astype(np.float32)
        kept[stem] = u, z, s
        parts = {
            "weight_packed": ("I32", packed_models.words(u, 1)),
            "weight_scale": ("F32", s),
            "weight_shape": ("I64", np.array(shape, np.int64)),
        }
        return parts | ({"weight_zero_point": ("I32", packed_models.words(z, 0))} if has_zeros else {})

    tensors = write_model(model, compressed("pack-quantized", CHANNEL | {"symmetric": not has_zeros}), pack)
    quantization, files = converted(model, checkpoint, ranks)
    assert quantization == AWQ | {"has_zero_point": has_zeros, "group_size": group}

    def parts_of(name, stems, rank, ranks):
        in_groups = {stem: (u, *(np.repeat(part, u.shape[1] // group, 1) for part in (z, s))) for stem, (u, z, s) in kept.items()}
        parts = zero_parts(in_groups)(name, stems, rank, ranks)
        if not has_zeros:
            del parts["zero"]
        return parts

    for rank in range(ranks):
        same(files[rank], wanted(tensors, rank, ranks, parts_of))
    same_engines(model, checkpoint, tmp_path, ranks, "--dtype", "float32", "--quant-algo", "none")


def test_a_linear_that_is_plain_is_excluded(tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    plain = "model.layers.1.mlp.down_proj"
    pack, kept = packed_int4(np.float32)

    def pack_most(stem, shape, rng):
        return {"weight": ("F32", floats(rng, *shape))} if stem == plain else pack(stem, shape, rng)

    tensors = write_model(model, compressed("pack-quantized", INT4, ignore=[plain]), pack_most)
    quantization, files = converted(model, checkpoint, 1)
    excluded = quantization.pop("exclude_modules")
    assert quantization == AWQ
    assert "transformer.layers.1.mlp.proj" in excluded and "lm_head" in excluded

    def parts_of(name, stems, rank, ranks):
        if stems == [plain]:
            return {"weight": ("BF16", bf16(tensors[f"{plain}.weight"]))}
        return awq_parts(kept)(name, stems, rank, ranks)

    same(files[0], wanted(tensors, 0, 1, parts_of))
    same_engines(model, checkpoint, tmp_path, 1, "--dtype", "bfloat16")


def test_floats_are_rounded_to_groups(tmp_path):
    tensors = write_model(tmp_path / "hf", None, lambda stem, shape, rng: {"weight": ("F32", floats(rng, *shape))})
    options = ("--quant-algo", "W4A16_GPTQ", "--group-size", GROUP)
    quantization, files = converted(tmp_path / "hf", tmp_path / "checkpoint", 1, *options)
    assert quantization == AWQ

    kept = {}
    for stem in (f"model.layers.{layer}.{name}" for layer in range(LAYERS) for name in SHAPES):
        groups = tensors[f"{stem}.weight"].reshape(len(tensors[f"{stem}.weight"]), -1, GROUP)
        scales = np.abs(groups).max(-1) / np.float32(8)
        ratio = groups / scales[..., None]
        codes = np.clip(np.sign(ratio) * np.floor(np.abs(ratio) + 0.5), -8, 7).astype(np.int64)
        kept[stem] = codes.reshape(len(codes), -1), scales
    same(files[0], wanted(tensors, 0, 1, awq_parts(kept)))


# int8 with a scale for each row.


def int8(stem, shape, rng):
    scales = np.float32(2.0**-9) * rng.integers(128, 256, (shape[0], 1)).astype(np.float32)
    return {"weight": ("I8", rng.integers(-128, 128, shape, np.int8)), "weight_scale": ("BF16", bf16(scales))}


@pytest.mark.parametrize("ranks", [1, 2])
def test_int8_of_w8a8_is_smoothquant_with_smoothers_of_one(ranks, tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
    tokens = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    tensors = write_model(model, compressed("int-quantized", weights, tokens), int8)
    quantization, files = converted(model, checkpoint, ranks)
    assert quantization == quantized_as("W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN")
    one = ("F32", np.ones(1, np.float32))

    def parts_of(name, stems, rank, ranks):
        scales = [(tensors[f"{stem}.weight_scale"].astype(np.uint32) << 16).view(np.float32) for stem in stems]
        is_of_columns = name in ("attention.dense", "mlp.proj")
        of_rank = scales[0] if is_of_columns else cut(name, scales, rank, ranks)
        codes = cut(name, [tensors[f"{stem}.weight"] for stem in stems], rank, ranks)
        smoother = {"smoother": ("F32", np.ones((1, codes.shape[1]), np.float32))} if is_of_columns else {}
        return {"weight": ("I8", codes), "per_channel_scale": ("F32", of_rank.reshape(1, -1)), **smoother}

    for rank in range(ranks):
        expected = wanted(tensors, rank, ranks, parts_of)
        for layer in range(LAYERS):
            for name in ("input_layernorm.scale_to_int", "post_layernorm.scale_to_int"):
                expected[f"transformer.layers.{layer}.{name}"] = one
            for name in ("attention", "mlp"):
                expected[f"transformer.layers.{layer}.{name}.quantization_scaling_factor"] = one
        same(files[rank], expected)
    same_engines(model, checkpoint, tmp_path, ranks, "--dtype", "bfloat16", "--quant-algo", "none")
    if ranks == 1:
        for target in ("cpu", "cuda"):
            same_engines(model, checkpoint, tmp_path, 1, "--dtype", "bfloat16", "--target", target)
    assert "unexpected" not in run("inspect", checkpoint, "--device", "cpu").stderr


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_weight_only_of_floats_is_floats_that_are_rounded_where_they_are_read(precision, tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    tensors = write_model(model, None, lambda stem, shape, rng: {"weight": ("F32", floats(rng, *shape))})
    options = ("--use-weight-only", "--weight-only-precision", precision)
    quantization, files = converted(model, checkpoint, 1, *options)
    assert quantization == quantized_as({"int8": "W8A16", "int4": "W4A16"}[precision])

    def parts_of(name, stems, rank, ranks):
        return {"weight": ("BF16", bf16(cut(name, [tensors[f"{stem}.weight"] for stem in stems], rank, ranks)))}

    same(files[0], wanted(tensors, 0, 1, parts_of))
    direct = engines(model, tmp_path / "direct", "--dtype", "bfloat16", *options)
    assert direct == engines(checkpoint, tmp_path / "read")


def test_an_fp8_kv_cache_has_scales_of_one(tmp_path):
    write_model(tmp_path / "hf", FP8["modelopt"], fp8)
    quantization, files = converted(tmp_path / "hf", tmp_path / "checkpoint", 1, "--kv-cache-dtype", "fp8")
    assert quantization == quantized_as("FP8") | {"kv_cache_quant_algo": "FP8"}
    for layer in range(LAYERS):
        dtype, scale = files[0][f"transformer.layers.{layer}.attention.kv_cache_scaling_factor"]
        assert (dtype, scale.tolist()) == ("F32", [1])


def test_forms_without_a_layout_are_refused_by_name(tmp_path):
    def refusal(model, *options):
        flags = ("--upstream-layout", "--dtype", "bfloat16")
        return error("convert", "--model-dir", model, "--output-dir", tmp_path / "no", *flags, *options)

    pack, _ = gptq_int4()

    def with_order(stem, shape, rng):
        groups = np.repeat(np.arange(shape[1] // GROUP, dtype=np.int32), GROUP)
        return pack(stem, shape, rng) | {"g_idx": ("I32", rng.permutation(groups))}

    write_model(tmp_path / "order", GPTQ | {"desc_act": True}, with_order)
    assert "transformer.layers.0.attention.dense.weight, int4 with columns in an order" in refusal(tmp_path / "order")
    write_model(tmp_path / "plain", None, lambda stem, shape, rng: {"weight": ("F32", floats(rng, *shape))})
    words = refusal(tmp_path / "plain", "--quant-algo", "W8A16_GPTQ", "--group-size", GROUP)
    assert "upstream_layout: got true, int8 weights in groups" in words and "--quant-algo none" in words
    assert not (tmp_path / "no").exists()

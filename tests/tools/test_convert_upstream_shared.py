# SPDX-License-Identifier: Apache-2.0
"""`convert --upstream-layout` of models with a shared expert, which TensorRT-LLM's checkpoints hold apart from the others:
what rank files hold is computed here in numpy (docs/reference/artifacts.md, "Upstream's forms"), and engines built of
them are those built of the directories."""

import json

import numpy as np
import packed_models
import pytest
import safetensors_rows
from command import error, run
from test_convert_upstream import GROUP, NUMPY, bf16, compressed, engines, floats, nearest_bf16, row_pairs, same
from test_convert_upstream_experts import FP8, INT4, same_as_read

HIDDEN, HEADS, HEAD, INNER, SHARED, LAYERS, VOCAB, EXPERTS = 128, 4, 32, 128, 256, 2, 40, 4
CONFIG = {
    "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "torch_dtype": "bfloat16", "vocab_size": VOCAB,
    "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS, "max_position_embeddings": 64, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False, "eos_token_id": 2, "rope_theta": 10000.0, "num_experts": EXPERTS,
    "num_experts_per_tok": 2, "moe_intermediate_size": INNER,
    "norm_topk_prob": False, "decoder_sparse_step": 1, "use_sliding_window": False, "qkv_bias": True,
}  # fmt: skip
NOT_PACKED = ["re:.*mlp.gate$", "re:.*shared_expert_gate"]
# Ranks that share each expert, and that hold different ones. The shared expert is twice as wide as the others: whole, a rank
# has one of the two halves, or half of one.
SIZES = [(1, 1), (2, 1), (1, 2), (2, 2)]


def linears_of(layer, shared):
    """{stem: shape} of what is packed."""
    stem = f"model.layers.{layer}"
    shapes = {f"{stem}.self_attn.{letter}_proj": (HIDDEN, HIDDEN) for letter in "qkvo"}
    wide = {f"experts.{expert}": INNER for expert in range(EXPERTS)} | {"shared_expert": shared}
    for name, inner in wide.items():
        shapes |= {f"{stem}.mlp.{name}.{branch}_proj": (inner, HIDDEN) for branch in ("gate", "up")}
        shapes[f"{stem}.mlp.{name}.down_proj"] = (HIDDEN, inner)
    return shapes


def write_model(folder, quantization, pack, shared=SHARED):
    """A directory of random weights, and the tensors that it has. `pack` gives the parts of a linear: {name: (dtype, values)}."""
    rng = np.random.default_rng(23)
    tensors = {}
    for layer in range(LAYERS):
        stem = f"model.layers.{layer}"
        for linear, shape in linears_of(layer, shared).items():
            tensors |= {f"{linear}.{end}": part for end, part in pack(linear, shape, rng).items()}
        tensors[f"{stem}.mlp.gate.weight"] = ("F32", floats(rng, EXPERTS, HIDDEN))
        tensors[f"{stem}.mlp.shared_expert_gate.weight"] = ("F32", floats(rng, 1, HIDDEN))
        for letter in "qkv":
            tensors[f"{stem}.self_attn.{letter}_proj.bias"] = ("F32", floats(rng, HIDDEN))
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{stem}.{name}.weight"] = ("F32", floats(rng, HIDDEN))
    for name, shape in (("model.embed_tokens", (VOCAB, HIDDEN)), ("model.norm", (HIDDEN,)), ("lm_head", (VOCAB, HIDDEN))):
        tensors[f"{name}.weight"] = ("F32", floats(rng, *shape))
    folder.mkdir()
    stored = {name: (dtype, list(values.shape), values.tobytes()) for name, (dtype, values) in tensors.items()}
    safetensors_rows.write(folder / "model.safetensors", stored)
    config = (
        CONFIG | {"shared_expert_intermediate_size": shared} | ({"quantization_config": quantization} if quantization else {})
    )
    (folder / "config.json").write_text(json.dumps(config))
    return {name: values for name, (_, values) in tensors.items()}


def converted(model, out, sizes, *options):
    """The quantization of a checkpoint, and {name: (dtype, values)} of each rank."""
    tensor, expert = sizes
    flags = ("--upstream-layout", "--dtype", "bfloat16", "--tp-size", tensor * expert, "--moe-ep-size", expert)
    run("convert", "--model-dir", model, "--output-dir", out, *flags, *options)
    config = json.loads((out / "config.json").read_text())
    assert config["moe"] == {"num_experts": EXPERTS, "top_k": 2, "normalization_mode": 0}
    assert (config["moe_intermediate_size"], config["moe_shared_expert_intermediate_size"]) == (INNER, SHARED)
    assert (config["hidden_act"], config["qwen_type"]) == ("swiglu", "qwen2_moe")
    files = []
    for rank in range(tensor * expert):
        named, data = safetensors_rows.header(out / f"rank{rank}.safetensors")
        files.append({
            name: (t["dtype"], np.frombuffer(data[slice(*t["data_offsets"])], NUMPY[t["dtype"]]).reshape(t["shape"]))
            for name, t in named.items() if name != "__metadata__"
        })  # fmt: skip
    return config["quantization"], files


def cut(of, stems, ranks, rank, is_wide):
    """A rank's part of what `of` gives of linears [out, in]: rows of each, one's above the other's, or columns of the one."""
    if is_wide:
        return np.split(of(stems[0]), ranks, 1)[rank]
    return np.concatenate([np.split(of(stem), ranks, 0)[rank] for stem in stems])


def wanted(tensors, rank, sizes, parts_of):
    """All that a rank's file has to hold. `parts_of` gives {end: (dtype, values)} of a linear, or of experts, from the stems
    that are in it and a function that cuts and stacks what has their rows and columns."""
    num_parts, num_groups = sizes
    ranks, per_rank = num_parts * num_groups, EXPERTS // num_groups
    held = range(rank % num_groups * per_rank, (rank % num_groups + 1) * per_rank)
    out = {
        "transformer.vocab_embedding.weight": ("BF16", bf16(tensors["model.embed_tokens.weight"])),
        "transformer.ln_f.weight": ("BF16", bf16(tensors["model.norm.weight"])),
        "lm_head.weight": ("BF16", bf16(np.split(tensors["lm_head.weight"], ranks)[rank])),
    }
    for layer in range(LAYERS):
        ours, theirs = f"transformer.layers.{layer}", f"model.layers.{layer}"
        for name, stored in (("input_layernorm", "input_layernorm"), ("post_layernorm", "post_attention_layernorm")):
            out[f"{ours}.{name}.weight"] = ("BF16", bf16(tensors[f"{theirs}.{stored}.weight"]))
        biases = [np.split(tensors[f"{theirs}.self_attn.{letter}_proj.bias"], ranks)[rank] for letter in "qkv"]
        out[f"{ours}.attention.qkv.bias"] = ("BF16", bf16(np.concatenate(biases)))
        out[f"{ours}.mlp.router.weight"] = ("F32", tensors[f"{theirs}.mlp.gate.weight"])
        out[f"{ours}.shared_expert_gate.weight"] = ("BF16", bf16(tensors[f"{theirs}.mlp.shared_expert_gate.weight"]))
        single = {
            "attention.qkv": [f"{theirs}.self_attn.{letter}_proj" for letter in "qkv"],
            "attention.dense": [f"{theirs}.self_attn.o_proj"],
            "shared_expert.fc": [f"{theirs}.mlp.shared_expert.{branch}_proj" for branch in ("up", "gate")],
            "shared_expert.proj": [f"{theirs}.mlp.shared_expert.down_proj"],
        }
        for name, stems in single.items():
            is_wide = name.endswith(("dense", "proj"))
            parts = parts_of(stems, lambda of, s=stems, w=is_wide: cut(of, s, ranks, rank, w))
            out |= {f"{ours}.{name}.{end}": part for end, part in parts.items()}
        for name, branches in (("fc", ("up", "gate")), ("proj", ("down",))):
            of_each = [[f"{theirs}.mlp.experts.{e}.{branch}_proj" for branch in branches] for e in range(EXPERTS)]

            def stack(of, of_each=of_each, name=name):
                return np.stack([cut(of, of_each[e], num_parts, rank // num_groups, name == "proj") for e in held])

            parts = parts_of([stem for stems in of_each for stem in stems], stack)
            out |= {f"{ours}.mlp.{name}.{end}": part for end, part in parts.items()}
    return out


@pytest.mark.parametrize("sizes", SIZES)
def test_a_shared_expert_stands_apart(sizes, tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    tensors = write_model(model, None, lambda stem, shape, rng: {"weight": ("F32", floats(rng, *shape))})
    quantization, files = converted(model, checkpoint, sizes)
    assert quantization["quant_algo"] is None

    def parts_of(stems, stack):
        return {"weight": ("BF16", bf16(stack(lambda stem: tensors[f"{stem}.weight"])))}

    for rank, found in enumerate(files):
        same(found, wanted(tensors, rank, sizes, parts_of))
    same_as_read(model, checkpoint, tmp_path, sizes)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("has_zeros", [False, True])
def test_int4_of_a_shared_expert_is_that_of_a_linear(has_zeros, sizes, tmp_path):
    model, checkpoint, kept = tmp_path / "hf", tmp_path / "checkpoint", {}

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

    described = compressed("pack-quantized", INT4 | {"symmetric": not has_zeros}, ignore=NOT_PACKED)
    tensors = write_model(model, described, pack)
    quantization, files = converted(model, checkpoint, sizes)
    assert (quantization["quant_algo"], quantization["has_zero_point"]) == ("W4A16_AWQ", has_zeros)

    def parts_of(stems, stack):
        codes = stack(lambda stem: kept[stem][0]) - 8
        pairs = np.stack([row_pairs(of_expert) for of_expert in codes]) if codes.ndim == 3 else row_pairs(codes)
        offsets = stack(lambda stem: (8 - kept[stem][1]).astype(np.float32) * kept[stem][2])
        out = {"weight": ("I8", pairs), "weights_scaling_factor": ("F32", stack(lambda stem: kept[stem][2]))}
        return out | ({"zero": ("BF16", nearest_bf16(offsets.swapaxes(-1, -2)))} if has_zeros else {})

    for rank, found in enumerate(files):
        same(found, wanted(tensors, rank, sizes, parts_of))
    same_as_read(model, checkpoint, tmp_path, sizes)


@pytest.mark.parametrize(("sizes", "group"), [((1, 1), 128), ((2, 1), 64), ((2, 2), 32)])
def test_scales_of_whole_rows_are_repeated_in_groups(sizes, group, tmp_path):
    model, checkpoint, kept = tmp_path / "hf", tmp_path / "checkpoint", {}

    def pack(stem, shape, rng):
        s = np.float32(2.0**-9) * rng.integers(128, 256, (shape[0], 1)).astype(np.float32)
        kept[stem] = rng.integers(-8, 8, shape), s
        codes = ("I32", packed_models.words(kept[stem][0] + 8, 1))
        return {"weight_packed": codes, "weight_scale": ("F32", s), "weight_shape": ("I64", np.array(shape, np.int64))}

    channel = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "channel"}
    tensors = write_model(model, compressed("pack-quantized", channel, ignore=NOT_PACKED), pack)
    quantization, files = converted(model, checkpoint, sizes)
    assert (quantization["quant_algo"], quantization["group_size"]) == ("W4A16_AWQ", group)

    def parts_of(stems, stack):
        codes = stack(lambda stem: kept[stem][0])
        pairs = np.stack([row_pairs(of_expert) for of_expert in codes]) if codes.ndim == 3 else row_pairs(codes)
        scales = stack(lambda stem: np.repeat(kept[stem][1], kept[stem][0].shape[1] // group, 1))
        return {"weight": ("I8", pairs), "weights_scaling_factor": ("F32", scales)}

    for rank, found in enumerate(files):
        same(found, wanted(tensors, rank, sizes, parts_of))
    same_as_read(model, checkpoint, tmp_path, sizes, is_kept=False)


@pytest.mark.parametrize("sizes", SIZES)
def test_fp8_of_a_shared_expert_has_scales_of_its_own(sizes, tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"

    def scale_of(stem):
        """The same of both branches of an expert, and of q, k and v."""
        kind = stem.split(".")[3:]
        number = 3 if "shared_expert" in kind else 10 * (1 + int(kind[2])) if "experts" in kind else 0
        return np.float32(0.01 * (1 + number + 2 * (kind[-1] == "down_proj")))

    def fp8(stem, shape, rng):
        codes = rng.integers(0, 256, shape, np.uint8)
        codes[codes & 127 == 127] = 0  # which is no number
        return {
            "weight": ("F8_E4M3", codes),
            "weight_scale": ("F32", np.array([scale_of(stem)])),
            "input_scale": ("F32", rng.uniform(0.1, 1, 1).astype(np.float32)),
        }

    tensors = write_model(model, FP8["modelopt"], fp8)
    quantization, files = converted(model, checkpoint, sizes)
    assert quantization["quant_algo"] == "FP8"
    num_groups = sizes[1]
    per_rank = EXPERTS // num_groups

    for rank, found in enumerate(files):
        first = rank % num_groups * per_rank

        def parts_of(stems, stack, first=first):
            is_of_experts = ".experts." in stems[0]
            each = stems[:: len(stems) // EXPERTS][first : first + per_rank] if is_of_experts else stems[:1]
            scales = np.array([scale_of(stem) for stem in each])
            return {
                "weight": ("F8_E4M3", stack(lambda stem: tensors[f"{stem}.weight"])),
                "weights_scaling_factor": ("F32", scales[:, None] if is_of_experts else scales),
                "activation_scaling_factor": ("F32", np.max([tensors[f"{stem}.input_scale"] for stem in stems], 0)),
            }

        same(found, wanted(tensors, rank, sizes, parts_of))
    same_as_read(model, checkpoint, tmp_path, sizes)


def plain(stem, shape, rng):
    return {"weight": ("F32", floats(rng, *shape))}


def test_weight_only_is_floats(tmp_path):
    model, checkpoint = tmp_path / "hf", tmp_path / "checkpoint"
    tensors = write_model(model, None, plain)
    options = ("--use-weight-only", "--weight-only-precision", "int8")
    quantization, files = converted(model, checkpoint, (1, 1), *options)
    assert quantization["quant_algo"] == "W8A16"

    def parts_of(stems, stack):
        return {"weight": ("BF16", bf16(stack(lambda stem: tensors[f"{stem}.weight"])))}

    same(files[0], wanted(tensors, 0, (1, 1), parts_of))
    direct = engines(model, tmp_path / "direct", "--dtype", "bfloat16", *options)
    assert direct == engines(checkpoint, tmp_path / "read")


def test_plain_experts_are_excluded_with_the_shared_one(tmp_path):
    def pack(stem, shape, rng):
        if ".mlp." in stem:
            return plain(stem, shape, rng)
        scales = rng.uniform(0.001, 0.02, (shape[0], shape[1] // GROUP)).astype(np.float32)
        codes = ("I32", packed_models.words(rng.integers(0, 16, shape), 1))
        return {"weight_packed": codes, "weight_scale": ("F32", scales), "weight_shape": ("I64", np.array(shape, np.int64))}

    write_model(tmp_path / "hf", compressed("pack-quantized", INT4, ignore=["re:.*mlp.*"]), pack)
    quantization, _ = converted(tmp_path / "hf", tmp_path / "checkpoint", (1, 1))
    excluded = quantization["exclude_modules"]
    assert {"transformer.layers.0.mlp", "transformer.layers.1.shared_expert.*", "*shared_expert_gate"} <= set(excluded)
    same_as_read(tmp_path / "hf", tmp_path / "checkpoint", tmp_path, (1, 1))


def test_ranks_that_cut_a_shared_expert_otherwise_are_refused(tmp_path):
    write_model(tmp_path / "hf", None, plain, shared=3 * INNER)
    flags = ("--upstream-layout", "--dtype", "bfloat16", "--tp-size", 2)
    words = error("convert", "--model-dir", tmp_path / "hf", "--output-dir", tmp_path / "no", *flags)
    assert "tp_size: got 2, which cuts a shared expert of 3 times the others' width 128" in words
    assert not (tmp_path / "no").exists()

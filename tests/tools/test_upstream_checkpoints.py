# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as TensorRT-LLM's quantiser writes them: weights are what their codes and factors say, computed here, and a
model answers as the one with these numbers in float32 does."""

import json
import shutil

import numpy as np
import pytest
import safetensors_rows
from command import DEMO, error, run

LINEARS = (".attention.qkv", ".attention.dense", ".mlp.fc", ".mlp.gate", ".mlp.proj")
GROUP = 64


def read(path):
    tensors, data = safetensors_rows.header(path)
    tensors.pop("__metadata__", None)
    assert all(t["dtype"] == "F32" for t in tensors.values())
    return {name: np.frombuffer(data[slice(*t["data_offsets"])], np.float32).reshape(t["shape"]) for name, t in tensors.items()}


def write(path, tensors):
    names = {np.dtype(np.float32): "F32", np.dtype(np.int8): "I8", np.dtype(np.uint8): "F8_E4M3"}
    safetensors_rows.write(path, {name: (names[t.dtype], list(t.shape), t.tobytes()) for name, t in tensors.items()})


def e4m3():
    """The values of the bytes 0 to 126 (OCP 8-bit Floating Point Specification 1.0, table 1)."""
    codes = np.arange(127)
    exponents, mantissas = codes >> 3, codes & 7
    return np.where(exponents == 0, mantissas * 2.0**-9, (8 + mantissas) * 2.0 ** (exponents - 10)).astype(np.float32)


def to_fp8(w, dtype):
    table = e4m3()
    scale = np.float32(np.abs(w).max() / 448)
    nearest = np.searchsorted((table[1:] + table[:-1]) / 2, np.abs(w) / scale).astype(np.uint8)
    codes = nearest | np.where(w < 0, np.uint8(0x80), np.uint8(0))
    parts = {
        "weight": codes.view(dtype),
        "weights_scaling_factor": np.array([scale], np.float32),
        "activation_scaling_factor": np.array([0.01], np.float32),
    }
    return parts, np.where(w < 0, -table[nearest], table[nearest]) * scale


def to_awq(w, with_factors, rng):
    factors = rng.uniform(0.5, 2, w.shape[1]).astype(np.float32) if with_factors else np.ones(w.shape[1], np.float32)
    groups = (w / factors).reshape(w.shape[0], -1, GROUP)
    scales = (np.abs(groups).max(-1) / 7).astype(np.float32)
    codes = np.clip(np.rint(groups / scales[..., None]), -8, 7).astype(np.int8)
    numbers = (codes.astype(np.float32) * scales[..., None]).reshape(w.shape) * factors
    flat = codes.reshape(w.shape).view(np.uint8)
    parts = {"weight": (flat[0::2] & 15 | flat[1::2] << 4).view(np.int8), "weights_scaling_factor": scales}
    if with_factors:
        parts["prequant_scaling_factor"] = factors
    return parts, numbers


def to_awq_with_zeros(w):
    groups = w.reshape(w.shape[0], -1, GROUP)
    low, high = np.minimum(groups.min(-1), 0), np.maximum(groups.max(-1), 0)
    scales = ((high - low) / 15).astype(np.float32)
    zeros = np.rint(-low / scales)
    codes = np.clip(np.rint(groups / scales[..., None]) + zeros[..., None], 0, 15)
    numbers = ((codes - zeros[..., None]).astype(np.float32) * scales[..., None]).reshape(w.shape)
    flat = (codes - 8).astype(np.int8).reshape(w.shape).view(np.uint8)
    parts = {
        "weight": (flat[0::2] & 15 | flat[1::2] << 4).view(np.int8),
        "weights_scaling_factor": scales,
        "zero": np.ascontiguousarray(((8 - zeros).astype(np.float32) * scales).T),
    }
    return parts, numbers


def to_smooth(w, is_per_channel, has_smoother, rng):
    smoother = rng.uniform(0.5, 2, w.shape[1]).astype(np.float32)
    if not has_smoother:
        smoother[:] = 1
    smoothed = w * smoother
    scale = (np.abs(smoothed).max(1, keepdims=True) if is_per_channel else np.abs(smoothed).max(keepdims=True)) / 127
    scale = scale.astype(np.float32)
    codes = np.clip(np.rint(smoothed / scale), -128, 127).astype(np.int8)
    parts = {"weight": codes, "per_channel_scale": scale.reshape(1, -1)}
    if has_smoother:
        parts["smoother"] = smoother.reshape(1, -1)
    return parts, codes.astype(np.float32) * scale / smoother


# name -> "quantization" of config.json, and a linear's tensors and numbers
SQ = "W8A8_SQ_PER_{}_PER_TOKEN_PLUGIN"
KINDS = {
    "fp8": ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, lambda w, name, rng: to_fp8(w, np.uint8)),
    "fp8 as bytes": ({"quant_algo": "FP8"}, lambda w, name, rng: to_fp8(w, np.int8)),
    "awq": (
        {"quant_algo": "W4A16_AWQ", "group_size": GROUP, "pre_quant_scale": True, "has_zero_point": False},
        lambda w, name, rng: to_awq(w, True, rng),
    ),
    "awq without factors": (
        {"quant_algo": "W4A16_AWQ", "group_size": GROUP, "pre_quant_scale": False},
        lambda w, name, rng: to_awq(w, False, rng),
    ),
    "awq with zero points": (
        {"quant_algo": "W4A16_AWQ", "group_size": GROUP, "pre_quant_scale": False, "has_zero_point": True},
        lambda w, name, rng: to_awq_with_zeros(w),
    ),
    "smoothquant per channel": (
        {"quant_algo": SQ.format("CHANNEL"), "smoothquant_val": 0.5},
        lambda w, name, rng: to_smooth(w, True, name.endswith((".dense", ".proj")), rng),
    ),
    "smoothquant per tensor": (
        {"quant_algo": SQ.format("TENSOR"), "smoothquant_val": 0.5},
        lambda w, name, rng: to_smooth(w, False, name.endswith((".dense", ".proj")), rng),
    ),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The demo model as a checkpoint in float32, of one rank and of two."""
    folder = tmp_path_factory.mktemp("plain")
    for ranks in (1, 2):
        run("convert", "--model-dir", DEMO, "--output-dir", folder / str(ranks), "--dtype", "float32", "--tp-size", ranks)
    return folder


def quantise(plain, folder, kind, ranks=1):
    """Two checkpoints: of codes and factors, and of the numbers that they stand for."""
    quantization, quantise_one = KINDS[kind]
    rng = np.random.default_rng(5)
    packed, wide = folder / "packed", folder / "wide"
    for copy in (packed, wide):
        shutil.copytree(plain / str(ranks), copy)
    config = json.loads((packed / "config.json").read_text())
    config["quantization"] = quantization
    (packed / "config.json").write_text(json.dumps(config))
    for rank in range(ranks):
        tensors = read(packed / f"rank{rank}.safetensors")
        numbers, parts = dict(tensors), {}
        for name, tensor in tensors.items():
            stem = name.removesuffix(".weight")
            if not stem.endswith(LINEARS):
                parts[name] = tensor
                continue
            made, numbers[name] = quantise_one(tensor, stem, rng)
            parts.update({f"{stem}.{end}": part for end, part in made.items()})
        write(packed / f"rank{rank}.safetensors", parts)
        write(wide / f"rank{rank}.safetensors", numbers)
    return packed, wide


PLAIN = ("--dtype", "float32", "--quant-algo", "none")


def engines(checkpoint, out, options=PLAIN):
    run("build", "--checkpoint-dir", checkpoint, "--output-dir", out, "--max-seq-len", 64, *options)
    return {file.name: file.read_bytes() for file in out.glob("*.engine")}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_what_codes_and_factors_stand_for(kind, ranks, plain, tmp_path):
    packed, wide = quantise(plain, tmp_path, kind, ranks)
    found = engines(packed, tmp_path / "a")
    assert len(found) == ranks and found == engines(wide, tmp_path / "b")
    if ranks == 1:
        question = ("--prompt", "What is 27 + 54?", "--dtype", "float32", "--device", "cpu")
        assert run("run", packed, *question).stdout == run("run", wide, *question).stdout


def by_rows(pairs):
    """The bytes of int4 as this project writes them, of two columns each, of bytes of two rows each."""
    codes = np.stack([pairs.view(np.uint8) & 15, pairs.view(np.uint8) >> 4], 1).reshape(-1, pairs.shape[1])
    return (codes[:, 0::2] | codes[:, 1::2] << 4).view(np.int8)


def in_own_form(packed, own, quantization, change):
    """The checkpoint with the same codes in a form of this project; `change` is of each tensor, to some by name."""
    shutil.copytree(packed, own)
    config = json.loads((own / "config.json").read_text())
    config |= {"quantization": quantization, "disable_weight_only_quant_plugin": True, "dtype": "bfloat16"}
    (own / "config.json").write_text(json.dumps(config))
    named, data = safetensors_rows.header(packed / "rank0.safetensors")
    dtypes = {"F32": np.float32, "I8": np.int8, "F8_E4M3": np.uint8}
    tensors = {}
    for name, t in named.items():
        values = np.frombuffer(data[slice(*t["data_offsets"])], dtypes[t["dtype"]]).reshape(t["shape"])
        tensors.update(change(name, values))
    write(own / "rank0.safetensors", tensors)
    return own


def quantization_of(engine):
    return json.loads((engine / "config.json").read_text())["pretrained_config"]["quantization"]["quant_algo"]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_awq_without_factors_is_kept_in_its_codes(target, plain, tmp_path):
    packed, _ = quantise(plain, tmp_path, "awq without factors")
    quantization = {"quant_algo": "W4A16_GPTQ", "group_size": GROUP, "has_zero_point": False}
    own = in_own_form(packed, tmp_path / "own", quantization, lambda name, t: {name: by_rows(t) if t.dtype == np.int8 else t})
    options = ("--dtype", "bfloat16", "--target", target)
    assert engines(packed, tmp_path / "a", options) == engines(own, tmp_path / "b", options)
    assert quantization_of(tmp_path / "a") == "W4A16_GPTQ"


def test_fp8_is_kept_in_its_codes_for_gpus(plain, tmp_path):
    packed, _ = quantise(plain, tmp_path, "fp8")

    def change(name, t):
        stem, end = name.rsplit(".", 1)
        if end == "activation_scaling_factor":
            return {}
        if end == "weights_scaling_factor":  # one for each row
            named, _ = safetensors_rows.header(packed / "rank0.safetensors")
            return {f"{stem}.per_channel_scale": np.repeat(t, named[f"{stem}.weight"]["shape"][0])}
        return {name: t}

    quantization = {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "kv_cache_quant_algo": "FP8"}
    own = in_own_form(packed, tmp_path / "own", quantization, change)
    options = ("--dtype", "bfloat16", "--target", "cuda")
    assert engines(packed, tmp_path / "a", options) == engines(own, tmp_path / "b", options)
    assert quantization_of(tmp_path / "a") == "FP8_PER_CHANNEL_PER_TOKEN"


def test_a_model_in_fp8_answers(plain, tmp_path):
    packed, _ = quantise(plain, tmp_path, "fp8")
    assert run("run", packed, "--prompt", "What is 27 + 54?", "--device", "cpu").stdout.strip() == "27 + 54 = 81."


def test_what_becomes_of_them_is_said(plain, tmp_path):
    for kind, words in (
        ("fp8", "stored as     FP8, a scale per tensor, static activations; 40 weights, widened to"),
        ("awq", "stored as     AWQ, int4 in groups, factors of columns; 40 weights, widened to"),
        ("awq without factors", "stored as     AWQ, int4 in groups, factors of columns; 40 weights, kept as they are stored"),
    ):
        packed, _ = quantise(plain, tmp_path / kind, kind)
        done = run("inspect", packed, "--device", "cpu", "--dtype", "bfloat16")
        layers = json.loads((packed / "config.json").read_text())["num_hidden_layers"]
        assert words.replace("40", str(5 * layers)) in done.stdout
        if kind == "fp8":
            assert "the KV cache is not in FP8 on a CPU" in done.stderr


def test_what_does_not_fit_is_refused_by_name(plain, tmp_path):
    packed, _ = quantise(plain, tmp_path / "awq", "awq")
    config = json.loads((packed / "config.json").read_text())

    def refusal(**quantization):
        (packed / "config.json").write_text(json.dumps({**config, "quantization": {**config["quantization"], **quantization}}))
        return error("inspect", packed, "--device", "cpu")

    assert "transformer.layers.0.attention.dense.zero: is missing" in refusal(has_zero_point=True)
    for algo in ("W4A8_AWQ", "W8A8_SQ_PER_CHANNEL", "NVFP4"):
        assert f"quant_algo: got {algo}" in refusal(quant_algo=algo).replace('"', "")
    assert "weights_scaling_factor: expected shape" in refusal(quant_algo="FP8")
    assert "per_channel_scale: is missing" in refusal(quant_algo=SQ.format("CHANNEL"))

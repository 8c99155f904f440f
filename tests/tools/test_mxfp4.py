# SPDX-License-Identifier: Apache-2.0
"""MXFP4 is executed from its packed form: codes and powers of two are those of the file, of Hugging Face's and of GGUF."""

import json

import gguf
import gguf_models
import numpy as np
import pytest
from command import error, run
from test_gguf import GOLDEN, engine_for_gpus, golden, greedy, kept_checkpoint, packing, stored_in
from test_gguf_experts import rows_packed

MODEL = GOLDEN / "gpt_oss_mxfp4"
MXFP4 = {"quant_algo": "W4A16_MXFP4"}
CASES = [{"prompt": case["prompt"], "greedy": [0] * 16} for case in golden("gpt_oss_mxfp4")]


def numbers_of(tensors, stem):
    """What codes and exponents stand for, by the table of the format."""
    bytes_ = tensors[stem + ".weight"].view(np.uint8)
    codes = np.stack([bytes_ & 15, bytes_ >> 4], -1).reshape(*bytes_.shape[:-1], -1)
    exponents = tensors[stem + ".weights_scaling_factor"]
    assert exponents.dtype == np.uint8
    return gguf_models.E2M1[codes] * np.repeat(np.exp2(exponents.astype(np.float64) - 127), 32, -1)


def stored_experts():
    """{layer: (fc, proj)} of the golden model: of each expert up, then gate."""
    values = gguf_models.of_gpt_oss(gguf_models.weights(MODEL))
    layers = {}
    for layer in range(3):
        up, gate, down = (values[f"model.layers.{layer}.mlp.experts.{part}_proj.weight"] for part in ("up", "gate", "down"))
        layers[layer] = (np.concatenate([up, gate], 1), down)
    return layers


def of_gguf(tmp_path):
    def pack(name, values):
        if ".experts." not in name or name.endswith(".bias"):
            return values, None
        kind = gguf.GGMLQuantizationType.MXFP4
        rows = gguf.quants.quantize(values.reshape(-1, values.shape[-1]), kind)
        return rows.reshape(*values.shape[:-1], -1), kind

    return gguf_models.write(MODEL, tmp_path / "m.gguf", pack=pack)


def test_experts_are_those_of_the_file(tmp_path):
    tensors, quantization = kept_checkpoint(MODEL, tmp_path / "out")
    assert quantization["quant_algo"] == "MIXED_PRECISION"
    for layer, parts in stored_experts().items():
        for stem, expected in zip(("mlp.fc", "mlp.proj"), parts, strict=True):
            name = f"transformer.layers.{layer}.{stem}"
            assert quantization["quantized_layers"][name] == MXFP4
            assert (numbers_of(tensors, name) == expected).all(), name
    text = run("inspect", MODEL).stdout
    assert "MXFP4, blocks of 32, of experts; 6 weights, kept as they are stored" in text
    assert "MXFP4 weights in groups of 32; the CPU rounds activations to int8" in text


def test_a_gguf_file_keeps_the_numbers_of_the_package(tmp_path):
    path = of_gguf(tmp_path)
    tensors, quantization = kept_checkpoint(path, tmp_path / "out")
    stored = stored_in(path)
    for layer in range(3):
        up, gate, down = (stored[f"blk.{layer}.ffn_{part}_exps.weight"] for part in ("up", "gate", "down"))
        for stem, expected in (("mlp.fc", np.concatenate([up, gate], 1)), ("mlp.proj", down)):
            name = f"transformer.layers.{layer}.{stem}"
            assert quantization["quantized_layers"][name] == MXFP4
            assert (numbers_of(tensors, name) == expected).all(), name


def test_engines_for_gpus_hold_the_codes_of_the_file(tmp_path):
    tensors, _ = kept_checkpoint(MODEL, tmp_path / "ckpt")
    engine = engine_for_gpus(MODEL, tmp_path / "engine")
    for ranks in ("1", "2"):
        checkpoint = tmp_path / f"of_{ranks}"
        run("convert", "--model-dir", MODEL, "--output-dir", checkpoint, "--dtype", "bfloat16", "--tp-size", ranks)
        assert engine == engine_for_gpus(checkpoint, tmp_path / f"merged_{ranks}", "--merge-ranks")
    for layer in range(3):
        for stem in ("mlp.fc", "mlp.proj"):
            name = f"transformer.layers.{layer}.{stem}"
            codes, exponents = tensors[name + ".weight"], tensors[name + ".weights_scaling_factor"]
            assert codes.tobytes() in engine, name
            assert exponents.tobytes() in engine, name
    wide = engine_for_gpus(MODEL, tmp_path / "wide", "--quant-algo", "none")
    num_bytes = sum(codes.size for name, codes in tensors.items() if name.endswith(("mlp.fc.weight", "mlp.proj.weight")))
    assert len(wide) - len(engine) == pytest.approx(2 * num_bytes * (16 - 4.25) / 8, rel=0.02)


def test_ranks_of_gpus_hold_their_parts_of_the_codes(tmp_path):
    tensors, _ = kept_checkpoint(MODEL, tmp_path / "whole")
    run("convert", "--model-dir", MODEL, "--output-dir", tmp_path / "two", "--dtype", "bfloat16", "--tp-size", "2")
    run("build", "--checkpoint-dir", tmp_path / "two", "--output-dir", tmp_path / "engine", "--target", "cuda")
    for rank in range(2):
        engine = (tmp_path / f"engine/rank{rank}.engine").read_bytes()
        for layer in range(3):
            for part in ("weight", "weights_scaling_factor"):
                fc = tensors[f"transformer.layers.{layer}.mlp.fc.{part}"]  # [experts, up's rows and gate's, columns]
                rows = fc.reshape(fc.shape[0], 2, 2, -1, fc.shape[-1])[:, :, rank]
                assert rows.tobytes() in engine, (rank, layer, part)
                proj = tensors[f"transformer.layers.{layer}.mlp.proj.{part}"]
                assert np.split(proj, 2, -1)[rank].tobytes() in engine, (rank, layer, part)


def test_every_road_gives_the_same_answers(tmp_path):
    run("convert", "--model-dir", MODEL, "--output-dir", tmp_path / "ckpt", "--dtype", "bfloat16")
    run("convert", "--model-dir", MODEL, "--output-dir", tmp_path / "two", "--dtype", "bfloat16", "--tp-size", "2")
    run("build", "--checkpoint-dir", tmp_path / "ckpt", "--output-dir", tmp_path / "engine")
    run("build", "--checkpoint-dir", tmp_path / "two", "--output-dir", tmp_path / "merged", "--merge-ranks")
    expected = greedy(MODEL, CASES, "--dtype", "bfloat16")
    for model in ("ckpt", "engine", "merged"):
        assert greedy(tmp_path / model, CASES) == expected, model
    ranks = ("--tensor-parallel-size", "2")
    assert greedy(MODEL, CASES, "--dtype", "bfloat16", *ranks) == greedy(tmp_path / "ckpt", CASES, *ranks)


def test_it_is_widened_as_asked_for(tmp_path):
    for flags in (["--quant-algo", "none"], ["--dtype", "float32"]):
        assert "6 weights, widened to" in run("inspect", MODEL, *flags).stdout
    # Rounding activations to eight bits is not much: most first tokens of transformers' stay.
    kept = greedy(MODEL, CASES)
    assert sum(ids[0] == case["greedy"][0] for ids, case in zip(kept, golden("gpt_oss_mxfp4"), strict=True)) >= 2


def test_linears_of_layers_are_kept_too(tmp_path):
    """Of a dense model; k of other blocks, which no form holds beside MXFP4, is widened with q and v."""
    pack = packing("MXFP4", np.random.default_rng(6))
    mixed = packing("Q8_0", np.random.default_rng(6))

    def of_name(name, values):
        if values.ndim == 1 or "embed" in name or "lm_head" in name or values.shape[-1] % 32 != 0:
            return values, None
        return (mixed if ".k_proj." in name else pack)(name, values)

    path = gguf_models.write(GOLDEN / "llama_head64", tmp_path / "m.gguf", pack=rows_packed(of_name))
    tensors, quantization = kept_checkpoint(path, tmp_path / "out")
    layers = quantization["quantized_layers"]
    assert layers["transformer.layers.0.attention.dense"] == MXFP4
    assert "transformer.layers.0.attention.qkv" not in layers
    assert (numbers_of(tensors, "transformer.layers.0.attention.dense") == stored_in(path)["blk.0.attn_output.weight"]).all()
    assert greedy(path, CASES[:1], "--dtype", "float16") == greedy(tmp_path / "out", CASES[:1])
    for model in (path, tmp_path / "out"):
        engine = engine_for_gpus(model, tmp_path / f"engine_{model.stem}")
        for part in ("weight", "weights_scaling_factor"):
            assert tensors[f"transformer.layers.0.attention.dense.{part}"].tobytes() in engine, part


@pytest.mark.parametrize("what", ["floats", "groups", "all"])
def test_checkpoints_that_do_not_fit_are_named(what, tmp_path):
    out = tmp_path / "ckpt"
    run("convert", "--model-dir", MODEL, "--output-dir", out, *(["--quant-algo", "none"] if what == "floats" else []))
    config = (out / "config.json").read_text()
    if what == "floats":
        layers = {f"transformer.layers.{i}.mlp.{stem}": MXFP4 for i in range(3) for stem in ("fc", "proj")}
        quantization = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
        expected = "floats are not rounded to W4A16_MXFP4"
    elif what == "groups":
        layers = {"transformer.layers.0.mlp.fc": {"quant_algo": "W4A16_MXFP8"}}
        quantization = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
        expected = "quant_algo: got 'W4A16_MXFP8'"
    else:
        quantization = {"quant_algo": "W4A16_MXFP4"}
        expected = "quant_algo: got"
    (out / "config.json").write_text(json.dumps(json.loads(config) | {"quantization": quantization}))
    assert expected in error("inspect", out)

# SPDX-License-Identifier: Apache-2.0
"""FP8 weights and KV cache from outside, without a GPU: convert, build, inspect, and what is refused."""

import functools
import json
import struct

import command
import pytest
from command import DEMO, NO_GPU, ROOT
from safetensors_rows import demo_rows, header

run = functools.partial(command.run, env=NO_GPU)
error = functools.partial(command.error, env=NO_GPU)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    work = tmp_path_factory.mktemp("fp8")
    run("convert", "--model-dir", DEMO, "--output-dir", work / "ckpt", "--use-fp8-rowwise", "--kv-cache-dtype", "fp8")
    run("build", "--checkpoint-dir", work / "ckpt", "--output-dir", work / "engine", "--target", "cuda")
    return work


def decode(code):
    """float8_e4m3fn"""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = code >> 3 & 15, code & 7
    return sign * (mantissa / 512 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def test_the_checkpoint_holds_codes_and_float32_scales(work):
    config = json.loads((work / "ckpt/config.json").read_text())
    assert config["quantization"]["quant_algo"] == "FP8_PER_CHANNEL_PER_TOKEN"
    assert config["quantization"]["kv_cache_quant_algo"] == "FP8"
    tensors, data = header(work / "ckpt/rank0.safetensors")
    name = "transformer.layers.3.mlp.proj"
    codes, scales = tensors[name + ".weight"], tensors[name + ".per_channel_scale"]
    assert (codes["dtype"], codes["shape"]) == ("F8_E4M3", [256, 768])
    assert (scales["dtype"], scales["shape"]) == ("F32", [256])
    assert tensors["transformer.vocab_embedding.weight"]["dtype"] == "BF16"

    weights_of = demo_rows("model.layers.3.mlp.down_proj.weight")
    for row in (0, 100, 255):
        weights = weights_of(row)
        at = scales["data_offsets"][0] + 4 * row
        (scale,) = struct.unpack("<f", data[at : at + 4])
        assert scale == pytest.approx(max(map(abs, weights)) / 448, rel=1e-6)
        at = codes["data_offsets"][0] + row * 768
        for weight, code in zip(weights, data[at : at + 768], strict=True):
            # Half a step of three mantissa bits, or of the subnormal numbers.
            assert decode(code) * scale == pytest.approx(weight, rel=1 / 15.9, abs=scale / 1020)


def test_build_from_the_model_and_from_the_checkpoint_are_one_engine(work):
    run(
        "build",
        "--checkpoint-dir",
        DEMO,
        "--output-dir",
        work / "direct",
        "--target",
        "cuda",
        "--qformat",
        "fp8",
        "--fp8_kv_cache",
    )
    assert (work / "direct/rank0.engine").read_bytes() == (work / "engine/rank0.engine").read_bytes()
    text = run("inspect", work / "direct").stdout
    assert "FP8_PER_CHANNEL_PER_TOKEN: float8_e4m3fn weights, a scale per output channel" in text
    assert "KV cache      float8_e4m3fn" in text


def test_float16_models_keep_their_dtype_beside_fp8(work):
    run(
        "build",
        "--checkpoint-dir",
        DEMO,
        "--output-dir",
        work / "half",
        "--target",
        "cuda",
        "--use-fp8-rowwise",
        "--dtype",
        "float16",
    )
    text = run("inspect", work / "half").stdout
    assert "float16" in text
    assert "FP8_PER_CHANNEL_PER_TOKEN" in text


def test_inspect_shows_a_model_that_the_cpu_cannot_run_without_a_plan(work):
    text = run("inspect", work / "ckpt", "--device", "cpu").stdout
    assert "KV cache      float8_e4m3fn" in text
    assert "no memory plan: cpu: a model in FP8 needs an NVIDIA GPU" in text


# Ports are taken before a model is read.
ANY_PORTS = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]


@pytest.mark.parametrize("options", [["--use-fp8-rowwise"], ["--quant-algo", "FP8_PER_CHANNEL_PER_TOKEN"]], ids=str)
@pytest.mark.parametrize(
    "command",
    [["run", DEMO, "--prompt", "hi"], ["serve", DEMO, *ANY_PORTS], ["bench", "--shape", "llama-3.2-1b"]],
    ids=lambda command: command[0],
)
def test_the_cpu_refuses_fp8_weights_by_name(command, options):
    assert "cpu: a model in FP8 needs an NVIDIA GPU of compute capability 8.9" in error(*command, "--device", "cpu", *options)


def test_the_cpu_refuses_an_fp8_cache_by_name():
    assert "cpu: a KV cache in FP8 needs an NVIDIA GPU" in error("run", DEMO, "--prompt", "hi", "--kv-cache-dtype", "fp8")
    line = error("build", "--checkpoint-dir", DEMO, "--output-dir", "no", "--kv-cache-dtype", "fp8")
    assert "kv_cache_quant_algo: got FP8 for target cpu" in line


def test_what_is_stored_in_fp8_stays_so(work):
    build = ["build", "--checkpoint-dir", work / "ckpt", "--output-dir", work / "no", "--target", "cuda"]
    assert "the weights are FP8 already" in error(*build, "--use-weight-only")
    assert "the weights are FP8 already" in error(*build, "--quant-algo", "none")
    assert "with FP8 weights only bfloat16 and float16 are supported" in error(*build, "--dtype", "float32")
    assert not (work / "no").exists()


def test_options_that_contradict_each_other():
    line = error("convert", "--model-dir", DEMO, "--output-dir", "no", "--use-weight-only", "--use-fp8-rowwise")
    assert line == "inflight: --use-fp8-rowwise: contradicts --use-weight-only; leave one of them out"


def test_a_head_that_is_the_embedding_table_keeps_the_models_dtype():
    for start in (["build", "--checkpoint-dir", DEMO, "--output-dir", "no", "--target", "cuda"], ["inspect", DEMO]):
        line = error(*start, "--use-fp8-rowwise", "--quantize-lm-head")
        assert "quantize_lm_head: got true for a model whose lm_head is its embedding table" in line


def test_blocks_are_kept(tmp_path):
    """Of linears whose rows are whole blocks, by code, and a scale for each group of a row."""
    model = ROOT / "tests/golden/quantized/fp8_blocks"

    def built(*flags, target="cuda"):
        out = tmp_path / f"{target}{len(flags)}"
        run("build", "--checkpoint-dir", model, "--output-dir", out, "--target", target, *flags)
        return out, (out / "rank0.engine").read_bytes()

    tensors, data = header(model / "model.safetensors")
    name = "model.layers.0.self_attn.o_proj.weight"
    codes, scales = (data[slice(*tensors[part]["data_offsets"])] for part in (name, name + "_scale_inv"))
    out, engine = built()
    assert codes in engine
    assert scales[:4] * 128 + scales[4:] * 32 in engine
    assert codes not in built("--quant-algo", "none")[1]
    for engine in (out, built(target="cpu")[0]):
        layers = json.loads((engine / "config.json").read_text())["pretrained_config"]["quantization"]["quantized_layers"]
        assert layers == {"transformer.layers.0.attention.dense": {"quant_algo": "W8A16_FP8_GROUPS"}}
        assert "FP8 weights in groups of 128; activations are not rounded" in run("inspect", engine).stdout
    assert "6 weights, 1 kept as they are stored and 5 widened to bfloat16" in run("inspect", model).stdout
    assert "6 weights, widened to float16" in run("inspect", model, "--dtype", "float16").stdout

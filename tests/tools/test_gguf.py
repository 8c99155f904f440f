# SPDX-License-Identifier: Apache-2.0
"""GGUF files from outside: models written by the `gguf` package give the ids that transformers gives, packed weights are
the package's own numbers, and every command takes such a file."""

import json
import pathlib
import shutil
import sys

import gguf
import gguf_models
import numpy as np
import pytest
import requests
import safetensors_rows
from command import DEMO, ROOT, error, run

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))
from live_server import start_server

GOLDEN = ROOT / "tests/golden/data"
MODELS = ["llama_gqa2", "llama_bias", "llama_mha", "llama_head80", "llama_linear_new", "mistral_full",
          "qwen2_tied", "qwen3_gqa2", "qwen3_head128", "gemma_old", "gemma2_caps", "gemma2_head64",
          "gemma3_old_cap", "gemma3_rope", "olmo2_wide_norms", "granite_factors", "granite_head64", "phi3_head64",
          "phi3_part", "phi3_longrope_short", "llama_yarn",
          "starcoder2_head64", "gpt_oss_mxfp4", "mixtral_head64", "qwen3_moe_renormalized", "olmoe_head64",
          "olmoe_wide_norms", "granitemoe_factors", "granitemoe_head64", "gpt2_head64", "gpt_neox_parallel",
          "falcon_multi_query", "falcon_grouped", "falcon_one_norm"]  # fmt: skip
# Types that hold float32 exactly or that the package can quantise.
QUANTISED = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"]
# Types that it only widens; where the float16 numbers of their blocks lie.
WIDENED = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,)}


def greedy(model, cases, *flags):
    """The ids that the program appends to each prompt of `cases`."""
    lines = [json.dumps({"input_ids": case["prompt"], "max_tokens": len(case["greedy"]), "end_id": -1}) + "\n" for case in cases]
    done = run("run", model, "--input", "-", *flags, input="".join(lines))
    return [json.loads(line)["output_ids"] for line in done.stdout.splitlines()]


def golden(name):
    tensors, data = safetensors_rows.header(GOLDEN / name / "reference.safetensors")

    def ids(key):
        begin, end = tensors[key]["data_offsets"]
        return np.frombuffer(data[begin:end], np.int64).tolist()

    return [{"prompt": ids(f"prompt_{i}"), "greedy": ids(f"greedy_{i}")} for i in range(3) if f"prompt_{i}" in tensors]


@pytest.mark.parametrize("name", MODELS)
def test_greedy_ids_are_those_of_transformers(name, tmp_path):
    path = gguf_models.write(GOLDEN / name, tmp_path / "m.gguf")
    cases = golden(name)
    assert cases
    assert greedy(path, cases) == [case["greedy"] for case in cases]


HEADER = 256  # bytes before weights


def engine_for_gpus(model, out, *flags):
    run("build", "--checkpoint-dir", model, "--output-dir", out, "--target", "cuda", "--dtype", "bfloat16", *flags)
    return (out / "rank0.engine").read_bytes()


# Factors of longrope are float32 in the file, and the directory has them in float64.
@pytest.mark.parametrize("name", [name for name in MODELS if name != "phi3_longrope_short"])
def test_an_engine_for_gpus_is_that_of_the_hugging_face_model(name, tmp_path):
    path = gguf_models.write(GOLDEN / name, tmp_path / "m.gguf")
    none = ("--quant-algo", "none")  # what the directory has packed is plain in the file
    assert engine_for_gpus(path, tmp_path / "a", *none) == engine_for_gpus(GOLDEN / name, tmp_path / "b", *none)


def checkpoint(model, out, dtype="float32"):
    run("convert", "--model-dir", model, "--output-dir", out, "--dtype", dtype)
    named, data = safetensors_rows.header(out / "rank0.safetensors")
    return {
        name: np.frombuffer(data[slice(*tensor["data_offsets"])], np.float32).reshape(tensor["shape"])
        for name, tensor in named.items()
        if name != "__metadata__"
    }


@pytest.mark.parametrize("name", ["llama_gqa2", "llama_bias", "qwen2_tied", "qwen3_gqa2", "gemma2_caps", "granite_head64",
                                  "phi3_head64", "phi3_part", "phi3_longrope_long", "phi3_longrope_short", "llama_yarn",
                                  "olmo2_wide_norms", "gpt_oss_mxfp4", "mixtral_head64", "olmoe_head64",
                                  "qwen3_moe_renormalized", "granitemoe_head64", "gpt2_head64",
                                  "gpt_neox_parallel"])  # fmt: skip
def test_a_checkpoint_of_it_is_that_of_the_hugging_face_model(name, tmp_path):
    path = gguf_models.write(GOLDEN / name, tmp_path / "m.gguf")
    of_gguf, of_hf = checkpoint(path, tmp_path / "a"), checkpoint(GOLDEN / name, tmp_path / "b")
    assert of_gguf.keys() == of_hf.keys()
    for key, values in of_hf.items():
        assert (of_gguf[key].view(np.uint32) == values.view(np.uint32)).all(), key
    texts = [json.loads((tmp_path / side / "config.json").read_text()) for side in "ab"]
    # The file has the factor of logits in float32, so that its inverse may be the number beside.
    scales = [text.pop("output_multiplier_scale", 1) for text in texts]
    assert scales[0] == pytest.approx(scales[1], rel=2**-23)
    if "longrope" in name:  # the file says what cosines and sines are times, the directory leaves it to the rule
        length, original = texts[1]["max_position_embeddings"], texts[1]["original_max_position_embeddings"]
        magnitude = (1 + np.log(length / original) / np.log(original)) ** 0.5
        for key in ("longrope_short_mscale", "longrope_long_mscale"):
            assert texts[0].pop(key) == pytest.approx(magnitude, rel=2**-23)
        for key in ("longrope_scaling_short_factors", "longrope_scaling_long_factors"):
            assert texts[0].pop(key) == pytest.approx(texts[1].pop(key), rel=2**-23)
    assert texts[0] == texts[1]


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A Llama whose rows are whole blocks of every type."""
    directory = tmp_path_factory.mktemp("wide")
    hidden, inner, vocab = 256, 512, 40
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": vocab,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(config))
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,),
        layer + "input_layernorm.weight": (hidden,), layer + "post_attention_layernorm.weight": (hidden,),
        layer + "self_attn.q_proj.weight": (256, hidden), layer + "self_attn.k_proj.weight": (128, hidden),
        layer + "self_attn.v_proj.weight": (128, hidden), layer + "self_attn.o_proj.weight": (hidden, 256),
        layer + "mlp.gate_proj.weight": (inner, hidden), layer + "mlp.up_proj.weight": (inner, hidden),
        layer + "mlp.down_proj.weight": (hidden, inner),
    }  # fmt: skip
    rng = np.random.default_rng(5)
    values = {name: (rng.standard_normal(shape) * 0.1).astype(np.float32) for name, shape in shapes.items()}
    safetensors_rows.write(
        directory / "model.safetensors",
        {name: ("F32", list(array.shape), array.tobytes()) for name, array in values.items()},
    )
    return directory


def packing(type_name, rng):
    """How matrices are stored as blocks of a type."""
    kind = gguf.GGMLQuantizationType[type_name]

    def pack(name, values):
        if values.ndim == 1:
            return values, None
        if type_name in QUANTISED:
            return gguf.quants.quantize(values, kind), kind
        elements, num_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (values.shape[0], values.shape[1] // elements, num_bytes), dtype=np.uint8)
        for place in WIDENED[type_name]:
            scales = (rng.standard_normal(blocks.shape[:2]) * 0.01).astype(np.float16)
            blocks[..., place : place + 2] = scales.view(np.uint8).reshape(*blocks.shape[:2], 2)
        return blocks.reshape(values.shape[0], -1), kind

    return pack


@pytest.mark.parametrize("type_name", QUANTISED + sorted(WIDENED))
def test_packed_weights_are_the_numbers_of_the_package(type_name, wide, tmp_path):
    path = gguf_models.write(wide, tmp_path / "m.gguf", pack=packing(type_name, np.random.default_rng(6)))
    found = checkpoint(path, tmp_path / "out")
    stored = stored_in(path)
    layer = "transformer.layers.0."
    expected = {
        "transformer.vocab_embedding.weight": stored["token_embd.weight"],
        layer + "attention.qkv.weight": qkv_of(stored),
        layer + "attention.dense.weight": stored["blk.0.attn_output.weight"],
        layer + "mlp.fc.weight": stored["blk.0.ffn_gate.weight"],
        layer + "mlp.gate.weight": stored["blk.0.ffn_up.weight"],
        layer + "mlp.proj.weight": stored["blk.0.ffn_down.weight"],
        layer + "input_layernorm.weight": stored["blk.0.attn_norm.weight"],
    }
    for name, values in expected.items():
        assert (found[name].view(np.uint32) == values.view(np.uint32)).all(), name


@pytest.mark.parametrize("type_name", QUANTISED + sorted(WIDENED))
def test_an_engine_for_gpus_is_that_of_its_checkpoint(type_name, wide, tmp_path):
    """But for sums over the whole, and the sign of zeros in tables, which a checkpoint has as codes."""
    path = gguf_models.write(wide, tmp_path / "m.gguf", pack=packing(type_name, np.random.default_rng(6)))
    run("convert", "--model-dir", path, "--output-dir", tmp_path / "checkpoint", "--dtype", "bfloat16")
    engines = engine_for_gpus(path, tmp_path / "a"), engine_for_gpus(tmp_path / "checkpoint", tmp_path / "b")
    a, b = (np.frombuffer(engine[HEADER:], np.uint16) for engine in engines)
    assert a.shape == b.shape
    assert not (a[a != b] & 0x7FFF).any() and not (b[a != b] & 0x7FFF).any()


KEPT = {  # bits, group, offsets
    "Q4_0": (4, 32, False), "Q4_1": (4, 32, True), "Q5_0": (8, 32, False), "Q5_1": (8, 32, True), "Q8_0": (8, 32, False),
    "Q2_K": (4, 16, True), "Q3_K": (4, 16, False), "Q4_K": (4, 32, True), "Q5_K": (8, 32, True), "Q6_K": (8, 16, False),
    "IQ4_NL": (8, 32, False), "IQ4_XS": (8, 32, False),
}  # fmt: skip


def kept_checkpoint(model, out):
    """{name: array} of a checkpoint whose linears are not widened; two codes of four bits a byte are taken apart."""
    run("convert", "--model-dir", model, "--output-dir", out)
    named, data = safetensors_rows.header(out / "rank0.safetensors")
    kinds = {"F32": np.float32, "I8": np.int8, "U8": np.uint8, "BF16": np.uint16, "F16": np.float16}
    tensors = {
        name: np.frombuffer(data[slice(*tensor["data_offsets"])], kinds[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in named.items()
        if name != "__metadata__"
    }
    return tensors, json.loads((out / "config.json").read_text())["quantization"]


def numbers_of(tensors, stem, bits, group):
    """What codes, scales and offsets stand for in float64, and the bound on how far float32 sums of theirs are off."""
    codes = tensors[stem + ".weight"]
    if bits == 4:
        codes = np.stack([(codes << 4) >> 4, codes >> 4], -1).reshape(len(codes), -1)
    scales = np.repeat(tensors[stem + ".weights_scaling_factor"].astype(np.float64), group, 1)
    zeros = tensors.get(stem + ".zero")
    offsets = np.zeros_like(scales) if zeros is None else np.repeat(zeros.astype(np.float64), group, 1)
    return codes * scales + offsets, 2.0**-22 * (abs(offsets) + 4 * abs(scales)) + 2.0**-24 * abs(codes * scales)


def stored_in(path):
    return {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])
        for tensor in gguf.GGUFReader(path).tensors
    }


def heads(rows, count):
    """Undoes gguf_models.paired."""
    return rows.reshape(count, rows.shape[0] // count // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def qkv_of(stored, layer=0):
    parts = [stored[f"blk.{layer}.attn_{part}.weight"] for part in "qkv"]
    return np.concatenate([heads(parts[0], 4), heads(parts[1], 2), parts[2]])


@pytest.mark.parametrize("type_name", sorted(KEPT))
def test_blocks_of_integers_are_kept(type_name, wide, tmp_path):
    path = gguf_models.write(wide, tmp_path / "m.gguf", pack=packing(type_name, np.random.default_rng(6)))
    tensors, quantization = kept_checkpoint(path, tmp_path / "out")
    bits, group, has_offsets = KEPT[type_name]
    expected = {"quant_algo": f"W{bits}A16_GPTQ", "group_size": group, "has_zero_point": has_offsets}
    stored = stored_in(path)
    layer = "transformer.layers.0."
    packages = {
        "transformer.vocab_embedding": stored["token_embd.weight"],
        layer + "attention.qkv": qkv_of(stored),
        layer + "attention.dense": stored["blk.0.attn_output.weight"],
        layer + "mlp.fc": stored["blk.0.ffn_gate.weight"],
        layer + "mlp.gate": stored["blk.0.ffn_up.weight"],
        layer + "mlp.proj": stored["blk.0.ffn_down.weight"],
    }
    assert quantization["quant_algo"] == "MIXED_PRECISION"
    assert quantization["quantized_layers"] == dict.fromkeys(packages, expected)
    for stem, package in packages.items():
        numbers, bound = numbers_of(tensors, stem, bits, group)
        assert (abs(numbers - package.astype(np.float64)) <= bound).all(), stem
    text = run("inspect", path).stdout
    assert f"GGUF blocks, {type_name}; 8 weights, kept as they are stored" in text
    assert f"int{bits} weights in groups of {group}{' with zero points' if has_offsets else ''}; the CPU rounds" in text
    assert f"lm_head       int{bits}" in text
    asked = run("inspect", path, "--quantize-lm-head").stdout  # a head of integers stays as the file has it
    assert asked.partition("Memory plan")[0] == text.partition("Memory plan")[0]


def answers_in_full(model):
    """Ids and log-probabilities, in full, of some prompts on the CPU."""
    prompts = [[1, 5, 9], [3], list(range(2, 34))]
    lines = [json.dumps({"input_ids": ids, "max_tokens": 5, "end_id": -1, "return_log_probs": True}) + "\n" for ids in prompts]
    return run("run", model, "--input", "-", "--device", "cpu", input="".join(lines)).stdout


@pytest.mark.parametrize("type_name", sorted(KEPT))
def test_scales_in_blocks_give_the_bits_of_float_scales(type_name, wide, tmp_path):
    """An engine for CPUs has scales as the file's blocks; a checkpoint of the same file has their products as float32."""
    path = gguf_models.write(wide, tmp_path / "m.gguf", pack=packing(type_name, np.random.default_rng(6)))
    run("convert", "--model-dir", path, "--output-dir", tmp_path / "checkpoint")
    for name, model in (("of_file", path), ("of_checkpoint", tmp_path / "checkpoint")):
        run("build", "--checkpoint-dir", model, "--output-dir", tmp_path / name, "--target", "cpu")
    forms = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("of_file", "of_checkpoint")]
    of_file, of_checkpoint = (form["pretrained_config"]["quantization"]["quantized_layers"] for form in forms)
    elements, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]]
    for form in of_file.values():
        blocks = form.pop("scale_blocks")
        assert blocks == {"groups": elements // KEPT[type_name][1], "middle": 8 if type_name in ("Q4_1", "Q4_K") else 0}
    assert of_file == of_checkpoint
    assert len((tmp_path / "of_file/rank0.engine").read_bytes()) < len((tmp_path / "of_checkpoint/rank0.engine").read_bytes())
    expected = answers_in_full(tmp_path / "of_checkpoint")
    assert len(expected.splitlines()) == 3
    assert answers_in_full(tmp_path / "of_file") == expected
    assert answers_in_full(path) == expected


def test_offsets_that_are_no_zero_points_have_no_layout_of_tensorrt_llm(wide, tmp_path):
    in_blocks = packing("Q4_1", np.random.default_rng(6))

    def pack(name, values):
        return in_blocks(name, values) if ".layers." in name else (values, None)

    path = gguf_models.write(wide, tmp_path / "m.gguf", pack=pack)
    words = error("convert", "--upstream-layout", "--dtype", "bfloat16", "--output-dir", tmp_path / "out", "--model-dir", path)
    assert "transformer.layers.0.attention.qkv.weight, int4 with offsets that are no multiples of their scales" in words
    assert not (tmp_path / "out").exists()


def test_a_head_of_floats_becomes_int8_where_it_is_asked_for(wide, tmp_path):
    four = packing("Q4_0", np.random.default_rng(6))

    def pack(name, values):
        return (values.astype(np.float16), None) if "embed_tokens" in name else four(name, values)

    path = gguf_models.write(wide, tmp_path / "m.gguf", pack=pack)
    assert "lm_head" not in run("inspect", path).stdout
    assert "lm_head       int8" in run("inspect", path, "--quantize-lm-head").stdout
    run("convert", "--model-dir", path, "--output-dir", tmp_path / "out", "--quantize-lm-head")
    tensors, data = safetensors_rows.header(tmp_path / "out/rank0.safetensors")
    begin, end = tensors["transformer.vocab_embedding.weight"]["data_offsets"]
    codes = np.frombuffer(data[begin:end], np.int8).reshape(40, 256)
    begin, end = tensors["transformer.vocab_embedding.weights_scaling_factor"]["data_offsets"]
    scales = np.frombuffer(data[begin:end], np.float32).reshape(40, 8)  # in the groups of 32 that the layers have
    table = stored_in(path)["token_embd.weight"].astype(np.float32)
    assert (scales == abs(table.reshape(40, 8, 32)).max(2) / 128).all()
    wide_scales = np.repeat(scales.astype(np.float64), 32, 1)
    assert (abs(codes * wide_scales - table) <= np.where(codes == 127, 1, 0.501) * wide_scales).all()


def test_a_linear_of_several_blocks_has_a_form_that_holds_all(wide, tmp_path):
    """As files of Q4_K_M mix them: v and down in Q6_K, and here the output of attention in float16."""
    rng = np.random.default_rng(8)
    four, six = packing("Q4_K", rng), packing("Q6_K", rng)

    def pack(name, values):
        if ".o_proj." in name:
            return values.astype(np.float16), None
        return (six if ".v_proj." in name or ".down_proj." in name else four)(name, values)

    path = gguf_models.write(wide, tmp_path / "m.gguf", pack=pack)
    tensors, quantization = kept_checkpoint(path, tmp_path / "out")
    assert quantization["quant_algo"] == "MIXED_PRECISION"
    int8 = {"quant_algo": "W8A16_GPTQ", "group_size": 16}
    int4 = {"quant_algo": "W4A16_GPTQ", "group_size": 32, "has_zero_point": True}
    layer = "transformer.layers.0."
    assert quantization["quantized_layers"] == {
        "transformer.vocab_embedding": int4,
        layer + "attention.qkv": int8 | {"has_zero_point": True},
        layer + "mlp.fc": int4,
        layer + "mlp.gate": int4,
        layer + "mlp.proj": int8 | {"has_zero_point": False},
    }
    stored = stored_in(path)
    for stem, bits, group, package in (
        ("attention.qkv", 8, 16, qkv_of(stored)),
        ("mlp.fc", 4, 32, stored["blk.0.ffn_gate.weight"]),
        ("mlp.proj", 8, 16, stored["blk.0.ffn_down.weight"]),
    ):
        numbers, bound = numbers_of(tensors, layer + stem, bits, group)
        assert (abs(numbers - package.astype(np.float64)) <= bound).all(), stem
    # Whatever road it takes. Of the file's blocks of scales qkv, which has several kinds, and a checkpoint have none.
    run("build", "--checkpoint-dir", tmp_path / "out", "--output-dir", tmp_path / "engine")
    assert answers_in_full(tmp_path / "engine") == answers_in_full(path)
    run("build", "--checkpoint-dir", path, "--output-dir", tmp_path / "direct", "--target", "cpu")
    forms = json.loads((tmp_path / "direct/config.json").read_text())["pretrained_config"]["quantization"]["quantized_layers"]
    assert [layer + "attention.qkv"] == [name for name, form in forms.items() if "scale_blocks" not in form]
    assert "scale_blocks" not in json.dumps(quantization)
    cases = [{"prompt": [1, 5, 9, 30], "greedy": [0] * 12}]
    answers = [greedy(model, cases) for model in (path, tmp_path / "out", tmp_path / "engine")]
    assert answers[0] == answers[1] == answers[2]
    assert greedy(path, cases, "--tensor-parallel-size", "2") == greedy(tmp_path / "out", cases, "--tensor-parallel-size", "2")
    # Widened as asked for.
    for flags in (["--quant-algo", "none"], ["--dtype", "float32"]):
        assert "7 weights, widened to" in run("inspect", path, *flags).stdout


@pytest.mark.parametrize("tied", [True, False])
def test_tables_of_blocks_are_executed_as_they_are(tied, wide, tmp_path):
    """The embedding table in Q4_K and the head in Q6_K, or one table in Q6_K for both: rows of the table are the package's
    numbers, and every road and division over ranks gives the answers of the file."""
    model = wide
    if not tied:
        model = tmp_path / "hf"
        shutil.copytree(wide, model)
        values = gguf_models.weights(wide)
        values["lm_head.weight"] = values["model.embed_tokens.weight"][::-1] * np.float32(1.5)
        tensors = {name: ("F32", list(array.shape), array.tobytes()) for name, array in values.items()}
        safetensors_rows.write(model / "model.safetensors", tensors)
        config = json.loads((wide / "config.json").read_text()) | {"tie_word_embeddings": False}
        (model / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(8)
    four, six = packing("Q4_K", rng), packing("Q6_K", rng)
    pack = lambda name, values: (six if "lm_head" in name or (tied and "embed" in name) else four)(name, values)  # noqa: E731
    path = gguf_models.write(model, tmp_path / "m.gguf", pack=pack)
    tensors, quantization = kept_checkpoint(path, tmp_path / "out")
    stored = stored_in(path)
    expected = {"transformer.vocab_embedding": (8, 16, "token_embd.weight")}
    if not tied:
        expected = {"transformer.vocab_embedding": (4, 32, "token_embd.weight"), "lm_head": (8, 16, "output.weight")}
    for stem, (bits, group, name) in expected.items():
        assert quantization["quantized_layers"][stem]["quant_algo"] == f"W{bits}A16_GPTQ"
        numbers, bound = numbers_of(tensors, stem, bits, group)
        assert (abs(numbers - stored[name].astype(np.float64)) <= bound).all(), stem
    run("build", "--checkpoint-dir", tmp_path / "out", "--output-dir", tmp_path / "engine")
    run("convert", "--model-dir", path, "--output-dir", tmp_path / "two", "--tp-size", "2")
    run("build", "--checkpoint-dir", tmp_path / "two", "--output-dir", tmp_path / "merged", "--merge-ranks")
    cases = [{"prompt": [1, 5, 9, 30], "greedy": [0] * 12}]
    answers = greedy(path, cases)
    for road in ("out", "engine", "merged"):
        assert greedy(tmp_path / road, cases) == answers, road
    ranks = ("--tensor-parallel-size", "2")
    assert greedy(path, cases, *ranks) == greedy(tmp_path / "out", cases, *ranks)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo model, its weights and its tokenizer in one file."""

    def pack(_, values):
        kind = gguf.GGMLQuantizationType.BF16
        return gguf.quants.quantize(values, kind), kind

    def more(writer):
        gguf_models.add_tokenizer(writer, DEMO, "qwen2", size=2048, bos=True)

    return gguf_models.write(DEMO, tmp_path_factory.mktemp("demo") / "demo.gguf", pack, more)


def answer(model, *flags):
    return run("run", model, "--prompt", "Once upon a time", "--max-tokens", "24", *flags).stdout


def test_texts_and_answers_are_those_of_the_hugging_face_model(demo, tmp_path):
    texts = "Once upon a time\nMia's 12 dogs,  and <|end_of_text|>!\n"
    ids = run("tokenize", DEMO, input=texts).stdout
    expected = answer(DEMO)
    assert run("tokenize", demo, input=texts).stdout == ids
    assert answer(demo) == expected
    assert answer(demo, "--tensor-parallel-size", "2", "--dtype", "float32") == answer(DEMO, "--dtype", "float32")
    # A checkpoint and an engine of it carry the tokenizer.
    run("convert", "--model-dir", demo, "--output-dir", tmp_path / "ckpt")
    run("build", "--checkpoint-dir", tmp_path / "ckpt", "--output-dir", tmp_path / "engine")
    run("build", "--checkpoint-dir", demo, "--output-dir", tmp_path / "direct")
    for directory in ("ckpt", "engine", "direct"):
        assert answer(tmp_path / directory) == expected
        assert run("tokenize", tmp_path / directory, input=texts).stdout == ids


def test_chat_goes_through_its_template(demo, tmp_path):
    def chat(model):
        return run("chat", model, "--dtype", "float32", "--max-tokens", "20", input="Who are you?\n").stdout

    assert chat(demo) == chat(DEMO)
    # Without a template it is refused as for a directory without one.
    bare = gguf_models.write(GOLDEN / "llama_gqa2", tmp_path / "bare.gguf")
    assert "tokenizer" in error("chat", bare)


def test_it_is_served(demo, tmp_path):
    server = start_server(tmp_path, demo, "--dtype", "float32")
    try:
        body = {"text_input": "Once upon a time", "max_tokens": 24, "bad_words": "", "stop_words": ""}
        reply = requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60)
    finally:
        assert server.stop() == 0
    assert reply.status_code == 200, reply.text
    assert answer(DEMO, "--dtype", "float32").strip() in reply.json()["text_output"]


def test_inspect_names_what_it_is(demo):
    text = run("inspect", demo).stdout
    assert f"{demo}: GGUF file" in text
    assert "LlamaForCausalLM, bfloat16" in text


def test_what_cannot_be_read_is_named(demo, tmp_path):
    whole = demo.read_bytes()
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(whole[:-64])
    assert "truncated" in error("inspect", bad)
    bad.write_bytes(b"GGML" + whole[4:])
    assert "no GGUF file" in error("inspect", bad)
    bad.write_bytes(whole.replace(b"llama.block_count", b"llama.block_cOunt"))
    assert "block_cOunt" in error("inspect", bad)
    (tmp_path / "mine").mkdir()
    shutil.copy(DEMO / "model.safetensors", tmp_path / "mine/model.gguf")
    assert "no GGUF file" in error("run", tmp_path / "mine/model.gguf", "--prompt", "x")


def test_layers_beyond_any_model_end_at_once(tmp_path):
    """Rows of a family's table that count layers are not reached."""
    for architecture in ("Gemma3ForCausalLM", "SmolLM3ForCausalLM", "Qwen2ForCausalLM"):
        config = {"architectures": [architecture], "num_hidden_layers": 2**31 - 1, "hidden_size": 64, "vocab_size": 99}
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert "num_hidden_layers: got 2147483647" in error("inspect", tmp_path)


def test_a_template_beside_the_files_tokenizer_is_taken(demo, tmp_path):
    run("convert", "--model-dir", demo, "--output-dir", tmp_path / "ckpt")
    of_file = run("chat", tmp_path / "ckpt", "--max-tokens", "4", input="Hi\n").stdout
    (tmp_path / "ckpt/chat_template.jinja").write_text("{{ raise_exception('mine is taken') }}")
    assert of_file and "mine is taken" in error("chat", tmp_path / "ckpt", input="Hi\n")


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A model in files of eight tensors."""
    folder = tmp_path_factory.mktemp("parts")
    gguf_models.write(GOLDEN / "llama_gqa2", folder / "m.gguf", split=8)
    found = sorted(folder.glob("*.gguf"))
    assert len(found) > 2 and found[0].name == f"m-00001-of-{len(found):05}.gguf"
    return found


def test_a_model_in_several_files_is_opened_by_its_first(parts, tmp_path):
    cases = golden("llama_gqa2")
    assert greedy(parts[0], cases) == [case["greedy"] for case in cases]
    whole, split = checkpoint(GOLDEN / "llama_gqa2", tmp_path / "a"), checkpoint(parts[0], tmp_path / "b")
    assert whole.keys() == split.keys()
    assert all((whole[key].view(np.uint32) == split[key].view(np.uint32)).all() for key in whole)


def test_parts_that_do_not_belong_together_are_refused(parts, tmp_path):
    count = len(parts)
    for part in parts:
        shutil.copy(part, tmp_path)
    first = tmp_path / parts[0].name
    message = error("inspect", tmp_path / parts[1].name)
    assert f"split.no: got 1, a model in {count} parts is opened by its first" in message
    assert f"-00001-of-{count:05}.gguf" in message
    shutil.copy(parts[1], tmp_path / parts[2].name)
    assert f"{parts[2].name}: is part 2 of {count}, part 3 of {count} is needed" in error("inspect", first)
    (tmp_path / parts[2].name).unlink()
    assert parts[2].name in error("inspect", first)
    assert f"split.count: got {count}" in error("inspect", shutil.copy(first, tmp_path / "other.gguf"))

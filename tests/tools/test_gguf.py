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
          "starcoder2_head64", "gpt_oss_mxfp4"]  # fmt: skip
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


def checkpoint(model, out, dtype="float32"):
    run("convert", "--model-dir", model, "--output-dir", out, "--dtype", dtype)
    named, data = safetensors_rows.header(out / "rank0.safetensors")
    return {
        name: np.frombuffer(data[slice(*tensor["data_offsets"])], np.float32).reshape(tensor["shape"])
        for name, tensor in named.items()
        if name != "__metadata__"
    }


@pytest.mark.parametrize("name", ["llama_gqa2", "llama_bias", "qwen2_tied", "qwen3_gqa2", "gemma2_caps", "granite_head64",
                                  "phi3_head64", "olmo2_wide_norms", "gpt_oss_mxfp4"])  # fmt: skip
def test_a_checkpoint_of_it_is_that_of_the_hugging_face_model(name, tmp_path):
    path = gguf_models.write(GOLDEN / name, tmp_path / "m.gguf")
    of_gguf, of_hf = checkpoint(path, tmp_path / "a"), checkpoint(GOLDEN / name, tmp_path / "b")
    assert of_gguf.keys() == of_hf.keys()
    for key, values in of_hf.items():
        assert (of_gguf[key].view(np.uint32) == values.view(np.uint32)).all(), key
    texts = [json.loads((tmp_path / side / "config.json").read_text()) for side in "ab"]
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
    stored = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])
        for tensor in gguf.GGUFReader(path).tensors
    }

    def heads(rows, count):
        """Undoes gguf_models.paired."""
        return rows.reshape(count, rows.shape[0] // count // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)

    layer = "transformer.layers.0."
    expected = {
        "transformer.vocab_embedding.weight": stored["token_embd.weight"],
        layer + "attention.qkv.weight": np.concatenate(
            [heads(stored["blk.0.attn_q.weight"], 4), heads(stored["blk.0.attn_k.weight"], 2), stored["blk.0.attn_v.weight"]]
        ),
        layer + "attention.dense.weight": stored["blk.0.attn_output.weight"],
        layer + "mlp.fc.weight": stored["blk.0.ffn_gate.weight"],
        layer + "mlp.gate.weight": stored["blk.0.ffn_up.weight"],
        layer + "mlp.proj.weight": stored["blk.0.ffn_down.weight"],
        layer + "input_layernorm.weight": stored["blk.0.attn_norm.weight"],
    }
    for name, values in expected.items():
        assert (found[name].view(np.uint32) == values.view(np.uint32)).all(), name


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

# SPDX-License-Identifier: Apache-2.0
"""Directories of Medusa's heads: both file formats, the numbers of heads and who says them, and commands over what they make."""

import collections
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from command import ROOT, run
from safetensors_rows import header
from torch_writer import Storage, Tensor, dumps, write_zip

LLAMA = ROOT / "tests/golden/data/llama_gqa2"
HEADS = ROOT / "tests/golden/medusa/heads"  # three heads of two blocks
DTYPES = {"F32": np.float32, "I8": np.int8}


def load_file(path):
    """The tensors of a safetensors file."""
    tensors, data = header(path)
    return {
        name: np.frombuffer(data[slice(*tensor["data_offsets"])], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in tensors.items()
        if name != "__metadata__"
    }


def convert(heads, out, *flags, check=True):
    command = ["convert", "--model_dir", LLAMA, "--medusa_model_dir", heads, "--output_dir", out, "--dtype", "float32"]
    return run(*command, *flags, check=check)


def config(directory):
    return json.loads((directory / "config.json").read_text())


@pytest.fixture
def pickled(tmp_path):
    """The same heads as torch.save writes them."""
    state, storages = collections.OrderedDict(), {}
    for key, (name, array) in enumerate(load_file(HEADS / "medusa_lm_head.safetensors").items()):
        storages[str(key)] = np.ascontiguousarray(array).tobytes()
        state[name] = Tensor(Storage(str(key), "FloatStorage", array.size), array.shape)
    directory = tmp_path / "pickled"
    directory.mkdir()
    write_zip(directory / "medusa_lm_head.pt", dumps(state), storages)
    shutil.copy(HEADS / "config.json", directory)
    return directory


def test_a_pickled_file_converts_to_the_same_bytes(pickled, tmp_path):
    for name, heads in (("a", HEADS), ("b", pickled)):
        convert(heads, tmp_path / name)
    for name in ("config.json", "rank0.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    stored = load_file(tmp_path / "a/rank0.safetensors")
    given = load_file(HEADS / "medusa_lm_head.safetensors")
    assert np.array_equal(stored["medusa_heads.1.medusa_layers.0.linear.bias"], given["1.0.linear.bias"])
    assert np.array_equal(stored["medusa_heads.2.medusa_layers.1.linear.weight"], given["2.1.linear.weight"])
    assert np.array_equal(stored["medusa_heads.0.lm_head.weight"], given["0.2.weight"])


def test_the_guide_of_upstreams_example_runs(tmp_path):
    # NVIDIA/TensorRT-LLM/examples/medusa/README.md, with the names of this model and no GPU
    run("compat", "install", tmp_path / "layout")
    script = tmp_path / "layout/tensorrt_llm/examples/medusa/convert_checkpoint.py"
    flags = ["--model_dir", LLAMA, "--medusa_model_dir", HEADS, "--output_dir", tmp_path / "ckpt"]
    flags += ["--dtype", "float16", "--num_medusa_heads", 4]
    subprocess.run(list(map(str, [sys.executable, script, *flags])), check=True, timeout=60)
    build = ["build", "--checkpoint_dir", tmp_path / "ckpt", "--output_dir", tmp_path / "engine"]
    run(*build, "--gemm_plugin", "float16", "--speculative_decoding_mode", "medusa", "--max_batch_size", 4)
    said = config(tmp_path / "engine")
    assert (said["pretrained_config"]["dtype"], said["pretrained_config"]["num_medusa_heads"]) == ("float16", 3)
    assert said["build_config"]["speculative_decoding_mode"] == 4


def test_config_json_says_how_many_heads_there_are_and_a_fixed_number_goes_before(tmp_path):
    convert(HEADS, tmp_path / "own", "--num_medusa_heads", 2, "--num_medusa_layers", 1, "--max_medusa_token_len", 63)
    assert (config(tmp_path / "own")["num_medusa_heads"], config(tmp_path / "own")["num_medusa_layers"]) == (3, 2)
    done = convert(HEADS, tmp_path / "fixed", "--fixed_num_medusa_heads", 2)
    assert config(tmp_path / "fixed")["num_medusa_heads"] == 2
    assert "unexpected tensors are not used" in done.stderr
    silent = tmp_path / "silent"
    silent.mkdir()
    shutil.copy(HEADS / "medusa_lm_head.safetensors", silent)
    convert(silent, tmp_path / "told", "--num_medusa_heads", 3, "--num_medusa_layers", 2)
    assert (tmp_path / "told/rank0.safetensors").read_bytes() == (tmp_path / "own/rank0.safetensors").read_bytes()
    missing = convert(silent, tmp_path / "missing", check=False)  # four heads of one block
    assert missing.returncode == 1
    assert "medusa_lm_head" in missing.stderr


def test_run_answers_the_same_whoever_proposes(tmp_path):
    convert(HEADS, tmp_path / "ckpt")
    run("build", "--checkpoint-dir", tmp_path / "ckpt", "--output-dir", tmp_path / "engine")
    asked = tmp_path / "requests.jsonl"
    rules = [{}, {"temperature": 0.7, "top_k": 5, "random_seed": 3}, {"repetition_penalty": 1.2}]
    lines = [
        {"input_ids": [3, 5, 7, 3, 5, 7], "max_tokens": 40, "end_id": -1, "return_log_probs": True, **rule} for rule in rules
    ]
    asked.write_text("".join(json.dumps(line) + "\n" for line in lines))
    answers = {
        (model, how): run("run", tmp_path / model, "--input", asked, "--device", "cpu", "--speculation", how).stdout
        for model in ("ckpt", "engine")
        for how in ("none", "auto", "medusa", "ngram", "suffix")
    }
    assert len(set(answers.values())) == 1
    assert len(json.loads(answers["ckpt", "auto"].splitlines()[0])["output_ids"]) == 40


@pytest.mark.parametrize("changed", [{"architecture": "LlamaForCausalLM"}, {"num_medusa_heads": 0}, {"num_medusa_heads": 17}])
def test_a_checkpoint_whose_parts_disagree_is_refused(tmp_path, changed):
    convert(HEADS, tmp_path / "ckpt")
    said = config(tmp_path / "ckpt") | changed
    (tmp_path / "ckpt/config.json").write_text(json.dumps(said))
    done = run("inspect", tmp_path / "ckpt", check=False)
    assert done.returncode == 1
    assert "num_medusa_heads: got" in done.stderr


def test_medusa_of_a_model_without_heads_is_refused(tmp_path):
    (tmp_path / "requests.jsonl").write_text('{"input_ids": [3]}\n')
    command = ["run", LLAMA, "--device", "cpu", "--input", tmp_path / "requests.jsonl"]
    done = run(*command, "--speculation", "medusa", check=False)
    assert done.returncode == 1
    assert "speculation: got medusa, the model has no Medusa heads" in done.stderr


def test_weights_may_be_int8_beside_heads_that_are_not(tmp_path):
    convert(HEADS, tmp_path / "ckpt", "--use_weight_only")
    stored = load_file(tmp_path / "ckpt/rank0.safetensors")
    assert stored["transformer.layers.0.mlp.fc.weight"].dtype == np.int8
    assert stored["medusa_heads.0.lm_head.weight"].dtype == np.float32
    assert "LlamaForCausalLM" in run("inspect", tmp_path / "ckpt", "--device", "cpu").stdout

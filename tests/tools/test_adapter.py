# SPDX-License-Identifier: Apache-2.0
"""`inflight adapter` of adapters that peft saved with torch.save; those in safetensors are in tests/protocol/test_lora.py."""

import json
import shutil

import numpy as np
import pytest
from command import ROOT, run
from torch_writer import Storage, Tensor, dumps, write_zip

SOURCE = ROOT / "tests/golden/lora/llama_gqa2/q_v_1"


def tensors_of(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {name: (t["shape"], data[8 + size :][slice(*t["data_offsets"])]) for name, t in header.items()}


def write_torch(folder, tensors):
    values, storages = {}, {}
    for i, (name, (shape, data)) in enumerate(tensors.items()):
        values[name] = Tensor(Storage(str(i), "FloatStorage", len(data) // 4), shape)
        storages[str(i)] = data
    write_zip(folder / "adapter_model.bin", dumps(values), storages)


@pytest.fixture
def folder(tmp_path):
    shutil.copy(SOURCE / "adapter_config.json", tmp_path)
    return tmp_path


def test_a_torch_file_says_what_safetensors_say(folder):
    write_torch(folder, tensors_of(SOURCE / "adapter_model.safetensors"))
    run("adapter", "-i", folder, "-o", folder / "torch", "-t", "float32")
    run("adapter", "--in-file", SOURCE, "--out-dir", folder / "safetensors", "--storage_type", "float32")
    for name in ("model.lora_weights.npy", "model.lora_config.npy"):
        assert (np.load(folder / "torch" / name) == np.load(folder / "safetensors" / name)).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("base_model.model.lm_head.lora_A.weight", "adapters of lm_head are not supported"),
        ("base_model.model.model.embed_tokens.lora_embedding_A", "adapters of embeddings are not supported"),
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector.weight", "(DoRA) are not supported"),
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias", "adapter_config.json says no lora_bias"),
        ("base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias", "adapter_config.json says bias none"),
        ("base_model.model.transformer.h.0.ln_1.bias", "ln_1 is no linear that adapters are supported for (bias lora_only"),
        ("base_model.model.model.layers.0.mlp.router.lora_A.weight", "mlp.router is no linear that adapters are supported for"),
        ("base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight", "has no lora_B beside it"),
        ("base_model.model.model.norm.weight", "is no factor of an adapter"),
    ],
)
def test_other_tensors_are_refused_by_name(folder, name, message):
    tensors = tensors_of(SOURCE / "adapter_model.safetensors")
    write_torch(folder, {**tensors, name: next(iter(tensors.values()))})
    done = run("adapter", "-i", folder, "-o", folder / "out", check=False)
    assert done.returncode == 1
    assert message in done.stderr and name in done.stderr
    assert not (folder / "out").exists()


def test_a_folder_without_weights_is_told_so(folder):
    done = run("adapter", "-i", folder, "-o", folder / "out", check=False)
    assert "has neither adapter_model.safetensors nor adapter_model.bin" in done.stderr


@pytest.mark.parametrize("names", [("q_proj", "layers.0.self_attn.q_proj"), ("layers.0.self_attn.q_proj", "q_proj")])
def test_the_first_name_of_alpha_pattern_that_fits_counts(folder, names):
    """As in PEFT, whose dict keeps the file's order."""
    shutil.copy(SOURCE / "adapter_model.safetensors", folder)
    settings = json.loads((folder / "adapter_config.json").read_text())

    def factors(pattern):
        (folder / "adapter_config.json").write_text(json.dumps({**settings, "alpha_pattern": pattern}))
        shutil.rmtree(folder / "out", ignore_errors=True)
        run("adapter", "-i", folder, "-o", folder / "out", "-t", "float32")
        config = np.load(folder / "out/model.lora_config.npy").reshape(-1, 3)
        rows = np.load(folder / "out/model.lora_weights.npy").reshape(len(config), -1)
        return rows[(config[:, 0] == 1) & (config[:, 1] == 0)][0]  # q_proj of layer 0

    assert (factors({names[0]: 3, names[1]: 7}) == factors({names[0]: 3})).all()
    assert (factors({names[0]: 3}) != factors({names[0]: 7})).any()

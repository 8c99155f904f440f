#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves tiny random models and single tensors with torch.save, beside the same numbers as safetensors.

python tests/golden/torch/make_torch.py      needs torch (CPU), transformers, safetensors

data/MODEL/safetensors/      save_pretrained(safe_serialization=True): the reference
data/MODEL/zip/              save_pretrained(safe_serialization=False): pytorch_model.bin
data/MODEL/sharded/          the same with max_shard_size: shards and pytorch_model.bin.index.json
data/MODEL/legacy/           pytorch_model.bin as torch before 1.6 wrote it
data/forms/*.bin             state dicts of every dtype, stride, offset and pickle protocol that is read
data/forms/NAME.safetensors  the same tensors, each made contiguous by torch
data/refused/*.bin           what torch.save writes of things that are no state dict of dense tensors
data/about.json              seed and library versions
"""

import collections
import json
import pathlib
import shutil

import safetensors.torch
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

DATA = pathlib.Path(__file__).parent / "data"
SEED = 20240611


def llama():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=24,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=32,
            bos_token_id=1,
            eos_token_id=2,
        )
    ).to(torch.bfloat16)


def gpt2():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=24, n_embd=8, n_layer=2, n_head=1, n_positions=16, bos_token_id=0, eos_token_id=0)
    )


def save_legacy(value, path, **options):
    torch.save(value, path, _use_new_zipfile_serialization=False, **options)


def make_model(name, model, shard_size):
    model.save_pretrained(DATA / name / "safetensors", safe_serialization=True)
    model.save_pretrained(DATA / name / "zip", safe_serialization=False)
    model.save_pretrained(DATA / name / "sharded", safe_serialization=False, max_shard_size=shard_size)
    (DATA / name / "legacy").mkdir()
    shutil.copy(DATA / name / "zip/config.json", DATA / name / "legacy/config.json")
    save_legacy(model.state_dict(), DATA / name / "legacy/pytorch_model.bin")
    for generated in (DATA / name).glob("*/generation_config.json"):
        generated.unlink()


def forms():
    """name -> tensor; several share a storage."""
    base = torch.randn(6, 10)
    fused = torch.randn(12, 4).to(torch.bfloat16)
    return collections.OrderedDict(
        float32=torch.randn(2, 3),
        float16=torch.randn(3, 2).half(),
        bfloat16=torch.randn(5).bfloat16(),
        float64=torch.randn(2, 2, dtype=torch.float64),
        int8=torch.arange(-3, 4, dtype=torch.int8),
        uint8=torch.arange(7, dtype=torch.uint8),
        int16=torch.arange(-2, 3, dtype=torch.int16),
        int32=torch.arange(4, dtype=torch.int32),
        int64=torch.tensor([2**40, -5]),
        bool=torch.tensor([True, False, True]),
        scalar=torch.tensor(-1e4),
        empty=torch.empty(0, 3),
        five=torch.randn(2, 1, 2, 1, 3),
        whole=base,
        transposed=base.t(),
        columns=base[:, 3:7],
        rows=base[2:4],
        every_other=base[1::2, ::3],
        permuted=torch.randn(2, 3, 4).permute(2, 0, 1),
        row_of_one=base[5:6, 1:9:2],
        query=fused[:4],
        key=fused[4:8],
        value=fused[8:].t(),
        parameter=torch.nn.Parameter(torch.randn(3)),
        frozen=torch.nn.Parameter(torch.randn(2), requires_grad=False),
    )


def make_forms():
    (DATA / "forms").mkdir(parents=True)
    tensors = forms()
    torch.save(tensors, DATA / "forms/zip.bin")
    torch.save(dict(tensors), DATA / "forms/zip_protocol4.bin", pickle_protocol=4)
    torch.save(dict(tensors), DATA / "forms/zip_protocol5.bin", pickle_protocol=5)
    save_legacy(tensors, DATA / "forms/legacy.bin")
    save_legacy(tensors, DATA / "forms/legacy_protocol4.bin", pickle_protocol=4)
    safetensors.torch.save_file(
        {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, DATA / "forms/expected.safetensors"
    )


def make_refused():
    (DATA / "refused").mkdir(parents=True)
    tensor = torch.randn(2, 2)
    values = {
        "module": torch.nn.Linear(2, 2),
        "optimizer": torch.optim.Adam([torch.nn.Parameter(tensor)]).state_dict(),
        "training": {"model": {"w": tensor}, "epoch": 3},
        "number": {"w": tensor, "epoch": 3},
        "tensor": tensor,
        "list": [tensor],
        "sparse": {"w": tensor.to_sparse()},
        "complex": {"w": torch.complex(tensor, tensor)},
        "conjugate": {"w": torch.complex(tensor, tensor).conj()},
        "negative": {"w": torch.complex(tensor, tensor).conj().imag},
        "float8": {"w": tensor.to(torch.float8_e4m3fn)},
        "quantized": {"w": torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)},
        "expanded": {"w": torch.randn(1, 4).expand(5, 4)},
        "overlapping": {"w": torch.randn(9).as_strided((4, 3), (2, 1))},
        "six_dimensions": {"w": torch.randn(1, 1, 1, 1, 1, 2)},
        "numpy": {"w": tensor.numpy()},
        "path": {"w": pathlib.PurePosixPath("/etc")},
    }
    for name, value in values.items():
        torch.save(value, DATA / f"refused/{name}.bin")
    save_legacy(values["module"], DATA / "refused/legacy_module.bin")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), DATA / "refused/torchscript.bin")


def main():
    torch.manual_seed(SEED)
    shutil.rmtree(DATA, ignore_errors=True)
    make_forms()
    make_refused()
    make_model("llama", llama(), "2KB")
    make_model("gpt2", gpt2(), "5KB")
    about = {
        "seed": SEED,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "safetensors": safetensors.__version__,
    }
    (DATA / "about.json").write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes seeds/gguf/: files of version 2 and 3 with entries of each type, with packed tensors and with tokenizers.

pip install gguf==0.19.0 numpy && python3 tests/fuzz/make_gguf_seeds.py
"""

import pathlib
import shutil

import gguf
import numpy as np

SEEDS = pathlib.Path(__file__).parent / "seeds/gguf"


def write(name, fill):
    path = SEEDS / name
    writer = gguf.GGUFWriter(path, "llama")
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def entries(writer):
    for kind in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"):
        getattr(writer, f"add_{kind}")(kind, 3)
    writer.add_bool("flag", True)
    writer.add_array("texts", ["a", "bc"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("nested", [[1, 2], [3]])
    writer.add_custom_alignment(64)


def tensors(writer):
    writer.add_tensor("plain", np.arange(6, dtype=np.float32).reshape(2, 3))
    for name in ("Q4_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K", "IQ4_NL", "MXFP4"):
        kind = gguf.GGMLQuantizationType[name]
        blocks = np.full((1, gguf.GGML_QUANT_SIZES[kind][1]), 0x21, dtype=np.uint8)
        writer.add_tensor(name, blocks, raw_dtype=kind)


def byte_level(writer):
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(["a", "b", "ab", "<s>", "x"])
    writer.add_token_types([1, 1, 1, 3, 4])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(3)
    writer.add_add_bos_token(True)


def sentencepiece(writer):
    names = ["<unk>", "<s>", "\u2581", "a", "aa", "\n\n"] + [f"<0x{byte:02X}>" for byte in range(256)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(names)
    writer.add_token_scores([0.0, 0.0, -1.0, -2.0, -1.5, 0.0] + [0.0] * 256)
    writer.add_token_types([2, 3, 1, 1, 1, 4] + [6] * 256)
    writer.add_add_space_prefix(True)


def main():
    shutil.rmtree(SEEDS, ignore_errors=True)
    SEEDS.mkdir()
    write("entries", entries)
    older = write("tensors", tensors).read_bytes()
    (SEEDS / "version2").write_bytes(older[:4] + (2).to_bytes(4, "little") + older[8:])
    (SEEDS / "truncated").write_bytes(older[:-40])
    write("byte_level", byte_level)
    write("sentencepiece", sentencepiece)


if __name__ == "__main__":
    main()

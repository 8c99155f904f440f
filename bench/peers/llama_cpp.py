#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode and prefill of the Llama-3.2-1B shape on this machine's CPU beside llama.cpp, in turns.

usage: .venv/bin/python bench/peers/llama_cpp.py BIN_DIR WORK_DIR [--repeats 3] [--threads N] [--sequences 1,8,32]
                                                 [--cases bf16,int8,int4,q4_k_m]

BIN_DIR has the program `inflight`. WORK_DIR gets what is made once: llama.cpp, built for this machine from the source
package of llama-cpp-python on PyPI (pip, cmake and ninja are needed; 12 minutes on a core), and four GGUF files of
random weights, 5 GB. Both read the same files: BF16, Q8_0, Q4_0 whose embedding table, which is the head too, is Q6_K,
as llama.cpp's own quantiser leaves it, and the mix of Q4_K and Q6_K that it calls Q4_K_M. Beside int8 and int4 stand
weights of this program's own forms without groups, --use-weight-only with --quantize-lm-head.

A turn runs each side once; prompts of 32 tokens and 32 more of each sequence, then a prompt of 512. llama.cpp measures
with its own llama-batched-bench. Prints CSV: medians over the turns, 10th and 90th percentile, and the ratio of medians.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tarfile

VERSION = "0.3.36"  # of llama-cpp-python
HIDDEN, INNER, LAYERS, VOCAB, HEADS, KV_HEADS, HEAD_DIM = 2048, 8192, 16, 128256, 32, 8, 64
PROMPT, OUTPUT, LONG_PROMPT = 32, 32, 512
TOOL = "llama-batched-bench"


def build_llama(work):
    """The opponent's program."""
    built = work / "llama/bin" / TOOL
    if built.exists():
        return built
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python", "-d", work]
    subprocess.run([*pip, f"llama-cpp-python=={VERSION}"], check=True)
    name = f"llama_cpp_python-{VERSION}"
    with tarfile.open(work / f"{name}.tar.gz") as archive:
        archive.extractall(work, filter="data")
    options = {"CMAKE_BUILD_TYPE": "Release", "GGML_NATIVE": "ON", "BUILD_SHARED_LIBS": "OFF", "LLAMA_BUILD_TOOLS": "ON",
               "LLAMA_BUILD_COMMON": "ON", "LLAMA_BUILD_TESTS": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF",
               "LLAMA_BUILD_SERVER": "OFF", "LLAMA_BUILD_APP": "OFF", "LLAMA_OPENSSL": "OFF"}  # fmt: skip
    defines = [f"-D{key}={value}" for key, value in options.items()]
    subprocess.run(["cmake", "-S", work / name / "vendor/llama.cpp", "-B", work / "llama", "-G", "Ninja", *defines], check=True)
    subprocess.run(["ninja", "-C", work / "llama", TOOL], check=True)
    return built


def random_blocks(rng, kind, rows, columns):
    """Bytes of a matrix of that type whose numbers have the size of an untrained network's."""
    import gguf
    import numpy as np

    elements, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows, columns // elements, num_bytes), dtype=np.uint8)
    size = columns**-0.5

    def half(value):
        return np.frombuffer(np.float16(value).tobytes(), np.uint8)

    if kind == gguf.GGMLQuantizationType.BF16:
        numbers = (rng.standard_normal((rows, columns), dtype=np.float32) * size).view(np.uint32)
        return (numbers >> 16).astype(np.uint16).view(np.uint8)
    if kind == gguf.GGMLQuantizationType.Q4_0:
        blocks[..., :2] = half(size / 4.6)
    elif kind == gguf.GGMLQuantizationType.Q8_0:
        blocks[..., :2] = half(size / 74)
    elif kind == gguf.GGMLQuantizationType.Q4_K:
        blocks[..., 4:16] = 0x55 | blocks[..., 4:16] & 0x88  # scales and least values of 21 to 29, 37 to 61
        blocks[..., :2] = half(size / 4.6 / 32)
        blocks[..., 2:4] = half(size / 4.6 / 32 * 7.5)
    elif kind == gguf.GGMLQuantizationType.Q6_K:
        blocks[..., 192:208] = rng.integers(32, 64, blocks[..., 192:208].shape, dtype=np.uint8)
        blocks[..., 208:] = half(size / 18.5 / 48)
    return blocks.reshape(rows, -1)


def has_more_bits(layer):
    """Whether Q4_K_M has Q6_K for the layer's attn_v and ffn_down: the first and last eighth, and each third between."""
    eighth = LAYERS // 8
    return layer < eighth or layer >= 7 * LAYERS // 8 or (layer - eighth) % 3 == 2


def write_model(path, kind, table_kind):
    import gguf
    import numpy as np

    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    tokens = [f"t{i}" for i in range(VOCAB - 2)]
    writer.add_token_list([*tokens, "<s>", "</s>"])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * 2)
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(VOCAB - 2)
    writer.add_eos_token_id(VOCAB - 1)

    def add(name, rows, columns, of=kind):
        writer.add_tensor(name, random_blocks(rng, of, rows, columns), raw_dtype=of)

    add("token_embd.weight", VOCAB, HIDDEN, table_kind)
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{at}{norm}.weight", np.ones(HIDDEN, np.float32))
        add(f"{at}attn_q.weight", HEADS * HEAD_DIM, HIDDEN)
        add(f"{at}attn_k.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        some = gguf.GGMLQuantizationType.Q6_K if kind == gguf.GGMLQuantizationType.Q4_K and has_more_bits(layer) else kind
        add(f"{at}attn_v.weight", KV_HEADS * HEAD_DIM, HIDDEN, some)
        add(f"{at}attn_output.weight", HIDDEN, HEADS * HEAD_DIM)
        for branch in ("ffn_gate", "ffn_up"):
            add(f"{at}{branch}.weight", INNER, HIDDEN)
        add(f"{at}ffn_down.weight", HIDDEN, INNER, some)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_models(work):
    import gguf

    kinds = gguf.GGMLQuantizationType
    types = {"bf16": (kinds.BF16, kinds.BF16), "int8": (kinds.Q8_0, kinds.Q8_0), "int4": (kinds.Q4_0, kinds.Q6_K),
             "q4_k_m": (kinds.Q4_K, kinds.Q6_K)}  # fmt: skip
    paths = {case: work / f"{case}.gguf" for case in types}
    for case, path in paths.items():
        if not path.exists():
            write_model(path.with_suffix(".part"), *types[case])
            path.with_suffix(".part").rename(path)
    return paths


def inflight(program, model, threads, sequences):
    """Tokens a second by phase and number of sequences, and the limits that the program measured."""
    base = [program, "bench", *model, "--repeats", "1", "--threads", str(threads)]
    figures, limits = {}, ""
    for batch, prompt, output, phase in ((sequences, PROMPT, OUTPUT, "decode"), ("1", LONG_PROMPT, 2, "prefill")):
        done = subprocess.run([*base, "--batch", batch, "--input-len", str(prompt), "--output-len", str(output)],
                              capture_output=True, text=True, check=True)  # fmt: skip
        limits = next(line for line in done.stdout.splitlines() if line.startswith("# device"))
        for row in csv.DictReader(line for line in done.stdout.splitlines() if not line.startswith("#")):
            if row["phase"] == phase:
                figures[phase, int(row["sequences"])] = float(row["tokens_per_s"])
    return figures, limits


def llama(program, path, threads, sequences):
    base = [program, "-m", path, "-t", str(threads), "-tb", str(threads), "--output-format", "jsonl", "-ub", "512"]
    most = max(map(int, sequences.split(","))) * (PROMPT + OUTPUT)
    figures = {}
    for options, key, phase in (
        (["-c", str(most), "-npp", str(PROMPT), "-ntg", str(OUTPUT), "-npl", sequences], "speed_tg", "decode"),
        (["-c", "1024", "-npp", str(LONG_PROMPT), "-ntg", "1", "-npl", "1"], "speed_pp", "prefill"),
    ):
        done = subprocess.run([*base, *options], capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                figures[phase, row["pl"]] = row[key]
    return figures


def percentile(values, fraction):
    ordered = sorted(values)
    return ordered[round(fraction * (len(ordered) - 1))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("work_dir", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sequences", default="1,8,32")
    parser.add_argument("--cases", default="bf16,int8,int4,q4_k_m")
    args = parser.parse_args()
    args.work_dir.mkdir(parents=True, exist_ok=True)
    opponent = build_llama(args.work_dir)
    paths = write_models(args.work_dir)
    ours = args.bin_dir / "inflight"
    own = ["--shape", "llama-3.2-1b", "--quantize-lm-head", "--use-weight-only", "--weight-only-precision"]
    print(f"# llama.cpp of llama-cpp-python {VERSION}; load average {os.getloadavg()[0]:.1f}", flush=True)
    print("case,phase,sequences,side,tokens_per_s,p10,p90,of_llama_cpp")
    for case in args.cases.split(","):
        sides = {"inflight": [paths[case]]}
        if case in ("int8", "int4"):
            sides["inflight_own_form"] = [*own, case]
        found = {}
        for _ in range(args.repeats):
            for side, model in sides.items():
                figures, limits = inflight(ours, model, args.threads, args.sequences)
                print(limits, flush=True)
                for key, value in figures.items():
                    found.setdefault(key, {}).setdefault(side, []).append(value)
            for key, value in llama(opponent, paths[case], args.threads, args.sequences).items():
                found.setdefault(key, {}).setdefault("llama.cpp", []).append(value)
        for (phase, sequences), by_side in found.items():
            theirs = statistics.median(by_side["llama.cpp"])
            for side, values in by_side.items():
                median = statistics.median(values)
                spread = f"{percentile(values, 0.1):.1f},{percentile(values, 0.9):.1f}"
                print(f"{case},{phase},{sequences},{side},{median:.1f},{spread},{median / theirs:.2f}", flush=True)


if __name__ == "__main__":
    main()

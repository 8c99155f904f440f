#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What loading adapters costs those who are being answered: time between their tokens, with and without.

usage: INFLIGHT_BIN_DIR=build/release/bin bench/load/adapter_loading.py MODEL [--streams 4] [--every 0.5] [--seconds 20]

MODEL is a Hugging Face directory with a tokenizer. A server with --lora-dir streams answers to --streams clients, in turns
undisturbed and while another client asks for an adapter by name that nobody used before, one --every so many seconds, for one
token. Prints the time between two tokens of a stream, median and 99th percentile, in milliseconds, of both.
"""

import argparse
import json
import os
import pathlib
import struct
import sys
import tempfile
import threading
import time

import numpy as np
import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/protocol"))
os.environ.setdefault("INFLIGHT_BIN_DIR", str(ROOT / "build/release/bin"))

from live_server import start_server  # noqa: E402
from served_and_offline import cpu_name  # noqa: E402

MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def shapes(config):
    """Output and input features of each module."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    sizes = (
        (queries, hidden),
        (keys, hidden),
        (keys, hidden),
        (hidden, queries),
        (inner, hidden),
        (inner, hidden),
        (hidden, inner),
    )
    return dict(zip(MODULES, sizes, strict=True))


def write_adapter(folder, config, rank, seed):
    """A folder as peft saves it, float32, of small random weights."""
    random = np.random.default_rng(seed)
    header, data, offset = {}, [], 0
    for layer in range(config["num_hidden_layers"]):
        for module, (rows, columns) in shapes(config).items():
            block = "self_attn" if module in MODULES[:4] else "mlp"
            for part, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                values = (random.random(shape, dtype=np.float32) - 0.5) * 0.01
                name = f"base_model.model.model.layers.{layer}.{block}.{module}.lora_{part}.weight"
                header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + values.nbytes]}
                data.append(values.tobytes())
                offset += values.nbytes
    text = json.dumps(header).encode()
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": list(MODULES), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return offset


def read_stream(url, stop, gaps):
    session = requests.Session()
    while not stop.is_set():
        body = {"text_input": "Once upon a time", "max_tokens": 200, "stream": True, "temperature": 1.0, "top_k": 50}
        last = None
        with session.post(url + "generate_stream", json=body, stream=True, timeout=60) as answer:
            for line in answer.iter_lines(chunk_size=1):
                if not line:
                    continue
                now = time.monotonic()
                if last is not None and not stop.is_set():
                    gaps.append((now - last) * 1000)
                last = now


def measure(url, args, names):
    """Gaps of all streams; `names` are asked for meanwhile. Also how many adapters were."""
    stop, gaps, used = threading.Event(), [], 0
    streams = [threading.Thread(target=read_stream, args=(url, stop, gaps)) for _ in range(args.streams)]
    for stream in streams:
        stream.start()
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        time.sleep(args.every)
        if names:
            body = {"text_input": "Once", "max_tokens": 1, "lora_name": names.pop()}
            requests.post(url + "generate", json=body, timeout=60).raise_for_status()
            used += 1
    stop.set()
    for stream in streams:
        stream.join()
    return np.array(gaps), used


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--every", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    config = json.loads((args.model / "config.json").read_text())
    count = int(args.seconds / args.every + 1) * args.repeats
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for i in range(count):
            num_bytes = write_adapter(folder / f"adapters/a{i}", config, args.rank, i)
        names = [f"a{i}" for i in range(count)]
        print(
            f"# {cpu_name()}, {os.cpu_count()} threads; {count} adapters of {num_bytes / 2**20:.1f} MiB; {args.streams} streams"
        )
        server = start_server(folder, args.model, "--lora-dir", folder / "adapters")
        url = f"http://{server.http}/v2/models/ensemble/"
        print("repeat,adapters,gaps,median_ms,p99_ms,largest_ms")
        for repeat in range(args.repeats):
            for wanted in ([], names[repeat :: args.repeats]):
                gaps, used = measure(url, args, wanted)
                p50, p99 = np.percentile(gaps, (50, 99))
                print(f"{repeat},{used},{len(gaps)},{p50:.2f},{p99:.2f},{gaps.max():.1f}", flush=True)
        server.stop()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time that a streamed event of /v1/chat/completions takes the server, ours and llama.cpp's, by one client in
turns.

usage: .venv/bin/python bench/front_end/chat_beside_llama.py BUILD_DIR [--streams 64 1024] [--repeats 3] [--seconds 4]

BUILD_DIR has bin/front_end_chat_server (preset `bench`): our front end over a model without weights. llama.cpp's server
is that of the package xllamacpp, which has its native code (`pip install xllamacpp`); its model has one layer of 64 and
512 tokens, and says the same word at each step. It has 256 slots at most; what is more waits. What that model takes
itself is told by whole answers, which have the same tokens and no events. Prints CSV: medians, and (largest - smallest)
/ median.
"""

import argparse
import json
import os
import pathlib
import selectors
import socket
import statistics
import sys
import tempfile
import time

from server_process import cpu_seconds, start

ROOT = pathlib.Path(__file__).resolve().parents[2]
PORT, WARMUP_S = 18400, 1
NUM_TOKENS, MOST_SLOTS, SLOT_TOKENS = 200, 256, 512
HIDDEN, VOCAB = 64, 512
WHOLE_END, STREAM_END = b'"usage"', b"[DONE]"


def write_model(path):
    """A Llama of one layer that adds nothing; whatever comes, the token of one word is the likeliest that follows."""
    import gguf
    import numpy as np

    tokenizer = json.loads((ROOT / "models/demo/tokenizer.json").read_text())["model"]
    tokens = [t for t, _ in sorted(tokenizer["vocab"].items(), key=lambda row: row[1])][: VOCAB - 2]
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["merges"]]
    known = set(tokens)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*tokens, "<s>", "</s>"])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * 2)
    writer.add_token_merges([m for m in merges if m.replace(" ", "") in known])
    writer.add_bos_token_id(VOCAB - 2)
    writer.add_eos_token_id(VOCAB - 1)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    word = next(i for i, t in enumerate(tokens) if t.startswith("Ġ") and len(t) >= 4)
    embedding = np.random.default_rng(0).choice([-1.0, 1.0], (VOCAB, HIDDEN)).astype("f4")
    embedding[:, 0] = 4
    head = np.zeros((VOCAB, HIDDEN), "f4")
    head[word, 0] = 50
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output.weight", head)
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, "f4"))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((HIDDEN, HIDDEN), "f4"))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.ones(HIDDEN, "f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def serve_llama(model, slots):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.port, params.hostnames = model, PORT, ["127.0.0.1"]
    params.n_parallel, params.n_ctx, params.n_gpu_layers = slots, SLOT_TOKENS * slots, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_threads_http, params.verbosity = slots + 8, -1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(1)


def measure(pid, streams, seconds, is_stream):
    """(microseconds of the server for an event, or for a token of whole answers; how many a second)"""
    body = {"messages": [{"role": "user", "content": "word"}], "stream": is_stream, "max_tokens": NUM_TOKENS}
    body = json.dumps(body).encode()
    fields = f"Host: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head = f"POST /v1/chat/completions HTTP/1.1\r\n{fields}\r\n"
    end = STREAM_END if is_stream else WHOLE_END
    selector = selectors.DefaultSelector()

    def ask():
        connection = socket.create_connection(("127.0.0.1", PORT))
        connection.sendall(head.encode() + body)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)

    for _ in range(streams):
        ask()
    began, count, cpu = time.monotonic() + WARMUP_S, 0, None
    while (now := time.monotonic()) < began + seconds:
        if cpu is None and now >= began:
            count, cpu = 0, cpu_seconds(pid)
        for key, _ in selector.select(0.1):
            try:
                data = key.fileobj.recv(262144)
            except (BlockingIOError, ConnectionResetError):
                data = b""
            count += data.count(b"\n\n") if is_stream else NUM_TOKENS * data.count(WHOLE_END)
            if not data or end in data:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                ask()
    cpu = cpu_seconds(pid) - cpu
    for key in list(selector.get_map().values()):
        key.fileobj.close()
    return cpu / max(count, 1) * 1e6, count / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--llama", metavar="MODEL", help=argparse.SUPPRESS)  # this process is that server
    args = parser.parse_args()
    if args.llama:
        return serve_llama(args.llama, args.streams[0])
    work = pathlib.Path(tempfile.mkdtemp(prefix="chat_"))
    model = work / "one_layer.gguf"
    write_model(model)
    cpu = next(line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    print(f"# {cpu.split(': ')[1]}, {os.cpu_count()} cores shared with the client, {args.repeats} repeats in turns")
    print("server,streams,answers,server_us_per_event_or_token,spread,events_or_tokens_per_s")
    for streams in args.streams:
        slots = min(streams, MOST_SLOTS)
        ours = [args.build.resolve() / "bin/front_end_chat_server", PORT, ROOT / "models/demo"]
        theirs = [sys.executable, __file__, args.build, "--llama", model, "--streams", slots]
        rows = {}
        for _ in range(args.repeats):
            for name, command, kinds in (("inflight", ours, (True,)), ("llama.cpp", theirs, (True, False))):
                for is_stream in kinds:
                    with open(work / f"{name}.log", "ab") as log:
                        process = start(command, {}, log, f"http://127.0.0.1:{PORT}/health")
                        of = measure(process.pid, streams if is_stream else slots, args.seconds, is_stream)
                        rows.setdefault((name, "events" if is_stream else "whole"), []).append(of)
                        process.kill()
                        process.wait()
        for (name, kind), runs in rows.items():
            costs = [cost for cost, _ in runs]
            median = statistics.median(costs)
            rate = statistics.median(r for _, r in runs)
            print(f"{name},{streams},{kind},{median:.2f},{(max(costs) - min(costs)) / median:.2f},{rate:.0f}", flush=True)


if __name__ == "__main__":
    main()

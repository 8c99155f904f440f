# SPDX-License-Identifier: Apache-2.0
"""Scores the demo model on held-out questions: greedy, and an answer counts only if every character is right.

    python models/demo/score.py                                # with torch and transformers: 200 questions a category
    python models/demo/score.py --write-heldout                # makes heldout.jsonl (25 a category) and heldout_text.jsonl;
                                                               # needs no library

    python models/demo/score.py --write-requests requests.jsonl
    build/release/bin/inflight run models/demo --input requests.jsonl --output answers.jsonl
    python models/demo/score.py --answers answers.jsonl        # scores Inflight's answers; needs no library

Exits non-zero when a category scores below 90 %.
"""

import argparse
import json
import random
import sys
from collections import defaultdict
from pathlib import Path

import corpus
import stories

HERE = Path(__file__).resolve().parent
GOAL_PERCENT = 90


def table(rows: list[dict], answers: list[str], num_shown: int = 20) -> bool:
    """Prints the score of each category and the wrong answers; true if each reaches the goal."""
    right, asked, wrong = defaultdict(int), defaultdict(int), []
    for row, answer in zip(rows, answers, strict=True):
        asked[row["category"]] += 1
        right[row["category"]] += answer == row["expected"]
        if answer != row["expected"]:
            wrong.append(f"  {row['category']} / {row['form']}: {row['text_input']!r}")
            wrong.append(f"    expected {row['expected']!r}\n    got      {answer!r}")
    for line in wrong[:2 * num_shown]:
        print(line)
    print("| category | questions | exact | percent |\n|---|---|---|---|")
    for category in asked:
        print(f"| {category} | {asked[category]} | {right[category]} | {100 * right[category] / asked[category]:.1f} |")
    print(f"| all | {len(rows)} | {sum(right.values())} | {100 * sum(right.values()) / len(rows):.1f} |", flush=True)
    return all(100 * right[c] >= GOAL_PERCENT * asked[c] for c in asked)


def generate(model, tokenizer, prompts: list[str], max_tokens: int, device: str) -> list[tuple[str, bool]]:
    """Greedy texts, and whether each came to its end. Prompts of one length go together, so nothing is padded."""
    import torch
    groups = defaultdict(list)
    for i, prompt in enumerate(prompts):
        ids = tokenizer.encode(prompt).ids
        groups[len(ids)].append((i, ids))
    texts: list = [None] * len(prompts)
    ends = set(model.generation_config.eos_token_id)
    for group in groups.values():
        ids = torch.tensor([ids for _, ids in group], device=device)
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False)
        for (i, _), row in zip(group, out[:, ids.shape[1]:].tolist(), strict=True):
            length = next((n for n, token in enumerate(row) if token in ends), None)
            texts[i] = tokenizer.decode(row[:length]), length is not None
    return texts


def quick(model, tokenizer, rows: list[dict]) -> str:
    """Percent exact during training, by one forward pass: greedy is exact if each expected token is the likeliest there."""
    import torch
    right, asked = defaultdict(int), defaultdict(int)
    model.eval()
    for first in range(0, len(rows), 64):
        chunk = rows[first:first + 64]
        prompts = [tokenizer.encode(row["text_input"]).ids for row in chunk]
        replies = [tokenizer.encode(row["expected"] + (corpus.EOT if row["form"] == "chat" else corpus.END),
                                    add_special_tokens=False).ids
                   for row in chunk]
        longest = max(len(p) + len(r) for p, r in zip(prompts, replies, strict=True))
        ids = torch.tensor([p + r + [0] * (longest - len(p) - len(r)) for p, r in zip(prompts, replies, strict=True)])
        with torch.no_grad():
            best = model(input_ids=ids.to(model.device), use_cache=False).logits.argmax(-1).cpu()
        for row, p, r, b in zip(chunk, prompts, replies, best, strict=True):
            asked[row["category"]] += 1
            right[row["category"]] += b[len(p) - 1:len(p) + len(r) - 1].tolist() == r
    model.train()
    return "exact % " + ", ".join(f"{c} {100 * right[c] // asked[c]}" for c in asked)


def held_out_text(rows: list[dict]) -> list[dict]:
    """What perplexity is measured over: replies after their questions, and whole stories."""
    rng = random.Random(f"{corpus.SEED}/held-out/text")
    told = [{"text_input": "", "expected": stories.story(rng)[0]} for _ in range(40)]
    return [{key: row[key] for key in ("text_input", "expected")} for row in rows[::2]] + told


def story_prompts(count: int) -> list[tuple[str, str]]:
    """Requests for stories and beginnings of stories, with the form of each."""
    rng = random.Random(f"{corpus.SEED}/stories")
    prompts = []
    for i in range(count):
        if i % 2 == 0:
            request = stories.request(rng)[0]
            prompts.append(("chat", corpus.prompt_of("chat", request)))
        else:
            words = stories.story(rng)[0].split(" ")
            prompts.append(("begun", " ".join(words[:rng.randint(4, 12)])))
    return prompts


def is_sensible(story: str) -> bool:
    """Whether a story keeps to its people: who is named at the start is there at the end, and at most two are named at all."""
    names = {name for group in stories.NAMES.values() for name in group}
    spoken = [word for word in "".join(c if c.isalpha() else " " for c in story).split() if word in names]
    sentences = story.count(".") + story.count("?") + story.count("!")
    last = story.rstrip(' ."').rsplit(".", 2)[-2:]
    return len(set(spoken)) in (1, 2) and 6 <= sentences <= 20 and any(spoken[0] in part for part in last)


def report_transformers(folder: Path, per_category: int, device: str, dtype: str = "float32") -> bool:
    import torch
    from tokenizers import Tokenizer
    from transformers import LlamaForCausalLM
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = LlamaForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()
    rows = corpus.held_out_set(per_category)
    print(f"{len(rows)} held-out questions, {dtype}, greedy", flush=True)
    replies = generate(model, tokenizer, [row["text_input"] for row in rows], max_tokens=60, device=device)
    is_good = table(rows, [text if is_ended else text + " (no end)" for text, is_ended in replies])
    prompts = story_prompts(24)
    told = generate(model, tokenizer, [prompt for _, prompt in prompts], max_tokens=300, device=device)
    good = sum(is_ended and is_sensible((prompt if form == "begun" else "") + text)
               for (form, prompt), (text, is_ended) in zip(prompts, told, strict=True))
    print(f"stories that end and keep to their people: {good} of {len(prompts)}\n")
    for (_, prompt), (text, _) in list(zip(prompts, told, strict=True))[:4]:
        print(f"{prompt!r} ->\n  {text!r}")
    return is_good


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=HERE)
    parser.add_argument("--questions", type=int, default=200, help="per category")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write-requests", type=Path, help="write heldout.jsonl for `inflight run --input` and stop")
    parser.add_argument("--answers", type=Path, help="score these answers of `inflight run` to heldout.jsonl instead")
    parser.add_argument("--write-heldout", action="store_true", help="write heldout.jsonl and heldout_text.jsonl and stop")
    args = parser.parse_args()
    heldout = HERE / "heldout.jsonl"
    if args.write_heldout:
        rows = corpus.held_out_set(25)
        write_lines(heldout, [{**row, "max_tokens": 60} for row in rows])
        write_lines(HERE / "heldout_text.jsonl", held_out_text(rows))
    elif args.write_requests:
        write_lines(args.write_requests, [{key: row[key] for key in ("text_input", "max_tokens")} for row in read_lines(heldout)])
    elif args.answers:
        rows = read_lines(heldout)
        answers = [answer.get("text_output") for answer in read_lines(args.answers)]
        if len(answers) != len(rows):
            sys.exit(f"{args.answers}: {len(answers)} answers to {len(rows)} questions")
        sys.exit(not table(rows, answers))
    else:
        sys.exit(not report_transformers(args.model, args.questions, args.device, args.dtype))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden data of Medusa (arXiv:2401.10774): heads of a model of data/, and what transformers says with them.

    python tests/golden/make_medusa_golden.py      needs torch (CPU), transformers, safetensors

    medusa/heads/               as the training of FasterDecoding/Medusa leaves them: config.json and
                                medusa_lm_head.safetensors, trained here for a few seconds on what the model says
    medusa/reference.safetensors
        prompt     [n] int64                  token ids
        greedy     [m] int64                  what greedy decoding appends, one token at a time
        positions  [p] int64                  of prompt and greedy, whose heads' logits are kept
        logits     [p, heads, vocab] float32
        known      [s] int64                  tokens known before each step of decoding with the tree, prompt included
        drafts     [s, nodes] int64           the tree's tokens in that step
        accepted   [s] int64                  how many of them it accepts

The tree is FasterDecoding/Medusa/medusa/model/medusa_choices.py, mc_sim_7b_63, without the paths that are deeper than
there are heads. Each step is one forward pass over everything known and the tree behind it, with a four-dimensional
mask and the positions of the nodes' depths; the walk takes the best token of its logits. What it decodes must be what
greedy decoding says. Prompts are drawn until the candidates of each head differ by MIN_GAP and the two best logits of
each token by MIN_TOKEN_GAP.
"""

import json
import pathlib
import re

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE / "data/llama_gqa2"
OUT = HERE / "medusa"
NUM_HEADS, NUM_LAYERS, NUM_CHOICES = 3, 2, 10
PROMPT_LENGTH, NUM_TOKENS = 23, 48
POSITIONS = [0, 1, 22, 23, 40, 69]
MIN_GAP, MIN_TOKEN_GAP = 2e-4, 1e-3
TRAINING_STEPS, SEED = 400, 7


def tree_paths():
    """The default tree, as the paths of the list that draft_tree.cc has from upstream."""
    source = (HERE.parents[1] / "src/decoding/draft_tree.cc").read_text()
    text = source[source.index("paths = {") : source.index("clang-format on")]
    paths = [tuple(map(int, match.split(","))) for match in re.findall(r"\{([\d, ]+)\}", text)]
    assert len(paths) == 63, len(paths)
    return [path for path in paths if len(path) <= NUM_HEADS]


class Block(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)
        torch.nn.init.zeros_(self.linear.weight)

    def forward(self, x):
        return x + torch.nn.functional.silu(self.linear(x))


def make_heads(model):
    size, vocab = model.config.hidden_size, model.config.vocab_size
    heads = torch.nn.ModuleList(
        torch.nn.Sequential(*[Block(size) for _ in range(NUM_LAYERS)], torch.nn.Linear(size, vocab, bias=False))
        for _ in range(NUM_HEADS)
    )
    for head in heads:
        head[-1].weight.data.copy_(model.lm_head.weight.data)
    return heads


def states_of(model, ids):
    return model.model(input_ids=ids).last_hidden_state


def train(model, heads):
    """On what the model itself says behind random prompts."""
    prompts = torch.randint(3, model.config.vocab_size, (64, 8))
    said = model.generate(prompts, max_new_tokens=96, do_sample=False, eos_token_id=None, pad_token_id=0)
    with torch.no_grad():
        states = states_of(model, said)
    optimizer = torch.optim.Adam(heads.parameters(), lr=2e-3)
    for _ in range(TRAINING_STEPS):
        loss = 0
        for h, head in enumerate(heads):
            logits = head(states[:, 8 : -(h + 2)])
            loss = loss + torch.nn.functional.cross_entropy(logits.flatten(0, 1), said[:, 8 + h + 2 :].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def tree_logits(model, known, paths, drafts):
    """Logits of the root and of each node: row i of the mask sees the text, the root and its ancestors."""
    n, size = len(known), len(known) + len(paths)
    visible = torch.tril(torch.ones(size, size, dtype=torch.bool))
    positions = list(range(n))
    for i, path in enumerate(paths):
        visible[n + i, n:] = False
        for depth in range(1, len(path) + 1):
            visible[n + i, n + paths.index(path[:depth])] = True
        positions.append(n - 1 + len(path))
    mask = torch.zeros(1, 1, size, size).masked_fill(~visible, torch.finfo(torch.float32).min)
    ids = torch.tensor([[*known, *drafts]])
    return model(input_ids=ids, attention_mask=mask, position_ids=torch.tensor([positions])).logits[0, n - 1 :]


@torch.no_grad()
def decode(model, heads, paths, prompt, greedy):
    """Steps with the tree; None where two candidates are nearly equal."""
    known, steps = [*prompt, greedy[0]], []
    while len(known) + NUM_HEADS + 1 < PROMPT_LENGTH + NUM_TOKENS:
        state = states_of(model, torch.tensor([known]))[0, len(known) - 2]
        best = [torch.topk(head(state), NUM_CHOICES + 1) for head in heads]
        if min(float(-b.values.diff().max()) for b in best) < MIN_GAP:
            return None
        drafts = [int(best[len(path) - 1].indices[path[-1]]) for path in paths]
        logits = tree_logits(model, known, paths, drafts)
        node, path, said = 0, (), []
        while True:
            said.append(int(logits[node].argmax()))
            children = [i for i, p in enumerate(paths) if p[:-1] == path and drafts[i] == said[-1]]
            if not children:
                break
            node, path = children[0] + 1, paths[children[0]]
        steps.append((len(known), drafts, len(said) - 1))
        known += said
    assert known == [*prompt, *greedy][: len(known)], "tree decoding says something else"
    return steps


@torch.no_grad()
def plain(model, prompt, num_tokens):
    """What greedy decoding says, and the smallest gap between two best logits."""
    known, gap = list(prompt), float("inf")
    for _ in range(num_tokens):
        best = torch.topk(model(input_ids=torch.tensor([known])).logits[0, -1], 2)
        gap = min(gap, float(best.values[0] - best.values[1]))
        known.append(int(best.indices[0]))
    return known[len(prompt) :], gap


def main():
    torch.manual_seed(SEED)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    heads = make_heads(model)
    loss = train(model, heads)
    paths = tree_paths()
    steps, attempts = None, 0
    while steps is None:
        attempts += 1
        prompt = torch.randint(3, model.config.vocab_size, (PROMPT_LENGTH,)).tolist()
        greedy, gap = plain(model, prompt, NUM_TOKENS)
        steps = decode(model, heads, paths, prompt, greedy) if gap >= MIN_TOKEN_GAP else None
    with torch.no_grad():
        states = states_of(model, torch.tensor([prompt + greedy]))[0, POSITIONS]
        logits = torch.stack([head(states) for head in heads], dim=1)
    (OUT / "heads").mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().contiguous() for name, tensor in heads.state_dict().items()}
    safetensors.torch.save_file(weights, OUT / "heads/medusa_lm_head.safetensors")
    numbers = {"medusa_num_heads": NUM_HEADS, "medusa_num_layers": NUM_LAYERS, "base_model_name_or_path": MODEL.name}
    (OUT / "heads/config.json").write_text(json.dumps(numbers, indent=1) + "\n")
    reference = {
        "prompt": torch.tensor(prompt),
        "greedy": torch.tensor(greedy),
        "positions": torch.tensor(POSITIONS),
        "logits": logits.contiguous(),
        "known": torch.tensor([step[0] for step in steps]),
        "drafts": torch.tensor([step[1] for step in steps]),
        "accepted": torch.tensor([step[2] for step in steps]),
    }
    safetensors.torch.save_file(reference, OUT / "reference.safetensors")
    about = {
        "seed": SEED,
        "attempts": attempts,
        "loss": round(loss, 4),
        "tokens_per_step": round(1 + sum(step[2] for step in steps) / len(steps), 3),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "command": "python tests/golden/make_medusa_golden.py",
    }
    (OUT / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    print(about, reference["accepted"].tolist())


if __name__ == "__main__":
    main()

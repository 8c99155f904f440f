#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden data of EAGLE (arXiv:2401.15077, arXiv:2503.01840): a head of each version, and what PyTorch says with it.

    python tests/golden/make_eagle_golden.py      needs torch (CPU), transformers, safetensors

    eagle/v1/, eagle/v3/        heads of the demo model as SafeAILab/EAGLE publishes them: config.json and
                                pytorch_model.bin (version 1) or model.safetensors (3), in bfloat16, trained here for a few
                                minutes on what the model says
    eagle/v1.safetensors, eagle/v3.safetensors
        prompt     [n] int64                  token ids
        greedy     [m] int64                  what greedy decoding appends, one token at a time
        positions  [p] int64                  of prompt and greedy: pairs of that token and the next, whose logits are kept
        logits     [p, draft_vocab] float32
        parents    [nodes] int64              the tree: of each node its parent (-1: the root) and its choice
        choices    [nodes] int64
        known      [s] int64                  tokens known before each step of decoding with the tree, prompt included
        drafts     [s, nodes] int64           the tree's tokens in that step
        accepted   [s] int64                  how many of them it accepts

The heads are written after the layouts of SafeAILab/EAGLE/eagle/model/cnets1.py and cnets.py. Version 1 reads the states
behind the final norm, version 3 what enters layers 2, n / 2 and n - 3. A step's tree is computed a depth at a time, each
time as one pass over everything known and the nodes so far, with a four-dimensional mask. What is decoded must be what
greedy decoding says. Prompts are drawn until the candidates behind each node differ by MIN_GAP and the two best logits
of each token by MIN_TOKEN_GAP.
"""

import json
import pathlib

import safetensors.torch
import torch
import transformers
from make_medusa_golden import plain
from transformers.models.llama import modeling_llama as llama

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parents[1] / "models/demo"
OUT = HERE / "eagle"
DRAFT_VOCAB = 256
NUM_NODES, MAX_DEPTH = 31, 6
RIGHT, NEXT = 0.6, 0.5  # of the best choice, and of each one after it
PROMPT_LENGTH, NUM_TOKENS = 23, 40
POSITIONS = [0, 1, 5, 21, 22, 23, 40, 61]
MIN_GAP, MIN_TOKEN_GAP = 5e-4, 1e-3
NUM_TEXTS, TEXT_LENGTH, TEMPERATURE = 384, 56, 0.7
TRAINING_STEPS, BATCH, RATE, SEED = 500, 16, 3e-3, 5


class Head(torch.nn.Module):
    """One layer; `version` says what it reads and whose lm_head it has."""

    def __init__(self, version, model, config):
        super().__init__()
        self.version, self.config = version, config
        size, width = config.hidden_size, config.hidden_size * (1 if version == 1 else 2)
        linear = torch.nn.Linear
        self.fc = linear(size * (2 if version == 1 else 3), size, bias=version == 1)
        layer = torch.nn.Module()
        layer.self_attn = torch.nn.Module()
        heads, kv_heads = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        layer.self_attn.q_proj = linear(width, heads, bias=False)
        layer.self_attn.k_proj = linear(width, kv_heads, bias=False)
        layer.self_attn.v_proj = linear(width, kv_heads, bias=False)
        layer.self_attn.o_proj = linear(heads, size, bias=False)
        layer.mlp = llama.LlamaMLP(config)
        layer.post_attention_layernorm = llama.LlamaRMSNorm(size, eps=config.rms_norm_eps)
        if version == 1:
            self.layers = torch.nn.ModuleList([layer])
            self.head = model.lm_head.weight.detach()
        else:
            layer.input_layernorm = llama.LlamaRMSNorm(size, eps=config.rms_norm_eps)
            layer.hidden_norm = llama.LlamaRMSNorm(size, eps=config.rms_norm_eps)
            self.midlayer = layer
            self.norm = llama.LlamaRMSNorm(size, eps=config.rms_norm_eps)
            self.lm_head = linear(size, config.draft_vocab_size, bias=False)
        self.table = model.model.embed_tokens.weight.detach()
        self.rotary = llama.LlamaRotaryEmbedding(config)

    def read(self, features):
        """What `states` takes of the model's features: of version 3 they are projected first."""
        return features if self.version == 1 else self.fc(features)

    def states(self, ids, features, positions, visible):
        """Of pairs ids, features [batch, n, ...]; visible [n, n] says what each attends to."""
        layer = self.layers[0] if self.version == 1 else self.midlayer
        embedded = self.table[ids]
        if self.version == 1:
            residual = x = self.fc(torch.cat([embedded, features], -1))
        else:
            residual = features
            x = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(features)], -1)

        def split(projected, count):
            return projected.unflatten(-1, (count, self.config.head_dim)).transpose(1, 2)

        attention = layer.self_attn
        q = split(attention.q_proj(x), self.config.num_attention_heads)
        k = split(attention.k_proj(x), self.config.num_key_value_heads)
        v = split(attention.v_proj(x), self.config.num_key_value_heads)
        q, k = llama.apply_rotary_pos_emb(q, k, *self.rotary(x, positions[None]))
        groups = self.config.num_attention_heads // self.config.num_key_value_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = (q @ k.transpose(-1, -2)) * self.config.head_dim**-0.5
        weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
        residual = residual + attention.o_proj((weights @ v).transpose(1, 2).flatten(2))
        return residual + layer.mlp(layer.post_attention_layernorm(residual))

    def logits(self, states):
        return states @ self.head.T if self.version == 1 else self.lm_head(self.norm(states))


def causal(n):
    return torch.tril(torch.ones(n, n, dtype=torch.bool))


def read_model(model, version, ids):
    """Features and logits of every token of ids [batch, n]."""
    out = model(input_ids=ids, output_hidden_states=True)
    n = model.config.num_hidden_layers
    kept = [out.hidden_states[-1]] if version == 1 else [out.hidden_states[i] for i in (2, n // 2, n - 3)]
    return torch.cat(kept, -1), out.logits


@torch.no_grad()
def texts(model):
    """What the model says behind two tokens, like the prompts of speculation_test.cc."""
    prompts = torch.randint(3, model.config.vocab_size, (NUM_TEXTS, 2))
    return model.generate(
        prompts, max_new_tokens=TEXT_LENGTH - 2, min_new_tokens=TEXT_LENGTH - 2, do_sample=True, temperature=TEMPERATURE,
        top_k=40, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip


def train(model, head, said, token_ids):
    """The next token's distribution, and of version 1 the next state; then once more from the head's own states."""
    optimizer = torch.optim.Adam([p for p in head.parameters() if p.requires_grad], lr=RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, TRAINING_STEPS)
    with torch.no_grad():
        read = [read_model(model, head.version, part) for part in said.split(64)]
        features, logits = (torch.cat(parts) for parts in zip(*read, strict=True))
    n = said.shape[1] - 1
    positions, visible = torch.arange(n), causal(n)
    for step in range(TRAINING_STEPS):
        rows = torch.randint(0, len(said), (BATCH,))
        ids, wanted = said[rows, 1:], logits[rows, 1:, :][..., token_ids].softmax(-1)
        current, loss = head.read(features[rows, :-1]), 0
        for _ in range(2):
            states = head.states(ids, current, positions, visible)
            loss = loss - (wanted * head.logits(states).log_softmax(-1)).sum(-1).mean()
            if head.version == 1:
                loss = loss + torch.nn.functional.smooth_l1_loss(states, features[rows, 1:])
            # The pair behind reads what the head found.
            current = torch.cat([current[:, :1], states[:, :-1]], 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(head.version, step, round(float(loss.detach()) / 2, 4), flush=True)
    return float(loss.detach()) / 2


def tree_paths():
    """The likeliest paths, where a choice's chance is RIGHT * NEXT ** choice; of equal ones the first."""
    taken, open_paths = [], [(0,)]
    while len(taken) < NUM_NODES:
        best = min(open_paths, key=lambda path: (-(RIGHT ** len(path)) * NEXT ** sum(path), path))
        open_paths.remove(best)
        taken.append(best)
        open_paths.append((*best[:-1], best[-1] + 1))
        if len(best) < MAX_DEPTH:
            open_paths.append((*best, 0))
    return taken


def tree_drafts(head, paths, known, features, token_ids):
    """Tokens of the tree behind `known`, or None where two candidates are nearly equal."""
    n = len(known) - 1
    ids, current = list(known[1:]), head.read(features[:, :n])
    positions, visible, places, drafts = list(range(n)), causal(n), {(): n - 1}, {}
    for depth in range(1, MAX_DEPTH + 1):
        states = head.states(torch.tensor([ids]), current, torch.tensor(positions), visible)
        parents = {path[:-1] for path in paths if len(path) == depth}
        for parent in parents:
            children = sorted(path for path in paths if path[:-1] == parent)
            best = torch.topk(head.logits(states[0, places[parent]]), len(children) + 1)
            if float(-best.values.diff().max()) < MIN_GAP:
                return None
            for child in children:
                drafts[child] = int(token_ids[best.indices[child[-1]]])
        for path in paths:
            if len(path) != depth or not any(other[:-1] == path for other in paths):
                continue
            row = torch.zeros(1, len(ids) + 1, dtype=torch.bool)
            row[0, :n] = row[0, -1] = True
            for length in range(1, depth):
                row[0, places[path[:length]]] = True
            visible = torch.cat([torch.cat([visible, torch.zeros(len(ids), 1, dtype=torch.bool)], 1), row])
            places[path] = len(ids)
            ids.append(drafts[path])
            positions.append(n - 1 + depth)
            current = torch.cat([current, states[:, places[path[:-1]]][:, None]], 1)
    return [drafts[path] for path in paths]


@torch.no_grad()
def decode(model, head, paths, prompt, greedy, token_ids):
    """Steps with the tree; None where two candidates are nearly equal."""
    whole, known, steps = [*prompt, *greedy], PROMPT_LENGTH + 1, []
    features, _ = read_model(model, head.version, torch.tensor([whole]))
    while known + MAX_DEPTH + 1 < len(whole):
        drafts = tree_drafts(head, paths, whole[:known], features, token_ids)
        if drafts is None:
            return None
        path = ()
        while True:  # the model's logits say `whole`
            children = [p for p in paths if p[:-1] == path and drafts[paths.index(p)] == whole[known + len(path)]]
            if not children:
                break
            path = children[0]
        steps.append((known, drafts, len(path)))
        known += len(path) + 1
    return steps


def write_head(head, token_ids, vocab_size):
    directory = OUT / f"v{head.version}"
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in head.state_dict().items()
               if not name.startswith("rotary")}  # fmt: skip
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": vocab_size}
    for field in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                  "head_dim", "max_position_embeddings", "rms_norm_eps", "hidden_act"):  # fmt: skip
        config[field] = getattr(head.config, field)
    if head.version == 1:
        torch.save(tensors, directory / "pytorch_model.bin")
    else:
        config["architectures"] = ["LlamaForCausalLMEagle3"]
        config["draft_vocab_size"] = DRAFT_VOCAB
        tensors["d2t"] = token_ids - torch.arange(DRAFT_VOCAB)
        tensors["t2d"] = torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, token_ids, True)
        safetensors.torch.save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def make(model, version, said):
    torch.manual_seed(SEED + version)
    config = transformers.LlamaConfig(
        hidden_size=model.config.hidden_size, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, vocab_size=model.config.vocab_size, rms_norm_eps=1e-5,
        max_position_embeddings=512,
    )  # fmt: skip
    config.draft_vocab_size = DRAFT_VOCAB
    counts = torch.bincount(said.flatten(), minlength=config.vocab_size)
    token_ids = torch.arange(config.vocab_size)
    if version == 3:
        token_ids = counts.topk(DRAFT_VOCAB).indices.sort().values
    head = Head(version, model, config)
    loss = train(model, head, said, token_ids)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    write_head(head, token_ids, config.vocab_size)
    paths = tree_paths()
    steps, attempts = None, 0
    while steps is None:
        attempts += 1
        start = torch.randint(0, len(said), (1,))
        prompt = said[start, :PROMPT_LENGTH][0].tolist()
        greedy, gap = plain(model, prompt, NUM_TOKENS)
        steps = decode(model, head, paths, prompt, greedy, token_ids) if gap >= MIN_TOKEN_GAP else None
    with torch.no_grad():
        whole = torch.tensor([prompt + greedy])
        features, _ = read_model(model, version, whole)
        n = whole.shape[1] - 1
        states = head.states(whole[:, 1:], head.read(features[:, :-1]), torch.arange(n), causal(n))
        logits = head.logits(states)[0, POSITIONS]
    reference = {
        "prompt": torch.tensor(prompt),
        "greedy": torch.tensor(greedy),
        "positions": torch.tensor(POSITIONS),
        "logits": logits.contiguous(),
        "parents": torch.tensor([paths.index(path[:-1]) if len(path) > 1 else -1 for path in paths]),
        "choices": torch.tensor([path[-1] for path in paths]),
        "known": torch.tensor([step[0] for step in steps]),
        "drafts": torch.tensor([step[1] for step in steps]),
        "accepted": torch.tensor([step[2] for step in steps]),
    }
    safetensors.torch.save_file(reference, OUT / f"v{version}.safetensors")
    tokens_per_step = 1 + sum(step[2] for step in steps) / len(steps)
    return {"attempts": attempts, "loss": round(loss, 4), "tokens_per_step": round(tokens_per_step, 3)}


def main():
    torch.manual_seed(SEED)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    model.requires_grad_(False)
    said = texts(model)
    about = {f"v{version}": make(model, version, said) for version in (1, 3)}
    about |= {
        "seed": SEED,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "command": "python tests/golden/make_eagle_golden.py",
    }
    (OUT / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    print(about)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden models of this directory with transformers: tiny random models and what they say.

    python tests/golden/make_golden.py [NAME...]      needs torch (CPU), transformers, safetensors

Each model is a directory data/NAME: a Hugging Face model (float32), and

    reference.safetensors   prompt_P     [prompt_len] int64        token ids, P = 0, 1, ...
                            positions_P  [n] int64                 whose logits are kept
                            logits_P     [n, vocab_size] float32   float32 arithmetic of torch
                            greedy_P     [256] int64               what greedy decoding appends
                            noise_gain_P [1] float32               largest change of these logits when every weight
                                                                   changes by normal relative noise, per unit of noise
    about.json              seed, library versions, the smallest gap between the two best logits on the
                            greedy path, and the largest difference between float32 and float64 logits

Greedy ids are only a fair test if no step is nearly a tie: seeds are tried in order from the model's
first one until every gap on the path is at least 1e-3, ten times the tolerance of the logits.
"""

import json
import pathlib
import shutil
import sys

import safetensors.torch
import torch
import transformers
from golden_models import MODELS
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

DATA = pathlib.Path(__file__).parent / "data"
NUM_GREEDY = 256
NUM_NOISE_DRAWS = 4
MIN_GAP = 1e-3
MAX_LOGIT_ERROR = 2e-5  # float32 against float64; a fifth of the test's tolerance


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def mxfp4(weight):
    """[experts, in, out] as blocks of 32 elements of each output with a scale, a power of two."""
    blocks = weight.transpose(1, 2).unflatten(-1, (-1, 32)).contiguous()
    exponents = blocks.abs().amax(-1).log2().floor() - 2
    scaled = blocks / 2.0 ** exponents.unsqueeze(-1)
    codes = (scaled.abs().unsqueeze(-1) - E2M1).abs().argmin(-1) + 8 * (scaled < 0)
    return (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8), (exponents + 127).to(torch.uint8)


def pack_experts(model):
    """Rounds the experts to what MXFP4 stores of them, as transformers reads it, and keeps what is stored."""
    model.packed = {}
    for name, parameter in model.named_parameters():
        if parameter.dim() == 3:
            blocks, scales = mxfp4(parameter)
            parameter.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
            model.packed |= {f"{name}_blocks": blocks, f"{name}_scales": scales}


def build(spec, seed):
    """A model whose logits spread over several units, so that greedy text wanders."""
    torch.manual_seed(seed)
    model = spec["class"](spec["config"]).eval()
    if hasattr(spec["config"], "num_experts_per_tok"):
        model.set_experts_implementation("eager")  # the other ones have no float64
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name or "ln_" in name
            if name.endswith("sinks"):  # a few of the size of the largest scores
                parameter.normal_(1.0, 1.5)
            elif name.endswith("proj_bias"):  # of gpt-oss's experts, whose matrices are [experts, in, out]
                parameter.normal_(0.0, 0.3)
            elif parameter.dim() == 3 and "GptOss" in type(model).__name__:
                parameter.normal_(0.0, 1.2 / parameter.shape[1] ** 0.5)
            elif parameter.dim() == 1:
                center = 1.0 if is_norm and name.endswith("weight") else 0.0
                if spec.get("one_centered"):  # and what layers add outweighs the embedding
                    center = 1.0 if "post_" in name or name.endswith("model.norm.weight") else 0.0
                parameter.normal_(center, 0.2)
            elif "embed" in name or "wte" in name or "wpe" in name or "lm_head" in name:
                tied = spec["config"].get_text_config().tie_word_embeddings
                size = spec.get("embedding", 1.0 if spec.get("one_centered") else 2.5)
                scale = size / parameter.shape[-1] ** 0.5 if "lm_head" in name or tied else 1.0
                parameter.normal_(0.0, scale)
            else:
                fan_in = parameter.shape[0] if "c_" in name else parameter.shape[-1]
                parameter.normal_(0.0, 1.2 / fan_in**0.5)
        if spec.get("packed"):
            pack_experts(model)
    return model


@torch.no_grad()
def greedy(model, prompt):
    """The next NUM_GREEDY ids and the smallest gap between the two best logits on the way."""
    ids, gap = list(prompt), float("inf")
    cache = None
    step = torch.tensor([prompt])
    for _ in range(NUM_GREEDY):
        out = model(step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        best = torch.topk(out.logits[0, -1], 2)
        gap = min(gap, (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
        step = best.indices[:1].unsqueeze(0)
    return ids[len(prompt) :], gap


@torch.no_grad()
def noise_gain(spec, seed, whole, positions, exact):
    """How far rounding can move the logits of this very model: measured in float64 with tiny noise."""
    gain, noise = 0.0, 1e-6
    for draw in range(NUM_NOISE_DRAWS):
        model = build(spec, seed).double()
        generator = torch.Generator().manual_seed(draw)
        for parameter in model.parameters():
            parameter.mul_(1 + noise * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        change = model(whole.unsqueeze(0)).logits[0][positions] - exact[positions]
        gain = max(gain, change.abs().max().item() / noise)
    return torch.tensor([gain], dtype=torch.float32)


@torch.no_grad()
def reference(spec, seed):
    """Tensors to keep and figures about them, or None if this seed is no fair test."""
    model = build(spec, seed)
    vocab = spec["config"].get_text_config().vocab_size
    generator = torch.Generator().manual_seed(seed + 1)
    tensors, min_gap, worst = {}, float("inf"), 0.0
    distinct = 0
    for index, length in enumerate(spec["prompts"]):
        prompt = torch.randint(0, vocab, (length,), generator=generator)
        ids, gap = greedy(model, prompt.tolist())
        min_gap, distinct = min(min_gap, gap), max(distinct, len(set(ids)))
        whole = torch.cat([prompt, torch.tensor(ids[:-1])])
        logits = model(whole.unsqueeze(0)).logits[0]
        positions = sorted({0, length // 2, length - 1, length, len(whole) // 2, len(whole) - 1})
        tensors |= {
            f"prompt_{index}": prompt,
            f"greedy_{index}": torch.tensor(ids),
            f"positions_{index}": torch.tensor(positions),
            f"logits_{index}": logits[positions].contiguous(),
        }
        if logits[length - 1 :].argmax(-1).tolist() != ids or min_gap < MIN_GAP:
            return None
        exact = build(spec, seed).double()(whole.unsqueeze(0)).logits[0]
        worst = max(worst, (exact - logits).abs().max().item())
        tensors[f"noise_gain_{index}"] = noise_gain(spec, seed, whole, positions, exact)
    if worst > MAX_LOGIT_ERROR or distinct < 16:
        print(f"  seed {seed}: float32 error {worst:.1e}, {distinct} distinct ids")
        return None
    about = {
        "seed": seed,
        "min_top2_gap": round(min_gap, 6),
        "max_float32_error": float(f"{worst:.3g}"),
        "max_abs_logit": round(max(t.abs().max().item() for n, t in tensors.items() if "logits" in n), 3),
        "distinct_greedy_ids": distinct,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "safetensors": safetensors.__version__,
        "command": "python tests/golden/make_golden.py",
    }
    return model, tensors, about


def old_form(config):
    """The spelling of config.json before rope_parameters and dtype."""
    rope = config.pop("rope_parameters")
    if "sliding_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        config["sliding_window_pattern"] = config["layer_types"].index("full_attention") + 1
        rope = rope["full_attention"]
    config.pop("layer_types", None)
    if config.get("no_rope_layer_interval", 4) != 4:
        config.pop("no_rope_layers")  # as the interval says
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
    if config["model_type"] == "gemma":
        config["hidden_act"] = "gelu"  # means its tanh form
    config["rope_theta"] = rope.pop("rope_theta")
    if config["model_type"] == "gpt_neox":
        config |= {"rotary_emb_base": config.pop("rope_theta"), "rotary_pct": rope.pop("partial_rotary_factor")}
    kind = rope.pop("rope_type")
    key = "type" if kind == "linear" else "rope_type"
    config["rope_scaling"] = None if kind == "default" else {key: kind, **rope}
    config["torch_dtype"] = config.pop("dtype")
    return config


def save(name, spec, model, tensors, about):
    directory = DATA / name
    shutil.rmtree(directory, ignore_errors=True)
    num_bytes = sum(p.numel() * 4 for p in model.parameters())
    model.save_pretrained(directory, max_shard_size=num_bytes // spec["shards"] + 4096 if spec["shards"] > 1 else "1GB")
    path = directory / "config.json"
    config = json.loads(path.read_text())
    if spec["form"] == "old":
        config = old_form(config)
    if spec.get("packed"):
        kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
        config["quantization_config"] = {"modules_to_not_convert": kept, "quant_method": "mxfp4"}
    path.write_text(json.dumps(config, indent=1) + "\n")
    if not spec.get("prefix", True):  # as the original gpt2 is stored
        weights = safetensors.torch.load_file(directory / "model.safetensors")
        weights = {key.removeprefix("transformer."): value for key, value in weights.items()}
        weights["h.0.attn.bias"] = torch.ones(1, 1, 4, 4)  # masks that old files carry
        weights["h.0.attn.masked_bias"] = torch.tensor(-1e4)
        safetensors.torch.save_file(weights, directory / "model.safetensors", {"format": "pt"})
    if spec.get("packed"):  # as OpenAI publishes it
        weights = safetensors.torch.load_file(directory / "model.safetensors")
        weights = {key: value for key, value in weights.items() if f"{key}_blocks" not in model.packed}
        safetensors.torch.save_file(weights | model.packed, directory / "model.safetensors", {"format": "pt"})
    safetensors.torch.save_file(tensors, directory / "reference.safetensors")
    for file in directory.iterdir():
        file.chmod(0o644)
    (directory / "about.json").write_text(json.dumps(about, indent=1) + "\n")


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        seed = 1000 * (list(MODELS).index(name) + 1)
        spec = MODELS[name]()
        while (made := reference(spec, seed)) is None:
            seed += 1
        save(name, spec, *made)
        print(name, json.dumps({k: v for k, v in made[2].items() if k not in ("command",)}))


if __name__ == "__main__":
    main()

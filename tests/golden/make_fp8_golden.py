#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden data of FP8 weights and FP8 KV caches: what transformers, in float64, says about models of data/ whose
numbers were rounded to e4m3 where a GPU rounds them.

    python tests/golden/make_fp8_golden.py [OUTPUT_DIR]      needs torch, transformers, safetensors

    fp8/NAME.safetensors   positions_P              [n] int64                 of the prompts of data/NAME/reference.safetensors
                           DTYPE.FORM.logits_P      [n, vocab_size] float16   there
                           DTYPE.FORM.change_P      [1] float32               how far, rms, these logits move when what a GPU
                                                                              rounds to DTYPE is rounded or has such noise
                           DTYPE.FORM.fp8_change_P  [1] float32               how far, rms, FP8 moved them

Weights are first rounded to DTYPE. A FORM names what is in FP8: "kv" keys, after their rotation, and values, with a scale
of 1; "fp8" the weights of the layers' linears, a scale per output channel, and their inputs, a scale per token
(docs/models.md); "head" lm_head as well.

A GPU's numbers differ from these before they are rounded, by what its 16-bit dtype rounds away, so that some go to the
other one of two codes. How far that moves the logits is measured here on the very prompts, at the inputs and outputs of
all linears and at keys and values, before any rounding to FP8: by rounding to DTYPE, which treats tokens alike that come
again, and by normal noise of the deviation that rounding has, a third of a unit roundoff squared. The larger counts.
"""

import pathlib
import sys
import unittest.mock

import safetensors.torch
import torch
import transformers
from transformers.pytorch_utils import Conv1D

HERE = pathlib.Path(__file__).parent
MODELS = {
    "llama_head64": ("kv", "fp8", "fp8_kv"),
    "gpt2_head64": ("kv", "fp8", "fp8_kv"),
    "llama_head80": ("fp8_kv", "fp8_head_kv"),
    "mixtral_head64": ("fp8",),
    "olmo2_head64": ("fp8_kv",),
    "gptj_head64": ("fp8_kv",),
}
DTYPES = {"bfloat16": (torch.bfloat16, 2.0**-8), "float16": (torch.float16, 2.0**-11)}
NUM_PROMPTS = 2
POSITION_STEP = 8
NUM_NOISE_DRAWS = 8
MAX_FLOAT32_ERROR = 1e-4
LARGEST = 448.0


def e4m3(x):
    return x.clamp(-LARGEST, LARGEST).float().to(torch.float8_e4m3fn).to(x.dtype)


def rounded_rows(x):
    """Rows, over the last dimension, as codes times their scale stand for them."""
    scale = (x.abs().amax(dim=-1, keepdim=True).clamp(min=1 / 512) / LARGEST).float().to(x.dtype)
    return e4m3(x / scale) * scale


class Disturbance:
    """What a GPU's dtype does to numbers: nothing until it is told."""

    def __init__(self, dtype, unit):
        self.dtype, self.size = dtype, unit / 3**0.5
        self.leave()

    def leave(self):
        self.rounds, self.generator = False, None

    def round(self):
        self.rounds, self.generator = True, None

    def draw(self, seed):
        self.rounds, self.generator = False, torch.Generator().manual_seed(seed)

    def __call__(self, x):
        if self.rounds:
            return x.to(self.dtype).to(x.dtype)
        if self.generator is None:
            return x
        return x * (1 + self.size * torch.randn(x.shape, generator=self.generator, dtype=x.dtype))


class Cache(transformers.DynamicCache):
    """Keeps keys and values as they are written to a GPU's cache."""

    def __init__(self, disturb, is_fp8):
        super().__init__()
        self.disturb, self.is_fp8 = disturb, is_fp8

    def update(self, keys, values, *args, **kwargs):
        keys, values = self.disturb(keys), self.disturb(values)
        if self.is_fp8:
            keys, values = e4m3(keys), e4m3(values)
        return super().update(keys, values, *args, **kwargs)


def is_linear(name, module, form):
    if name == "lm_head":
        return "head" in form
    return isinstance(module, torch.nn.Linear | Conv1D)


def round_experts(experts, round_input, disturb):
    """Gives the linears of all of a layer's experts such inputs and outputs."""
    plain, inner = torch.nn.functional.linear, experts.forward

    def linear(x, weight):
        return disturb(plain(round_input(disturb(x)), weight))

    def forward(*args):
        with unittest.mock.patch.object(torch.nn.functional, "linear", linear):
            return inner(*args)

    experts.forward = forward


@torch.no_grad()
def load(name, dtype, form, disturb):
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "data" / name, **eager)
    model = model.double().eval()
    if dtype is not None:  # weights alone: angles of rotary heads are no weights
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype))
    has_fp8 = form.startswith("fp8")
    round_input = rounded_rows if has_fp8 else lambda x: x
    for module_name, module in model.named_modules():
        if type(module).__name__.endswith("Experts"):
            if has_fp8:
                for parameter in (module.gate_up_proj, module.down_proj):
                    parameter.copy_(rounded_rows(parameter))
            round_experts(module, round_input, disturb)
        if type(module).__name__.endswith("Router"):  # reads what is not rounded to FP8
            module.register_forward_pre_hook(lambda _, inputs: (disturb(inputs[0]),))
        if not is_linear(module_name, module, form):
            continue
        if has_fp8:
            rows = module.weight.T if isinstance(module, Conv1D) else module.weight
            rows.copy_(rounded_rows(rows.contiguous()))
        module.register_forward_pre_hook(lambda _, inputs, f=round_input: (f(disturb(inputs[0])),))
        module.register_forward_hook(lambda _, inputs, output: disturb(output))
    return model


@torch.no_grad()
def logits_of(model, disturb, form, ids, positions):
    cache = Cache(disturb, form.endswith("kv"))
    return model(ids.unsqueeze(0), past_key_values=cache, use_cache=True).logits[0][positions]


def prompts(name):
    reference = safetensors.torch.load_file(HERE / "data" / name / "reference.safetensors")
    for p in range(NUM_PROMPTS):
        whole = torch.cat([reference[f"prompt_{p}"], reference[f"greedy_{p}"][:-1]])
        yield p, whole, reference[f"positions_{p}"], reference[f"logits_{p}"]


def rms(x):
    return x.square().mean().sqrt().item()


def check(name):
    """That without rounding this is the model whose logits are kept."""
    none = Disturbance(torch.float64, 0)
    model = load(name, None, "", none)
    for p, whole, positions, want in prompts(name):
        error = (logits_of(model, none, "", whole, positions) - want).abs().max().item()
        assert error < MAX_FLOAT32_ERROR, f"{name}, prompt {p}: {error}"


def make(name, forms):
    tensors = {}
    for dtype_name, (dtype, unit) in DTYPES.items():
        disturb = Disturbance(dtype, unit)
        plain = load(name, dtype, "", disturb)
        for form in forms:
            model = load(name, dtype, form, disturb)
            for p, whole, _, _ in prompts(name):
                positions = torch.arange(POSITION_STEP - 1, len(whole), POSITION_STEP)
                disturb.leave()
                exact = logits_of(model, disturb, form, whole, positions)
                fp8_change = rms(exact - logits_of(plain, disturb, "", whole, positions))
                disturb.round()
                rounded = rms(logits_of(model, disturb, form, whole, positions) - exact)
                moved = []
                for draw in range(NUM_NOISE_DRAWS):
                    disturb.draw(draw)
                    moved.append(logits_of(model, disturb, form, whole, positions) - exact)
                noisy = rms(torch.stack(moved))
                key = f"{dtype_name}.{form}"
                tensors[f"positions_{p}"] = positions
                tensors[f"{key}.logits_{p}"] = exact.half().contiguous()
                tensors[f"{key}.change_{p}"] = torch.tensor([max(rounded, noisy)])
                tensors[f"{key}.fp8_change_{p}"] = torch.tensor([fp8_change])
                print(f"{name} {key} prompt {p}: rounding {rounded:.5f}, noise {noisy:.5f}, FP8 {fp8_change:.5f}", flush=True)
    return tensors


def main():
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "fp8"
    output.mkdir(exist_ok=True)
    for name, forms in MODELS.items():
        check(name)
        about = {"torch": torch.__version__, "transformers": transformers.__version__}
        safetensors.torch.save_file(make(name, forms), output / f"{name}.safetensors", metadata=about)


if __name__ == "__main__":
    main()

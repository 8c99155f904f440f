# SPDX-License-Identifier: Apache-2.0
"""TensorRT-LLM's checkpoint layout in numpy, written from its description and not from our converter.

`split` gives what each rank's file has to hold of a Hugging Face model; `read` and `write` are safetensors files.
"""

import json

import numpy as np

DTYPES = {"F32": np.float32, "F16": np.float16}


def read(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + length + begin : 8 + length + end], DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def write(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, values in tensors.items():
        blob = np.ascontiguousarray(values, np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def read_model(directory):
    """Tensors of a Hugging Face directory, prefix removed."""
    tensors = {}
    for path in sorted(directory.glob("model*.safetensors")):
        tensors |= read(path)
    return {name.removeprefix("model.").removeprefix("transformer."): values for name, values in tensors.items()}


def whole_llama(hf, config):
    """Query, key and value apart; the rest under checkpoint names."""
    out = {
        "transformer.vocab_embedding.weight": hf["embed_tokens.weight"],
        "transformer.ln_f.weight": hf["norm.weight"],
        "lm_head.weight": hf.get("lm_head.weight", hf["embed_tokens.weight"]),
    }
    names = {
        "input_layernorm": "input_layernorm",
        "post_attention_layernorm": "post_layernorm",
        "self_attn.q_proj": "q",
        "self_attn.k_proj": "k",
        "self_attn.v_proj": "v",
        "self_attn.q_norm": "attention.q_layernorm",
        "self_attn.k_norm": "attention.k_layernorm",
        "self_attn.o_proj": "attention.dense",
        "mlp.gate_proj": "mlp.fc",
        "mlp.up_proj": "mlp.gate",
        "mlp.down_proj": "mlp.proj",
    }
    for i in range(config["num_hidden_layers"]):
        for theirs, ours in names.items():
            for kind in ("weight", "bias"):
                if f"layers.{i}.{theirs}.{kind}" in hf:
                    out[f"transformer.layers.{i}.{ours}.{kind}"] = hf[f"layers.{i}.{theirs}.{kind}"]
    return out


def whole_gpt2(hf, config):
    out = {
        "transformer.vocab_embedding.weight": hf["wte.weight"],
        "transformer.position_embedding.weight": hf["wpe.weight"],
        "transformer.ln_f.weight": hf["ln_f.weight"],
        "transformer.ln_f.bias": hf["ln_f.bias"],
        "lm_head.weight": hf.get("lm_head.weight", hf["wte.weight"]),
    }
    names = {
        "ln_1": "input_layernorm",
        "ln_2": "post_layernorm",
        "attn.c_proj": "attention.dense",
        "mlp.c_fc": "mlp.fc",
        "mlp.c_proj": "mlp.proj",
    }
    for i in range(config["n_layer"]):
        prefix = f"transformer.layers.{i}."
        for theirs, ours in names.items():
            weight = hf[f"h.{i}.{theirs}.weight"]
            out[f"{prefix}{ours}.weight"] = weight.T if weight.ndim == 2 else weight  # Conv1D is [in, out]
            out[f"{prefix}{ours}.bias"] = hf[f"h.{i}.{theirs}.bias"]
        for kind, axis in (("weight", 1), ("bias", 0)):
            for name, part in zip("qkv", np.split(hf[f"h.{i}.attn.c_attn.{kind}"], 3, axis), strict=True):
                out[f"{prefix}{name}.{kind}"] = part.T
    return out


def pad_rows(table, multiple):
    missing = -len(table) % multiple
    return np.concatenate([table, np.zeros((missing, table.shape[1]), table.dtype)])


def split(whole, *, layers, heads, kv_heads, tp, pp, embedding=None, shared=False):
    """{rank: {name: values}}; `embedding` is the sharding dimension or None for a whole table on each rank."""
    head_dim = whole["transformer.layers.0.q.weight"].shape[0] // heads

    def part(values, t, axis):
        return np.split(values, tp, axis)[t]

    def kv(values, t):
        by_head = values.reshape(kv_heads, head_dim, *values.shape[1:])
        by_head = np.repeat(by_head, max(tp // kv_heads, 1), axis=0)  # k0, k0, k1, k1, ...
        return part(by_head, t, 0).reshape(-1, *values.shape[1:])

    sizes = [layers // pp + (p < layers % pp) for p in range(pp)]  # what is left over goes to the first stages
    ranks = {}
    for p in range(pp):
        for t in range(tp):
            out = {}
            if p == 0:
                table = whole["transformer.vocab_embedding.weight"]
                if embedding == 0:
                    table = part(pad_rows(table, tp), t, 0)
                elif embedding == 1:
                    table = part(table, t, 1)
                out["transformer.vocab_embedding.weight"] = table
                if "transformer.position_embedding.weight" in whole:
                    out["transformer.position_embedding.weight"] = whole["transformer.position_embedding.weight"]
            for local in range(sizes[p]):
                theirs = f"transformer.layers.{sum(sizes[:p]) + local}."
                mine = f"transformer.layers.{local}."  # counted from 0 on each stage
                for kind in ("weight", "bias"):
                    if f"{theirs}q.{kind}" in whole:
                        q, k, v = (whole[f"{theirs}{name}.{kind}"] for name in "qkv")
                        out[f"{mine}attention.qkv.{kind}"] = np.concatenate([part(q, t, 0), kv(k, t), kv(v, t)])
                for name, values in whole.items():
                    if not name.startswith(theirs) or name.split(".")[3] in "qkv":
                        continue
                    local_name = mine + name.removeprefix(theirs)
                    if ".mlp.fc." in name or ".mlp.gate." in name:
                        values = part(values, t, 0)
                    elif name.endswith((".attention.dense.weight", ".mlp.proj.weight")):
                        values = part(values, t, 1)
                    out[local_name] = values
            if p == pp - 1:
                out |= {name: values for name, values in whole.items() if name.startswith("transformer.ln_f.")}
                if not shared:
                    out["lm_head.weight"] = part(pad_rows(whole["lm_head.weight"], tp), t, 0)
            ranks[p * tp + t] = out
    return ranks

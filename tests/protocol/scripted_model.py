# SPDX-License-Identifier: Apache-2.0
"""A model that says what it is told to: its weights lead from each token to the next of a text.

Its layer adds nothing, so that a token's logits are those of the row that has the token's embedding. Each piece of a text
is a token of its own, and `<|NAME|>`, with which the template ends a prompt, leads to the text of that name.
"""

import itertools
import json
import struct

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HIDDEN, PIECE = 64, 5
END = "<|end|>"


def pieces_of(text, used):
    """The text in pieces that occur nowhere else."""
    pieces, begin = [], 0
    while begin < len(text):
        end = begin + PIECE
        while text[begin:end] in used and end < len(text):
            end += 1
        piece = text[begin:end]
        if piece in used:  # the end of the text
            piece = pieces.pop() + piece
        pieces.append(piece)
        used.add(piece)
        begin = end
    return pieces


def write_scripted_model(path, template, scripts, special=(), end=END):
    """`scripts` by name: texts, or lists of texts of which those in `special` are special tokens."""
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    used, following = set(), {}
    for name, script in scripts.items():
        parts = [script] if isinstance(script, str) else script
        pieces = [p for part in parts for p in ([part] if part in special else pieces_of(part, used))]
        tokenizer.add_tokens([AddedToken(p, special=p in special, normalized=False) for p in pieces])
        tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in (f"<|{name}|>", end)])
        chain = [f"<|{name}|>", *pieces, end]
        following.update((tokenizer.token_to_id(a), tokenizer.token_to_id(b)) for a, b in itertools.pairwise(chain))
    path.mkdir()
    tokenizer.save(str(path / "tokenizer.json"))
    count = tokenizer.get_vocab_size()
    embedding = np.random.default_rng(0).choice([-1.0, 1.0], (count, HIDDEN)).astype("<f4")
    head = np.zeros_like(embedding)
    for token, after in following.items():
        head[after] += embedding[token]
    layer = "model.layers.0."
    square = np.zeros((HIDDEN, HIDDEN), "<f4")
    linear = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
              "mlp.down_proj")  # fmt: skip
    norms = (layer + "input_layernorm", layer + "post_attention_layernorm", "model.norm")
    tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
    tensors |= {f"{layer}{name}.weight": square for name in linear} | {f"{n}.weight": np.ones(HIDDEN, "<f4") for n in norms}
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": value.shape, "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    data = b"".join(value.tobytes() for value in tensors.values())
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    end_id = tokenizer.token_to_id(end)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": HIDDEN,
        "num_attention_heads": 1, "num_key_value_heads": 1, "num_hidden_layers": 1, "vocab_size": count,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "torch_dtype": "float32", "eos_token_id": end_id,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    (path / "generation_config.json").write_text(json.dumps({"do_sample": False, "eos_token_id": end_id}))
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": end, "chat_template": template}))
    return path

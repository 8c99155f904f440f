# SPDX-License-Identifier: Apache-2.0
"""GGUF files of Hugging Face models, written by the `gguf` package with its own table of tensor names."""

import json
import re

import gguf
import numpy as np
import safetensors_rows

# Those of whose heads convert_hf_to_gguf.py stores q and k in pairs of rows.
PAIRED = (gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.GRANITE, gguf.MODEL_ARCH.GRANITE_MOE, gguf.MODEL_ARCH.SMOLLM3)
ARCHITECTURES = {
    "LlamaForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "MistralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "Qwen2ForCausalLM": gguf.MODEL_ARCH.QWEN2,
    "Qwen3ForCausalLM": gguf.MODEL_ARCH.QWEN3,
    "GemmaForCausalLM": gguf.MODEL_ARCH.GEMMA,
    "Gemma2ForCausalLM": gguf.MODEL_ARCH.GEMMA2,
    "Gemma3ForCausalLM": gguf.MODEL_ARCH.GEMMA3,
    "Olmo2ForCausalLM": gguf.MODEL_ARCH.OLMO2,
    "GraniteForCausalLM": gguf.MODEL_ARCH.GRANITE,
    "Phi3ForCausalLM": gguf.MODEL_ARCH.PHI3,
    "Starcoder2ForCausalLM": gguf.MODEL_ARCH.STARCODER2,
    "GptOssForCausalLM": gguf.MODEL_ARCH.GPT_OSS,
    "MixtralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "Qwen2MoeForCausalLM": gguf.MODEL_ARCH.QWEN2MOE,
    "Qwen3MoeForCausalLM": gguf.MODEL_ARCH.QWEN3MOE,
    "OlmoeForCausalLM": gguf.MODEL_ARCH.OLMOE,
    "GraniteMoeForCausalLM": gguf.MODEL_ARCH.GRANITE_MOE,
    "SmolLM3ForCausalLM": gguf.MODEL_ARCH.SMOLLM3,
    "GPT2LMHeadModel": gguf.MODEL_ARCH.GPT2,
    "GPTNeoXForCausalLM": gguf.MODEL_ARCH.GPTNEOX,
    "FalconForCausalLM": gguf.MODEL_ARCH.FALCON,
}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def weights(directory):
    """{name: float32 array} of model.safetensors, whose tensors are float32 or bfloat16."""
    named, data = safetensors_rows.header(directory / "model.safetensors")
    out = {}
    for name, tensor in named.items():
        if name == "__metadata__":
            continue
        stored = data[slice(*tensor["data_offsets"])]
        if tensor["dtype"] == "BF16":
            stored = (np.frombuffer(stored, np.uint16).astype(np.uint32) << 16).tobytes()
        else:
            assert tensor["dtype"] in ("F32", "U8")
        kind = np.uint8 if tensor["dtype"] == "U8" else np.float32
        out[name] = np.frombuffer(stored, kind).reshape(tensor["shape"])
    return out


def of_gpt_oss(values):
    """Experts in MXFP4 as floats, and gate and up apart, as convert_hf_to_gguf.py has them."""
    out = {}
    for name, value in values.items():
        if name.endswith("_blocks"):
            codes = np.stack([value & 15, value >> 4], -1).reshape(*value.shape[:-1], 32)
            scales = np.exp2(values[name.replace("_blocks", "_scales")].astype(np.float32) - 127)
            value = (E2M1[codes] * scales[..., None]).reshape(*value.shape[:2], -1)
            name = name.removesuffix("_blocks") + ".weight"
        if ".experts." not in name:
            out[name + ".weight" if name.endswith(".sinks") else name] = value
        elif name.endswith(("_bias", ".weight")):
            name = name.removesuffix("_bias") + ".bias" if name.endswith("_bias") else name
            if "gate_up_proj" in name:
                out[name.replace("gate_up_proj", "gate_proj")] = value[:, ::2]
                out[name.replace("gate_up_proj", "up_proj")] = value[:, 1::2]
            else:
                out[name] = value
    return out


def of_experts(values):
    """The matrices of a layer's experts one behind the other, gate and up apart, as convert_hf_to_gguf.py has them."""
    out, of_layers = {}, {}
    for name, value in values.items():
        if each := re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name):
            of_layers.setdefault(f"{each[1]}.{each[3]}", {})[int(each[2])] = value
        elif name.endswith("block_sparse_moe.input_linear.weight"):  # of Granite
            stem = name.replace("block_sparse_moe.input_linear.weight", "mlp.experts.{}_proj.weight")
            half = value.shape[1] // 2
            out |= {stem.format("gate"): value[:, :half], stem.format("up"): value[:, half:]}
        else:
            out[name] = value[0] if name.endswith("shared_expert_gate.weight") else value
    return out | {name: np.stack([of[i] for i in range(len(of))]) for name, of in of_layers.items()}


def of_classic(values, config):
    """Matrices as [out, in], and rows of query, key and value apart, as convert_hf_to_gguf.py has them."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    out = {}
    for name, value in values.items():
        if config.get("model_type") == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            value = value.T
        if ".query_key_value." in name:
            groups = value.reshape(kv_heads, heads // kv_heads + 2, -1, *value.shape[1:])
            parts = (groups[:, :-2], groups[:, -2], groups[:, -1])
            value = np.concatenate([part.reshape(-1, *value.shape[1:]) for part in parts])
        out[name] = value
    return out


def paired(rows, num_heads):
    """Rows i and i + d / 2 of each head of d side by side, as convert_hf_to_gguf.py stores q and k of Llama."""
    halves = rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def common(config):
    """A config.json with the names of fields that most families have."""
    names = {
        "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_inner": "intermediate_size",
        "n_positions": "max_position_embeddings", "layer_norm_epsilon": "norm_epsilon", "layer_norm_eps": "norm_epsilon",
        "ffn_hidden_size": "intermediate_size", "num_experts": "num_local_experts", "rotary_emb_base": "rope_theta",
    }  # fmt: skip
    config = {names.get(name, name): value for name, value in config.items()}
    heads = config["num_attention_heads"]
    if config.get("model_type") == "falcon":
        kv_heads = config["num_kv_heads"] if config["new_decoder_architecture"] else 1 if config["multi_query"] else heads
        config["num_key_value_heads"] = kv_heads
    config.setdefault("num_key_value_heads", heads)
    config.setdefault("head_dim", config["hidden_size"] // heads)
    config["intermediate_size"] = config["intermediate_size"] or 4 * config["hidden_size"]
    return config


def add_experts(writer, config):
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def add_config(writer, config):
    """The entries that stand for config.json."""
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    if "norm_epsilon" in config:
        writer.add_layer_norm_eps(config["norm_epsilon"])
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    scaling = scaling.get("full_attention", scaling)
    if config.get("model_type") != "gpt2":
        writer.add_rope_freq_base(config.get("rope_theta") or scaling.get("rope_theta", 10000.0))
    if config.get("model_type") == "gpt_neox":
        part = config.get("rotary_pct") or scaling["partial_rotary_factor"]
        writer.add_rope_dimension_count(int(part * config["head_dim"]))
        writer.add_parallel_residual(config["use_parallel_residual"])
    is_apart = config["head_dim"] * config["num_attention_heads"] != config["hidden_size"]
    if is_apart and config.get("model_type") != "gpt_oss":
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    if scaling.get("rope_type") == "yarn" and config.get("model_type") != "gpt_oss":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    if scaling.get("rope_type") == "longrope":
        length, original = config["max_position_embeddings"], scaling["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors((1 + np.log(length / original) / np.log(original)) ** 0.5)
        for kind in ("long", "short"):
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(scaling[f"{kind}_factor"], np.float32))
    if config["architectures"][0].startswith("Gemma"):
        add_gemma(writer, config)
    if config.get("model_type") == "phi3":
        part = scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1
        writer.add_rope_dimension_count(int(part * config["head_dim"]))
        writer.add_sliding_window(config["sliding_window"] or 0)
    if "num_local_experts" in config:
        add_experts(writer, config)
    if config.get("model_type") == "gpt_oss":
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_sliding_window(config["sliding_window"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    if config.get("model_type") in ("granite", "granitemoe"):
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    writer.add_bos_token_id(config["bos_token_id"])
    if config.get("pad_token_id") is not None:
        writer.add_pad_token_id(config["pad_token_id"])
    end = config["eos_token_id"]
    writer.add_eos_token_id(end[0] if isinstance(end, list) else end)
    if isinstance(end, list):
        writer.add_eot_token_id(end[1])


def add_gemma(writer, config):
    """What Gemma 2 and 3 have besides. `attention.scale` is in no published file, whose models have the usual one."""
    if "sliding_window" in config:
        writer.add_sliding_window(config["sliding_window"])
        writer.add_float32(f"{writer.arch}.attention.scale", config["query_pre_attn_scalar"] ** -0.5)
        writer.add_final_logit_softcapping(config["final_logit_softcapping"] or 0.0)
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"] or 0.0)
    if "sliding_window_pattern" in config:
        writer.add_uint32(f"{writer.arch}.attention.sliding_window_pattern", config["sliding_window_pattern"])
        local = config.get("rope_local_base_freq") or config["rope_parameters"]["sliding_attention"]["rope_theta"]
        writer.add_float32(f"{writer.arch}.rope.freq_base_swa", local)


def add_tokenizer(writer, directory, pre, size, bos=False):
    """The entries that stand for a byte-level tokenizer.json and its chat template; ids up to `size` are filled up."""
    data = json.loads((directory / "tokenizer.json").read_text())
    tokens = {i: (text, gguf.TokenType.NORMAL) for text, i in data["model"]["vocab"].items()}
    for added in data["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]] = (added["content"], kind)
    rows = [tokens.get(i, (f"[PAD{i}]", gguf.TokenType.UNUSED)) for i in range(size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([text for text, _ in rows])
    writer.add_token_types([kind for _, kind in rows])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]])
    writer.add_add_bos_token(bos)
    writer.add_chat_template(json.loads((directory / "tokenizer_config.json").read_text())["chat_template"])


def write(directory, path, pack=lambda name, values: (values, None), more=lambda writer: None, each=False, split=0):
    """The model of a directory. `pack` says how a tensor is stored: (data, type), a type of None being data's own. `each`: of
    every expert a tensor, as in files of early 2024. `split`: the most tensors of a file, of several then."""
    config = common(json.loads((directory / "config.json").read_text()))
    architecture = ARCHITECTURES[config["architectures"][0]]
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture], split_max_tensors=split)
    add_config(writer, config)
    more(writer)
    of_model = weights(directory)
    of_model = of_gpt_oss(of_model) if writer.arch == "gpt-oss" else of_classic(of_experts(of_model), config)
    for name, values in of_model.items():
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        if architecture in PAIRED and ".q_proj." in name:
            values = paired(values, config["num_attention_heads"])
        if architecture in PAIRED and ".k_proj." in name:
            values = paired(values, config["num_key_value_heads"])
        if "gemma" in writer.arch and "norm" in name:
            values = values + 1
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        parts = {stored: values}
        if each and values.ndim == 3:
            parts = {stored.replace("_exps", f".{i}"): part for i, part in enumerate(values)}
        for of_part, part in parts.items():
            data, kind = pack(name, part)
            writer.add_tensor(of_part, np.ascontiguousarray(data), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

# SPDX-License-Identifier: Apache-2.0
"""The golden models: shapes in which what sets a family apart matters. make_golden.py makes them."""

import transformers
from transformers import GPT2Config, GPT2LMHeadModel

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


def llama(
    heads,
    kv_heads,
    head_dim,
    *,
    family="Llama",
    hidden=None,
    layers=2,
    vocab=193,
    inner=72,
    prompts=(1, 17, 70),
    form="new",
    rope=None,
    theta=10000.0,
    shards=1,
    **flags,
):
    """A model of Llama, or of another family whose configuration has Llama's fields."""
    hidden = hidden or heads * head_dim
    config = getattr(transformers, f"{family}Config")(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        bos_token_id=1,
        eos_token_id=flags.pop("eos", 2),
        rope_parameters={"rope_theta": theta, **(rope or {"rope_type": "default"})},
        **flags,
    )
    model = getattr(transformers, f"{family}ForCausalLM")
    return {"class": model, "config": config, "prompts": prompts, "form": form, "shards": shards}


def phi3_longrope(original_length, prompts, **flags):
    """As Phi-4-mini: a part of each head is rotated, by short factors up to a length and by long ones beyond."""
    rope = {"rope_type": "longrope", "partial_rotary_factor": 0.75}
    rope |= {"short_factor": [1.0, 1.1, 1.25, 1.5, 1.75, 2.0], "long_factor": [1.5, 2.5, 3.5, 6.0, 11.0, 20.0]}
    shape = {"family": "Phi3", "vocab": 113, "pad_token_id": 0, "tie_word_embeddings": True}
    return llama(4, 2, 16, rope=rope, original_max_position_embeddings=original_length, prompts=prompts, **shape, **flags)


def gpt2(heads, head_dim, *, layers=2, vocab=257, inner=None, prompts=(1, 17, 70), prefix=True, shards=1, **flags):
    config = GPT2Config(
        vocab_size=vocab,
        n_embd=heads * head_dim,
        n_inner=inner,
        n_layer=layers,
        n_head=heads,
        n_positions=max(prompts) + 260,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        **flags,
    )
    return {"class": GPT2LMHeadModel, "config": config, "prompts": prompts, "form": "new", "prefix": prefix, "shards": shards}


def gpt_neox(heads, head_dim, *, vocab=113, layers=2, inner=72, prompts=(1, 17, 70), form="new", rope=None, **flags):
    config = transformers.GPTNeoXConfig(
        vocab_size=vocab,
        hidden_size=heads * head_dim,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=512,
        layer_norm_eps=1e-4,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0, **(rope or {})},
        **flags,
    )
    return {"class": transformers.GPTNeoXForCausalLM, "config": config, "prompts": prompts, "form": form, "shards": 1}


def gptj(heads, head_dim, *, vocab=113, layers=2, inner=72, prompts=(1, 17, 70), **flags):
    config = transformers.GPTJConfig(
        vocab_size=vocab,
        n_embd=heads * head_dim,
        n_inner=inner,
        n_layer=layers,
        n_head=heads,
        n_positions=512,
        bos_token_id=0,
        eos_token_id=0,
        **flags,
    )
    model = transformers.GPTJForCausalLM
    return {"class": model, "config": config, "prompts": prompts, "form": "new", "shards": 1, "embedding": 1.0}


def opt(heads, head_dim, *, vocab=113, layers=2, inner=72, prompts=(1, 17, 70), **flags):
    config = transformers.OPTConfig(
        vocab_size=vocab,
        hidden_size=heads * head_dim,
        ffn_dim=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=max(prompts) + 260,
        dropout=0.0,
        **flags,
    )
    return {"class": transformers.OPTForCausalLM, "config": config, "prompts": prompts, "form": "new", "shards": 1}


def falcon(heads, head_dim, *, vocab=113, layers=2, inner=72, prompts=(1, 17, 70), form="new", theta=1e4, embedding=1.0, **flags):
    config = transformers.FalconConfig(
        vocab_size=vocab,
        hidden_size=heads * head_dim,
        ffn_hidden_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        **flags,
    )
    model = transformers.FalconForCausalLM
    return {"class": model, "config": config, "prompts": prompts, "form": form, "shards": 1, "embedding": embedding}


def gemma(
    family,
    heads,
    kv_heads,
    head_dim,
    *,
    hidden,
    layers=3,
    vocab=131,
    inner=72,
    prompts=(1, 17, 70),
    form="new",
    composite=False,
    **flags,
):
    """A model of Gemma 1, 2 or 3, whose norms are centered on weights of 0."""
    config = getattr(transformers, f"{family}Config")(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        **flags,
    )
    model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")
    if composite:  # with a part that sees images
        vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        vision |= {"image_size": 28, "patch_size": 14}
        config = transformers.Gemma3Config(text_config=config, vision_config=vision, mm_tokens_per_image=4)
        model = transformers.Gemma3ForConditionalGeneration
    return {"class": model, "config": config, "prompts": prompts, "form": form, "shards": 1, "one_centered": True}


def gemma3(*shape, window, pattern=3, scaling=None, **flags):
    """The full layers are every `pattern`th one."""
    full = {"rope_type": "default", "rope_theta": 1e6, **(scaling or {})}
    ropes = {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}
    return gemma("Gemma3Text", *shape, sliding_window=window, sliding_window_pattern=pattern, rope_parameters=ropes, **flags)


def qwen3_moe(*shape, experts, chosen, width, renormalized, **flags):
    """A model of Qwen3 with experts, each `width` wide, of which a token has `chosen`."""
    flags |= {"num_experts": experts, "num_experts_per_tok": chosen, "moe_intermediate_size": width}
    return llama(*shape, family="Qwen3Moe", hidden=64, norm_topk_prob=renormalized, pad_token_id=0, **flags)


def qwen2_moe(heads, kv_heads, head_dim, *, experts, chosen, width, shared, renormalized, **flags):
    flags |= {"num_experts": experts, "num_experts_per_tok": chosen, "moe_intermediate_size": width}
    flags |= {"shared_expert_intermediate_size": shared, "norm_topk_prob": renormalized, "pad_token_id": 0}
    made = llama(heads, kv_heads, head_dim, family="Qwen2Moe", **flags)
    made["config"].__dict__.pop("head_dim", None)  # the family has none
    return made


def gpt_oss(*shape, experts, chosen, packed=False, **flags):
    """`packed`: the experts are stored in MXFP4."""
    flags |= {"num_local_experts": experts, "num_experts_per_tok": chosen}
    return llama(*shape, family="GptOss", hidden=64, inner=128, **flags) | {"packed": packed}


MIXED = {"decoder_sparse_step": 2, "mlp_only_layers": [3]}
# Granite's.
FACTORS = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.35, "logits_scaling": 1.7}

MODELS = {
    "llama_mha": lambda: llama(4, 4, 16, vocab=257),
    "llama_gqa2": lambda: llama(4, 2, 16, vocab=211, form="old", tie_word_embeddings=True),
    "llama_gqa4": lambda: llama(4, 1, 24, vocab=131, prompts=(3, 64, 128), eos=[2, 5]),
    "llama_gqa8": lambda: llama(8, 1, 8, vocab=1021, prompts=(2, 33, 200), tie_word_embeddings=True),
    "llama_head64": lambda: llama(2, 1, 64, vocab=130, layers=1, inner=48, form="old"),
    "llama_odd_width": lambda: llama(3, 1, 24, hidden=57, vocab=97, inner=71),
    "llama_linear": lambda: llama(4, 2, 16, form="old", rope={"rope_type": "linear", "factor": 4.0}, prompts=(5, 65, 190)),
    "llama_linear_new": lambda: llama(4, 2, 16, layers=1, rope={"rope_type": "linear", "factor": 2.0}),
    "llama_llama3": lambda: llama(4, 2, 16, rope=LLAMA3, theta=500000.0, prompts=(1, 66, 200), tie_word_embeddings=True),
    "llama_llama3_old": lambda: llama(4, 2, 24, layers=1, form="old", rope=LLAMA3, theta=500000.0),
    "llama_bias": lambda: llama(4, 2, 16, attention_bias=True, mlp_bias=True, inner=76),
    "llama_sharded": lambda: llama(4, 2, 16, layers=3, vocab=128, inner=64, shards=3),
    "gpt2_tied": lambda: gpt2(4, 16, vocab=257, inner=160, prompts=(1, 40, 200)),
    "gpt2_bare_names": lambda: gpt2(3, 24, vocab=131, inner=100, prefix=False),
    "gpt2_untied": lambda: gpt2(2, 8, vocab=509, layers=3, tie_word_embeddings=False, shards=2),
    "gpt2_relu": lambda: gpt2(
        2, 40, vocab=101, inner=88, prompts=(2, 31, 90), activation_function="relu", tie_word_embeddings=False
    ),
    # The head sizes that CUDA kernels have, and widths that are multiples of 16 (cuda_golden_test.cc).
    "llama_head80": lambda: llama(3, 3, 80, hidden=96, inner=96, vocab=160),
    "llama_head96": lambda: llama(4, 1, 96, hidden=48, inner=80, vocab=144, prompts=(2, 64, 129)),
    "llama_head128": lambda: llama(
        4, 2, 128, hidden=64, inner=112, vocab=176, rope=LLAMA3, theta=500000.0, prompts=(1, 66, 200), tie_word_embeddings=True
    ),
    "llama_head256": lambda: llama(2, 1, 256, hidden=48, inner=64, layers=1, vocab=128),
    "gpt2_head64": lambda: gpt2(2, 64, layers=1, vocab=160, inner=112, prompts=(1, 33, 128)),
    "gpt2_gelu": lambda: gpt2(
        2, 64, vocab=128, inner=64, prompts=(2, 31, 90), activation_function="gelu", tie_word_embeddings=False
    ),
    "qwen2_tied": lambda: llama(4, 2, 16, family="Qwen2", vocab=131, form="old", tie_word_embeddings=True),
    # The second of its layers has a window.
    "qwen2_head64": lambda: llama(
        2, 1, 64, family="Qwen2", vocab=112, inner=48, use_sliding_window=True, sliding_window=40, max_window_layers=1
    ),
    "qwen3_odd_width": lambda: llama(3, 1, 24, family="Qwen3", hidden=57, vocab=97, inner=71),
    "qwen3_head128": lambda: llama(2, 1, 128, family="Qwen3", hidden=64, vocab=112, inner=80, theta=1e6),
    "mistral_window": lambda: llama(4, 2, 16, family="Mistral", vocab=127, sliding_window=24),
    "mistral_head64": lambda: llama(
        2, 1, 64, family="Mistral", vocab=112, inner=48, form="old", sliding_window=37, prompts=(1, 36, 130)
    ),
    "mistral_full": lambda: llama(4, 1, 16, family="Mistral", vocab=101, sliding_window=None),
    "qwen3_gqa2": lambda: llama(4, 2, 24, family="Qwen3", hidden=40, vocab=113, form="old"),
    # Hugging Face wants hidden sizes that are multiples of the heads; head_dim is not what they give.
    "gemma3_rope": lambda: gemma3(
        4, 2, 24, hidden=40, window=19, query_pre_attn_scalar=20, scaling={"rope_type": "linear", "factor": 8.0}
    ),
    "gemma3_old_cap": lambda: gemma3(
        2, 1, 16, hidden=34, window=37, pattern=2, form="old", final_logit_softcapping=6.0, attention_bias=True, layers=4
    ),
    "gemma3_head64": lambda: gemma3(
        2, 1, 64, hidden=64, vocab=112, inner=48, window=24, query_pre_attn_scalar=50, prompts=(1, 36, 130), composite=True
    ),
    "gemma_old": lambda: gemma("Gemma", 4, 2, 24, hidden=40, vocab=113, form="old", layers=2),
    "gemma_head64": lambda: gemma(
        "Gemma", 2, 1, 64, hidden=48, vocab=112, inner=80, layers=2, attention_bias=True, tie_word_embeddings=False
    ),
    "gemma2_caps": lambda: gemma(
        "Gemma2",
        4,
        2,
        16,
        hidden=36,
        sliding_window=19,
        query_pre_attn_scalar=9,
        attn_logit_softcapping=3.0,
        final_logit_softcapping=6.0,
    ),
    "gemma2_head64": lambda: gemma(
        "Gemma2",
        2,
        1,
        64,
        hidden=64,
        vocab=112,
        inner=48,
        sliding_window=37,
        form="old",
        final_logit_softcapping=None,
        attn_logit_softcapping=4.0,
        prompts=(1, 36, 130),
    ),
    "olmo2_wide_norms": lambda: llama(4, 2, 16, family="Olmo2", vocab=113),
    "olmo2_head64": lambda: llama(2, 1, 64, family="Olmo2", vocab=112, inner=48, attention_bias=True),
    "granite_factors": lambda: llama(4, 2, 16, family="Granite", vocab=113, **FACTORS),
    "granite_head64": lambda: llama(
        2,
        1,
        64,
        family="Granite",
        vocab=112,
        inner=48,
        embedding_multiplier=2.0,
        residual_multiplier=0.6,
        attention_multiplier=0.08,
        logits_scaling=0.5,
        attention_bias=True,
        mlp_bias=True,
        form="old",
    ),
    "smollm3_layers": lambda: llama(
        4, 2, 16, family="SmolLM3", vocab=113, layers=3, no_rope_layers=[1, 0, 1], pad_token_id=0, tie_word_embeddings=False
    ),
    "smollm3_head64": lambda: llama(
        2,
        1,
        64,
        family="SmolLM3",
        vocab=112,
        inner=48,
        no_rope_layer_interval=2,
        form="old",
        theta=5e5,
        pad_token_id=0,
        tie_word_embeddings=False,
    ),
    "starcoder2_window": lambda: llama(4, 2, 16, family="Starcoder2", vocab=113, sliding_window=24, norm_epsilon=1e-4),
    "starcoder2_head64": lambda: llama(
        2, 1, 64, family="Starcoder2", vocab=112, inner=48, use_bias=False, tie_word_embeddings=False
    ),
    "phi3_part": lambda: llama(
        4,
        2,
        16,
        family="Phi3",
        vocab=113,
        sliding_window=24,
        pad_token_id=0,
        rope={"rope_type": "default", "partial_rotary_factor": 0.5},
    ),
    "phi3_head64": lambda: llama(2, 1, 64, family="Phi3", vocab=112, inner=48, form="old", pad_token_id=0),
    "llama_yarn": lambda: llama(4, 2, 16, rope=YARN, prompts=(1, 66, 200)),
    "llama_yarn_mscale": lambda: llama(
        2,
        1,
        64,
        layers=1,
        vocab=112,
        inner=48,
        form="old",
        rope={**YARN, "beta_fast": 6.0, "beta_slow": 0.5, "truncate": False, "mscale": 1.5, "mscale_all_dim": 0.7},
    ),
    # No text leaves the original length, or each begins beyond it.
    "phi3_longrope_short": lambda: phi3_longrope(400, (1, 17, 70), form="old"),
    "phi3_longrope_long": lambda: phi3_longrope(16, (17, 40, 70)),
    "gpt_neox_parallel": lambda: gpt_neox(4, 16, rope={"partial_rotary_factor": 0.25}),
    "gpt_neox_head64": lambda: gpt_neox(
        2,
        64,
        vocab=112,
        inner=48,
        form="old",
        rope={"partial_rotary_factor": 0.5},
        use_parallel_residual=False,
        attention_bias=False,
        hidden_act="gelu_new",
    ),
    "gptj_rotary": lambda: gptj(4, 16, rotary_dim=8),
    "gptj_head64": lambda: gptj(2, 64, vocab=112, inner=48, rotary_dim=24, activation_function="gelu", tie_word_embeddings=True),
    "opt_tied": lambda: opt(4, 16),
    "opt_head64": lambda: opt(
        2, 64, vocab=112, inner=48, enable_bias=False, activation_function="gelu", tie_word_embeddings=False
    ),
    "falcon_multi_query": lambda: falcon(4, 16),
    "falcon_grouped": lambda: falcon(4, 16, new_decoder_architecture=True, num_kv_heads=2, bias=True, form="old"),
    "falcon_one_norm": lambda: falcon(
        4,
        16,
        layers=1,
        theta=5e5,
        new_decoder_architecture=True,
        num_kv_heads=2,
        num_ln_in_parallel_attn=1,
        tie_word_embeddings=False,
    ),
    "falcon_head64": lambda: falcon(
        2,
        64,
        vocab=112,
        inner=48,
        embedding=2.5,
        multi_query=False,
        parallel_attn=False,
        bias=True,
        tie_word_embeddings=False,
    ),
    # Widths of experts are multiples of 64, of those that two ranks share of 128.
    "mixtral_window": lambda: llama(
        4, 2, 16, family="Mixtral", vocab=113, inner=128, num_local_experts=5, num_experts_per_tok=2, sliding_window=24
    ),
    "mixtral_head64": lambda: llama(
        2, 1, 64, family="Mixtral", hidden=128, vocab=112, inner=64, num_local_experts=7, num_experts_per_tok=2
    ),
    # Experts in layers 1 and 5 alone, whose weights do not add up to 1.
    "qwen3_moe_mixed": lambda: qwen3_moe(
        4, 2, 24, vocab=113, layers=6, experts=9, chosen=3, width=64, renormalized=False, **MIXED
    ),
    "qwen3_moe_renormalized": lambda: qwen3_moe(
        2, 1, 64, vocab=112, experts=6, chosen=2, width=128, renormalized=True, attention_bias=True, form="old"
    ),
    "olmoe_wide_norms": lambda: llama(
        4, 2, 16, family="Olmoe", vocab=113, inner=64, num_experts=5, num_experts_per_tok=2, norm_topk_prob=False
    ),
    "granitemoe_factors": lambda: llama(
        4, 2, 16, family="GraniteMoe", vocab=113, inner=128, num_local_experts=4, num_experts_per_tok=2, **FACTORS
    ),
    "olmoe_head64": lambda: llama(
        2, 1, 64, family="Olmoe", vocab=112, inner=64, num_experts=5, num_experts_per_tok=2, norm_topk_prob=False
    ),
    "granitemoe_head64": lambda: llama(
        2, 1, 64, family="GraniteMoe", vocab=112, inner=64, num_local_experts=4, num_experts_per_tok=2, **FACTORS
    ),
    # The first one's limit is so small that many values pass it.
    "gpt_oss_sinks": lambda: gpt_oss(
        4,
        2,
        24,
        vocab=113,
        experts=4,
        chosen=2,
        form="old",
        sliding_window=24,
        swiglu_limit=0.9,
        rope={**YARN, "beta_fast": 6.0, "truncate": False},
    ),
    "gpt_oss_mxfp4": lambda: gpt_oss(
        2,
        1,
        64,
        vocab=112,
        layers=3,
        experts=5,
        chosen=3,
        packed=True,
        sliding_window=37,
        rope={**YARN, "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096},
        theta=150000.0,
    ),
    # A shared expert as wide as two of the others; experts in layers 1 and 3 alone.
    "qwen2_moe_shared": lambda: qwen2_moe(
        4, 2, 16, vocab=113, layers=4, experts=5, chosen=2, width=64, shared=128, renormalized=False, decoder_sparse_step=2
    ),
    "qwen2_moe_ranks": lambda: qwen2_moe(
        2, 1, 64, vocab=112, layers=1, experts=4, chosen=2, width=128, shared=128, renormalized=True, form="old"
    ),
    "gpt_neox_parallel64": lambda: gpt_neox(2, 64, vocab=112, inner=48, rope={"partial_rotary_factor": 0.25}),
    # Experts that two and four ranks may hold different ones of.
    "mixtral_experts": lambda: llama(
        4, 2, 64, family="Mixtral", hidden=64, vocab=112, inner=128, layers=1, num_local_experts=4, num_experts_per_tok=2
    ),
    "qwen3_moe_experts": lambda: qwen3_moe(
        4, 2, 16, vocab=112, layers=2, experts=8, chosen=3, width=64, renormalized=True, mlp_only_layers=[0]
    ),
    # Of three shared experts ranks have different numbers.
    "qwen2_moe_experts": lambda: qwen2_moe(
        4, 2, 16, vocab=112, layers=2, experts=4, chosen=2, width=128, shared=384, renormalized=False, decoder_sparse_step=2
    ),
    "gpt_oss_experts": lambda: gpt_oss(
        4, 2, 64, vocab=112, layers=1, experts=4, chosen=2, packed=True, sliding_window=24, swiglu_limit=0.9, rope=YARN
    ),
}

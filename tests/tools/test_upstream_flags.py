# SPDX-License-Identifier: Apache-2.0
"""Flags of TensorRT-LLM's converters and builders, releases 0.5 to 1.0: honoured, without effect, or refused by name."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
LLAMA = ROOT / "tests/golden/data/llama_gqa2"  # vocabulary 211, 512 positions
GPT2 = ROOT / "tests/golden/data/gpt2_tied"

CONVERT = """
model_dir meta_ckpt_dir tp_size pp_size moe_tp_size moe_ep_size moe_tp_mode dtype vocab_size n_positions n_layer n_head
n_kv_head n_embd inter_size rms_norm_eps hidden_act rotary_base use_weight_only weight_only_precision
disable_weight_only_quant_plugin smoothquant per_channel per_token int8_kv_cache calib_dataset quant_ckpt_path per_group
group_size load_by_shard load_model_on_cpu use_parallel_embedding embedding_sharding_dim use_embedding_sharing output_dir
workers moe_num_experts moe_top_k moe_renorm_mode save_config_only nemo_ckpt_path load_nemo_on_gpu gpt_variant dataset_cache_dir
log_level nemo_rename_key out_dir in_file tensor_parallelism processes calibrate_kv_cache model storage_type
convert_model_on_cpu load_checkpoints_on_gpu verbose medusa_model_dir num_medusa_heads num_medusa_layers fixed_num_medusa_heads
max_medusa_token_len max_draft_len
"""

BUILD = """
checkpoint_dir model_config build_config model_cls_file model_cls_name output_dir workers max_batch_size max_input_len max_seq_len
max_decoder_seq_len max_output_len max_beam_width max_num_tokens opt_num_tokens max_prompt_embedding_table_size
max_multimodal_len gather_context_logits gather_generation_logits gather_all_token_logits logits_dtype max_draft_len
speculative_decoding_mode lora_dir lora_ckpt_source lora_target_modules max_lora_rank lora_plugin max_encoder_input_len tp_size
pp_size cp_size use_fused_mlp use_custom_all_reduce weight_streaming weight_sparsity strip_plan builder_opt
builder_force_num_profiles profiling_verbosity enable_debug_output visualize_network dry_run input_timing_cache
output_timing_cache auto_parallel cluster_key gpus_per_node fast_build strongly_typed gpt_attention_plugin
bert_attention_plugin moe_plugin nccl_plugin mamba_conv1d_plugin gemm_plugin lookup_plugin gemm_swiglu_plugin
fp8_rowwise_gemm_plugin context_fmha context_fmha_fp32_acc paged_kv_cache tokens_per_block remove_input_padding
use_paged_context_fmha use_fp8_context_fmha multiple_profiles enable_xqa multi_block_mode reduce_fusion paged_state streamingllm
world_size model_dir dtype ft_model_dir meta_ckpt_dir quant_ckpt_path vocab_size n_layer n_positions n_embd n_head hidden_act
rotary_pct inter_size no_bias n_kv_head multiple_of ffn_dim_multiplier rms_norm_eps rotary_base rotary_scaling
use_gpt_attention_plugin use_gemm_plugin use_layernorm_plugin use_rmsnorm_plugin use_lookup_plugin use_lora_plugin
enable_context_fmha enable_context_fmha_fp32_acc use_inflight_batching parallel_build use_smooth_quant per_channel per_token
int8_kv_cache use_weight_only weight_only_precision enable_fp8 fp8_kv_cache per_group group_size quantized_fp8_model_path
use_parallel_embedding embedding_sharding_dim use_embedding_sharing hf_lora_dir timing_cache log_level kv_cache_type
monitor_memory dora_plugin low_latency_gemm_plugin low_latency_gemm_swiglu_plugin gemm_allreduce_plugin user_buffer
norm_quant_fusion fuse_fp4_quant manage_weights pp_reduce_scatter bert_context_fmha_fp32_acc attention_qk_half_accumulation
use_context_fmha_for_generation
"""

REFUSED = [
    ("convert", "--meta_ckpt_dir x", "Hugging Face format"),
    ("convert", "--nemo_ckpt_path x", "Hugging Face format"),
    ("convert", "--gpt_variant santacoder", "of the GPT variants gpt2 is supported"),
    ("convert", "--model starcoder", "of the GPT variants gpt2 is supported"),
    ("convert", "--n_head 32", "--n-head: got 32, the model has 4"),
    ("convert", "--smoothquant 0.5", "calibration is not supported"),
    ("convert", "-sq 0.5", "calibration is not supported"),
    ("convert", "--int8_kv_cache", "calibration is not supported"),
    ("convert", "-kv", "calibration is not supported"),
    ("convert", "--per_group", "--quant-algo W4A16_GPTQ"),
    ("convert", "--moe_tp_size 2", "moe_tp_size: got 2, it has to divide the tensor-parallel ranks, which are 1"),
    ("build", "--model_cls_file x.py", "code of models cannot be loaded"),
    ("build", "--max_draft_len 128", "--max-draft-len"),
    ("build", "--speculative_decoding_mode eagle", "draft_tokens_external, medusa"),
    (
        "build",
        "--speculative_decoding_mode medusa --max_draft_len 63",
        "has no Medusa heads; convert the model with --medusa-model-dir",
    ),
    ("convert", "--num_medusa_heads 4", "--medusa-model-dir: is needed"),
    ("convert", "--medusa_model_dir /nowhere", "--medusa-model-dir: /nowhere: no such directory"),
    ("convert", "--medusa_model_dir /", "medusa_model_dir: got /, medusa_lm_head.safetensors or"),
    ("build", "--speculative_decoding_mode draft_tokens_external", "needs --max-draft-len of at least 1"),
    ("build", "--lora_target_modules attn_qkv moe_gate", "got 'moe_gate', supported are attn_qkv, attn_q"),
    ("build", "--max_lora_rank 257", "max-lora-rank"),
    ("build", "--paged_kv_cache disable", "always paged"),
    ("build", "--remove_input_padding disable", "always packed"),
    ("build", "--tokens_per_block 128", "--kv-block-size"),
    ("build", "--logits_dtype float16", "always float32"),
    ("build", "--max_multimodal_len -1", "--max-prompt-embedding-table-size: got '-1'"),
    ("build", "--enable_fp8", "intermediate_size: got 72, with FP8 weights"),
    ("build", "--rotary_scaling linear 2.0", "the model's own config.json says it"),
    ("build", "--weight_streaming", "weights stay in memory"),
    ("build", "--cp_size 2", "by --tp-size and --pp-size alone"),
    ("convert", "--vocab_size 7", "--vocab-size: got 7, the model has 211"),
    ("convert", "--n_positions 7", "--n-positions: got 7, the model has 512"),
    ("convert", "--n_layer 7", "--n-layer: got 7, the model has"),
    ("convert", "--n_kv_head 7", "--n-kv-head: got 7, the model has"),
    ("convert", "--n_embd 7", "--n-embd: got 7, the model has"),
    ("convert", "--inter_size 7", "--inter-size: got 7, the model has 72"),
    ("convert", "--rms_norm_eps 0.5", "--rms-norm-eps: got 0.5, the model has"),
    ("convert", "--hidden_act gelu", "--hidden-act: got gelu, the model has silu"),
    ("convert", "--hidden_act mish", "--hidden-act: got mish, the model has silu"),
    ("convert", "--rotary_base 7", "--rotary-base: got 7, the model has"),
    ("convert", "--per_channel", "calibration is not supported"),
    ("convert", "--per_token", "calibration is not supported"),
    ("convert", "--calib_dataset x", "only calibration reads it"),
    ("convert", "--dataset_cache_dir x", "only calibration reads it"),
    ("convert", "--quant_ckpt_path x", "--quant-algo W4A16_GPTQ"),
    ("convert", "--group_size 64", "only beside quant_algo W4A16_GPTQ"),
    ("convert", "--nemo_rename_key a:b", "Hugging Face format"),
    ("convert", "--tp_size 2 --moe_ep_size 2", "moe_ep_size: got 2, LlamaForCausalLM has no experts; leave it out"),
    ("convert", "--tp_size 4 --moe_tp_size 4 --moe_ep_size 2", "moe_ep_size: got 2, beside moe_tp_size 4 of 4"),
    ("convert", "--moe_tp_mode 0", "--moe-tp-mode: got '0'"),
    ("convert", "--moe_tp_mode 1 --moe_tp_size 2", "--moe-tp-size: got 2, --moe-tp-mode 1 stands for 1; leave one of both out"),
    ("build", "--tp_size 2 --moe_ep_size 3", "moe_ep_size: got 3, it has to divide"),
    ("convert", "--moe_num_experts 8", "the model's own config.json says it"),
    ("convert", "--moe_top_k 2", "the model's own config.json says it"),
    ("convert", "--moe_renorm_mode NONE", "the model's own config.json says it"),
    ("build", "--meta_ckpt_dir x", "Hugging Face format"),
    ("build", "--model_config x", "put the changes there"),
    ("build", "--build_config x", "with --config"),
    ("build", "--model_cls_name x", "code of models cannot be loaded"),
    ("build", "--max_prompt_embedding_table_size 1048577", "--max-prompt-embedding-table-size: got '1048577'"),
    ("build", "--lora_dir x", "LoRA"),
    ("build", "--hf_lora_dir x", "LoRA"),
    ("build", "--lora_ckpt_source nemo", "LoRA"),
    ("build", "--max_encoder_input_len 9", "encoder-decoder models are not supported"),
    ("build", "--auto_parallel 2", "by --tp-size and --pp-size alone"),
    ("build", "--n_layer 7", "--n-layer: got 7, the model has"),
    ("build", "--kv_cache_type continuous", "always paged"),
    ("build", "--dora_plugin enable", "DoRA"),
    ("build", "--multiple_of 256", "config.json says it"),
    ("build", "--ffn_dim_multiplier 1.3", "config.json says it"),
    ("build", "--rotary_pct 0.5", "config.json says it"),
    ("build", "--no_bias", "config.json says it"),
    ("build", "--use_smooth_quant", "calibration is not supported"),
    ("build", "--int8_kv_cache", "calibration is not supported"),
    ("build", "--per_group", "--quant-algo W4A16_GPTQ"),
    ("build", "--quant_ckpt_path x", "--quant-algo W4A16_GPTQ"),
    ("build", "--fp8_kv_cache", "kv_cache_quant_algo: got FP8 for target cpu"),
    ("build", "--quantized_fp8_model_path x", "calibrated scales are not read"),
    ("build", "--max_beam_width 257", "--max-beam-width: got '257'"),
]


def run(*args, check=True, cwd=None):
    done = subprocess.run([INFLIGHT, *map(str, args)], capture_output=True, text=True, timeout=120, check=False, cwd=cwd)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def config(directory):
    return json.loads((directory / "config.json").read_text())


def test_every_flag_of_upstreams_tools_is_known():
    pages = run("options").stdout.split("## inflight ")
    for command, flags in (("convert", CONVERT), ("build", BUILD)):
        [page] = [page for page in pages if page.startswith(command + "\n")]
        words = set(page.replace("`", " ").replace(";", " ").split())
        missing = [flag for flag in flags.split() if "--" + flag.replace("_", "-") not in words]
        assert not missing, command


@pytest.mark.parametrize(("command", "flags", "reason"), REFUSED, ids=lambda value: value if value.startswith("-") else "")
def test_refusals_name_flag_reason_and_remedy(command, flags, reason, tmp_path):
    source = "--model_dir" if command == "convert" else "--checkpoint_dir"
    done = run(command, source, LLAMA, "--output_dir", tmp_path / "out", *flags.split(), check=False)
    assert done.returncode == 1
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_values_that_ask_for_nothing_are_accepted(tmp_path):
    run("convert", "--model_dir", LLAMA, "--output_dir", tmp_path / "ckpt", "--moe_tp_size", "-1", "--moe_ep_size=-1")
    done = run(
        "build",
        "--checkpoint_dir",
        tmp_path / "ckpt",
        "--output_dir",
        tmp_path / "engine",
        "--paged_kv_cache",
        "enable",
        "--remove_input_padding",
        "--tokens_per_block",
        64,
        "--lora_plugin",
        "disable",
        "--max_draft_len",
        0,
        "--speculative_decoding_mode",
        "none",
        "--weight_streaming",
        "disable",
        "--auto_parallel",
        1,
        "--max_lora_rank",
        64,
        "--lora_ckpt_source",
        "hf",
        "--group_size",
        128,
        "--max_encoder_input_len",
        1024,
    )
    assert "no effect" not in done.stderr


PLUGINS = """
--kv_cache_type paged --monitor_memory --dora_plugin disable --low_latency_gemm_plugin fp8 --low_latency_gemm_swiglu_plugin fp8
--gemm_allreduce_plugin float16 --user_buffer enable --norm_quant_fusion enable --manage_weights enable --pp_reduce_scatter enable
--bert_context_fmha_fp32_acc enable
"""


def test_plugins_of_later_releases_are_accepted(tmp_path):
    done = run("build", "--checkpoint_dir", LLAMA, "--output_dir", tmp_path / "engine", *PLUGINS.split())
    without_effect = [
        flag for flag in PLUGINS.split() if flag.startswith("--") and flag not in ("--kv_cache_type", "--dora_plugin")
    ]
    for flag in without_effect:
        assert f"option={flag.replace('_', '-')} " in done.stderr
    assert done.stderr.count("option has no effect") == len(without_effect)
    assert (tmp_path / "engine/config.json").exists()


SIZES = {
    LLAMA: "--vocab_size 211 --n_positions 512 --n_layer 2 --n_head 4 --n_kv_head 2 --n_embd 64 --inter_size 72 "
    "--rms_norm_eps 1e-5 --rotary_base 10000 --hidden_act silu",
    GPT2: "--vocab_size 257 --n_positions 460 --n_layer 2 --n_head 4 --n_embd 64 --inter_size 160 --hidden_act gelu",
}


@pytest.mark.parametrize("model", SIZES, ids=lambda model: model.name)
def test_sizes_that_are_the_models_own_are_accepted(model, tmp_path):
    sizes = SIZES[model].split()
    run("convert", "--model_dir", model, "--output_dir", tmp_path / "ckpt", *sizes)
    run("build", "--checkpoint_dir", tmp_path / "ckpt", "--output_dir", tmp_path / "engine", *sizes)
    assert (tmp_path / "engine/config.json").exists()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            "--n_layer 2 --n_head 4 --n_embd 64 --vocab_size 300 --n_positions 128 --dtype float32 --hidden_act gelu",
            {"architecture": "GPT2LMHeadModel", "intermediate_size": 256, "vocab_size": 300, "hidden_act": "gelu"},
        ),
        (
            "--architecture LlamaForCausalLM --n_layer 1 --n_head 4 --n_kv_head 2 --n_embd 64 --inter_size 96 --vocab_size 300",
            {"architecture": "LlamaForCausalLM", "num_key_value_heads": 2, "intermediate_size": 96, "dtype": "float16"},
        ),
    ],
    ids=["gpt", "llama"],
)
def test_sizes_alone_make_an_engine_of_random_weights(flags, expected, tmp_path):
    """build.py of the first releases, which the tests of the back-end called without a model."""
    engine = tmp_path / "engine"
    run("build", *flags.split(), "--output_dir", engine, "--use_gpt_attention_plugin", "float16", "--max_batch_size", 4)
    built = config(engine)["pretrained_config"]
    assert {key: built[key] for key in expected} == expected
    request = tmp_path / "requests.jsonl"
    request.write_text(json.dumps({"input_ids": [3, 7, 11], "max_tokens": 5, "end_id": -1}) + "\n")
    answers = [run("run", engine, "--input", request).stdout for _ in range(2)]
    assert answers[0] == answers[1] and len(json.loads(answers[0])["output_ids"]) == 5


def test_sizes_that_do_not_fit_each_other_are_refused(tmp_path):
    done = run("build", "--n_layer", 1, "--n_head", 5, "--n_embd", 64, "--output_dir", tmp_path / "engine", check=False)
    assert done.returncode == 1
    assert not (tmp_path / "engine").exists()


def test_batches_of_later_releases_are_kept_and_what_a_step_holds_is_said(tmp_path):
    done = run("build", "--checkpoint_dir", LLAMA, "--output_dir", tmp_path / "engine", "--max_batch_size", 2048)
    assert "most_in_a_step=1024" in done.stderr
    assert config(tmp_path / "engine")["build_config"]["max_batch_size"] == 2048
    assert "and 1024 sequences" in run("inspect", tmp_path / "engine").stdout


def test_what_requests_and_servers_say_now_needs_no_flag_of_the_build(tmp_path):
    done = run(
        "build",
        "--checkpoint_dir",
        LLAMA,
        "--output_dir",
        tmp_path / "engine",
        "--gather_all_token_logits",
        "--gather_context_logits",
        "--gather_generation_logits",
        "enable",
        "--streamingllm",
        "enable",
    )
    assert done.stderr.count("option has no effect") == 4
    assert done.stderr.count("logits are returned to each request that asks for them") == 3
    assert "sink_token_length and max_attention_window_size" in done.stderr


def test_a_walkthrough_of_release_0_10(tmp_path):
    run("convert", "--model_dir", GPT2, "--dtype", "float16", "--tp_size", 4, "--output_dir", "c-model", cwd=tmp_path)
    done = run(
        "build",
        "--checkpoint_dir",
        "c-model",
        "--gpt_attention_plugin",
        "float16",
        "--remove_input_padding",
        "enable",
        "--paged_kv_cache",
        "enable",
        "--gemm_plugin",
        "float16",
        "--use_custom_all_reduce=disable",
        "--workers",
        4,
        "--max_batch_size",
        64,
        "--max_input_len",
        100,
        "--max_output_len",
        120,
        "--output_dir",
        "engines",
        cwd=tmp_path,
    )
    assert done.stderr.count("option has no effect") == 4
    assert "option=--gemm-plugin value=float16" in done.stderr
    built = config(tmp_path / "engines")
    assert built["pretrained_config"]["dtype"] == "float16"
    limits = built["build_config"]
    assert (limits["max_batch_size"], limits["max_input_len"], limits["max_seq_len"]) == (64, 100, 220)


def test_a_walkthrough_of_release_0_5(tmp_path):
    """Raw arrays went to OUT/T-gpu, and build.py took them from there."""
    run("convert", "-p", 8, "-i", GPT2, "-o", "c-model/gpt2", "--tensor-parallelism", 2, "--storage-type", "fp16", cwd=tmp_path)
    assert config(tmp_path / "c-model/gpt2/2-gpu")["mapping"]["tp_size"] == 2
    run(
        "build",
        "--model_dir=c-model/gpt2/2-gpu",
        "--world_size=2",
        "--use_gpt_attention_plugin",
        "--remove_input_padding",
        "--use_inflight_batching",
        "--paged_kv_cache",
        "--parallel_build",
        "--use_layernorm_plugin",
        "float16",
        cwd=tmp_path,
    )
    assert config(tmp_path / "engine_outputs")["pretrained_config"]["dtype"] == "float16"
    run("convert", "--model_dir", GPT2, "-tp", 4, "-t", "float32", cwd=tmp_path)
    assert config(tmp_path / "tllm_checkpoint")["mapping"]["tp_size"] == 4


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ("--max_output_len 5", "--max-output-len: needs --max-input-len"),
        ("--max_output_len 5 --max_input_len 7 --max_seq_len 13", "that is a sequence of 12, but --max-seq-len is 13"),
        ("--world_size 4 --tp_size 2", "--world-size: got 4, tp_size * pp_size is 2"),
        ("--tp_size 3", "tp_size: got 3, num_attention_heads"),
        ("--log_level loud", "--log-level: got 'loud'"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(flags, error, tmp_path):
    done = run("build", "--checkpoint_dir", LLAMA, "--output_dir", tmp_path / "out", *flags.split(), check=False)
    assert done.returncode == 1
    assert error in done.stderr


def test_dynamic_rope_is_served_up_to_the_trained_length(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").symlink_to(LLAMA / "model.safetensors")
    changed = config(LLAMA) | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    (model / "config.json").write_text(json.dumps(changed))
    run("build", "--checkpoint_dir", model, "--output_dir", tmp_path / "engine")
    assert config(tmp_path / "engine")["build_config"]["max_seq_len"] == 512
    # Up to the trained length the base is the plain one, so the answers are those of the model without scaling,
    # which the golden tests compare with transformers.
    request = tmp_path / "requests.jsonl"
    request.write_text(json.dumps({"input_ids": [3, 7, 11], "max_tokens": 500, "end_id": -1}) + "\n")
    results = [run("run", directory, "--input", request).stdout for directory in (tmp_path / "engine", LLAMA)]
    assert results[0] == results[1] and len(json.loads(results[0])["output_ids"]) == 500
    done = run("build", "--checkpoint_dir", model, "--output_dir", tmp_path / "longer", "--max_seq_len", 513, check=False)
    assert done.returncode == 1
    assert "max_seq_len: got 513" in done.stderr and "dynamic" in done.stderr


def test_an_engine_is_alone_what_its_model_was(tmp_path):
    """Text in, text out, from a copy of the engine directory and nothing else."""
    demo = ROOT / "models/demo"
    run("convert", "--model_dir", demo, "--output_dir", tmp_path / "ckpt", "--dtype", "float32", "--tp_size", 2)
    run("build", "--checkpoint_dir", tmp_path / "ckpt", "--output_dir", tmp_path / "engine")
    for path in (tmp_path / "ckpt").iterdir():
        path.unlink()
    prompt = ["--prompt", "Once upon a time", "--max-tokens", "16"]
    assert run("run", tmp_path / "engine", *prompt).stdout == run("run", demo, *prompt, "--dtype", "float32").stdout

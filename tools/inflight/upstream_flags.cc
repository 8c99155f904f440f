// SPDX-License-Identifier: Apache-2.0
#include "upstream_flags.h"

#include <iterator>
#include <span>

#include "base/log.h"

namespace inflight::tool {
namespace {

using enum UpstreamFlag::Kind;

constexpr char kThreads[] = "all cores work on each tensor";
constexpr char kMapped[] = "files are mapped and written tensor by tensor";
constexpr char kCalibration[] =
    "calibration is not supported; convert without it, the weights keep their dtype";
constexpr char kCalibrationData[] =
    "only calibration reads it, which is not supported; leave it out";
constexpr char kGroupwise[] =
    "give the quantised Hugging Face model as --model-dir, or --quant-algo W4A16_GPTQ to quantise "
    "in groups here";
constexpr char kSkeleton[] =
    "the model's own config.json says it; leave it out, or change that file";
constexpr char kMeta[] =
    "Meta's and NeMo's formats are not read; give the model in the Hugging Face format with "
    "--model-dir";
constexpr char kPlugins[] = "there are no plugins; kernels are chosen by the machine";
constexpr char kTensorRt[] = "steers TensorRT, which is not used";
constexpr char kAlwaysOn[] = "is always on";
constexpr char kAttention[] =
    "attention is always tiled, paged and accumulated in float32, prompts in chunks";
constexpr char kLora[] =
    "requests bring adapters (LoRA), or inflight serve --lora-dir names them; an engine has none";
constexpr char kDora[] = "adapters with magnitudes (DoRA) are not supported; leave it out";
constexpr char kFp8Path[] =
    "calibrated scales are not read: FP8 scales are made with the weights; give --use-fp8-rowwise";
constexpr char kLogits[] = "logits are returned to each request that asks for them";
constexpr char kPlainWeights[] = "weights are always stored as [out, in]";
constexpr char kDraftLen[] =
    "drafts of a step are limited by inflight build --max-draft-len, and by the tree";
constexpr char kVerbose[] = "say --log-level verbose";
constexpr char kVariants[] =
    "of the GPT variants gpt2 is supported; the architecture is read from the model's config.json";
constexpr char kOwnRanks[] = "ranks run on CPUs and have collectives of their own";
constexpr char kOtherRanks[] = "an engine is split by --tp-size and --pp-size alone; leave it out";
constexpr char kPaged[] =
    "the KV cache is always paged and batches are always packed; leave it out";
constexpr char kBlocks[] = "blocks are sized when serving: inflight serve --kv-block-size";
constexpr char kLogitsDType[] = "logits are always float32; leave it out";
constexpr char kEncoder[] = "encoder-decoder models are not supported; leave it out";
constexpr char kStreaming[] = "weights stay in memory; leave it out";
constexpr char kSink[] =
    "sinks and windows are said when serving: sink_token_length and max_attention_window_size";
constexpr char kModelConfig[] = "the checkpoint's own config.json is read; put the changes there";
constexpr char kBuildConfig[] = "give limits as flags, or as a JSON object of them with --config";
constexpr char kModelClass[] =
    "code of models cannot be loaded; docs/models.md lists what is supported";
constexpr char kConverters[] =
    "belongs to conversion: give it to inflight convert; the ranks of an engine split their tables "
    "along the vocabulary";

constexpr UpstreamFlag kRefusedByBoth[] = {
    {kRefused, "meta_ckpt_dir", kMeta},
    {kRefused, "int8_kv_cache", kCalibration, "disable"},
    {kRefused, "per_channel", kCalibration, "disable"},
    {kRefused, "per_token", kCalibration, "disable"},
    {kRefused, "quant_ckpt_path", kGroupwise},
    {kRefused, "per_group", kGroupwise, "disable"},
};

constexpr UpstreamFlag kConvertFlags[] = {
    {kNoEffect, "workers", kThreads},
    {kNoEffect, "processes", kThreads},
    {kNoEffect, "load_by_shard", kMapped},
    {kNoEffect, "load_model_on_cpu", kMapped},
    {kNoEffect, "convert_model_on_cpu", kMapped},
    {kNoEffect, "load_nemo_on_gpu", kMapped},
    {kNoEffect, "load_checkpoints_on_gpu", kMapped},
    {kNoEffect, "verbose", kVerbose},
    {kNoEffect, "disable_weight_only_quant_plugin", kPlainWeights},
    {kNoEffect, "max_medusa_token_len", kDraftLen},
    {kNoEffect, "max_draft_len", kDraftLen},
    {kRefused, "nemo_ckpt_path", kMeta},
    {kRefused, "nemo_rename_key", kMeta},
    {kRefused, "gpt_variant", kVariants, "gpt2"},
    {kRefused, "smoothquant", kCalibration},
    {kRefused, "calib_dataset", kCalibrationData},
    {kRefused, "dataset_cache_dir", kCalibrationData},
    {kRefused, "moe_num_experts", kSkeleton, "0"},
    {kRefused, "moe_top_k", kSkeleton, "0"},
    {kRefused, "moe_renorm_mode", kSkeleton, "RENORMALIZE"},
};

constexpr UpstreamFlag kBuildFlags[] = {
    {kNoEffect, "workers", kThreads},
    {kNoEffect, "parallel_build", kThreads},
    {kNoEffect, "gpt_attention_plugin", kPlugins},
    {kNoEffect, "bert_attention_plugin", kPlugins},
    {kNoEffect, "gemm_plugin", kPlugins},
    {kNoEffect, "moe_plugin", kPlugins},
    {kNoEffect, "nccl_plugin", kPlugins},
    {kNoEffect, "lookup_plugin", kPlugins},
    {kNoEffect, "mamba_conv1d_plugin", kPlugins},
    {kNoEffect, "gemm_swiglu_plugin", kPlugins},
    {kNoEffect, "fp8_rowwise_gemm_plugin", kPlugins},
    {kNoEffect, "low_latency_gemm_plugin", kPlugins},
    {kNoEffect, "low_latency_gemm_swiglu_plugin", kPlugins},
    {kNoEffect, "gemm_allreduce_plugin", kPlugins},
    {kNoEffect, "use_gpt_attention_plugin", kPlugins},
    {kNoEffect, "use_gemm_plugin", kPlugins},
    {kNoEffect, "use_layernorm_plugin", kPlugins},
    {kNoEffect, "use_rmsnorm_plugin", kPlugins},
    {kNoEffect, "use_lookup_plugin", kPlugins},
    {kNoEffect, "context_fmha", kAttention},
    {kNoEffect, "enable_context_fmha", kAttention},
    {kNoEffect, "context_fmha_fp32_acc", kAttention},
    {kNoEffect, "enable_context_fmha_fp32_acc", kAttention},
    {kNoEffect, "use_paged_context_fmha", kAttention},
    {kNoEffect, "use_fp8_context_fmha", kAttention},
    {kNoEffect, "bert_context_fmha_fp32_acc", kAttention},
    {kNoEffect, "use_context_fmha_for_generation", kAttention},
    {kNoEffect, "attention_qk_half_accumulation", kAttention},
    {kNoEffect, "multi_block_mode", kAttention},
    {kNoEffect, "enable_xqa", kAttention},
    {kNoEffect, "use_inflight_batching", kAlwaysOn},
    {kNoEffect, "paged_state", kAlwaysOn},
    {kNoEffect, "opt_num_tokens", kTensorRt},
    {kNoEffect, "opt_batch_size", kTensorRt},
    {kNoEffect, "multiple_profiles", kTensorRt},
    {kNoEffect, "builder_opt", kTensorRt},
    {kNoEffect, "builder_force_num_profiles", kTensorRt},
    {kNoEffect, "profiling_verbosity", kTensorRt},
    {kNoEffect, "enable_debug_output", kTensorRt},
    {kNoEffect, "visualize_network", kTensorRt},
    {kNoEffect, "input_timing_cache", kTensorRt},
    {kNoEffect, "output_timing_cache", kTensorRt},
    {kNoEffect, "timing_cache", kTensorRt},
    {kNoEffect, "strongly_typed", kTensorRt},
    {kNoEffect, "fast_build", kTensorRt},
    {kNoEffect, "weight_sparsity", kTensorRt},
    {kNoEffect, "strip_plan", kTensorRt},
    {kNoEffect, "cluster_key", kTensorRt},
    {kNoEffect, "reduce_fusion", kTensorRt},
    {kNoEffect, "norm_quant_fusion", kTensorRt},
    {kNoEffect, "fuse_fp4_quant", kTensorRt},
    {kNoEffect, "manage_weights", kTensorRt},
    {kNoEffect, "monitor_memory", kMapped},
    {kNoEffect, "gather_context_logits", kLogits},
    {kNoEffect, "gather_generation_logits", kLogits},
    {kNoEffect, "gather_all_token_logits", kLogits},
    {kNoEffect, "streamingllm", kSink},
    {kNoEffect, "use_fused_mlp", kTensorRt},
    {kNoEffect, "gpus_per_node", kOwnRanks},
    {kNoEffect, "use_custom_all_reduce", kOwnRanks},
    {kNoEffect, "user_buffer", kOwnRanks},
    {kNoEffect, "pp_reduce_scatter", kOwnRanks},
    {kNoEffect, "use_parallel_embedding", kConverters},
    {kNoEffect, "embedding_sharding_dim", kConverters},
    {kNoEffect, "use_embedding_sharing", kConverters},
    {kRefused, "paged_kv_cache", kPaged, "enable"},
    {kRefused, "kv_cache_type", kPaged, "paged"},
    {kRefused, "remove_input_padding", kPaged, "enable"},
    {kRefused, "tokens_per_block", kBlocks, "64"},
    {kRefused, "auto_parallel", kOtherRanks, "1"},
    {kRefused, "cp_size", kOtherRanks, "1"},
    {kRefused, "logits_dtype", kLogitsDType, "float32"},
    {kRefused, "lora_dir", kLora},
    {kRefused, "hf_lora_dir", kLora},
    {kRefused, "lora_ckpt_source", kLora, "hf"},
    {kRefused, "dora_plugin", kDora, "disable"},
    {kRefused, "max_encoder_input_len", kEncoder, "1024"},
    {kRefused, "weight_streaming", kStreaming, "disable"},
    {kRefused, "model_config", kModelConfig},
    {kRefused, "build_config", kBuildConfig},
    {kRefused, "model_cls_file", kModelClass},
    {kRefused, "model_cls_name", kModelClass},
    {kRefused, "multiple_of", kSkeleton},
    {kRefused, "ffn_dim_multiplier", kSkeleton},
    {kRefused, "rotary_scaling", kSkeleton},
    {kRefused, "rotary_pct", kSkeleton, "0"},
    {kRefused, "no_bias", kSkeleton, "disable"},
    {kRefused, "use_smooth_quant", kCalibration, "disable"},
    {kRefused, "quantized_fp8_model_path", kFp8Path},
};

struct NamedLevel {
  const char* name;
  logging::Level level;
};
constexpr NamedLevel kLevels[] = {
    {"internal_error", logging::Level::kError}, {"error", logging::Level::kError},
    {"warning", logging::Level::kWarning},      {"info", logging::Level::kInfo},
    {"verbose", logging::Level::kVerbose},      {"debug", logging::Level::kVerbose}};

std::vector<UpstreamFlag> WithRefusedByBoth(std::span<const UpstreamFlag> own) {
  std::vector<UpstreamFlag> flags(own.begin(), own.end());
  flags.insert(flags.end(), std::begin(kRefusedByBoth), std::end(kRefusedByBoth));
  return flags;
}

}  // namespace

std::vector<UpstreamFlag> ConvertFlags() { return WithRefusedByBoth(kConvertFlags); }
std::vector<UpstreamFlag> BuildFlags() { return WithRefusedByBoth(kBuildFlags); }

std::vector<std::string> LogLevels() {
  std::vector<std::string> names;
  for (const NamedLevel& level : kLevels) names.emplace_back(level.name);
  return names;
}

void SetLogLevel(const std::string& name) {
  for (const NamedLevel& level : kLevels)
    if (name == level.name) logging::SetLevel(level.level);
}

}  // namespace inflight::tool

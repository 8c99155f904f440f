// SPDX-License-Identifier: Apache-2.0
#include "model/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "artifact/json_file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "model/rope.h"

namespace inflight::model {
namespace {

constexpr int kMaxBatchSize = 65536;
constexpr int kMaxNumTokens = 1 << 20;
constexpr int kMaxSeqLen = 1 << 24;
constexpr int kMaxBeamWidth = 256;
constexpr int kMaxDraftLen = 127;  // below the largest block of the KV cache
constexpr int kMaxPromptRows = 1 << 20;

// Of upstream's modes, NVIDIA/TensorRT-LLM/tensorrt_llm/models/modeling_utils.py,
// SpeculativeDecodingMode.
constexpr int kNone = 1, kDraftTokensExternal = 2, kMedusa = 4;

constexpr int kManyTokens = 16384;  // upstream warns above it, too

Status CheckRange(std::string_view field, int value, int min, int max) {
  if (value >= min && value <= max) return Status::Ok();
  return InvalidArgument(
      fmt::format("{}: got {}, a number from {} to {} is needed", field, value, min, max));
}

}  // namespace

Result<EngineLimits> ResolveLimits(const ModelConfig& config, EngineLimits limits) {
  RETURN_IF_ERROR(CheckRange("max_batch_size", limits.max_batch_size, 1, kMaxBatchSize));
  RETURN_IF_ERROR(CheckRange("max_num_tokens", limits.max_num_tokens, 1, kMaxNumTokens));
  RETURN_IF_ERROR(CheckRange("max_seq_len", limits.max_seq_len, 0, kMaxSeqLen));
  RETURN_IF_ERROR(CheckRange("max_input_len", limits.max_input_len, 0, kMaxSeqLen));
  RETURN_IF_ERROR(CheckRange("max_beam_width", limits.max_beam_width, 1, kMaxBeamWidth));
  RETURN_IF_ERROR(CheckRange("max_draft_len", limits.max_draft_len, 0, kMaxDraftLen));
  RETURN_IF_ERROR(CheckRange("max_prompt_embedding_table_size",
                             limits.max_prompt_embedding_table_size, 0, kMaxPromptRows));
  const bool is_longrope = config.rope_scaling.kind == RopeScaling::Kind::kLongRope;
  if (limits.max_seq_len == 0)
    limits.max_seq_len = is_longrope ? OriginalLength(config) : config.max_position_embeddings;
  if (HasLongFactors(config, limits.max_seq_len))
    logging::Warning("sequences of every length are turned by the long factors of longrope",
                     {{"max_seq_len", limits.max_seq_len},
                      {"original_max_position_embeddings", OriginalLength(config)}});
  if (limits.max_seq_len > config.max_position_embeddings) {
    if (config.position == PositionKind::kLearnedAbsolute)
      return InvalidArgument(fmt::format("max_seq_len: got {}, the model has {} learned positions",
                                         limits.max_seq_len, config.max_position_embeddings));
    if (config.rope_scaling.kind == RopeScaling::Kind::kDynamic)
      return Unimplemented(fmt::format(
          "max_seq_len: got {}, the model's rope_scaling is dynamic and it was trained for {} "
          "positions: beyond, every key that is cached already would need another base; give at "
          "most {}",
          limits.max_seq_len, config.max_position_embeddings, config.max_position_embeddings));
    logging::Warning("max_seq_len is beyond the trained length",
                     {{"max_seq_len", limits.max_seq_len},
                      {"max_position_embeddings", config.max_position_embeddings}});
  }
  if (limits.max_input_len == 0) limits.max_input_len = limits.max_seq_len;
  limits.max_input_len = std::min(limits.max_input_len, limits.max_seq_len);
  limits.max_num_tokens = static_cast<int>(std::min<int64_t>(
      limits.max_num_tokens, int64_t{limits.max_seq_len} * limits.max_batch_size));
  if (limits.max_num_tokens > kManyTokens)
    logging::Warning("max_num_tokens is unusually large; its workspace is taken at load",
                     {{"max_num_tokens", limits.max_num_tokens}});
  return limits;
}

namespace {

constexpr const char* kTargetModules = "lora_target_modules";
constexpr const char* kMaxLoraRank = "max_lora_rank";

// Empty where an engine takes all.
nlohmann::json LoraToJson(const LoraLimits& lora) {
  nlohmann::json json = nlohmann::json::object();
  if (lora == LoraLimits{}) return json;
  json["lora_dir"] = nlohmann::json::array();
  json["lora_ckpt_source"] = "hf";
  json[kMaxLoraRank] = lora.max_rank;
  json[kTargetModules] = nlohmann::json::array();
  for (size_t i = 0; i < size_t{kNumLoraModules}; ++i)
    if ((lora.modules >> i & 1U) != 0) json[kTargetModules].push_back(kLoraModuleNames[i]);
  return json;
}

Result<LoraLimits> LoraFromJson(const nlohmann::json& json, const std::string& where) {
  artifact::JsonFields fields(where, json);
  LoraLimits lora;
  lora.max_rank =
      static_cast<int>(fields.IntOr(kMaxLoraRank, ops::kMaxLoraRank, 1, ops::kMaxLoraRank));
  const nlohmann::json* const names = fields.Find(kTargetModules);
  if (names != nullptr && !names->is_array())
    fields.Fail(kTargetModules, "must be a list of names");
  RETURN_IF_ERROR(fields.status());
  if (names != nullptr && !names->empty()) {
    lora.modules = 0;
    for (const nlohmann::json& name : *names) {
      const auto end = kLoraModuleNames.begin() + kNumLoraModules;
      const auto found = name.is_string()
                             ? std::find(kLoraModuleNames.begin(), end, name.get<std::string>())
                             : end;
      if (found == end) {
        fields.Fail(kTargetModules, "got " + artifact::Abbreviate(name) +
                                        ", which is no module that adapters are supported for");
        break;
      }
      lora.modules |= 1U << (found - kLoraModuleNames.begin());
    }
  }
  RETURN_IF_ERROR(fields.status());
  return lora;
}

}  // namespace

nlohmann::json LimitsToJson(const ModelConfig& config, const EngineLimits& limits) {
  return {
      {"max_input_len", limits.max_input_len},
      {"max_seq_len", limits.max_seq_len},
      {"max_batch_size", limits.max_batch_size},
      {"max_beam_width", limits.max_beam_width},
      {"max_num_tokens", limits.max_num_tokens},
      {"max_prompt_embedding_table_size", limits.max_prompt_embedding_table_size},
      {"max_draft_len", limits.max_draft_len},
      {"speculative_decoding_mode", config.num_medusa_heads > 0 ? kMedusa
                                    : limits.max_draft_len > 0  ? kDraftTokensExternal
                                                                : kNone},
      {"gather_context_logits", false},
      {"gather_generation_logits", false},
      {"lora_config", LoraToJson(limits.lora)},
      {"plugin_config",
       {{"dtype", DTypeName(config.dtype)},
        {"paged_kv_cache", true},
        {"remove_input_padding", true},
        {"use_paged_context_fmha", true},
        {"tokens_per_block", 64},
        {"lora_plugin", limits.lora == LoraLimits{} ? nlohmann::json()
                                                    : nlohmann::json(DTypeName(config.dtype))}}}};
}

Result<EngineLimits> LimitsFromJson(const nlohmann::json& json, const std::string& where) {
  artifact::JsonFields fields(where, json);
  EngineLimits limits;
  limits.max_batch_size = static_cast<int>(fields.Int("max_batch_size", 1, kMaxBatchSize));
  limits.max_num_tokens = static_cast<int>(fields.Int("max_num_tokens", 1, kMaxNumTokens));
  limits.max_seq_len = static_cast<int>(fields.Int("max_seq_len", 1, kMaxSeqLen));
  limits.max_input_len = static_cast<int>(fields.Int("max_input_len", 1, kMaxSeqLen));
  limits.max_beam_width = static_cast<int>(fields.IntOr("max_beam_width", 1, 1, kMaxBeamWidth));
  limits.max_draft_len = static_cast<int>(fields.IntOr("max_draft_len", 0, 0, kMaxDraftLen));
  limits.max_prompt_embedding_table_size =
      static_cast<int>(fields.IntOr("max_prompt_embedding_table_size", 0, 0, kMaxPromptRows));
  const nlohmann::json* const lora = fields.FindObject("lora_config");
  RETURN_IF_ERROR(fields.status());
  if (lora != nullptr) {
    ASSIGN_OR_RETURN(limits.lora, LoraFromJson(*lora, where + ": build_config: lora_config"));
  }
  return limits;
}

}  // namespace inflight::model

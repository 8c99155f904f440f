// SPDX-License-Identifier: Apache-2.0
#include "builder/engine_config.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "artifact/checkpoint.h"
#include "artifact/json_file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/model_files.h"
#include "builder/tensorrt_engine.h"
#include "inflight/version.h"
#include "model/config_json.h"

namespace inflight::builder {
namespace {

constexpr char kRankChecksums[] = "rank_checksums";
constexpr int64_t kMaxFormat = 1 << 30;

// An engine without the key is of format 1.
Status CheckFormat(artifact::JsonFields& fields) {
  const int64_t format = fields.IntOr("format", 1, 1, kMaxFormat);
  const std::string release = fields.StringOr("version", "");
  RETURN_IF_ERROR(fields.status());
  if (format <= kEngineConfigFormat) return Status::Ok();
  return {
      StatusCode::kFailedPrecondition,
      fmt::format("{}: format: got {}, Inflight {} reads formats up to {}; run the release that "
                  "built the engine, {}, or a later one, or {}",
                  fields.where(), format, kVersion, kEngineConfigFormat, release, kRebuild)};
}

std::optional<uint64_t> ChecksumOf(const nlohmann::json& value) {
  constexpr size_t kDigits = 16;
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  uint64_t checksum = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), checksum, 16);
  if (text.size() != kDigits || error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return checksum;
}

Result<std::vector<uint64_t>> ReadChecksums(const artifact::JsonFields& fields, int num_ranks) {
  const nlohmann::json* value = fields.Find(kRankChecksums);
  const nlohmann::json none = nlohmann::json::array();
  std::vector<uint64_t> checksums;
  for (const nlohmann::json& element : value != nullptr && value->is_array() ? *value : none)
    if (const auto checksum = ChecksumOf(element)) checksums.push_back(*checksum);
  if (value != nullptr && value->size() == static_cast<size_t>(num_ranks) &&
      checksums.size() == static_cast<size_t>(num_ranks))
    return checksums;
  return InvalidArgument(fmt::format(
      "{}: {}: got {}, {} checksums of 16 hexadecimal digits are needed, one for each rank of the "
      "mapping; {}",
      fields.where(), kRankChecksums, value == nullptr ? "none" : artifact::Abbreviate(*value),
      num_ranks, kRebuild));
}

// Of engines with several ranks; `where` names the object of the mapping.
Status ReadRanks(const artifact::JsonFields& fields, const nlohmann::json& pretrained,
                 const std::string& where, EngineConfig& config) {
  ASSIGN_OR_RETURN(const artifact::RankMapping ranks, artifact::ReadMapping(pretrained, where));
  if (ranks.num_ranks() == 1) return Status::Ok();
  ASSIGN_OR_RETURN(config.sharding, ReadSharding(pretrained, config.model, where));
  if (!config.sharding.use_parallel_embedding || config.sharding.embedding_sharding_dim != 0)
    return InvalidArgument(
        fmt::format("{}: an engine of several ranks has use_parallel_embedding and "
                    "embedding_sharding_dim 0; {}",
                    where, kRebuild));
  ASSIGN_OR_RETURN(config.rank_checksums, ReadChecksums(fields, ranks.num_ranks()));
  return Status::Ok();
}

}  // namespace

Result<EngineConfig> ReadEngineConfig(const std::filesystem::path& dir) {
  RETURN_IF_ERROR(RefuseTensorRtEngine(dir));
  const std::filesystem::path path = dir / artifact::kConfigFile;
  ASSIGN_OR_RETURN(const nlohmann::json json, artifact::ReadJsonFile(path));
  artifact::JsonFields fields(path.string(), json);
  for (const char* name : {"version", "pretrained_config", "build_config"})
    if (!fields.Has(name)) fields.Fail(name, fmt::format("is missing; {}", kRebuild));
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(CheckFormat(fields));
  const nlohmann::json& pretrained = *fields.Find("pretrained_config");
  const std::string where = path.string() + ": pretrained_config";
  EngineConfig config;
  ASSIGN_OR_RETURN(config.model, model::ConfigFromCheckpoint(pretrained, where));
  RETURN_IF_ERROR(ReadRanks(fields, pretrained, where, config));
  ASSIGN_OR_RETURN(config.limits, model::LimitsFromJson(*fields.Find("build_config"),
                                                        path.string() + ": build_config"));
  // What can be asked of an engine is what was built; a hand-edited limit meets the same bounds.
  Result<model::EngineLimits> limits = model::ResolveLimits(config.model, config.limits);
  if (!limits.ok()) return limits.status().WithPrefix(path.string());
  config.limits = *limits;
  return config;
}

Status WriteEngineConfig(const std::filesystem::path& dir, const EngineConfig& config,
                         const nlohmann::json* further) {
  if (TokenizerDir(dir).empty())
    logging::Warning("the engine has no tokenizer; name one with tokenizer_dir",
                     {{"path", dir.string()}});
  nlohmann::json pretrained_config = model::ConfigToCheckpoint(config.model);
  const bool has_ranks = !config.rank_checksums.empty();
  if (has_ranks) WriteSharding(config.sharding, pretrained_config);
  if (further != nullptr) pretrained_config.update(*further);
  nlohmann::json json = {{"format", kEngineConfigFormat},
                         {"version", kVersion},
                         {"pretrained_config", std::move(pretrained_config)},
                         {"build_config", model::LimitsToJson(config.model, config.limits)}};
  for (const uint64_t checksum : config.rank_checksums)
    json[kRankChecksums].push_back(fmt::format("{:016x}", checksum));
  return artifact::WriteConfig(dir, json);
}

}  // namespace inflight::builder

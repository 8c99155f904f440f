// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/text_files.h"

#include <cmath>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "json/json_reader.h"

namespace inflight::serving {
namespace {

using json::Value;

std::optional<float> Number(const std::optional<Value>& value, double low, double high) {
  if (!value || value->kind() != Value::Kind::kNumber) return std::nullopt;
  const auto number = value->AsDouble();
  if (!number.ok() || !(*number >= low && *number <= high)) return std::nullopt;
  return static_cast<float>(*number);
}

Result<SamplingDefaults> ReadDefaults(const std::filesystem::path& path) {
  SamplingDefaults defaults;
  if (!FileExists(path)) return defaults;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(const Value root, Value::Parse(text));
  constexpr std::array<std::string_view, 6> kNames = {
      "do_sample", "temperature", "top_p", "top_k", "min_p", "repetition_penalty"};
  const auto found = root.Pick(kNames);
  if (found[0] && found[0]->kind() == Value::Kind::kBool) {
    ASSIGN_OR_RETURN(defaults.do_sample, found[0]->AsBool());
  }
  constexpr double kMostK = 1 << 30;
  defaults.temperature = Number(found[1], 0, 1e6);
  defaults.top_p = Number(found[2], 0, 1);
  if (const auto top_k = Number(found[3], 0, kMostK)) defaults.top_k = std::lround(*top_k);
  defaults.min_p = Number(found[4], 0, 1);
  defaults.repetition_penalty = Number(found[5], 1e-6, 1e6);
  return defaults;
}

}  // namespace

Result<TextFiles> ReadTextFiles(const std::filesystem::path& dir,
                                const std::string& template_file) {
  TextFiles files;
  auto loaded = ChatTemplate::Load(dir, template_file);
  if (!loaded.ok() && !template_file.empty()) return loaded.status().WithPrefix("--chat-template");
  if (loaded.ok()) {
    files.chat_template = *std::move(loaded);
  } else {
    files.no_chat_template = loaded.status();
    if (loaded.status().code() != StatusCode::kNotFound)
      logging::Warning("the model's chat template cannot be used: its conversations are refused",
                       {{"reason", loaded.status().message()}});
  }
  auto defaults = ReadDefaults(dir / "generation_config.json");
  if (defaults.ok()) {
    files.defaults = *defaults;
  } else {
    logging::Warning("generation_config.json is not read: requests say how tokens are drawn",
                     {{"reason", defaults.status().message()}});
  }
  return files;
}

}  // namespace inflight::serving

// SPDX-License-Identifier: Apache-2.0
#include "parameters/model_defaults.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace inflight::parameters {
namespace {

using nlohmann::json;

constexpr char kGenerationFile[] = "generation_config.json";
constexpr uint64_t kMaxGenerationFileBytes = uint64_t{1} << 20;

std::optional<double> NumberOf(const json& object, const char* name, double low, double high) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  const double number = found->get<double>();
  if (!(number >= low && number <= high)) return std::nullopt;
  return number;
}

std::optional<float> FloatOf(const json& object, const char* name, double low, double high) {
  const auto number = NumberOf(object, name, low, high);
  return number ? std::optional(static_cast<float>(*number)) : std::nullopt;
}

std::optional<int> IntOf(const json& object, const char* name, double low) {
  constexpr double kMost = 1 << 30;
  const auto number = NumberOf(object, name, low, kMost);
  return number ? std::optional(static_cast<int>(std::lround(*number))) : std::nullopt;
}

}  // namespace

std::string ModelDefaults::ToString() const {
  std::string text;
  const auto add = [&](const char* name, const auto& value) {
    if (value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
  };
  add("do_sample", do_sample);
  add("temperature", temperature);
  add("top_p", top_p);
  add("top_k", top_k);
  add("min_p", min_p);
  add("repetition_penalty", repetition_penalty);
  add("max_new_tokens", max_new_tokens);
  return text;
}

Result<ModelDefaults> ReadModelDefaults(const std::filesystem::path& dir) {
  ModelDefaults defaults;
  const std::filesystem::path path = dir / kGenerationFile;
  if (dir.empty() || !FileExists(path)) return defaults;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxGenerationFileBytes));
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return InvalidArgument(path.string() + ": is no JSON object");
  if (const auto found = root.find("do_sample"); found != root.end() && found->is_boolean())
    defaults.do_sample = found->get<bool>();
  defaults.temperature = FloatOf(root, "temperature", 0, 1e6);
  defaults.top_p = FloatOf(root, "top_p", 0, 1);
  defaults.top_k = IntOf(root, "top_k", 0);
  defaults.min_p = FloatOf(root, "min_p", 0, 1);
  defaults.repetition_penalty = FloatOf(root, "repetition_penalty", 1e-6, 1e6);
  defaults.max_new_tokens = IntOf(root, "max_new_tokens", 1);
  return defaults;
}

ModelDefaults ReadModelDefaultsOrWarn(const std::filesystem::path& dir) {
  const auto defaults = ReadModelDefaults(dir);
  if (defaults.ok()) return *defaults;
  logging::Warning("generation_config.json is not read: requests say how tokens are drawn",
                   {{"reason", defaults.status().message()}});
  return {};
}

void SetDrawing(const Drawing& asked, const ModelDefaults& model, Unsaid unsaid,
                SamplingParams& sampling) {
  if (asked.says_nothing()) {
    const bool model_draws = model.do_sample.value_or(
        model.temperature || model.top_p || model.top_k || model.min_p || unsaid == Unsaid::kDraw);
    if (!model_draws) return;
  }
  const float temperature = asked.temperature.value_or(model.temperature.value_or(1.0F));
  const float top_p = asked.top_p.value_or(model.top_p.value_or(1.0F));
  const int top_k = asked.top_k.value_or(model.top_k.value_or(0));
  if (temperature == 0 || top_p == 0) {  // the likeliest, whatever else is asked
    sampling.temperature = 0.0F;
    return;
  }
  sampling.temperature = temperature;
  if (top_k > 0) sampling.top_k = top_k;
  if (top_k <= 0 || top_p < 1) sampling.top_p = top_p;
  if (const auto min_p = asked.min_p ? asked.min_p : model.min_p; min_p && *min_p > 0)
    sampling.min_p = min_p;
}

void SetSampling(const ModelDefaults& model, SamplingParams& sampling) {
  if (!sampling.repetition_penalty && model.repetition_penalty && *model.repetition_penalty != 1)
    sampling.repetition_penalty = model.repetition_penalty;
  if (sampling.beam_width > 1) return;
  Drawing asked = {.temperature = sampling.temperature,
                   .top_p = sampling.top_p,
                   .top_k = sampling.top_k,
                   .min_p = sampling.min_p};
  if (asked.top_p == 0.0F) asked.top_p = 1.0F;
  sampling.temperature = sampling.top_p = sampling.min_p = std::nullopt;
  sampling.top_k = std::nullopt;
  SetDrawing(asked, model, Unsaid::kLikeliest, sampling);
}

uint64_t RandomSeed() {
  thread_local std::mt19937_64 random{std::random_device()()};
  return random() >> 11;
}

}  // namespace inflight::parameters

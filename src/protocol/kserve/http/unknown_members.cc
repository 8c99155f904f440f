// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/unknown_members.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "config/schema.h"

namespace inflight::kserve_http {
namespace {

constexpr size_t kMostNamed = 8;
constexpr size_t kMostChars = 64;

// docs/reference/protocol/common.md, "Request parameters".
constexpr std::string_view kParameters[] = {
    "id",         "sequence_id", "sequence_start",     "sequence_end",
    "priority",   "timeout",     "binary_data_output", "headers",
    "cache_salt", "lora_name",   "prompt_task",        "include_stop_str_in_output"};

bool IsKnown(const serving::Model& model, std::string_view name) {
  if (std::ranges::find(kParameters, name) != std::end(kParameters)) return true;
  const auto& inputs = model.config().input();
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](const auto& input) { return input.name() == name; });
}

// The client's bytes are no header.
std::string Shown(std::string_view name) {
  std::string shown(name.substr(0, kMostChars));
  for (char& c : shown)
    if (c < ' ' || c > '~' || c == '\'') c = '?';
  return shown;
}

}  // namespace

std::string UnknownMembers(const serving::Model& model, const serving::Parameters& parameters) {
  std::string text;
  if (parameters.empty() || model.text() == nullptr) return text;
  std::vector<std::string> known;
  size_t count = 0;
  for (const auto& [name, value] : parameters) {
    if (IsKnown(model, name)) continue;
    if (++count > kMostNamed) break;
    if (known.empty()) {
      for (const std::string_view parameter : kParameters) known.emplace_back(parameter);
      for (const auto& input : model.config().input()) known.push_back(input.name());
    }
    const auto nearest = config::Nearest(name.substr(0, kMostChars), known);
    if (!text.empty()) text += "; ";
    text += "'" + Shown(name) + "' is not known";
    if (nearest) text += ", did you mean '" + *nearest + "'?";
  }
  if (count > kMostNamed) text += "; and others";
  return text;
}

}  // namespace inflight::kserve_http

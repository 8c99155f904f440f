// SPDX-License-Identifier: Apache-2.0
#include "lora_options.h"

#include <algorithm>
#include <sstream>

#include "base/status_macros.h"

namespace inflight::tool {
namespace {

constexpr int kUpstreamRank = 64;

std::string KnownModules() {
  std::string names;
  for (int i = 0; i < model::kNumLoraModules; ++i)
    names += (i > 0 ? ", " : "") + std::string(model::kLoraModuleNames[static_cast<size_t>(i)]);
  return names;
}

Status AddModule(const std::string& name, uint32_t* modules) {
  const auto end = model::kLoraModuleNames.begin() + model::kNumLoraModules;
  const auto found = std::find(model::kLoraModuleNames.begin(), end, name);
  if (found == end)
    return InvalidArgument("--lora-target-modules",
                           "got '" + name + "', supported are " + KnownModules());
  *modules |= 1U << (found - model::kLoraModuleNames.begin());
  return Status::Ok();
}

}  // namespace

Result<model::LoraLimits> LoraOptions::Limits(std::span<const std::string> more) const {
  model::LoraLimits limits;
  const bool has_plugin = plugin != "disable" && plugin != "false";
  if (has_plugin || !target_modules.empty()) limits.max_rank = kUpstreamRank;
  limits.max_rank = max_rank.value_or(limits.max_rank);
  if (target_modules.empty()) return limits;
  limits.modules = 0;
  for (const std::string& word : target_modules) {
    std::string names = word;
    std::ranges::replace(names, ',', ' ');
    std::istringstream stream(names);
    for (std::string name; stream >> name;) RETURN_IF_ERROR(AddModule(name, &limits.modules));
  }
  for (const std::string& name : more) RETURN_IF_ERROR(AddModule(name, &limits.modules));
  return limits;
}

}  // namespace inflight::tool

// SPDX-License-Identifier: Apache-2.0
#include "hub/find_or_pull.h"

#include <fmt/format.h>

#include <utility>

#include "artifact/hub_cache.h"
#include "base/log.h"
#include "hub/pull.h"

namespace inflight::hub {

Result<std::filesystem::path> FindOrPull(const std::filesystem::path& argument,
                                         const HubOptions& options) {
  auto found = artifact::ResolveModelDir(argument, options.environment);
  const auto id = artifact::ParseHubId(argument.string());
  if (found.ok() || found.status().code() != StatusCode::kNotFound || !id) return found;
  const artifact::HubCache cache = artifact::FindHubCache(options.environment);
  logging::Info("a model is downloaded from the hub",
                {{"model", id->ToString()}, {"cache", cache.dir.string()}});
  auto pulled = Pull(*id, options);
  if (pulled.ok()) return std::move(pulled->path);
  return pulled.status().WithPrefix(fmt::format(
      "{}: no such directory, it is not in the Hugging Face cache ({}, by {}), and --download "
      "gets it from no hub",
      argument.string(), cache.dir.string(), cache.why));
}

}  // namespace inflight::hub

// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/access/restriction.h"

#include <algorithm>

namespace inflight::kserve {
namespace {

constexpr std::array<std::string_view, kNumApis> kNames = {
    "health",           "metadata",   "inference", "shared-memory", "model-config",
    "model-repository", "statistics", "trace",     "logging"};

Status Bad(const std::string& rule, const std::string& why) {
  return InvalidArgument("restricted API '" + rule + "': " + why +
                         "; expected is <api>[,<api>...]:<header>=<value>");
}

}  // namespace

Result<Restrictions> Restrictions::Parse(const std::vector<std::string>& rules) {
  Restrictions parsed;
  for (const std::string& rule : rules) {
    const size_t colon = rule.find(':');
    const size_t equals = rule.find('=', colon == std::string::npos ? 0 : colon);
    if (colon == std::string::npos || equals == std::string::npos || equals == colon + 1) {
      return Bad(rule, "it names no header and value");
    }
    const RequiredHeader header{rule.substr(colon + 1, equals - colon - 1),
                                rule.substr(equals + 1)};
    std::string_view apis = std::string_view(rule).substr(0, colon);
    while (true) {
      const size_t comma = std::min(apis.find(','), apis.size());
      const std::string_view name = apis.substr(0, comma);
      const auto found = std::find(kNames.begin(), kNames.end(), name);
      if (found == kNames.end()) return Bad(rule, "unknown API '" + std::string(name) + "'");
      auto& place = parsed.headers_[static_cast<size_t>(found - kNames.begin())];
      if (place) return Bad(rule, "'" + std::string(name) + "' is restricted by another rule");
      place = header;
      if (comma == apis.size()) break;
      apis.remove_prefix(comma + 1);
    }
  }
  return parsed;
}

std::string Restrictions::NotIn(const Restrictions& other) const {
  std::string names;
  for (size_t i = 0; i < kNumApis; ++i) {
    if (!headers_[i] || other.headers_[i]) continue;
    names.append(names.empty() ? "" : ", ").append(kNames[i]);
  }
  return names;
}

}  // namespace inflight::kserve

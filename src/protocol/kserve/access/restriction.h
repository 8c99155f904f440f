// SPDX-License-Identifier: Apache-2.0
// APIs that are open only to clients who know a header and its value
// (docs/reference/protocol/common.md, "Restricted APIs").
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::kserve {

enum class Api : uint8_t {
  kHealth,
  kMetadata,
  kInference,
  kSharedMemory,
  kModelConfig,
  kModelRepository,
  kStatistics,
  kTrace,
  kLogging,
};
inline constexpr size_t kNumApis = 9;

struct RequiredHeader {
  std::string name;
  std::string value;
};

class Restrictions {
 public:
  // Each rule is "<api>[,<api>...]:<header>=<value>". kInvalidArgument names the rule and what is
  // wrong with it; an API may be restricted once.
  static Result<Restrictions> Parse(const std::vector<std::string>& rules);

  // Null where the API is open to all.
  const RequiredHeader* Of(Api api) const {
    const auto& header = headers_[static_cast<size_t>(api)];
    return header ? &*header : nullptr;
  }

  // Names of the APIs that are restricted here and open there: "inference, logging".
  std::string NotIn(const Restrictions& other) const;

 private:
  std::array<std::optional<RequiredHeader>, kNumApis> headers_;
};

}  // namespace inflight::kserve

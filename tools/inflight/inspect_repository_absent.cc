// SPDX-License-Identifier: Apache-2.0
// A build without the server (-DINFLIGHT_SERVER=OFF) knows no repositories.
#include "inspect_repository.h"

namespace inflight::tool {

std::optional<Status> InspectRepository(const std::filesystem::path&, const OpenOptions&, bool) {
  return std::nullopt;
}

}  // namespace inflight::tool
